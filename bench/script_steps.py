"""Steps written in a prompt: what the simulated model is to do next, line by line.

    use: list_files {"path": "."}
    use: read_file {"path": "a"} && read_file {"path": "b"}
    say: That is all.
    turns: 6

Each `use:` line is one turn; ` && ` puts several tool calls into it. The `say:` lines together are the final text.
`turns: N` asks for N calls in all where no `use:` line says more. Other lines, also ones that begin with `use:` but
go on without a tool's name and `{`, are prose.
"""

from __future__ import annotations

import json
import re

import msgspec

_LINE = re.compile(
    r"^[ \t]*(?:(use):[ \t]+(?=[\w.-]{1,64}[ \t]*\{)|(say):[ \t]*|(turns):[ \t]+(?=\d{1,4}[ \t]*$))(.*)$", re.M | re.A
)
_NAME = re.compile(r"\s*([\w.-]{1,64})\s*(?=\{)", re.A)
_AND = re.compile(r"\s*&&(?=\s)")
_JSON = json.JSONDecoder()


class UnreadableStep(ValueError):
    """A tool call that does not parse; the text says which and why."""


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A tool the simulated model calls; `arguments` is the JSON text as it was written."""

    name: str
    arguments: str


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt asks for. `calls` and `say` are None where it does not say."""

    turns: tuple[tuple[ToolUse, ...], ...] = ()
    say: str | None = None
    calls: int | None = None


def steps(prompt: str) -> Steps:
    """The steps in `prompt`, none if there are none; raises `UnreadableStep`."""
    turns: list[tuple[ToolUse, ...]] = []
    said: list[str] = []
    calls: int | None = None
    for use, say, _, rest in _LINE.findall(prompt):
        if use:
            turns.append(tool_uses(rest))
        elif say:
            said.append(rest.rstrip())
        else:
            calls = max(1, int(rest))
    return Steps(turns=tuple(turns), say="\n".join(said) if said else None, calls=calls)


def tool_uses(text: str) -> tuple[ToolUse, ...]:
    """Read `NAME {JSON} && NAME {JSON} …`, at least one; raises `UnreadableStep`."""
    found: list[ToolUse] = []
    position = 0
    while True:
        use, position = _one_use(text, position)
        found.append(use)
        if not text[position:].strip():
            return tuple(found)
        more = _AND.match(text, position)
        if more is None:
            raise UnreadableStep(
                f"expected ` && ` or the end after {use.name}, found {text[position : position + 40]!r}"
            )
        position = more.end()


def prose(prompt: str) -> str:
    """The first line of `prompt` that is not a step and not empty; the first one if all are steps."""
    lines = [line.strip() for line in prompt.splitlines() if line.strip()]
    return next((line for line in lines if not _LINE.match(line)), lines[0] if lines else "")


def _one_use(text: str, position: int) -> tuple[ToolUse, int]:
    name = _NAME.match(text, position)
    if name is None:
        raise UnreadableStep(f"expected a tool's name and a JSON object, found {text[position : position + 40]!r}")
    try:
        _, end = _JSON.raw_decode(text, name.end())
    except ValueError as error:
        raise UnreadableStep(f"the arguments of {name[1]} are no JSON: {error}") from error
    return ToolUse(name=name[1], arguments=text[name.end() : end]), end
