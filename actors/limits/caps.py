"""Caps on tokens and money: what may be spent is reserved before a call and settled after it.

Pure. A call spends from every cap it names: its own and the fleet's (`FLEET`, declared by the configuration, anew in
every period). Reserved is what running calls are expected to use; so calls that run side by side overshoot a cap by no
more than their estimates were wrong. A call that nobody can account for has spent what was reserved for it: unknown is
not 0.

A call that does not fit may fit later, if only reservations are in its way (`is_lasting` tells): others use less than
was expected of them, as a rule, so waiting for their ends wastes nothing, and refusing would end agents early.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final

from ...protocol.ids import CallId
from ...protocol.messages.broker import CapView
from ...protocol.settings import BudgetPeriod
from ...storage.caps import CapKept

FLEET: Final = "fleet"
"""The name of the cap that every call spends from."""

DEFAULT_TOKENS: Final = 4096
"""Reserved for a call without an estimate, or all that is left where that is less."""

CAPS_KEPT: Final = 4096
"""Caps that are remembered; of more, the ones declared first are forgotten, unless calls that run spend from them."""

LONGEST_NAME: Final = 200


@dataclass(slots=True)
class _Cap:
    kept: CapKept
    reserved_tokens: int = 0
    reserved_cost_usd: float = 0.0
    calls: int = 0

    @property
    def has_limit(self) -> bool:
        return self.kept.max_tokens is not None or self.kept.max_cost_usd is not None


@dataclass(frozen=True, slots=True)
class _Reserved:
    names: tuple[str, ...]
    tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class _Wish:
    tokens: int | None
    cost_usd: float | None
    provider: str
    model: str


class Caps:
    """Every declared cap, and what running calls reserved. Owned by the broker's book."""

    def __init__(self, kept: Iterable[CapKept] = ()) -> None:
        """Go on from what an earlier broker kept; reservations are made anew, for each lease that is outstanding."""
        self._caps = {one.name: _Cap(one) for one in kept}
        self._reserved: dict[CallId, _Reserved] = {}

    # --- declaring ---------------------------------------------------------------------------------------------------

    def declare(
        self, name: str, max_tokens: int | None = None, max_cost_usd: float | None = None, *, stamp: str | None = None
    ) -> CapKept:
        """Set what may be spent under this name; return what is to be kept. What was spent in this period stays spent.

        A new `stamp` begins a period; what still runs counts in the period in which it is settled. None: no change.
        """
        cap = self._caps.get(name)
        kept = cap.kept if cap is not None else CapKept(name=name)
        if stamp is not None and stamp != kept.stamp:
            kept = CapKept(name=name, stamp=stamp)
        kept = _with(kept, max_tokens=max_tokens, max_cost_usd=max_cost_usd)
        if cap is not None:
            cap.kept = kept
        else:
            self._caps[name] = _Cap(kept)
            self._forget_oldest()
        return kept

    def begin(self, stamp: str) -> CapKept | None:
        """Let the fleet's own cap be in this period; return what is to be kept if it has just begun."""
        cap = self._caps.get(FLEET)
        if cap is None or cap.kept.stamp == stamp:
            return None
        return self.declare(FLEET, cap.kept.max_tokens, cap.kept.max_cost_usd, stamp=stamp)

    def names(self, cap: str | None) -> tuple[str, ...]:
        """What a call spends from that names `cap`: also the fleet's, if it has a limit."""
        fleet = self._caps.get(FLEET)
        own = () if cap is None or cap == FLEET else (cap,)
        return own + ((FLEET,) if fleet is not None and fleet.has_limit else ())

    # --- one call ----------------------------------------------------------------------------------------------------

    def problem(
        self, names: Iterable[str], tokens: int | None, cost_usd: float | None, *, provider: str, model: str
    ) -> str | None:
        """Say why a call with this estimate cannot start now; None if it can.

        Without an estimate of tokens it needs `DEFAULT_TOKENS`, or what is left. Without one of its cost it can spend
        from no cap in money: the provider's configuration says no price for the model.
        """
        wish = _Wish(tokens, cost_usd, provider, model)
        return next((text for name in names if (text := self._problem(name, wish, counts_reserved=True))), None)

    def is_lasting(
        self, names: Iterable[str], tokens: int | None, cost_usd: float | None, *, provider: str, model: str
    ) -> bool:
        """Whether it could not start either if every running call had turned out to cost nothing."""
        wish = _Wish(tokens, cost_usd, provider, model)
        return any(self._problem(name, wish, counts_reserved=False) for name in names)

    def reserve(self, call: CallId, names: tuple[str, ...], tokens: int | None, cost_usd: float | None) -> None:
        """Reserve for a call that starts, whether or not it fits; once, however often it is said."""
        if call in self._reserved or not names:
            return
        wanted = self._wanted(names, tokens)
        reserved = _Reserved(names, wanted, cost_usd or 0.0)
        self._reserved[call] = reserved
        for cap in self._of(reserved):
            cap.calls += 1
            cap.reserved_tokens += reserved.tokens
            cap.reserved_cost_usd += reserved.cost_usd

    def settle(self, call: CallId, tokens: int | None, cost_usd: float | None) -> tuple[CapKept, ...]:
        """Spend what the call used; return what is to be kept. Of what is None, that is what was reserved.

        A call that reserved nothing, or is settled again, changes nothing.
        """
        found = self._end(call)
        if found is None:
            return ()
        is_unknown = tokens is None or cost_usd is None
        spent = _Reserved(
            found.names,
            found.tokens if tokens is None else max(tokens, 0),
            found.cost_usd if cost_usd is None else max(cost_usd, 0.0),
        )
        return tuple(_spend(cap, spent, is_unknown=is_unknown and _is_counted(cap, tokens)) for cap in self._of(found))

    def drop(self, call: CallId) -> None:
        """Reserve nothing for this call any more, and spend nothing: the provider was not asked."""
        self._end(call)

    # --- what others see ---------------------------------------------------------------------------------------------

    def kept(self) -> tuple[CapKept, ...]:
        """Everything an heir has to know."""
        return tuple(cap.kept for cap in self._caps.values())

    def views(self) -> tuple[CapView, ...]:
        """Every declared cap, in the order of declaration."""
        return tuple(_view(cap) for cap in self._caps.values() if cap.has_limit)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _problem(self, name: str, wish: _Wish, *, counts_reserved: bool) -> str | None:
        cap = self._caps.get(name)
        if cap is None:
            return f"there is no cap {name}; declare it before calls name it"
        return _token_problem(cap, wish, cap.reserved_tokens if counts_reserved else 0) or _cost_problem(
            cap, wish, cap.reserved_cost_usd if counts_reserved else 0.0
        )

    def _wanted(self, names: tuple[str, ...], tokens: int | None) -> int:
        if tokens is not None:
            return tokens
        caps = [self._caps[name] for name in names if name in self._caps]
        left = [
            max(cap.kept.max_tokens - cap.kept.tokens - cap.reserved_tokens, 0)
            for cap in caps
            if cap.kept.max_tokens is not None
        ]
        return min((DEFAULT_TOKENS, *left))

    def _end(self, call: CallId) -> _Reserved | None:
        found = self._reserved.pop(call, None)
        if found is None:
            return None
        for cap in self._of(found):
            cap.calls -= 1
            cap.reserved_tokens -= found.tokens
            # Sums of floats do not come back to 0 by themselves.
            cap.reserved_cost_usd = max(cap.reserved_cost_usd - found.cost_usd, 0.0) if cap.calls else 0.0
        return found

    def _of(self, reserved: _Reserved) -> list[_Cap]:
        return [self._caps[name] for name in reserved.names if name in self._caps]

    def _forget_oldest(self) -> None:
        if len(self._caps) <= CAPS_KEPT:
            return
        idle = next((name for name, cap in self._caps.items() if name != FLEET and not cap.calls), None)
        if idle is not None:
            del self._caps[idle]


