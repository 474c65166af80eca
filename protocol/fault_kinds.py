"""What can go wrong with a provider call, what it says about whom, and what to do: the kind decides both."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class FaultScope(StrEnum):
    """What the fault invalidates: another call is in danger only if it shares this."""

    REQUEST = "request"
    MODEL = "model"
    CREDENTIAL = "credential"
    ENDPOINT = "endpoint"
    ACCOUNT = "account"
    LOCAL = "local"
    """This machine; the provider had no part in it."""


class FaultAction(StrEnum):
    """Whose move it is."""

    RETRY = "retry"
    """Ours, soon: the same request may pass."""
    WAIT = "wait"
    """The broker's: the budget pauses, and the broker says when to try again."""
    COMPRESS = "compress"
    """The agent's: a shorter request may pass, if this one is long at all."""
    FIX = "fix"
    """Ours, once: mend the request and send it again."""
    ROTATE = "rotate"
    """Another credential; without one, stop."""
    FAIL_OVER = "fail_over"
    """Another destination; without one, stop."""
    STOP = "stop"
    """The owner's: no repetition helps until somebody changes something."""


class FaultKind(StrEnum):
    """What went wrong."""

    AUTH = "auth"
    """The key is missing, wrong or expired."""
    FORBIDDEN = "forbidden"
    """The key is good and may not do this."""
    BLOCKED = "blocked"
    """Something in front of the provider refused us."""
    NO_BALANCE = "no_balance"
    """Nothing left to pay with, or a plan's key at the URL of another plan."""
    PLAN_EXPIRED = "plan_expired"
    MODEL_NOT_IN_PLAN = "model_not_in_plan"
    LOCKED = "locked"
    """The account is closed to us until its owner acts; further calls may make it worse."""
    CONCURRENCY = "concurrency"
    """Too many calls at once."""
    RATE = "rate"
    """Too many calls or tokens in a time."""
    QUOTA = "quota"
    """The allowance of a window is used up until the window ends."""
    OVERLOADED = "overloaded"
    """The provider has too much to do; not our doing."""
    MODEL_BUSY = "model_busy"
    UPSTREAM_LIMITED = "upstream_limited"
    """The aggregator is well and so is our key: the provider behind it has had enough of the aggregator."""
    CONTEXT_OVERFLOW = "context_overflow"
    """More tokens than the model takes."""
    PAYLOAD_TOO_LARGE = "payload_too_large"
    """More bytes than the endpoint takes."""
    MALFORMED_HISTORY = "malformed_history"
    """The messages are not in the order or shape the provider wants."""
    BAD_REQUEST = "bad_request"
    OUTPUT_TOO_LONG = "output_too_long"
    """A longer answer was asked for than the model gives."""
    UNAFFORDABLE = "unaffordable"
    """The account can pay for a shorter answer only."""
    REASONING_MANDATORY = "reasoning_mandatory"
    """The model thinks, and does not let itself be told not to."""
    REASONING_REFUSED = "reasoning_refused"
    """The model does not know this effort, or none at all."""
    SIGNATURE_REFUSED = "signature_refused"
    """A signed or encrypted block of an earlier answer is not accepted back."""
    SCHEMA_REFUSED = "schema_refused"
    """A tool's schema says more than this endpoint understands."""
    NAME_REFUSED = "name_refused"
    """A tool's name is not to the provider's taste."""
    ROLES_REFUSED = "roles_refused"
    """The roles of the messages do not alternate as the provider wants it."""
    CACHE_REFUSED = "cache_refused"
    """Breakpoints or keys of the prompt cache are not accepted."""
    IMAGE_REFUSED = "image_refused"
    """An image that is too large, broken, or not wanted where it stands."""
    CONTENT_POLICY = "content_policy"
    PROVIDER_POLICY = "provider_policy"
    """A setting of the account or a rule of the aggregator leaves nobody who may serve this model."""
    MODEL_UNKNOWN = "model_unknown"
    NOT_FOUND = "not_found"
    """Nothing answers at this URL: it is the base URL that is wrong."""
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    """No connection: name, route, refusal, reset."""
    TLS = "tls"
    """The certificate does not verify; it will not next time either."""
    OUT_OF_FILES = "out_of_files"
    """This process or machine has no file descriptor left."""
    NOT_SENT = "not_sent"
    """This process did not send it: no connection was free in time, or the backend rests. Speaks against nobody."""
    TRUNCATED = "truncated"
    """The answer ended without its terminal fact."""
    INVALID_RESPONSE = "invalid_response"
    """A success that is not in the dialect."""
    UNKNOWN = "unknown"


