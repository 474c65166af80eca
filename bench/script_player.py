"""The simulated model's next move: the script's turn, the prompt's own steps, or an improvisation.

Everything follows from the request, so that the same conversation always goes the same way, whatever process or run
it is in. Only refusals that are meant for the first calls are counted.
"""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Final

import msgspec

from .provider_errors import Refusal
from .provider_moods import Death
from .script import Pace, Rule, Script, Turn
from .script_steps import ToolUse, prose, steps

QUOTED = 200
"""Characters of the goal and of the last tool result that a final text quotes."""

ROUTES: Final = (
    ("list_files", "write_file", "read_file"),
    ("write_file", "read_file", "list_files"),
    ("write_file", "terminal", "read_file"),
    ("list_files", "write_file", "terminal"),
)
"""Orders in which an improvised conversation visits its tools: a file is always written before it is read."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says about where its conversation stands."""

    model: str
    goal: str
    """The last user message."""
    opening: str
    """The first user message: it tells conversations apart."""
    rounds: int
    """The assistant's turns with tool calls since the last user message."""
    last_result: str | None = None
    tools: frozenset[str] = frozenset()
    """Names of the tools that may be called now."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says in one call, and how it comes over."""

    pace: Pace
    tools: tuple[ToolUse, ...] = ()
    text: str = ""
    cut_after_chunks: int | None = None
    """None: it lives."""
    dies: Death = Death.CUT
    finish_reason: str = "stop"
    reports_usage: bool = True


class Player:
    """Plays a script. Owned by the loop thread."""

    def __init__(self, script: Script, pace: Pace) -> None:
        self._script = script
        self._pace = pace
        self._refused: Counter[tuple[int, int]] = Counter()

    def next_move(self, now: Situation) -> Answer | Refusal:
        """The answer to a request; raises `UnreadableStep` for steps in the prompt that do not parse."""
        index, rule = next(
            ((i, rule) for i, rule in enumerate(self._script.rules) if rule.matches(now.goal, now.model)), (-1, Rule())
        )
        turn = _turn(rule, now)
        if turn.refuse is not None and self._is_refused(turn, (index, now.rounds)):
            return turn.refuse.refusal()
        return _answer(turn, _pace(turn, rule, self._pace))

    def _is_refused(self, turn: Turn, place: tuple[int, int]) -> bool:
        assert turn.refuse is not None, "asked of a turn that refuses"
        if turn.refuse.times is None:
            return True
        self._refused[place] += 1
        return self._refused[place] <= turn.refuse.times


def _turn(rule: Rule, now: Situation) -> Turn:
    if isinstance(rule.turns, int):
        return _improvised(now, rule.turns)
    turn = rule.turns[now.rounds] if now.rounds < len(rule.turns) else Turn()
    if turn.tools or turn.say is not None:
        return turn
    return msgspec.structs.replace(turn, say=None if _is_always_refused(turn) else _closing(now))


def _is_always_refused(turn: Turn) -> bool:
    return turn.refuse is not None and turn.refuse.times is None


def _improvised(now: Situation, calls: int) -> Turn:
    asked = steps(now.goal)
    if now.tools and now.rounds < len(asked.turns):
        return _using(*asked.turns[now.rounds])
    # A prompt that says how it ends, or what to use, is not extended by guesses.
    calls = asked.calls or (1 if asked.turns or asked.say is not None else calls)
    route = _route(now)
    if route and now.rounds < max(len(asked.turns), calls - 1):
        return _using(route[now.rounds % len(route)])
    return Turn(say=_closing(now) if asked.say is None else asked.say)


def _route(now: Situation) -> tuple[ToolUse, ...]:
    mark = zlib.crc32(now.opening.encode("utf-8", "surrogatepass"))
    note = f"note-{mark:08x}.txt"
    uses = {
        "list_files": {"path": "."},
        "write_file": {"path": note, "content": f"{prose(now.goal)[:QUOTED]}\n"},
        "read_file": {"path": note},
        "terminal": {"command": f"wc -c {note}"},
    }
    names = [name for name in ROUTES[mark % len(ROUTES)] if name in now.tools]
    return tuple(ToolUse(name=name, arguments=msgspec.json.encode(uses[name]).decode()) for name in names)


def _closing(now: Situation) -> str:
    text = f"Done: {prose(now.goal)[:QUOTED]}"
    if now.last_result is None:
        return text
    return f"{text}\nThe last tool said: {now.last_result.strip()[:QUOTED]}"


def _using(*uses: ToolUse) -> Turn:
    return Turn(tools=tuple(f"{use.name} {use.arguments}" for use in uses))


def _pace(turn: Turn, rule: Rule, default: Pace) -> Pace:
    def first(turns: float | None, rules: float | None, otherwise: float) -> float:
        return turns if turns is not None else rules if rules is not None else otherwise

    return Pace(
        think_s=first(turn.think_s, rule.think_s, default.think_s),
        chunks=int(first(turn.chunks, rule.chunks, default.chunks)),
        chunk_pace_s=first(turn.chunk_pace_s, rule.chunk_pace_s, default.chunk_pace_s),
    )


def _answer(turn: Turn, pace: Pace) -> Answer:
    uses = turn.uses()
    natural = "tool_calls" if uses else "stop"
    return Answer(
        pace=pace,
        tools=uses,
        text=turn.say or "",
        cut_after_chunks=turn.cut_after_chunks,
        dies=turn.dies,
        finish_reason=turn.finish_reason or natural,
        reports_usage=turn.usage == "sent",
    )
