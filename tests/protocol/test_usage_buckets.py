"""Reports become disjoint buckets whose sums are what was reported."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.usage import Usage, disjoint
from covey.protocol.usage_meter import usage_of

COUNT = st.integers(-50, 200)


def report(**fields: object) -> Usage | None:
    return usage_of(msgspec.Raw(msgspec.json.encode(fields)))


@given(prompt=COUNT, completion=COUNT, read=COUNT, write=COUNT, reasoning=COUNT, total=st.none() | COUNT)
def test_buckets_are_never_negative_and_sum_to_the_whole(  # noqa: PLR0917 -- hypothesis passes them by name
    prompt: int, completion: int, read: int, write: int, reasoning: int, total: int | None
) -> None:
    usage = disjoint(
        prompt=prompt, completion=completion, cache_read=read, cache_write=write, reasoning=reasoning, total=total
    )

    assert min(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning) >= 0
    assert usage.prompt_tokens == max(prompt, 0)
    if reasoning <= 0 or total != prompt + completion + reasoning:
        assert usage.completion_tokens == max(completion, 0)


@given(prompt=st.integers(0, 10**6), completion=st.integers(0, 10**6), data=st.data())
def test_a_report_that_agrees_with_itself_is_not_adjusted(prompt: int, completion: int, data: st.DataObject) -> None:
    read = data.draw(st.integers(0, prompt))
    reasoning = data.draw(st.integers(0, completion))

    usage = disjoint(
        prompt=prompt, completion=completion, cache_read=read, reasoning=reasoning, total=prompt + completion
    )

    assert usage == Usage(input=prompt - read, output=completion - reasoning, cache_read=read, reasoning=reasoning)


def test_reasoning_beside_the_completion_is_added_when_the_total_says_so() -> None:
    usage = disjoint(prompt=32, completion=9, reasoning=200, total=241)

    assert (usage.output, usage.reasoning, usage.completion_tokens) == (9, 200, 209)
    assert not usage.is_adjusted


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        pytest.param({"prompt_tokens": 0, "completion_tokens": 0}, Usage(input=0, output=0), id="zeros are zeros"),
        pytest.param({}, None, id="an empty report is none"),
        pytest.param({"prompt_tokens": 5}, None, id="half a report is none"),
        pytest.param({"prompt_tokens": None, "completion_tokens": None}, None, id="nulls are none"),
        pytest.param({"prompt_tokens": "5", "completion_tokens": 1}, None, id="text is none"),
        pytest.param({"prompt_tokens": 5, "completion_tokens": 10**15}, None, id="beyond belief is none"),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None},
            Usage(input=9, output=1),
            id="details may be null",
        ),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5},
            Usage(input=5, output=1, cache_read=4),
            id="DeepSeek's cache hits",
        ),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 4},
            Usage(input=5, output=1, cache_read=4),
            id="Moonshot's cache hits",
        ),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cache_write_tokens": 6}},
            Usage(input=3, output=1, cache_write=6),
            id="OpenRouter's cache writes",
        ),
    ],
)
def test_a_chat_report_is_read(fields: dict[str, object], usage: Usage | None) -> None:
    assert report(**fields) == usage
