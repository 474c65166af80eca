"""Bounds in tokens that providers name in the text of an error: a window, the longest answer, what there is money for.

Every pattern is anchored to the words before or behind the bound, so that the size of the request, which stands in
the same sentence and is the larger number, is never taken for it. All texts are in lower case. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LEAST_TOKENS: Final = 1_024
MOST_TOKENS: Final = 10_000_000
"""What is outside is no window and no bound on answers, but a code, a port or a mistake."""
ROOM_MARGIN: Final = 64
"""Left free when an answer is fitted into what a prompt leaves: providers disagree about the tokens around messages."""
LONG_CONTEXT_TOKENS: Final = 200_000
"""Where requests begin to count as long for those who ask for more money above it, without naming the number."""

_N: Final = r"(\d{1,3}(?:[,_.'\u00a0\u202f]\d{3}){1,3}(?!\d)|\d{1,9}(?!\d))(k\b)?"
_IS: Final = r"(?: is| of| was| to|:|=|\)| =|)(?: only| just|) ?[\[(`'\"]?"
_ASKED: Final = r"max_(?:completion_|output_|new_|)tokens|maxoutputtokens|maxtokens"


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text.replace("{N}", _N).replace("{IS}", _IS), re.ASCII) for text in texts)


_WINDOW: Final = _patterns(
    r"\bmax_model_len{IS}{N}",
    r"\bmaximum model length{IS}{N}",
    r"\bcontext (?:length|window|size|limit){IS}{N}(?! ?\+)",
    r"\b{N}[- ](?:tokens? |)(?:maximum |)context (?:length|window|size|limit)",
    r"\bcontext limit{IS}\d{1,9} ?\+ ?\d{1,9} ?> ?{N}",
    r"\d tokens? ?> ?{N}(?: tokens?|) max",
    r"\d tokens? ?> ?{N}\b",
    r"\bmaximum (?:allowed |)(?:input|prompt|sequence|request) (?:length|size|tokens?){IS}{N}",
    r"\bmaximum number of (?:input |prompt |)tokens(?: allowed|){IS}{N}",
    r"\brange of input length should be \[\d{1,4}, ?{N}\]",
    r"\bsupports up to {N}(?! ?(?:output|completion))",
    r"\btokens? (?:limit|per min(?:ute|) \(tpm\): limit)(?: of|:| is|) ?{N}",
    r"\btokens\b.{0,40}\bmust be <= ?{N}",
    r"\bmust have less than {N} tokens",
    r"\bcannot exceed {N}\b",
    r"\blimit of {N}\b",
    r"\bn_ctx{IS}{N}",
    r"\b{N} maximum\b",
)
_ANSWER: Final = _patterns(
    r"\bavailable_tokens{IS}{N}",
    r"\bat most {N} (?:completion|output)",
    r"\bsupports up to {N} (?:completion|output)",
    rf"\b(?:{_ASKED})[`'\"]?: ?\d{{1,9}} ?> ?{{N}}",
    rf"\brange (?:of|for) [`'\"]?(?:{_ASKED})[`'\"]? (?:should be|is|must be) \[\d{{1,4}}, ?{{N}}\]",
    rf"\b(?:{_ASKED})\b.{{0,60}}\b(?:must|should) be (?:in|within|between) "
    r"(?:range |)\[?\d{1,4}(?:,| and| to) ?{N}",
    rf"\b(?:{_ASKED})\b.{{0,60}}\b(?:must|should) be (?:<=|less than or equal to|at most|no more than) ?[`'\"]?{{N}}",
    rf"\b(?:{_ASKED})\b.{{0,80}}\bexpected a value <= ?{{N}}",
    r"\b(?:maximum|max)(?: allowed| number of|) (?:output|completion) tokens?(?: allowed|){IS}{N}",
    r"\bmaximum tokens you requested exceeds the model limit of {N}",
    r"\boutput tokens?\b.{0,40}\blimit(?:ed|)(?: to| of| is|:) ?{N}",
)
_EXCLUSIVE: Final = re.compile(rf"\bmaxoutputtokens\b.{{0,80}}\bfrom 1 \(inclusive\) to {_N} \(exclusive\)", re.ASCII)
_TOO_LONG: Final = re.compile(
    rf"(?:{_ASKED})[`'\"]?(?: value|) (?:is too (?:large|high|big)|exceeds)"
    r"|maximum tokens you requested exceeds|exceeds the (?:model's |)maximum (?:output|completion)",
    re.ASCII,
)
# Sentences that say how a window was filled: of prompt and answer, each by its own words.
_PARTS: Final = re.compile(
    rf"\({_N}(?: tokens)? (?:of text input|in the messages|in your prompt|from the input messages)"
    rf"(?:[;,] ?{_N}(?: tokens)? (?:of tool input|in the functions|in the tools))?"
    rf"[^()]{{0,40}}?(?:completion|output)",
    re.ASCII,
)
_TOTAL: Final = re.compile(
    rf"\b{_N} tokens from the input messages and \d[\d,]{{0,11}} tokens for the completion", re.ASCII
)
_SUM: Final = re.compile(rf"\bexceed context limit: {_N} ?\+ ?\d{{1,9}} ?> ?{_N}", re.ASCII)
_LEFT: Final = re.compile(rf"\(\d{{1,9}} ?> ?{_N} ?- ?{_N}\)", re.ASCII)
_GIVEN: Final = re.compile(rf"\bgiven: {_N} `inputs` tokens and \d", re.ASCII)
_CHARACTERS: Final = re.compile(rf"\bpassed {_N} input characters and requested \d", re.ASCII)
_CHARACTERS_PER_TOKEN: Final = 3
_AFFORD: Final = re.compile(rf"\bcan only afford {_N}", re.ASCII)
_LONG_CONTEXT: Final = re.compile(r"\blong[- ]context\b")
_ASKS: Final = re.compile(rf"{_ASKED}|completion|output tokens?", re.ASCII)


def window_tokens(text: str) -> int | None:
    """Read how many tokens the model takes; None if the text does not say."""
    named = _first(_WINDOW, text)
    return LONG_CONTEXT_TOKENS if named is None and _LONG_CONTEXT.search(text) else named


def answer_tokens(text: str) -> int | None:
    """Read how long an answer may be at most; None if the text does not say."""
    excluded = _EXCLUSIVE.search(text)
    if excluded is not None:
        return _sane(_number(excluded[1], excluded[2]) - 1)
    return _first(_ANSWER, text)


def room_tokens(text: str) -> int | None:
    """Read what the prompt leaves of the window, less a margin; None if that is not said, or too little to be used."""
    room = _room(text)
    return None if room is None else _sane(room - ROOM_MARGIN)


def affordable_tokens(text: str) -> int | None:
    """Read how many tokens of an answer the account can pay for; None if the text does not say."""
    found = _AFFORD.search(text)
    return _number(found[1], found[2]) if found else None


def blames_answer(text: str) -> bool:
    """Whether the text says that the answer asked for is too long, with or without a bound."""
    return _TOO_LONG.search(text) is not None or answer_tokens(text) is not None


def speaks_of_answer(text: str) -> bool:
    """Whether the text speaks of the answer's length at all."""
    return _ASKS.search(text) is not None


