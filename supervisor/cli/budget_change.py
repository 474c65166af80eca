"""`covey budget unlock` and `covey budget set-limit`: what a person changes about a budget."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...protocol.destination import provider_of
from ...protocol.errors import AskTimeout, RemoteError, UsageError
from ...protocol.ids import BudgetKey
from ...protocol.messages.broker import BudgetState, Unlock
from ..config import load
from ..config_composites import EVERYBODY
from ..config_edit import Change, set_value
from ..config_kinds import Scalar, Value, read_plain, write_plain
from ..quick import ask_broker
from ..running import running_root
from .budget_list import ASK_S, ask_budgets
from .budget_words import pick
from .output import print_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...protocol.messages.broker import BudgetView
    from ..home import Home

IN_EFFECT_S = 3.0
LOOK_S = 0.05


def unlock(sockets: str, name: str, *, as_json: bool) -> int:
    """Let the account be used again, whatever kept it; raises `UsageError` for a budget nobody knows."""
    budget = pick(name, ask_budgets(sockets).budgets)
    try:
        ask_broker(sockets, Unlock(budget=budget.key), timeout_s=ASK_S)
    except RemoteError as error:
        if error.kind != "UsageError":
            raise
        # A configured account that nobody asked for yet is listed, but the broker has nothing of it to open.
        if budget.state is not BudgetState.OPEN:
            raise UsageError(error.message) from error
    if as_json:
        print_json({"budget": budget.key, "state_before": budget.state.value})
    elif budget.state is BudgetState.OPEN:
        print(f"{budget.key} was open already")
    else:
        print(f"{budget.key} may be used again; it was {budget.state.value}")
    return 0


def set_limit(home: Home, name: str, limit: str, model: str | None, *, as_json: bool) -> int:
    """Write the limit into config.yaml, and say whether a running fleet keeps it by now."""
    accepted = load(home.config)
    provider = _provider(name, accepted.settings.providers)
    key = f"providers.{provider}.max_concurrent"
    before = next(value.value for value in accepted.values if value.key == key)
    change = set_value(home, key, write_plain(changed(before, limit, model)))
    is_in_effect = _is_in_effect(home, provider, read_plain(limit), model)
    if as_json:
        print_json(
            {
                "provider": provider,
                "model": model,
                "limit": read_plain(limit),
                "key": key,
                "file": str(change.file),
                "line": change.after.line,
                "in_effect": is_in_effect,
            }
        )
    else:
        print(_said(change, is_in_effect))
    return 0


def changed(before: Value, limit: str, model: str | None) -> Value:
    """`max_concurrent` with another limit for all, or for one model; what is said of others stays.

    A model's limit of 0 takes its entry away. Raises `UsageError` for a model of a provider without a limit.
    """
    assert not isinstance(before, list), "a limit is no list"
    counts: dict[str, Scalar] = dict(before) if isinstance(before, dict) else {EVERYBODY: before}
    if model is not None and not counts[EVERYBODY]:
        raise UsageError("a model's limit stands inside its provider's, and that has none; set it first")
    if model == EVERYBODY:
        raise UsageError(f"{EVERYBODY} stands for all models; leave --model out")
    count = read_plain(limit)
    if model is not None and count == 0:
        counts.pop(model, None)
    else:
        counts[model or EVERYBODY] = count
    return counts if len(counts) > 1 else counts[EVERYBODY]


def _provider(name: str, providers: Collection[str]) -> str:
    """The provider that is called so, or whose budget is."""
    of_key = provider_of(BudgetKey(name))
    for found in (name, of_key):
        if found in providers:
            return found
    raise UsageError(f"there is no provider {name} in config.yaml; valid: {', '.join(providers)}")


def _is_in_effect(home: Home, provider: str, limit: Value, model: str | None) -> bool | None:
    """Whether the running fleet has taken the change over, after a short wait; None if none runs."""
    deadline = time.monotonic() + IN_EFFECT_S
    while (info := running_root(home)) is not None:
        try:
            budgets = [one for one in ask_budgets(info.sockets).budgets if one.provider == provider]
        except (AskTimeout, RemoteError):
            return False
        if all(_has(budget, limit, model) for budget in budgets):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_S)
    return None


def _has(budget: BudgetView, limit: Value, model: str | None) -> bool:
    if model is None:
        return budget.configured == limit
    return next((one.limit for one in budget.models if one.model == model), 0) == limit


def _said(change: Change, is_in_effect: bool | None) -> str:
    head = f"{change.after.key}: {write_plain(change.after.value)}  # {change.file}:{change.after.line}"
    match is_in_effect:
        case None:
            return f"{head}\nno fleet runs; it holds from the next start"
        case True:
            return f"{head}\nthe running fleet keeps it from now on"
        case False:
            return f"{head}\nthe running fleet has not taken it over yet; see `covey logs broker`"