OUTCOME: Final[dict[FaultKind, tuple[FaultScope, FaultAction]]] = {
    FaultKind.AUTH: (FaultScope.CREDENTIAL, FaultAction.ROTATE),
    FaultKind.FORBIDDEN: (FaultScope.CREDENTIAL, FaultAction.FAIL_OVER),
    FaultKind.BLOCKED: (FaultScope.ENDPOINT, FaultAction.FAIL_OVER),
    FaultKind.NO_BALANCE: (FaultScope.ACCOUNT, FaultAction.STOP),
    FaultKind.PLAN_EXPIRED: (FaultScope.ACCOUNT, FaultAction.STOP),
    FaultKind.MODEL_NOT_IN_PLAN: (FaultScope.MODEL, FaultAction.STOP),
    FaultKind.LOCKED: (FaultScope.ACCOUNT, FaultAction.STOP),
    FaultKind.CONCURRENCY: (FaultScope.ACCOUNT, FaultAction.WAIT),
    FaultKind.RATE: (FaultScope.ACCOUNT, FaultAction.WAIT),
    FaultKind.QUOTA: (FaultScope.ACCOUNT, FaultAction.WAIT),
    FaultKind.OVERLOADED: (FaultScope.ENDPOINT, FaultAction.WAIT),
    FaultKind.MODEL_BUSY: (FaultScope.MODEL, FaultAction.WAIT),
    # It passes; and where it is the only destination, waiting is all there is.
    FaultKind.UPSTREAM_LIMITED: (FaultScope.MODEL, FaultAction.RETRY),
    FaultKind.CONTEXT_OVERFLOW: (FaultScope.REQUEST, FaultAction.COMPRESS),
    FaultKind.PAYLOAD_TOO_LARGE: (FaultScope.REQUEST, FaultAction.COMPRESS),
    FaultKind.MALFORMED_HISTORY: (FaultScope.REQUEST, FaultAction.FIX),
    FaultKind.BAD_REQUEST: (FaultScope.REQUEST, FaultAction.STOP),
    FaultKind.OUTPUT_TOO_LONG: (FaultScope.REQUEST, FaultAction.FIX),
    # Where a shorter answer does not help either, nothing else at this account's expense does.
    FaultKind.UNAFFORDABLE: (FaultScope.ACCOUNT, FaultAction.FIX),
    FaultKind.REASONING_MANDATORY: (FaultScope.REQUEST, FaultAction.FIX),
    FaultKind.REASONING_REFUSED: (FaultScope.REQUEST, FaultAction.FIX),
    FaultKind.SIGNATURE_REFUSED: (FaultScope.REQUEST, FaultAction.FIX),
    FaultKind.SCHEMA_REFUSED: (FaultScope.REQUEST, FaultAction.FIX),
    FaultKind.NAME_REFUSED: (FaultScope.REQUEST, FaultAction.FIX),
    FaultKind.ROLES_REFUSED: (FaultScope.REQUEST, FaultAction.FIX),
    FaultKind.CACHE_REFUSED: (FaultScope.REQUEST, FaultAction.FIX),
    FaultKind.IMAGE_REFUSED: (FaultScope.REQUEST, FaultAction.STOP),
    FaultKind.CONTENT_POLICY: (FaultScope.REQUEST, FaultAction.STOP),
    FaultKind.MODEL_UNKNOWN: (FaultScope.MODEL, FaultAction.FAIL_OVER),
    FaultKind.PROVIDER_POLICY: (FaultScope.MODEL, FaultAction.FAIL_OVER),
    FaultKind.NOT_FOUND: (FaultScope.ENDPOINT, FaultAction.STOP),
    FaultKind.SERVER_ERROR: (FaultScope.ENDPOINT, FaultAction.RETRY),
    FaultKind.TIMEOUT: (FaultScope.ENDPOINT, FaultAction.RETRY),
    FaultKind.UNREACHABLE: (FaultScope.ENDPOINT, FaultAction.RETRY),
    FaultKind.TLS: (FaultScope.ENDPOINT, FaultAction.STOP),
    FaultKind.OUT_OF_FILES: (FaultScope.LOCAL, FaultAction.RETRY),
    FaultKind.NOT_SENT: (FaultScope.LOCAL, FaultAction.RETRY),
    FaultKind.TRUNCATED: (FaultScope.ENDPOINT, FaultAction.RETRY),
    FaultKind.INVALID_RESPONSE: (FaultScope.ENDPOINT, FaultAction.RETRY),
    # An unknown axis never speaks against another backend: only this request is in doubt.
    FaultKind.UNKNOWN: (FaultScope.REQUEST, FaultAction.RETRY),
}


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One failed call. `message` is the provider's own word: one line, at most 300 characters."""

    kind: FaultKind
    scope: FaultScope
    action: FaultAction
    message: str
    code: str | None = None
    """The business code, as text whatever it was on the wire."""
    status: int | None = None
    """The HTTP status, or the one an error inside a 200 stream states."""
    retry_after_s: float | None = None
    """What `Retry-After` asks for, counted from the answer."""
    resets_at: float | None = None
    """When the used-up window ends, in Unix seconds, if the message tells."""
    window_s: float | None = None
    """How long the used-up window is, if the message or the code tells."""
    limit_tokens: int | None = None
    """The bound in tokens the message names: the window (`CONTEXT_OVERFLOW`), the longest answer (`OUTPUT_TOO_LONG`),
    what the account can pay for (`UNAFFORDABLE`)."""
    fingerprint: str | None = None
    """Of an error nobody knows: the same for the same text with other numbers and ids in it."""

    @property
    def summary(self) -> str:
        """The fault in one line for logs and rows: kind, code or status, message."""
        mark = self.code or (str(self.status) if self.status is not None else None)
        return f"{self.kind} ({mark}): {self.message}" if mark else f"{self.kind}: {self.message}"