def problem_with_cap(name: str, max_tokens: int | None, max_cost_usd: float | None) -> str | None:
    """Say what in a declaration by a client cannot be meant; None if nothing."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        return f"the cap's name is {name[:LONGEST_NAME]!r}; valid: 1 to {LONGEST_NAME} printable characters"
    if name == FLEET:
        return f"cap {FLEET} is the fleet's own; set fleet.budget in config.yaml"
    if max_tokens is not None and max_tokens < 0:
        return f"max_tokens is {max_tokens}; valid: 0 or more, or nothing for no limit"
    if max_cost_usd is not None and not (math.isfinite(max_cost_usd) and max_cost_usd >= 0):
        return f"max_cost_usd is {max_cost_usd}; valid: 0 or more, or nothing for no limit"
    return None


def stamp_of(period: BudgetPeriod, today: date, *, life: str) -> str:
    """Name the period that `today` (a day of the local calendar) is in; `life` names the fleet's life."""
    match period:
        case BudgetPeriod.DAY:
            return today.isoformat()
        case BudgetPeriod.MONTH:
            return f"{today:%Y-%m}"
        case BudgetPeriod.LIFE:
            return life


def period_end(period: BudgetPeriod, now: datetime) -> datetime | None:
    """Return when the next period begins, at midnight in the time zone of `now`; None for the fleet's life."""
    match period:
        case BudgetPeriod.DAY:
            first = now.date() + timedelta(days=1)
        case BudgetPeriod.MONTH:
            first = (now.date().replace(day=28) + timedelta(days=4)).replace(day=1)
        case BudgetPeriod.LIFE:
            return None
    return datetime.combine(first, time(), tzinfo=now.tzinfo)


