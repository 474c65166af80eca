"""Which model a name means, as far as requests depend on it: family and version. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

Version = tuple[int, int]

_VENDOR: Final = re.compile(r"^(?:[^/]*/)*")
_FAMILY: Final = re.compile(r"[a-z]+")
_GLM: Final = re.compile(r"glm-(\d+)(?:\.(\d+)|[-p](\d)(?!\w))?")
_CLAUDE: Final = re.compile(r"(?:^|\.)claude-(?:([a-z]+)-)?(\d{1,2})(?:[-.](\d{1,2})(?!\d))?(?!\d)")
_CLAUDES: Final = frozenset({"opus", "sonnet", "haiku", "instant", "v"})
_GPT: Final = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
_O: Final = re.compile(r"o(\d+)(?![\w.])")


class Gpt(msgspec.Struct, frozen=True):
    """A model of OpenAI's."""

    is_older: bool
    """Of before `max_completion_tokens`."""
    efforts: tuple[str, ...] = ()
    """How much it can be told to think; empty: it does not, or is not told."""


def stem_of(model: str) -> str:
    """The first letters of the name, without a vendor before it: `claude`, `qwen`."""
    found = _FAMILY.match(_bare(model))
    return found[0] if found else ""


def glm_of(model: str) -> Version | None:
    """Version of a GLM; None for anything else."""
    found = _GLM.match(_bare(model))
    return (int(found[1]), int(found[2] or found[3] or 0)) if found else None


def claude_of(model: str) -> Version | None:
    """Version of a Claude, as the lines that Opus, Sonnet and Haiku count by; None for anything else.

    A line that is not known is newer than these.
    """
    found = _CLAUDE.search(_bare(model))
    if found is None:
        return (99, 0) if stem_of(model) == "claude" else None
    line, major, minor = found.groups()
    if line is not None and line not in _CLAUDES:
        return (99, 0)
    return (int(major), int(minor or 0))


def gpt_of(model: str) -> Gpt | None:
    """What OpenAI's own host serves under a name; None for what is neither a GPT nor one of the `o` line."""
    name = _bare(model)
    if (found := _O.match(name)) is not None:
        is_told = "mini" not in name if found[1] == "1" else True
        return Gpt(False, ("low", "medium", "high") if is_told and "preview" not in name else ())
    if (found := _GPT.match(name)) is None:
        return None
    version = (int(found[1]), int(found[2] or 0))
    if version < (5, 0) or "chat" in name:
        return Gpt(version < (4, 1))
    most = ("xhigh",) if version >= (5, 2) else ()
    if "-pro" in name:
        return Gpt(False, ("medium", "high", *most) if most else ("high",))
    if "-codex" in name:
        return Gpt(False, ("low", "medium", "high", *most))
    return Gpt(False, ("minimal" if version < (5, 1) else "none", "low", "medium", "high", *most))


def _bare(model: str) -> str:
    return _VENDOR.sub("", model.strip().lower())
