"""Any text is a configuration or a `ConfigError`; any change keeps everything else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from covey.protocol.errors import ConfigError
from covey.protocol.settings import Settings
from covey.supervisor.config import Accepted, Refused, examine
from covey.supervisor.config_amend import amend
from covey.supervisor.config_kinds import Scalar, read_plain, write_plain

WORDS = [
    "providers", "zai", "mine", "base_url", "http://x/v1", "max_concurrent", "model", "provider", "name", "fleet",
    "workers", "max_turns", "api_key", "3", "0", "-1", "2.5", "true", "null", '"3"', "'", '"', "\\", "# comment",
    ":", ": ", "- ", "? ", "{", "}", "[", "]", ",", "&a ", "*a", "!t ", "!!int ", "<<", "|", ">", "%YAML 1.1", "---",
    "...", "\n", "\n", "\n  ", "\n    ", "\r\n", "\r", "\t", " ", "\x00", "\x85", "\u2028", "\ufeff", "ü", "\U0001f411",
    '"\\x41"', '"\\uD800"', '"\\UFFFFFFFF"', "\udc80",
]  # fmt: skip
yaml_like = st.lists(st.sampled_from(WORDS), max_size=25).map("".join)
any_text = st.text(max_size=60) | yaml_like

comments = st.sampled_from(["", "# a", "#b: {", "# c # d"])
gaps = st.sampled_from(["", "\n", "# between\n", "  # deep\n"])


@given(text=any_text)
@example(text="? ")
@example(text="fleet: &a")
@example(text="%TAG ! tag:x,2000:\n---\na: 1")
def test_any_text_is_accepted_or_refused_with_a_line_inside_the_file(text: str) -> None:
    match examine(text, "f"):
        case Accepted(settings=settings):
            assert isinstance(settings, Settings)
        case Refused(errors=errors):
            assert errors
            lines = len(re.split(r"\r\n|\r|\n", text))
            assert all(error.line is not None and 1 <= error.line <= lines for error in errors)


@st.composite
def valid_files(draw: st.DrawFn) -> str:
    """Valid files in many layouts, with comments in all places."""
    indent = " " * draw(st.integers(1, 4))
    lines = [draw(gaps)]
    for section, keys in (("fleet", ["workers", "max_turns"]), ("model", ["name"])):
        chosen = draw(st.lists(st.sampled_from(keys), unique=True))
        values = dict.fromkeys(chosen, "7" if section == "fleet" else "'x'")
        layout = draw(st.sampled_from(["block", "flow", "absent", "null"]))
        if layout == "block":
            lines.append(f"{section}: {draw(comments)}\n")
            for key, value in values.items():
                lines.append(f"{indent}{key}: {value} {draw(comments)}\n{draw(gaps)}")
        elif layout == "flow":
            inner = ", ".join(f"{key}: {value}" for key, value in values.items())
            lines.append(f"{section}: {{{inner}}} {draw(comments)}\n{draw(gaps)}")
        elif layout == "null":
            lines.append(f"{section}: ~ {draw(comments)}\n")
    text = "".join(lines)
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    return text.rstrip("\r\n") if draw(st.booleans()) else text


assignments = st.sampled_from(["fleet.workers", "fleet.max_turns", "fleet.max_agents"]).flatmap(
    lambda key: st.tuples(st.just(key), st.integers(1, 64))
) | st.sampled_from(["model.name", "providers.mine.base_url", "providers.zai.api_key_env"]).flatmap(
    lambda key: st.tuples(st.just(key), st.sampled_from(["x", "yes", "4.1", 'a"b', "a: b", "null", "é", "a\\b"]))
)


@given(text=valid_files(), assignment=assignments)
def test_a_change_is_read_back_and_everything_else_stays(text: str, assignment: tuple[str, Scalar]) -> None:
    key, value = assignment
    if key.endswith("base_url"):
        value = "http://x/v1"
    if key.endswith("api_key_env"):
        value = "A_KEY"

    new = amend(text, "f", tuple(key.split(".")), value)

    before, after = values_of(text), values_of(new)
    assert after[key] == value
    assert {**before, key: value} == {at: after[at] for at in {*before, key}}
    assert comments_in(text) == comments_in(new)
    assert is_subsequence(lines_without(text, key), new.splitlines())


@given(text=any_text, value=st.integers(1, 64))
def test_a_change_of_any_text_is_made_or_refused(text: str, value: int) -> None:
    try:
        new = amend(text, "f", ("fleet", "workers"), value)
    except ConfigError:
        return

    found = examine(new, "f")
    if isinstance(found, Accepted):
        assert values_of(new)["fleet.workers"] == value


@pytest.mark.parametrize(
    "text", ["y", "No", "0x10", "1:30", "2024-01-01", "007", "1_000", "=", "-", "a:", "1.", "[a]", "a #b", "a: b"]
)
def test_text_that_looks_like_something_else_is_quoted(text: str) -> None:
    assert write_plain(text).startswith('"')


@given(value=st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans())
def test_what_is_written_plain_is_read_the_same(value: Scalar) -> None:
    assert read_plain(write_plain(value)) == value
    assert type(read_plain(write_plain(value))) is type(value)


def values_of(text: str) -> dict[str, Any]:
    found = examine(text, "f")
    assert isinstance(found, Accepted), found
    return {value.key: value.value for value in found.values}


def comments_in(text: str) -> list[str]:
    return re.findall(r"#[^\r\n]*", text)


def lines_without(text: str, key: str) -> list[str]:
    """Lines that a change of `key` has no business with: not its section's in flow style, not the key's own."""
    section, field = key.split(".", maxsplit=1)[0], key.rsplit(".", maxsplit=1)[-1]
    return [
        line for line in text.splitlines() if not line.strip().startswith((f"{section}:", f"{field}:"))
    ]  # fmt: skip


def is_subsequence(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(line in rest for line in part)
