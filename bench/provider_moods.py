"""Moods of the simulated provider: what it is like at the moment, apart from what a single request is answered.

    moods:
      limit: 2                      # calls in flight per account, of both dialects together
      model_limits: {glm-5: 1}      # and of one model
      release_lag_ms: 300
      overload: {from_s: 10, to_s: 130}
    rules: []

The key `moods` of a script file, and the body of `POST /control/moods`. Everything holds for each account by itself.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Positive = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Moment = Annotated[float, Meta(ge=0, le=10_000_000)]
Millis = Annotated[float, Meta(ge=0, le=3_600_000)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Code = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(min_length=1, max_length=64)]


class Death(StrEnum):
    """How a body dies before its end."""

    CUT = "cut"
    """The connection closes between two pieces."""
    TORN = "torn"
    """The connection closes in the middle of a piece."""
    HALF_JSON = "half_json"
    """HTTP ends well, the JSON in it does not."""
    NO_NEWLINE = "no_newline"
    """Everything came, but the last line is not ended."""
    STALL = "stall"
    """No byte comes any more, and the connection stays open."""
    KEEP_ALIVE = "keep_alive"
    """No content comes any more, but for ever something that says that it will."""
    ERROR = "error"
    """An error event in the middle of the stream, which then ends well; a body that is no stream is the error."""


class Bodies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers that die: every `every`-th call taken on, after so many pieces."""

    dies: Death
    after_chunks: Annotated[int, Meta(ge=0, le=100_000)] = 1
    every: Positive = 1


class Overload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Refusals that no client is to blame for: between two moments, or the next `answers`, or what ends first.

    Seconds count from the moment the mood was set. A `code` of 529 is HTTP 529 too.
    """

    from_s: Moment = 0
    to_s: Moment | None = None
    answers: Positive | None = None
    code: Code = "1305"
    status: Annotated[int, Meta(ge=400, le=599)] | None = None


class Rpm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests taken on within a sliding window; more are refused."""

    requests: Positive
    window_s: Annotated[float, Meta(gt=0, le=86_400)] = 60
    code: Code = "1302"


class Window(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the quota endpoint. A window that is full refuses everything until it resets."""

    type: str = "TOKENS_LIMIT"
    unit: int = 3
    """3 hours, 5 months, 6 weeks."""
    number: int = 5
    percentage: Percent = 0
    """Used when the mood is set; tokens used later come on top."""
    tokens: Positive | None = None
    """What 100 % are; None: calls use up nothing."""
    resets_in_s: Annotated[float, Meta(ge=0, le=31 * 86_400)] | None = None
    """From the moment the mood is set; None: it never does."""
    shows_reset: bool = True
    """Whether the endpoint tells `nextResetTime`."""
    code: Code | None = None
    """Told when it is full; by default 1308 for hours and 1310 else, of windows that count tokens or credits only."""


class ModelCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the list of models tells of one."""

    context_length: Positive | None = None
    max_output_tokens: Positive | None = None


class FairUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An account refused so often within a while is locked with 1313, until the control door unlocks it."""

    refusals: Positive
    within_s: Annotated[float, Meta(gt=0, le=86_400)] = 60


class Moods(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All moods. What is left out is a healthy provider."""

    limit: Count | None = None
    """Calls in flight per account; None: the option's."""
    model_limits: dict[str, Count] = {}
    limit_code: Code | None = None
    """None: the option's."""
    release_lag_ms: Millis = 0
    """So long a call is still counted after its end."""
    in_band: tuple[Code, ...] = ()
    """Codes told inside an answer with HTTP 200: an error event as a stream's first bytes."""
    numeric_codes: bool = False
    language: Literal["en", "zh"] = "en"
    rpm: Rpm | None = None
    overload: Overload | None = None
    cursed: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """Texts: a request that has one of them anywhere in its messages is always told 1305."""
    windows: tuple[Window, ...] = ()
    fair_use: FairUse | None = None
    models: dict[str, ModelCard] = {}
    """What is listed in place of `simulated`; requests may name any other."""
    refused_models: dict[str, Code] = {}
    """Model → code, like 1311."""
    refused_keys: dict[str, Code] = {}
    """Regexp over the key → code, like 1002."""
    context_window: Positive | None = None
    """Tokens of the longest prompt; longer ones are told 1261."""
    longest_answer: Positive | None = None
    """The most tokens that may be asked for; more are a 400 that says how many are supported."""
    affordable_tokens: Count | None = None
    """The most tokens that the account has credit for; more, or as many as the model can, are a 402 that says so."""
    is_reasoning_mandatory: bool = False
    """Whether a request that turns thinking off is refused."""
    refused_fields: tuple[str, ...] = ()
    """Fields at the top of a request that this provider does not take."""
    plan_expired: bool = False
    """1309 to everybody."""
    plan_keys: str = ""
    """Regexp over the key: coding-plan keys. The URLs of the other kind tell a key 1113."""
    answers_as: dict[str, str] = {}
    """Model asked → model that answers; it stands in the answer."""
    prompt_cache: bool = False
    """Whether the part of a conversation that was sent before is reported as read from a cache."""
    headers_ms_per_call: Millis = 0
    """Added before the first byte, for every other call of the account that is in flight."""
    keep_alive_ms: Positive | None = None
    """While it thinks, a stream says so that often; None: it is silent."""
    bodies: Bodies | None = None
    refusal_bodies: Literal["whole", "stall", "endless"] = "whole"
    """How the body of a refusal comes: to its end, half of it and then nothing, or without an end."""

    def __post_init__(self) -> None:
        for name, patterns in (("plan_keys", [self.plan_keys]), ("refused_keys", self.refused_keys)):
            try:
                for pattern in patterns:
                    re.compile(pattern)
            except re.error as error:
                raise ValueError(f"`{name}` is no regular expression: {error}") from error


def changed(moods: Moods, change: bytes) -> Moods:
    """The moods with the keys of a JSON object in place of theirs; raises `msgspec.DecodeError`, with the place."""
    given = msgspec.json.decode(change, type=dict[str, object])
    # Read strictly, and only then told apart: a key that is given with its default value is a change too.
    wanted = msgspec.json.decode(change, type=Moods)
    return msgspec.structs.replace(moods, **{name: getattr(wanted, name) for name in given})
