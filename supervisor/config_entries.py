"""From YAML nodes to checked entries: each value of the file against its row of the key table.

Every refused value is reported, not only the first; what is returned beside the errors is right by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..protocol.errors import ConfigError
from . import config_keys as keys
from .config_composites import Counts, Listing, Mapping
from .config_kinds import Scalar, Value, read_plain
from .config_text import compose, describe, line_at, pairs, scalar


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of the file that its key accepts. `line` is where the value's key stands."""

    value: Value
    line: int


@dataclass(slots=True)
class Entries:
    """What a file holds. Owned by the reader that fills it; nobody changes it afterwards."""

    text: str
    file: str
    values: dict[keys.Path, Entry] = field(default_factory=dict)
    sections: dict[keys.Path, int] = field(default_factory=dict)
    """Line of each section in the file, also of empty ones."""
    errors: list[ConfigError] = field(default_factory=list)

    def refuse(self, path: keys.Path, line: int, problem: str, valid: str) -> None:
        """Note an error about `path`."""
        key = ".".join(path)
        self.errors.append(ConfigError(problem, file=self.file, line=line, key=key or None, valid=valid))


def read_entries(text: str, file: str) -> Entries:
    """Check everything that can be checked key by key; text that is no YAML is the one error then."""
    entries = Entries(text, file)
    try:
        root = compose(text, file)
    except ConfigError as error:
        entries.errors.append(error)
        return entries
    if root is not None:
        _read_section(entries, root, ())
    return entries


def unknown_key(path: keys.Path) -> tuple[str, str]:
    """Say what is wrong with a `path` that is no key, and what would be valid."""
    parent = path[:-1]
    if path[-1].lower() in ("api_key", "apikey", "key", "token"):
        return "keys do not belong into this file", "api_key_env: NAME_OF_THE_VARIABLE"
    valid = ", ".join(keys.names_below(parent)) or f"no keys below {'.'.join(parent)}"
    guess = keys.nearest(path)
    return "unknown key" + (f"; did you mean {guess}?" if guess else ""), valid


def _read_section(entries: Entries, node: MappingNode, path: keys.Path) -> None:
    seen: dict[str, int] = {}
    for name, name_node, value_node in _named(entries, node, path):
        line = line_at(entries.text, name_node.start_mark.index)
        below = (*path, name)
        if name in seen:
            entries.refuse(below, line, f"stands here a second time, first in line {seen[name]}", "each key once")
            continue
        seen[name] = line
        _read_value(entries, below, line, value_node)


def _named(entries: Entries, node: MappingNode, path: keys.Path) -> Iterator[tuple[str, Node, Node]]:
    """Entries whose key is text; others are refused."""
    for name_node, value_node in pairs(node):
        line = line_at(entries.text, name_node.start_mark.index)
        if not isinstance(name_node, ScalarNode):
            entries.refuse(path, line, f"{describe(name_node)} is used as a key", "keys that are text")
            continue
        name = str(name_node.value)
        if name_node.style is None and not isinstance(read_plain(name), str):
            entries.refuse((*path, name), line, "the key is not text", f'text; in quotes: "{name}"')
            continue
        yield name, name_node, value_node


def _read_value(entries: Entries, path: keys.Path, line: int, node: Node) -> None:
    if path[0] == "providers" and len(path) == 2 and (problem := keys.PROVIDER_NAME.problem(path[1])):
        entries.refuse(path, line, f"not a provider's name: {problem}", keys.PROVIDER_NAME.valid)
    elif keys.is_of_model(path) and (problem := keys.MODEL_NAME.problem(path[3])):
        entries.refuse(path, line, f"not a model's name: {problem}", keys.MODEL_NAME.valid)
    elif keys.is_section(path):
        _read_subsection(entries, path, line, node)
    elif key := keys.find_key(path):
        _read_leaf(entries, path, line, node, key)
    else:
        entries.refuse(path, line, *unknown_key(path))


def _read_subsection(entries: Entries, path: keys.Path, line: int, node: Node) -> None:
    entries.sections[path] = line
    if isinstance(node, MappingNode):
        _read_section(entries, node, path)
    elif not (isinstance(node, ScalarNode) and scalar(node) is None):
        valid = f"a mapping with {', '.join(keys.names_below(path))}"
        entries.refuse(path, line, f"{describe(node)} where a mapping belongs", valid)


def _read_leaf(entries: Entries, path: keys.Path, line: int, node: Node, key: keys.Key) -> None:
    if isinstance(node, MappingNode) and isinstance(key.kind, Counts | Mapping):
        value: Value = _read_mapping(entries, node, path, key.kind)
    elif isinstance(node, SequenceNode) and isinstance(key.kind, Listing):
        value = _read_list(entries, node, path, key.kind)
    elif isinstance(node, ScalarNode):
        value = scalar(node)
    else:
        entries.refuse(path, line, f"{describe(node)} where a single value belongs", key.kind.valid)
        return
    if problem := key.kind.problem(value):
        entries.refuse(path, line, problem, key.kind.valid)
        return
    entries.values[path] = Entry(value, line)


def mapping_in(text: str, path: keys.Path, kind: Counts | Mapping) -> Value:
    """Read a mapping from a command line; raises `ConfigError`."""
    entries = Entries(text, "the value")
    root = compose(text, entries.file)
    value: Value = {} if root is None else _read_mapping(entries, root, path, kind)
    if entries.errors:
        raise entries.errors[0]
    if problem := kind.problem(value):
        raise ConfigError(problem, file=entries.file, line=None, key=".".join(path), valid=kind.valid)
    return value


def _read_list(entries: Entries, node: SequenceNode, path: keys.Path, kind: Listing) -> list[Scalar]:
    """All items of a list whose kind checks them; what is no single value is refused here."""
    items: list[Scalar] = []
    for item in node.value:
        if isinstance(item, ScalarNode):
            items.append(scalar(item))
        else:
            line = line_at(entries.text, item.start_mark.index)
            entries.refuse(path, line, f"{describe(item)} where a single value belongs", kind.valid)
    return items


def _read_mapping(entries: Entries, node: MappingNode, path: keys.Path, kind: Counts | Mapping) -> dict[str, Scalar]:
    """All entries of a mapping whose kind checks them; what is no single value is refused here."""
    found: dict[str, Scalar] = {}
    what, valid = kind.part
    for name, name_node, value_node in _named(entries, node, path):
        line = line_at(entries.text, name_node.start_mark.index)
        if name in found:
            entries.refuse((*path, name), line, "stands here a second time", "each name once")
        elif isinstance(value_node, ScalarNode):
            found[name] = scalar(value_node)
        else:
            entries.refuse((*path, name), line, f"{describe(value_node)} where {what} belongs", valid)
    return found
