"""Every error covey raises on purpose, split by whose move it is.

`retryable` is the advice to the caller: the same request may succeed later without anybody changing anything.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal


class CoveyError(Exception):
    """Base of all errors raised on purpose."""

    retryable: ClassVar[bool] = False


# --- the caller's move -----------------------------------------------------------------------------------------------


class UsageError(CoveyError):
    """A command line or an argument that cannot be meant; nothing was done."""


class ConfigError(CoveyError):
    """A configuration value that is refused; the file was not touched.

    `file`, `line` (1-based, None for a missing file), `key` and `valid` say where and what would be accepted.
    """

    def __init__(self, problem: str, *, file: str, line: int | None, key: str | None, valid: str) -> None:
        place = f"{file}:{line}" if line is not None else file
        at = f" {key}:" if key else ""
        super().__init__(f"{place}:{at} {problem}; valid: {valid}")
        self.problem, self.file, self.line, self.key, self.valid = problem, file, line, key, valid


class ConfigErrors(ConfigError):
    """Several refused values of one file, in the order of the file; the fields are those of the first."""

    def __init__(self, errors: tuple[ConfigError, ...]) -> None:
        first = errors[0]
        super().__init__(first.problem, file=first.file, line=first.line, key=first.key, valid=first.valid)
        self.args = (f"{first} (and {len(errors) - 1} more; `covey config check` shows all)",)
        self.errors = errors


class HomeError(CoveyError):
    """The home directory, or a folder of it, cannot be used as it is; `path` was left alone."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class ConnectionSettingRefused(CoveyError):
    """A setting of how providers are reached (a certificate, a proxy) cannot be used; nothing was connected.

    `key` is the setting or the environment variable, `value` what it says (never with a password).
    """

    def __init__(self, key: str, value: str, problem: str) -> None:
        super().__init__(f"{key}: {value}: {problem}")
        self.key, self.value, self.problem = key, value, problem


class SlotReused(CoveyError):
    """A slot handle was entered a second time; the first entry is not affected."""


# --- nobody is there -------------------------------------------------------------------------------------------------


class NoFleet(CoveyError):
    """No fleet runs in this home."""

    def __init__(self, home: str) -> None:
        super().__init__(f"no fleet runs in {home}; start one with `covey up`")
        self.home = home


class FleetLost(CoveyError):
    """The fleet ended while a request to it was open; whether the request was carried out is not known."""

    retryable = True

    def __init__(self, home: str, request: str) -> None:
        super().__init__(f"the fleet in {home} ended while {request} was waiting for its answer")
        self.home, self.request = home, request


class FleetUnreachable(CoveyError):
    """No fleet answered at a network address, or none that has the expected key; nothing is known about it."""

    retryable = True

    def __init__(self, address: str, timeout_s: float) -> None:
        super().__init__(
            f"no fleet with this server key answered at {address} within {timeout_s:g} s; "
            "compare the key with its keys/server.public, and look whether its ports can be reached"
        )
        self.address, self.timeout_s = address, timeout_s


class KeyRefused(CoveyError):
    """The fleet does not let this key in, or not any more; a person there has to allow it."""

    def __init__(self, address: str) -> None:
        super().__init__(f"the fleet at {address} does not allow this key; there, run `covey keys allow NAME PUBLIC`")
        self.address = address


class NoKey(CoveyError):
    """There is no key to call a provider with: none is configured, or all of them rest until `until` (Unix seconds)."""

    def __init__(self, provider: str, problem: str, *, until: float | None = None) -> None:
        super().__init__(f"no key for provider {provider}: {problem}")
        self.provider = provider
        self.until = until


class AlreadyRunning(CoveyError):
    """Another process owns this home (or this state.db); it was left alone."""

    def __init__(self, what: str, pid: int | None) -> None:
        owner = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{what} is already owned by {owner}; stop it with `covey down`")
        self.what, self.pid = what, pid


# --- a limit ---------------------------------------------------------------------------------------------------------


class LimitError(CoveyError):
    """Refused locally by a limit; the provider was not contacted."""

    retryable = True


class SlotTimeout(LimitError):
    """No slot of `budget` became free within `timeout_s`; the place in the queue was given up."""

    def __init__(self, budget: str, timeout_s: float, queued: int) -> None:
        super().__init__(f"no slot of budget {budget} within {timeout_s:g} s ({queued} others waiting)")
        self.budget, self.timeout_s, self.queued = budget, timeout_s, queued


class BrokerSilent(SlotTimeout):
    """The broker did not answer at all within `timeout_s`; who else waits is not known (`queued` is -1)."""

    def __init__(self, budget: str, timeout_s: float) -> None:
        super().__init__(budget, timeout_s, -1)
        self.args = (f"the broker did not say anything about a slot of budget {budget} within {timeout_s:g} s",)


class SlotRevoked(LimitError):
    """The agent that asked was stopped: it gets no slot any more."""

    retryable = False

    def __init__(self, budget: str) -> None:
        super().__init__(f"no slot of budget {budget}: the agent was stopped")
        self.budget = budget


class BudgetParked(LimitError):
    """`budget` lets nobody out before `until` (Unix seconds, None if nobody knows), later than the caller would wait:
    its allowance is used up, or the provider has been overloaded for long. The provider was not contacted."""

    def __init__(self, budget: str, reason: str, *, until: float | None, queued: int) -> None:
        when = f" until {datetime.fromtimestamp(until).astimezone():%Y-%m-%d %H:%M:%S %Z}" if until is not None else ""
        super().__init__(f"budget {budget} is parked{when}: {reason} ({queued} waiting)")
        self.budget, self.reason, self.until, self.queued = budget, reason, until, queued