def _token_problem(cap: _Cap, wish: _Wish, reserved: int) -> str | None:
    spent, limit = cap.kept.tokens, cap.kept.max_tokens
    # Without an estimate it takes what is left, and at least something has to be.
    least = 1 if wish.tokens is None else wish.tokens
    if limit is None or (spent < limit and spent + reserved + least <= limit):
        return None
    needed = DEFAULT_TOKENS if wish.tokens is None else wish.tokens
    held = f", {reserved} reserved by calls that run" if reserved else ""
    return f"cap {cap.kept.name} is reached: {spent} of {limit} tokens spent{held}, this call needs about {needed}"


def _cost_problem(cap: _Cap, wish: _Wish, reserved_usd: float) -> str | None:
    spent, limit, needed = cap.kept.cost_usd, cap.kept.max_cost_usd, wish.cost_usd
    if limit is None:
        return None
    if needed is None:
        return (
            f"cap {cap.kept.name} is in money, and model {wish.model} of provider {wish.provider} has no price; "
            f"set providers.{wish.provider}.prices.{wish.model}"
        )
    if spent < limit and not _exceeds(spent + reserved_usd + needed, limit):
        return None
    held = f", {reserved_usd:.4f} reserved by calls that run" if reserved_usd else ""
    return (
        f"cap {cap.kept.name} is reached: {spent:.4f} of {limit:.4f} USD spent{held}, "
        f"this call needs about {needed:.4f}"
    )


def _with(kept: CapKept, *, max_tokens: int | None, max_cost_usd: float | None) -> CapKept:
    return CapKept(
        name=kept.name,
        tokens=kept.tokens,
        cost_usd=kept.cost_usd,
        unknown_calls=kept.unknown_calls,
        max_tokens=max_tokens,
        max_cost_usd=max_cost_usd,
        stamp=kept.stamp,
    )


def _is_counted(cap: _Cap, tokens: int | None) -> bool:
    """Whether what is unknown matters here: a cap in tokens needs no cost."""
    return tokens is None or cap.kept.max_cost_usd is not None


def _spend(cap: _Cap, spent: _Reserved, *, is_unknown: bool) -> CapKept:
    kept = cap.kept
    cap.kept = CapKept(
        name=kept.name,
        tokens=kept.tokens + spent.tokens,
        cost_usd=kept.cost_usd + spent.cost_usd,
        unknown_calls=kept.unknown_calls + is_unknown,
        max_tokens=kept.max_tokens,
        max_cost_usd=kept.max_cost_usd,
        stamp=kept.stamp,
    )
    return cap.kept


def _exceeds(sum_usd: float, limit_usd: float) -> bool:
    """Above the limit by more than what adding floats makes of equal sums."""
    return sum_usd > limit_usd and not math.isclose(sum_usd, limit_usd, rel_tol=1e-9)


def _view(cap: _Cap) -> CapView:
    kept = cap.kept
    return CapView(
        name=kept.name,
        tokens=kept.tokens,
        reserved_tokens=cap.reserved_tokens,
        cost_usd=kept.cost_usd,
        reserved_cost_usd=cap.reserved_cost_usd,
        unknown_calls=kept.unknown_calls,
        max_tokens=kept.max_tokens,
        max_cost_usd=kept.max_cost_usd,
    )
