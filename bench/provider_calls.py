"""What the provider saw: the ground truth that every other count is compared with.

Pure: no clock, no I/O. A call is in flight from `take` to `complete` or `abort`; the caller says when that is. Calls
in flight are a set of ids, so that ending one twice changes nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from enum import StrEnum

import msgspec

KEPT = 100_000
"""Calls that are listed; older ones stay in the sums only."""


class CallState(StrEnum):
    """How a call stands."""

    IN_FLIGHT = "in_flight"
    COMPLETED = "completed"
    """The answer's last byte was handed to the network."""
    ABORTED = "aborted"
    """The connection closed before, whoever closed it."""
    REFUSED = "refused"
    """Never taken on: answered with an error."""


class ProviderCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call as the provider saw it. Seconds count from the provider's start."""

    id: int
    status: CallState
    model: str
    """As it was asked."""
    started_s: float
    account: str = "none"
    """The key's fingerprint; `none` without a key."""
    answered_as: str | None = None
    """The model that answered, if it is another one."""
    client_request_id: str | None = None
    user_agent: str | None = None
    ended_s: float | None = None
    prompt_tokens: int = 0
    """0 for refused calls."""
    completion_tokens: int = 0
    """0 unless the call was completed."""
    usage_sent: bool = False
    """Whether the client was sent the tokens, to the last byte."""
    code: str | None = None
    """Why it was refused."""


class ProviderStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start or the last reset: calls = completed + aborted + in_flight."""

    limit: int
    """Calls in flight that one account may have."""
    calls: int
    """Calls taken on; refused ones are counted apart, by code."""
    completed: int
    aborted: int
    in_flight: int
    peak_in_flight: int
    refused: dict[str, int]
    prompt_tokens: int
    """Sum over the calls whose usage was sent, like `completion_tokens`."""
    completion_tokens: int
    unreported: int
    """Completed calls whose usage was not sent: they are in no sum."""
    started_unix: float


class CallPage(msgspec.Struct, frozen=True, kw_only=True):
    """Calls in the order of their ids; `more` says that others follow the last one."""

    calls: tuple[ProviderCall, ...]
    more: bool
    forgotten: int
    """Calls no longer listed, because too many came after them."""


class _Sums(msgspec.Struct, kw_only=True):
    peak: int = 0
    completed: int = 0
    aborted: int = 0
    unreported: int = 0
    forgotten: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)


class CallBook:
    """Counts calls. Owned by the loop thread."""

    def __init__(self, *, started_unix: float) -> None:
        self._started_unix = started_unix
        self._last_id = 0
        self._in_flight: dict[int, ProviderCall] = {}
        self.reset()

    def take(
        self,
        *,
        account: str,
        model: str,
        prompt_tokens: int,
        now: float,
        answered_as: str | None = None,
        client_request_id: str | None = None,
        user_agent: str | None = None,
    ) -> ProviderCall:
        """Count one more call in flight."""
        call = ProviderCall(
            id=self._next_id(),
            status=CallState.IN_FLIGHT,
            account=account,
            model=model,
            started_s=now,
            answered_as=answered_as,
            client_request_id=client_request_id,
            user_agent=user_agent,
            prompt_tokens=prompt_tokens,
        )
        self._in_flight[call.id] = call
        self._sums.peak = max(self._sums.peak, len(self._in_flight))
        self._list(call)
        return call

    def refuse(
        self,
        *,
        code: str,
        account: str,
        model: str,
        now: float,
        client_request_id: str | None = None,
        user_agent: str | None = None,
    ) -> ProviderCall:
        """Count a call that was not taken on."""
        self._sums.refused[code] += 1
        call = ProviderCall(
            id=self._next_id(),
            status=CallState.REFUSED,
            account=account,
            model=model,
            started_s=now,
            ended_s=now,
            client_request_id=client_request_id,
            user_agent=user_agent,
            code=code,
        )
        self._list(call)
        return call

    def complete(self, call_id: int, *, completion_tokens: int, usage_sent: bool, now: float) -> ProviderCall | None:
        """The last byte is written: the call as it ended. None, and nothing changes, if it had ended already."""
        call = self._in_flight.pop(call_id, None)
        if call is None:
            return None
        self._sums.completed += 1
        if usage_sent:
            self._sums.prompt_tokens += call.prompt_tokens
            self._sums.completion_tokens += completion_tokens
        else:
            self._sums.unreported += 1
        return self._end(
            msgspec.structs.replace(
                call,
                status=CallState.COMPLETED,
                completion_tokens=completion_tokens,
                usage_sent=usage_sent,
                ended_s=now,
            )
        )

    def abort(self, call_id: int, *, now: float) -> ProviderCall | None:
        """The connection is closed: the call as it ended. None, and nothing changes, if it had ended already."""
        call = self._in_flight.pop(call_id, None)
        if call is None:
            return None
        self._sums.aborted += 1
        return self._end(msgspec.structs.replace(call, status=CallState.ABORTED, ended_s=now))

    def reset(self) -> None:
        """Forget all ended calls; those in flight are counted as if they had just begun."""
        self._listed = OrderedDict(self._in_flight)
        self._sums = _Sums(peak=len(self._in_flight))

    def stats(self, *, limit: int) -> ProviderStats:
        """All counts, beside the limit that holds now."""
        return ProviderStats(
            limit=limit,
            calls=self._sums.completed + self._sums.aborted + len(self._in_flight),
            completed=self._sums.completed,
            aborted=self._sums.aborted,
            in_flight=len(self._in_flight),
            peak_in_flight=self._sums.peak,
            refused=dict(self._sums.refused),
            prompt_tokens=self._sums.prompt_tokens,
            completion_tokens=self._sums.completion_tokens,
            unreported=self._sums.unreported,
            started_unix=self._started_unix,
        )

    def page(self, *, after: int, limit: int) -> CallPage:
        """At most `limit` calls with an id over `after`."""
        found = [call for call in self._listed.values() if call.id > after]
        return CallPage(calls=tuple(found[:limit]), more=len(found) > limit, forgotten=self._sums.forgotten)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _list(self, call: ProviderCall) -> None:
        self._listed[call.id] = call
        if len(self._listed) > KEPT:
            self._listed.popitem(last=False)
            self._sums.forgotten += 1

    def _end(self, call: ProviderCall) -> ProviderCall:
        # A very long call may have left the list before it ended.
        if call.id in self._listed:
            self._listed[call.id] = call
        return call
