"""Reading a script file: strictly, with the place of every mistake.

A key that is not known, a value of the wrong kind, a key that stands twice: `ConfigError` names file, line, key and
what would be valid, and no part of the file is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..protocol.errors import ConfigError
from ..supervisor.config_text import compose, line_at, pairs, read_text, scalar
from .provider_moods import Bodies, FairUse, ModelCard, Moods, Overload, Rpm, Window
from .script import Refuse, Rule, Script, Turn

VALID: Final[dict[str, str]] = {
    "rules": "a list of rules",
    "goal": "a regular expression over the last user message",
    "model": "a regular expression over the model's name",
    "turns": "a list of turns, or the number of calls in all from 1 to 10000",
    "tools": 'a list of tool calls, each like \'list_files {"path": "."}\'',
    "say": "the text of the answer",
    "think_s": "seconds from 0 to 3600",
    "chunk_pace_s": "seconds from 0 to 3600",
    "chunks": "a number from 1 to 100000",
    "refuse": "an error: code, and if wanted status, message, headers, times",
    "cut_after_chunks": "a number from 0",
    "finish_reason": "the finish reason to send",
    "usage": "`sent` or `none`",
    "code": "the provider's code, like 1302",
    "status": "an HTTP status from 400 to 599",
    "message": "the error's text",
    "headers": "HTTP headers by name",
    "times": "a number from 1 to 10000",
    "moods": "what the provider is like: limit, overload, windows, …",
    "limit": "calls in flight per account, a number from 0",
    "model_limits": "models, each with its calls in flight per account",
    "limit_code": "the code of a refusal over the limit, like 1302",
    "release_lag_ms": "milliseconds from 0 to 3600000",
    "in_band": "a list of codes that come with HTTP 200",
    "numeric_codes": "`true` or `false`",
    "language": "`en` or `zh`",
    "rpm": "requests in a window: requests, and if wanted window_s, code",
    "overload": "from_s, to_s, answers, code, status; all as wanted",
    "cursed": "a list of texts",
    "windows": "a list of quota windows",
    "fair_use": "refusals, and if wanted within_s",
    "refused_models": "models, each with a code like 1311",
    "plan_expired": "`true` or `false`",
    "plan_keys": "a regular expression over the key",
    "answers_as": "models, each with the model that answers",
    "prompt_cache": "`true` or `false`",
    "headers_ms_per_call": "milliseconds from 0 to 3600000",
    "models": "models, each with its context_length and max_output_tokens",
    "context_length": "a number of tokens from 1",
    "max_output_tokens": "a number of tokens from 1",
    "refused_keys": "regular expressions over the key, each with a code",
    "context_window": "a number of tokens from 1",
    "longest_answer": "a number of tokens from 1",
    "affordable_tokens": "a number of tokens from 0",
    "is_reasoning_mandatory": "`true` or `false`",
    "refused_fields": "a list of names",
    "keep_alive_ms": "milliseconds from 1",
    "refusal_bodies": "`whole`, `stall` or `endless`",
    "bodies": "dies, and if wanted after_chunks, every",
    "dies": "`cut`, `torn`, `half_json`, `no_newline`, `stall`, `keep_alive` or `error`",
    "after_chunks": "a number from 0 to 100000",
    "every": "a number from 1",
    "from_s": "seconds from 0",
    "to_s": "seconds from 0",
    "answers": "a number from 1",
    "requests": "a number from 1",
    "window_s": "seconds up to 86400, more than 0",
    "within_s": "seconds up to 86400, more than 0",
    "refusals": "a number from 1",
    "type": "the window's type, like TOKENS_LIMIT",
    "unit": "a number: 3 hours, 5 months, 6 weeks",
    "number": "a number of units",
    "percentage": "a number from 0 to 100",
    "tokens": "what 100 % are, a number from 1",
    "resets_in_s": "seconds from 0 to 2678400",
    "shows_reset": "`true` or `false`",
}
"""What each key takes."""

SHAPES: Final[dict[str, type[msgspec.Struct]]] = {
    "rules": Rule,
    "turns": Turn,
    "refuse": Refuse,
    "moods": Moods,
    "rpm": Rpm,
    "overload": Overload,
    "windows": Window,
    "fair_use": FairUse,
    "models": ModelCard,
    "bodies": Bodies,
}
"""What a key's mapping, or each mapping of its list, is made of."""

