"""Change one value in the text of config.yaml and leave every other character of it alone.

The marks of the parsed nodes say where a value stands, so the text is cut there and nowhere else. Round-trip writers
were tried first: ruamel.yaml drops comments inside `{…}`, indents anew, and puts a new key below the comment that
belongs to the next section. A change counts only after the new text was read back and differs in this key alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..protocol.errors import ConfigError
from .config import Refused
from .config_entries import read_entries
from .config_keys import Path
from .config_kinds import Value, write_plain
from .config_text import compose, pairs

INDENT: Final = 2


def amend(text: str, file: str, path: Path, value: Value) -> str:
    """`text` with `path` set to `value` and nothing else changed; raises `ConfigError` if that cannot be done.

    Other invalid values of the file are errors too: it would be refused with the change as it was without.
    """
    old = read_entries(text, file)
    if others := [error for error in old.errors if error.key != ".".join(path)]:
        raise Refused(tuple(others)).as_error()
    literal = write_plain(value)
    new = _insert(text, compose(text, file), path, literal)
    found = read_entries(new, file)
    wanted = {**{at: entry.value for at, entry in old.values.items()}, path: value}
    if {at: entry.value for at, entry in found.values.items()} != wanted:
        key = ".".join(path)
        problem = "the file is laid out in a way that cannot be changed automatically"
        raise ConfigError(problem, file=file, line=None, key=key, valid=f"{key}: {literal}, written by hand")
    return new


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where an edit happens: the innermost existing node on the path, and what is missing below it."""

    node: Node
    missing: Path
    in_flow: bool
    column: int
    """Column of the key that holds `node`; -1 for the whole file."""


def _insert(text: str, root: MappingNode | None, path: Path, literal: str) -> str:
    if root is None:
        return _append_lines(text, len(text), path, literal, 0)
    spot = _find(_Spot(root, path, False, -1))
    node = spot.node
    if not spot.missing:
        return _replace_value(text, node, literal)
    if not isinstance(node, MappingNode):
        return _fill_empty(text, spot, literal)
    if node.flow_style:
        return _extend_flow(text, node, spot.missing, literal)
    first: Node = node.value[0][0]
    return _append_lines(text, _end(node), spot.missing, literal, first.start_mark.column)


def _find(spot: _Spot) -> _Spot:
    if not spot.missing or not isinstance(spot.node, MappingNode):
        return spot
    for name, value in pairs(spot.node):
        if isinstance(name, ScalarNode) and name.value == spot.missing[0]:
            in_flow = bool(spot.node.flow_style)
            return _find(_Spot(value, spot.missing[1:], in_flow, name.start_mark.column))
    return spot


def _replace_value(text: str, node: Node, literal: str) -> str:
    start, end = node.start_mark.index, _end(node)
    return text[:start] + (" " if start == end else "") + literal + text[end:]


def _fill_empty(text: str, spot: _Spot, literal: str) -> str:
    """Give the first key to a section without any."""
    start, end = spot.node.start_mark.index, spot.node.end_mark.index
    if start == end and not spot.in_flow:
        return _append_lines(text, end, spot.missing, literal, spot.column + INDENT)
    return text[:start] + (" " if start == end else "") + _flow(spot.missing, literal) + text[end:]


def _extend_flow(text: str, node: MappingNode, missing: Path, literal: str) -> str:
    inner = _flow(missing, literal)[1:-1]
    if not node.value:
        at = node.start_mark.index + 1
        return text[:at] + inner + text[at:]
    at = _end(node.value[-1][1])
    return text[:at] + ", " + inner + text[at:]


def _flow(missing: Path, literal: str) -> str:
    for name in reversed(missing):
        literal = f"{{{write_plain(name)}: {literal}}}"
    return literal


def _append_lines(text: str, after: int, missing: Path, literal: str, column: int) -> str:
    """Add lines below the one that holds the character before `after`, at `column`."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    at = after if text[:after].endswith("\n") or not text else text.find("\n", after) + 1
    head, tail = (text[:at], text[at:]) if at or not text else (text + line_end, "")
    lines = [
        " " * (column + INDENT * level) + write_plain(name) + ":"
        for level, name in enumerate(missing)
    ]  # fmt: skip
    return head + line_end.join(lines) + f" {literal}{line_end}" + tail


def _end(node: Node) -> int:
    """Where the last value in `node` ends: a block mapping's own mark lies beyond the comments after it."""
    if isinstance(node, MappingNode) and not node.flow_style and node.value:
        last: Node = node.value[-1][1]
        return _end(last)
    if isinstance(node, SequenceNode) and not node.flow_style and node.value:
        item: Node = node.value[-1]
        return _end(item)
    return int(node.end_mark.index)