def _room(text: str) -> int | None:
    summed, left = _SUM.search(text), _LEFT.search(text)
    if summed is not None:
        return _number(summed[3], summed[4]) - _number(summed[1], summed[2])
    if left is not None:
        return _number(left[1], left[2]) - _number(left[3], left[4])
    window, prompt = window_tokens(text), _prompt(text)
    return None if window is None or prompt is None else window - prompt


def _prompt(text: str) -> int | None:
    parts = _PARTS.search(text)
    if parts is not None:
        return _number(parts[1], parts[2]) + (_number(parts[3], parts[4]) if parts[3] else 0)
    found = _TOTAL.search(text) or _GIVEN.search(text)
    if found is not None:
        return _number(found[1], found[2])
    written = _CHARACTERS.search(text)
    return None if written is None else -(-_number(written[1], written[2]) // _CHARACTERS_PER_TOKEN)


def _first(patterns: Iterable[re.Pattern[str]], text: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(text)
        tokens = _sane(_number(found[1], found[2])) if found else None
        if tokens is not None:
            return tokens
    return None


def _number(digits: str, thousands: str | None) -> int:
    return int(re.sub(r"\D", "", digits)) * (1000 if thousands else 1)


def _sane(tokens: int) -> int | None:
    return tokens if LEAST_TOKENS <= tokens <= MOST_TOKENS else None