class BudgetLocked(LimitError):
    """The provider closed the account of `budget`; its owner has to act, then say `covey budget unlock`."""

    retryable = False

    def __init__(self, budget: str, reason: str, *, queued: int) -> None:
        super().__init__(
            f"budget {budget} is locked: {reason}; settle it with the provider, then `covey budget unlock {budget}`"
        )
        self.budget, self.reason, self.queued = budget, reason, queued


class CapReached(LimitError):
    """A cap on tokens or money leaves no room for this call: the normal end of what was allowed."""

    retryable = False

    def __init__(self, budget: str, reason: str) -> None:
        super().__init__(f"no slot of budget {budget}: {reason}")
        self.budget, self.reason = budget, reason


class RequestRefused(LimitError):
    """The provider refuses this request again and again while others pass; asking once more does not help."""

    retryable = False

    def __init__(self, budget: str, reason: str) -> None:
        super().__init__(f"budget {budget}: the provider refuses this request, not the load: {reason}")
        self.budget, self.reason = budget, reason


class QueueFull(LimitError):
    """The queue of `budget` is at its bound; the request was never in it."""

    def __init__(self, budget: str, queued: int) -> None:
        super().__init__(f"the queue of budget {budget} is full ({queued} waiting)")
        self.budget, self.queued = budget, queued


class MailboxFull(LimitError):
    """The receiver's mailbox is at its bound; `message` was not accepted and is handed back."""

    def __init__(
        self, ref: str, capacity: int, message: object, *, unit: Literal["messages", "bytes"] = "messages"
    ) -> None:
        super().__init__(f"mailbox of {ref} is full ({capacity} {unit})")
        self.ref, self.capacity, self.message, self.unit = ref, capacity, message, unit


class OutboxFull(LimitError):
    """Too many records wait for the ledger; this one was not accepted."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} records wait for the ledger; no more are taken until it answers")
        self.waiting = waiting


class LinkFull(LimitError):
    """Too much waits for the peer of a link already; this request was not accepted."""

    def __init__(self, to: str, waiting: int) -> None:
        super().__init__(f"{waiting} requests wait for {to}; no more are taken until it answers some")
        self.to, self.waiting = to, waiting


class MessageTooLarge(CoveyError):
    """A message is larger than a link carries; nothing was sent. Send less at once."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a message of {size} bytes; a link carries at most {limit}")
        self.size, self.limit = size, limit


class LinkClosed(CoveyError):
    """The link is closed, or about to be: nothing new is sent over it."""

    def __init__(self, to: str) -> None:
        super().__init__(f"the link to {to} is closed or closing; nothing new is sent over it")
        self.to = to


class AskTimeout(CoveyError):
    """The answer did not come within the deadline; a late one will be dropped."""

    retryable = True

    def __init__(self, request: str, to: str, deadline_s: float) -> None:
        super().__init__(f"{to} did not answer {request} within {deadline_s:g} s")
        self.request, self.to, self.deadline_s = request, to, deadline_s


# --- the peer's move -------------------------------------------------------------------------------------------------


class RemoteError(CoveyError):
    """The other side refused or failed; `kind` is the name of its error class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message = kind, message


class SequenceGap(CoveyError):
    """Records of a sender are missing before these; none was taken. The sender resends in order."""

    retryable = True

    def __init__(self, incarnation: str, expected: int, got: int) -> None:
        super().__init__(f"{incarnation} sent record {got} where {expected} comes next; resend from there")
        self.incarnation, self.expected, self.got = incarnation, expected, got


class ProtocolError(CoveyError):
    """Bytes from a peer that are not what was agreed; the peer's session is closed."""


# --- state.db --------------------------------------------------------------------------------------------------------


class StoreError(CoveyError):
    """state.db cannot be used as it is; nothing was written to it."""


class SchemaTooNew(StoreError):
    """state.db was written by a newer covey."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(f"{path} has schema version {found}, this covey knows {known}; install a newer covey")
        self.path, self.found, self.known = path, found, known


class ForeignDatabase(StoreError):
    """The file is a SQLite database of another program."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is a database of another program; move it away or choose another home")
        self.path = path


class StoreFull(StoreError):
    """The disk under state.db is full; the transaction was rolled back, earlier rows are intact."""

    retryable = True


class StoreReadOnly(StoreError):
    """state.db, or the file system it lies on, cannot be written to now; what was committed is intact."""

    retryable = True

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} cannot be written to; make it, and its file system, writable again")
        self.path = path


class StoreBroken(StoreError):
    """The disk under state.db failed to read, write or sync; only a ledger that is started anew trusts it again."""

    def __init__(self, path: str, finding: str) -> None:
        super().__init__(f"the disk under {path} failed ({finding}); look at it, then restart the ledger")
        self.path, self.finding = path, finding


class RemoteFileSystem(StoreError):
    """state.db would lie on a network file system, where its locks and its shared memory do not work."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"{path} is on {kind}, which state.db cannot be kept on; choose a home on a local disk")
        self.path, self.kind = path, kind


class StoreMoved(StoreError):
    """state.db, or a file that belongs to it, was replaced, moved, unlinked or truncated while it was open.

    Nothing more is written to it; records go to the journal beside it, for a ledger that is started anew.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path} {problem} while the ledger had it open; put the right file there, then restart it")
        self.path, self.problem = path, problem


class StoreDamaged(StoreError):
    """SQLite finds state.db malformed; it is left as it is for repair."""

    def __init__(self, path: str, finding: str) -> None:
        super().__init__(f"{path} is damaged ({finding}); restore a backup, the file was not changed")
        self.path, self.finding = path, finding
