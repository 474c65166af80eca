"""Every shape in which usage is reported gives its buckets, whatever else comes in between."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.usage import Usage
from covey.protocol.usage_meter import RAW_CHARS, UsageMeter, usage_of
from covey.protocol.usage_shapes import LARGEST_COUNT

Fields = dict[str, object]
Frame = Fields | None

NOISE = (b"", b"null", b"{}", b"[]", b"7", b'"usage"', b"{", b"\xff", b'{"prompt_tokens": null}', b'{"cost": 0.1}')


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Frames in their order; one under `opening` is the report at the beginning of a stream."""

    situation: str
    frames: tuple[Frame, ...]
    usage: Usage | None


CASES = msgspec.json.decode((Path(__file__).parent / "corpus" / "usage.json").read_bytes(), type=tuple[Case, ...])

case_of = pytest.mark.parametrize("case", [pytest.param(case, id=case.situation) for case in CASES])


def take(meter: UsageMeter, frame: Frame) -> None:
    is_opening = frame is not None and "opening" in frame
    meter.take(
        msgspec.json.encode(frame["opening"] if frame is not None and is_opening else frame), is_opening=is_opening
    )


def measured(*frames: Frame) -> Usage | None:
    meter = UsageMeter()
    for frame in frames:
        take(meter, frame)
    return meter.usage


def without_raw(usage: Usage | None) -> Usage | None:
    return None if usage is None else msgspec.structs.replace(usage, raw=None)


def buckets(usage: Usage) -> tuple[int, ...]:
    write = (usage.cache_write_5m, usage.cache_write_1h)
    return (usage.input, usage.cache_read, *write, usage.output, usage.reasoning)


@case_of
def test_a_shape_gives_its_buckets(case: Case) -> None:
    usage = measured(*case.frames)

    assert without_raw(usage) == case.usage


@case_of
def test_what_was_adjusted_keeps_the_report_as_it_came_and_nothing_else_does(case: Case) -> None:
    usage = measured(*case.frames)

    if usage is not None and usage.is_adjusted:
        assert usage.raw is not None
        assert msgspec.json.decode(usage.raw) in case.frames
    else:
        assert usage is None or usage.raw is None


@case_of
@given(data=st.data())
def test_repeated_frames_and_noise_change_nothing(case: Case, data: st.DataObject) -> None:
    meter = UsageMeter()
    for frame in case.frames:
        for _ in range(data.draw(st.integers(1, 3))):
            take(meter, frame)
            meter.take(data.draw(st.sampled_from(NOISE)))

    assert without_raw(meter.usage) == case.usage


@case_of
def test_the_same_answer_read_twice_is_not_doubled(case: Case) -> None:
    assert without_raw(measured(*case.frames, *case.frames)) == case.usage


COUNT = st.integers(-100, 5000) | st.sampled_from([None, True, "7", 1.0, 1.5, LARGEST_COUNT, 10**20, [], {}])


@given(data=st.data())
def test_whatever_is_reported_no_bucket_is_negative_and_the_whole_is_what_was_said(data: st.DataObject) -> None:
    frames = [data.draw(mutated(frame)) for frame in data.draw(st.sampled_from(CASES)).frames]

    usage = measured(*frames)

    if usage is not None:
        assert min(buckets(usage)) >= 0
        assert sum(buckets(usage)) == usage.total_tokens
        assert usage.raw is None or len(usage.raw) <= RAW_CHARS
        assert (usage.raw is not None) == usage.is_adjusted


@given(data=st.data())
def test_the_prompt_of_chat_completions_is_the_one_reported(data: st.DataObject) -> None:
    chat = [case.frames[-1] for case in CASES if case.situation.startswith("chat")]
    fields = data.draw(mutated(data.draw(st.sampled_from([frame for frame in chat if frame is not None]))))

    usage = measured(fields)

    prompt = fields.get("prompt_tokens") if fields else None
    if usage is not None and isinstance(prompt, int) and prompt is not True and prompt != 0 and prompt <= 10**12:
        assert usage.prompt_tokens == max(prompt, 0)


@st.composite
def mutated(draw: st.DrawFn, frame: Frame) -> Frame:
    """A frame with some of its counts replaced, also in what is nested."""
    if frame is None:
        return None
    changed: Fields = {}
    for name, value in frame.items():
        if isinstance(value, dict) and draw(st.booleans()):
            changed[name] = draw(mutated(value))
        else:
            changed[name] = draw(COUNT) if draw(st.booleans()) else value
    return changed


def test_a_long_report_is_kept_shortened() -> None:
    report = {"prompt_tokens": -1, "completion_tokens": 1, "note": "é" * 2000}

    usage = usage_of(msgspec.json.encode(report))

    assert usage is not None
    assert usage.raw is not None
    assert len(usage.raw) <= RAW_CHARS
    assert usage.raw.startswith('{"prompt_tokens":-1')
