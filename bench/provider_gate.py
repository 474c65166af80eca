"""Whether a call is taken on: the moods, applied to one account after the other.

Pure: the caller passes `now` (seconds since the provider's start) and counts. First comes what no waiting mends, then
quota, then what passes by itself; room is looked at last, so that a 1302 always means that a slot is missing.
"""

from __future__ import annotations

import re
from collections import deque

import msgspec

from .provider_errors import Refusal, quota_refusal, refusal
from .provider_knobs import Knobs
from .provider_moods import Bodies, Moods
from .provider_options import ProviderOptions
from .provider_quota import Quota, QuotaLimit
from .provider_room import Room
from .provider_unfit import unfit


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """A call that wants to be taken on."""

    account: str
    key: str
    model: str
    texts: tuple[str, ...] = ()
    """All that its messages say."""
    prompt_tokens: int = 0
    knobs: Knobs = Knobs()
    plan_url: bool | None = None
    """Whether the URL is one of the coding plan; None where the kind of key does not matter."""


class _Account:
    """What is remembered of one account."""

    def __init__(self) -> None:
        self.started: deque[float] = deque()
        self.refused: deque[float] = deque()
        self.is_locked = False


class Gate:
    """Lets calls in or refuses them. Owned by the loop thread."""

    def __init__(self, options: ProviderOptions, moods: Moods, *, started_unix: float) -> None:
        self._options = options
        self._started_unix = started_unix
        self._room = Room()
        self._accounts: dict[str, _Account] = {}
        self._taken_on = 0
        self._overload_since, self._overload_told = 0.0, 0
        self._quota = Quota(moods.windows, since=started_unix)
        self._keys = re.compile(moods.plan_keys)
        self.moods = moods

    def set_moods(self, moods: Moods, *, now: float) -> None:
        """From now on it is like this; seconds that a mood counts begin now. Calls in flight stay counted.

        An overload or windows that stay as they are go on: their seconds, and what was used.
        """
        if moods.overload != self.moods.overload:
            self._overload_since, self._overload_told = now, 0
        if moods.windows != self.moods.windows:
            self._quota = Quota(moods.windows, since=self._started_unix + now)
        self._keys = re.compile(moods.plan_keys)
        self.moods = moods

    def unlock(self) -> None:
        """Take every fair-use lock away, and the refusals that led to it."""
        for account in self._accounts.values():
            account.is_locked = False
            account.refused.clear()

    def is_locked(self, account: str) -> bool:
        """Whether the account is locked with 1313."""
        return account in self._accounts and self._accounts[account].is_locked

    def limit(self) -> int:
        """Calls in flight that one account may have."""
        return self._options.limit if self.moods.limit is None else self.moods.limit

    def refusal(self, asking: Asking, *, now: float) -> Refusal | None:
        """Why the call is refused; None if it may come in."""
        return (
            self._for_good(asking)
            or unfit(moods=self.moods, knobs=asking.knobs, prompt_tokens=asking.prompt_tokens)
            or self._out_of_quota(asking, now)
            or self._overloaded(asking, now)
            or self._too_often(asking, now)
            or self._no_room(asking, now)
        )

    def key_refusal(self, key: str) -> Refusal | None:
        """Why nothing is told to who shows this key; None if it is good."""
        codes = self.moods.refused_keys.items()
        return next((self._error(str(code)) for pattern, code in codes if re.search(pattern, key)), None)

    def enter(self, call: int, asking: Asking, *, now: float) -> None:
        """Count a call in flight. The caller has asked whether it may come in."""
        self._room.enter(call, asking.account, asking.model)
        self._taken_on += 1
        if self.moods.rpm is not None:
            self._account(asking.account).started.append(now)

    def leave(self, call: int, *, now: float) -> None:
        """A call has ended: its room is free once the lag is over. Ending one twice changes nothing."""
        self._room.leave(call, at=now + self.moods.release_lag_ms / 1000)

    def refused(self, account: str, *, now: float) -> None:
        """A call was refused with HTTP 429 or alike: too many of them lock the account."""
        rule = self.moods.fair_use
        if rule is None or self.is_locked(account):
            return
        state = self._account(account)
        state.refused.append(now)
        _forget(state.refused, before=now - rule.within_s)
        if len(state.refused) >= rule.refusals:
            state.is_locked = True

    def spend(self, account: str, tokens: int, *, now: float) -> None:
        """Take tokens from the account's windows."""
        self._quota.spend(account, tokens, now=self._started_unix + now)

    def quota(self, account: str, *, now: float) -> tuple[QuotaLimit, ...]:
        """What the quota endpoint shows."""
        return self._quota.report(account, now=self._started_unix + now)

    def headers_delay_s(self, asking: Asking, *, now: float) -> float:
        """How much later the first byte comes because of the account's other calls; the call itself has entered."""
        taken, _ = self._room.taken(asking.account, asking.model, now=now)
        return max(0, taken - 1) * self.moods.headers_ms_per_call / 1000

    def dying_body(self) -> Bodies | None:
        """How the body of the call that enters next dies; None if it lives."""
        bodies = self.moods.bodies
        return bodies if bodies is not None and (self._taken_on + 1) % bodies.every == 0 else None

    def _for_good(self, asking: Asking) -> Refusal | None:
        moods = self.moods
        if (refused := self.key_refusal(asking.key)) is not None:
            return refused
        if asking.plan_url is not None and asking.plan_url != (self._keys.search(asking.key) is not None):
            return self._error("1113")
        if self.is_locked(asking.account):
            return self._error("1313")
        if moods.plan_expired:
            return self._error("1309")
        if asking.model in moods.refused_models:
            return self._error(str(moods.refused_models[asking.model]))
        if any(phrase in text for phrase in moods.cursed for text in asking.texts):
            return self._error("1305")
        return None

    def _out_of_quota(self, asking: Asking, now: float) -> Refusal | None:
        full = self._quota.exhausted(asking.account, now=self._started_unix + now) if self.moods.windows else None
        if full is None:
            return None
        return quota_refusal(
            full.code, number=full.number, unit=full.unit, resets_at=full.resets_at, language=self.moods.language
        )

    def _overloaded(self, asking: Asking, now: float) -> Refusal | None:
        mood = self.moods.overload
        if mood is None:
            return None
        since = now - self._overload_since
        if since < mood.from_s or (mood.to_s is not None and since >= mood.to_s):
            return None
        if mood.answers is not None and self._overload_told >= mood.answers:
            return None
        self._overload_told += 1
        return self._error(str(mood.code), status=mood.status)

    def _too_often(self, asking: Asking, now: float) -> Refusal | None:
        rule = self.moods.rpm
        if rule is None:
            return None
        started = self._account(asking.account).started
        _forget(started, before=now - rule.window_s)
        if len(started) < rule.requests:
            return None
        return refusal(str(rule.code), "Rate limit reached for requests" if str(rule.code) == "1302" else None)

    def _no_room(self, asking: Asking, now: float) -> Refusal | None:
        moods = self.moods
        of_account, of_model = self._room.taken(asking.account, asking.model, now=now)
        if of_account < self.limit() and of_model < moods.model_limits.get(asking.model, of_model + 1):
            return None
        code = self._options.over_code if moods.limit_code is None else str(moods.limit_code)
        wait = self._options.retry_after_s
        told = self._error(code)
        return told if wait is None else msgspec.structs.replace(told, headers={"Retry-After": str(wait)})

    def _error(self, code: str, *, status: int | None = None) -> Refusal:
        return refusal(code, status=status, language=self.moods.language)

    def _account(self, name: str) -> _Account:
        return self._accounts.setdefault(name, _Account())


def _forget(moments: deque[float], *, before: float) -> None:
    while moments and moments[0] <= before:
        moments.popleft()