_WHERE = re.compile(r"^(?P<problem>.*?)(?: - at `(?:key` in `)?\$(?P<path>.*)`)?$", re.S)
_UNKNOWN = re.compile(r"unknown field `(?P<field>.*)`")
_OWN_WORD = re.compile(r"`(?P<field>\w+)`")
_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]")


def load_script(path: str | None) -> Script:
    """The script in the file, an empty one for None; raises `ConfigError`."""
    if path is None:
        return Script()
    text = read_text(Path(path))
    root = compose(text, path)
    if root is None:
        raise ConfigError("the file is empty or missing", file=path, line=None, key="rules", valid=VALID["rules"])
    for key, node in _doubles(root, ""):
        line = line_at(text, node.start_mark.index)
        raise ConfigError("stands twice in one mapping", file=path, line=line, key=key, valid="each key once")
    try:
        return msgspec.convert(_plain(root), Script)
    except msgspec.ValidationError as error:
        raise _located(error, path, text, root) from error


def scenario_path(name: str) -> str:
    """Where the scenario that comes along under this name lies, like `concurrency-1302`."""
    return str(resources.files(__package__) / "scenarios" / f"{name}.yaml")


def _plain(node: Node) -> object:
    if isinstance(node, MappingNode):
        return {_name(key): _plain(value) for key, value in pairs(node)}
    if isinstance(node, SequenceNode):
        return [_plain(item) for item in node.value]
    assert isinstance(node, ScalarNode), "YAML has three kinds of nodes"
    return scalar(node)


def _name(key: Node) -> str:
    # A key that is a list or a mapping itself is no key of ours, whatever it is called.
    return key.value if isinstance(key, ScalarNode) else "?"


def _doubles(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield from _doubles(item, f"{path}[{index}]")
    if isinstance(node, MappingNode):
        seen: set[str] = set()
        for name, value in pairs(node):
            key = f"{path}.{_name(name)}".lstrip(".")
            if key in seen:
                yield key, name
            seen.add(key)
            yield from _doubles(value, key)


def _located(error: msgspec.ValidationError, path: str, text: str, root: Node) -> ConfigError:
    parts = _WHERE.match(str(error))
    assert parts is not None, "the pattern matches every text"
    # A mapping's own keys (names of models) are not told: the mapping is the place.
    problem, where = parts["problem"], (parts["path"] or "").replace("[...]", "")
    unknown = _UNKNOWN.search(problem)
    # Our own checks see a whole turn or rule: their texts begin with the key that is meant.
    named = unknown or _OWN_WORD.match(problem)
    key = f"{where}.{named['field']}" if named else where
    keys = [step["key"] for step in _STEP.finditer(where if unknown else key) if step["key"]]
    valid = _keys_of(keys) if unknown or not keys else VALID.get(keys[-1], VALID["headers"])
    line = line_at(text, _place(root, key))
    return ConfigError(problem, file=path, line=line, key=key.lstrip(".") or None, valid=valid)


def _keys_of(keys: list[str]) -> str:
    shape = SHAPES.get(keys[-1], Script) if keys else Script
    return "the keys " + ", ".join(shape.__struct_fields__)


def _place(root: Node, path: str) -> int:
    """Where the deepest node on `path` that the file has begins."""
    node, place = root, root.start_mark.index
    for step in _STEP.finditer(path):
        found = _child(node, step)
        if found is None:
            break
        node, place = found
    return place


def _child(node: Node, step: re.Match[str]) -> tuple[Node, int] | None:
    if isinstance(node, MappingNode):
        entries = ((value, name.start_mark.index) for name, value in pairs(node) if _name(name) == step["key"])
        return next(entries, None)
    if isinstance(node, SequenceNode) and step["index"] is not None and int(step["index"]) < len(node.value):
        item = node.value[int(step["index"])]
        return item, item.start_mark.index
    return None
