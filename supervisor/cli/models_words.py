"""Models as people read them: one table, and below it who did not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ..model_lines import ModelLine
from .budget_words import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...protocol.model_facts import ModelFacts

UNKNOWN: Final = "?"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of one provider. `problem` is why it did not answer, if it was asked."""

    provider: str
    base_url: str
    learned_at_ms: int | None
    problem: str | None
    models: tuple[ModelLine, ...]


def parts(shown: Sequence[Shown]) -> Iterator[RenderableType]:
    """What is printed."""
    from rich.text import Text

    if any(one.models for one in shown):
        yield _table(shown)
    for one in shown:
        if one.problem is not None:
            yield Text(f"{one.provider} did not tell its models: {printable(one.problem)}", style="red")
        elif not one.models:
            yield Text(f"{one.provider}: no model is known; ask it with `covey models --refresh`")


def can_words(facts: ModelFacts) -> str:
    """What the model can do; `?` if nobody said anything."""
    said = {"tools": facts.has_tools, "images": facts.has_images, "reasoning": facts.has_reasoning}
    if all(one is None for one in said.values()):
        return UNKNOWN
    return (
        " ".join(f"{word}{UNKNOWN if one is None else ''}" for word, one in said.items() if one is not False) or "text"
    )


def count_words(tokens: int | None) -> str:
    """A number of tokens."""
    return UNKNOWN if tokens is None else f"{tokens:,}"


def price_words(facts: ModelFacts) -> str:
    """What a million tokens cost, in and out: `$0.6 / $2.2`."""
    price = facts.price
    return UNKNOWN if price is None else f"${price.input:g} / ${price.output:g}"


def _table(shown: Sequence[Shown]) -> RenderableType:
    from rich.text import Text

    from .output import table

    rows = table("provider", "model", ">window", ">output", "can", ">in / out a million", "source", "as of")
    for one in shown:
        for line in one.models:
            facts = line.facts
            rows.add_row(
                Text(one.provider),
                Text(printable(line.name)),
                count_words(facts.context_window),
                count_words(facts.max_output_tokens),
                can_words(facts),
                price_words(facts),
                Text(printable(facts.source or facts.price_source or UNKNOWN)),
                facts.as_of or "",
            )
    return rows
