"""Do three views of the same calls agree: what the provider counted, what the broker granted, what the ledger stored?

Pure. Calls are compared one by one, by the id that covey sends along; sums alone could agree by accident. A call whose
process was killed before the report arrived is in the ledger as unknown: it is counted, and its tokens are the only
ones by which the provider's sum may be ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..protocol.messages.broker import BudgetView
from ..protocol.messages.ledger import CallRecorded, CallStatus
from .provider_calls import ProviderCall, ProviderStats


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that has to hold; `detail` says what was found."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Views:
    """What each of the three says, and what was expected."""

    limit: int
    children: int
    children_ok: int
    stats: ProviderStats
    provider: Mapping[str, ProviderCall]
    """By covey's id; refused ones are not in it."""
    anonymous: int
    """Calls that came without an id: somebody else's, or ours gone wrong."""
    budget: BudgetView | None
    ledger: Mapping[str, CallRecorded]


def checks(views: Views) -> list[Check]:
    """Everything that is compared, in the order people should read it."""
    stats, budget = views.stats, views.budget
    refused = sum(stats.refused.values())
    peak = budget.peak_in_flight if budget is not None else -1
    return [
        Check("every child finished", views.children_ok == views.children, f"{views.children_ok} of {views.children}"),
        Check(
            "the provider never saw more calls at once than allowed",
            stats.peak_in_flight <= views.limit,
            f"{stats.peak_in_flight} of {views.limit}",
        ),
        Check("the provider refused nothing", refused == 0, f"{refused} refused"),
        Check("the broker never granted more slots at once", 0 <= peak <= views.limit, f"{peak} of {views.limit}"),
        _same_calls(views),
        _every_slot_accounted(views),
        _same_tokens(views),
    ]


def unknown(records: Iterable[CallRecorded]) -> list[CallRecorded]:
    """The calls that should have a report and have none."""
    return [record for record in records if record.usage is None and record.status is not CallStatus.REFUSED]


def _same_calls(views: Views) -> Check:
    missing = views.provider.keys() - views.ledger.keys()
    # A call that was killed between its slot and its request never reached the provider: the ledger has it as lost.
    only_here = [call for call in views.ledger.keys() - views.provider.keys() if views.ledger[call].usage is not None]
    ok = not missing and not only_here and not views.anonymous
    detail = f"{len(views.provider)} at the provider, {len(views.ledger)} in state.db"
    if missing or only_here or views.anonymous:
        detail += f"; {len(missing)} not in state.db, {len(only_here)} unknown there, {views.anonymous} without id"
    return Check("every call the provider took is a row of state.db", ok, detail)


def _every_slot_accounted(views: Views) -> Check:
    granted = views.budget.granted if views.budget is not None else -1
    return Check(
        "every slot that was granted is a row of state.db", granted == len(views.ledger), f"{granted} slots granted"
    )


def _same_tokens(views: Views) -> Check:
    """Call by call; a call that was cut is explained by the side that saw less of it."""
    wrong = unseen_here = unseen_there = 0
    for call, there in views.provider.items():
        here = views.ledger.get(call)
        theirs = there.prompt_tokens + there.completion_tokens if there.usage_sent else None
        ours = here.usage.prompt_tokens + here.usage.completion_tokens if here and here.usage else None
        match ours, theirs:
            case int(), int():
                wrong += (
                    (here.usage.prompt_tokens != there.prompt_tokens or ours != theirs) if here and here.usage else 0
                )
            case None, int():
                unseen_here += theirs
            case int(), None:
                unseen_there += ours
            case _:
                continue
    known = [record.usage for record in views.ledger.values() if record.usage is not None]
    stored = sum(usage.prompt_tokens + usage.completion_tokens for usage in known)
    reported = views.stats.prompt_tokens + views.stats.completion_tokens
    detail = f"{reported} tokens at the provider, {stored} in state.db"
    if unseen_here:
        detail += f"; {unseen_here} of calls whose process died before it read the report (kept as unknown)"
    ok = not wrong and stored + unseen_here == reported + unseen_there
    return Check("the tokens are the same", ok, detail)
