"""A hold: the account is left alone for a while, then one call tries. Pure.

It lasts until a call passes; each try that fails makes the next wait longer (`pauses`).
"""

from __future__ import annotations

import msgspec

from ...protocol.fault_kinds import Fault
from ...protocol.messages.broker import BudgetState
from ...storage.standings import HoldKept, Moment
from .pauses import OVERLOAD_TOTAL_S, overload_s, pause_s, wished_s


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """`step` counts the failures in a row from 1; `began` is the first of them."""

    state: BudgetState
    until: float
    until_ms: int
    span_s: float
    began: float
    began_ms: int
    step: int
    said: str
    mark: str
    """The provider's code, or the kind where it has none."""

    @property
    def reason(self) -> str:
        """Why, in words for people."""
        times = f" ×{self.step}" if self.step > 1 else ""
        return f"{self.mark}{times}: {self.said}"

    @property
    def patience_ends_at(self) -> float | None:
        """When waiters are told instead of held; None: never, for such a hold passes."""
        return self.began + OVERLOAD_TOTAL_S if self.state is BudgetState.OVERLOADED else None

    def is_hopeless(self, now: float) -> bool:
        """Whether that time is over."""
        ends_at = self.patience_ends_at
        return ends_at is not None and now >= ends_at

    def not_before(self, wish_s: float | None, *, now: float, wall_ms: int) -> Hold:
        """Return it with an end that the provider's wish does not come before."""
        wait_s = wished_s(wish_s)
        if now + wait_s <= self.until:
            return self
        return msgspec.structs.replace(self, until=now + wait_s, until_ms=wall_ms + round(wait_s * 1000), span_s=wait_s)

    def kept(self) -> HoldKept:
        """What is to be remembered."""
        return HoldKept(
            state=self.state,
            until=Moment(boottime=self.until, wall_ms=self.until_ms, span_s=self.span_s),
            began=Moment(boottime=self.began, wall_ms=self.began_ms, span_s=0.0),
            step=self.step,
            said=self.said,
            mark=self.mark,
        )

    @staticmethod
    def of(kept: HoldKept | None, *, is_same_boot: bool, now: float, wall_ms: int) -> Hold | None:
        """Return the hold that was remembered."""
        if kept is None:
            return None
        return Hold(
            state=kept.state,
            until=kept.until.after(is_same_boot=is_same_boot, now=now, wall_ms=wall_ms),
            until_ms=kept.until.wall_ms,
            span_s=kept.until.span_s,
            began=kept.began.after(is_same_boot=is_same_boot, now=now, wall_ms=wall_ms),
            began_ms=kept.began.wall_ms,
            step=kept.step,
            said=kept.said,
            mark=kept.mark,
        )


def busy(before: Hold | None, fault: Fault, *, now: float, wall_ms: int, chance: float) -> Hold:
    """Return the hold after a refusal for the number or the pace of calls."""
    step = _next_step(before, BudgetState.PAUSED)
    wait_s = pause_s(step, wish_s=fault.retry_after_s, chance=chance)
    return _hold(BudgetState.PAUSED, before, step, wait_s, fault, now=now, wall_ms=wall_ms)


def unwell(before: Hold | None, fault: Fault, *, now: float, wall_ms: int, chance: float) -> Hold:
    """Return the hold after an overload."""
    step = _next_step(before, BudgetState.OVERLOADED)
    wait_s = overload_s(step, wish_s=fault.retry_after_s, chance=chance)
    return _hold(BudgetState.OVERLOADED, before, step, wait_s, fault, now=now, wall_ms=wall_ms)


def _next_step(before: Hold | None, state: BudgetState) -> int:
    return before.step + 1 if before is not None and before.state is state else 1


def _hold(
    state: BudgetState, before: Hold | None, step: int, wait_s: float, fault: Fault, *, now: float, wall_ms: int
) -> Hold:
    # A pause does not cut a longer rest short: its reason has not passed.
    wait_s = max(wait_s, before.until - now) if before is not None else wait_s
    first = before if step > 1 else None
    return Hold(
        state=state,
        until=now + wait_s,
        until_ms=wall_ms + round(wait_s * 1000),
        span_s=wait_s,
        began=now if first is None else first.began,
        began_ms=wall_ms if first is None else first.began_ms,
        step=step,
        said=fault.message,
        mark=fault.code or fault.kind.value,
    )
