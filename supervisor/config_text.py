"""config.yaml as text: a bounded tree of YAML nodes that know where they stand. No value is ever constructed.

Refused here, whatever the keys mean: text that is no YAML, aliases and anchors (four lines of them can stand for
gigabytes), tags, merge keys, deep nesting, large files, duplicate keys.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml
from yaml.error import Mark, MarkedYAMLError, YAMLError
from yaml.nodes import MappingNode, Node, ScalarNode
from yaml.reader import ReaderError

from ..protocol.errors import ConfigError
from .config_kinds import Scalar, read_plain

MOST_BYTES: Final = 64 * 1024
DEEPEST: Final = 16

_BREAK: Final = re.compile(r"\r\n|\r|\n")


def read_text(path: Path) -> str:
    """Read the file; a missing one is empty. Line ends stay as they are."""
    try:
        content = _read_regular(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", file=str(path), line=None, key=None, valid="a readable YAML file"
        ) from error
    if len(content) > MOST_BYTES:
        raise ConfigError(
            "the file is too large", file=str(path), line=None, key=None, valid=f"at most {MOST_BYTES} bytes"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8", file=str(path), line=line, key=None, valid="text in UTF-8") from error


def compose(text: str, file: str) -> MappingNode | None:
    """Parse `text`; None if there is nothing but comments. Raises `ConfigError` for what is no mapping."""
    loader = _open(text, file)
    try:
        node = loader.get_single_node()
    except _Forbidden as error:
        raise _error(text, file, error.index, error.problem, error.valid) from error
    except ReaderError as error:
        raise _error(text, file, error.position, "a character that YAML forbids", "printable text") from error
    except MarkedYAMLError as error:
        raise _syntax_error(text, file, error) from error
    except (YAMLError, ValueError, OverflowError, RecursionError) as error:
        # PyYAML lets the errors of chr() and int() through for some escapes and directives.
        raise _error(text, file, loader.get_mark().index, f"not YAML ({error})", "a mapping of keys") from error
    finally:
        loader.dispose()
    if node is None or (isinstance(node, ScalarNode) and node.value == "" and node.style is None):
        return None
    if not isinstance(node, MappingNode):
        raise _error(text, file, node.start_mark.index, f"the file holds {describe(node)}", "a mapping of keys")
    return node


def line_at(text: str, index: int) -> int:
    """Number the line that holds character `index` (1-based); the end of the text counts to its last line."""
    breaks = sum(1 for _ in _BREAK.finditer(text, 0, index))
    lines = sum(1 for _ in _BREAK.finditer(text)) + (not text.endswith(("\n", "\r")))
    return max(1, min(breaks + 1, lines))


def scalar(node: ScalarNode) -> Scalar:
    """Read a value: quoted and block text is text, a plain word what it looks like."""
    value = str(node.value)
    return read_plain(value) if node.style is None else value


def pairs(node: MappingNode) -> Iterator[tuple[Node, Node]]:
    """All entries in the order of the file."""
    yield from node.value


def describe(node: Node) -> str:
    """What kind of thing this is, for a message."""
    if isinstance(node, ScalarNode):
        return "a single value"
    return "a mapping" if isinstance(node, MappingNode) else "a list"


class _Forbidden(Exception):
    """YAML that is not for configuration; never leaves this module."""

    def __init__(self, index: int, problem: str, valid: str) -> None:
        super().__init__(problem)
        self.index, self.problem, self.valid = index, problem, valid


class _Loader(yaml.SafeLoader):
    """Composes nodes and refuses what a configuration does not need before it can cost anything."""

    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Compose one node, not too deep, without alias, anchor or tag."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Forbidden(event.start_mark.index, "anchors and aliases are not read", "the value written out")
        if getattr(event, "tag", None) is not None:
            raise _Forbidden(event.start_mark.index, "tags are not read", "the value without its !tag")
        if self.depth >= DEEPEST:
            raise _Forbidden(event.start_mark.index, "nested too deep", f"at most {DEEPEST} levels")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def _read_regular(path: Path) -> bytes:
    # Without O_NONBLOCK a FIFO in this place would wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file")
        return file.read(MOST_BYTES + 1)


def _open(text: str, file: str) -> _Loader:
    try:
        return _Loader(text)
    except ReaderError as error:
        raise _error(text, file, error.position, "a character that YAML forbids", "printable text") from error


def _syntax_error(text: str, file: str, error: MarkedYAMLError) -> ConfigError:
    mark: Mark | None = error.problem_mark or error.context_mark
    index = mark.index if mark else 0
    if "'\\t'" in (error.problem or ""):
        return _error(text, file, index, "a tab where YAML wants spaces", "spaces for indentation")
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    return _error(text, file, index, f"not YAML: {problem}", "`key: value` lines, two spaces deeper for each level")


def _error(text: str, file: str, index: int, problem: str, valid: str) -> ConfigError:
    return ConfigError(problem, file=file, line=line_at(text, index), key=None, valid=valid)
