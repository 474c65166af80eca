"""The texts in which providers name a bound: the bound is read, and never the size of the request beside it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.limit_texts import (
    LEAST_TOKENS,
    MOST_TOKENS,
    ROOM_MARGIN,
    affordable_tokens,
    answer_tokens,
    blames_answer,
    room_tokens,
    window_tokens,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("this model's maximum context length is 8192 tokens.", 8192),
        ("maximum context length is 131,072 tokens", 131_072),
        ("the context length is 1_048_576", 1_048_576),
        ("context window of 128k tokens", 128_000),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
        ("prompt is too long: 210,000 tokens > 200,000 maximum", 200_000),
        ("the request (70000 tokens) exceeds the available context size (65536 tokens), try increasing it", 65_536),
        ("request exceeds the available context size. n_ctx: 8192", 8192),
        ("the input token count (32825) exceeds the maximum number of tokens allowed (32768).", 32_768),
        ("input token count is 32825 but model only supports up to 32768.", 32_768),
        ("supports up to 32768", 32_768),
        ("input (140000 tokens) is longer than the maximum allowed input length of 131040", 131_040),
        ("range of input length should be [1, 129024]", 129_024),
        ("this model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
        ("prompt contains 65673 tokens, too large for model with 32768 maximum context length", 32_768),
        ("your request exceeded model token limit: 262144 (requested: 270000)", 262_144),
        ("prompt token count of 140000 exceeds the limit of 128000", 128_000),
        ("input tokens exceed the configured limit of 272000 tokens. your messages resulted in 300000", 272_000),
        ("the input (70000 tokens) is longer than the model's context length (65536 tokens).", 65_536),
        ("the model is loaded with context length of only 4096 tokens, which is not enough", 4096),
        ("the prompt (length 5000) is longer than max_model_len of 4096", 4096),
        ("max_model_len=4096", 4096),
        ("maximum model length is 4096", 4096),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. given: 5000 `inputs` tokens and 1000", 4096),
        ("`inputs` must have less than 4095 tokens. given: 5000", 4095),
        ("total number of tokens in the prompt cannot exceed 4081 - received 5000", 4081),
        ("input length and `max_tokens` exceed context limit: 199211 + 20000 > 200000, decrease", 200_000),
        ("on tokens per min (tpm): limit 10000, requested 12000.", 10_000),
        ("extra usage is required for long context requests.", 200_000),
        pytest.param("context window exceeds limit (2013)", None, id="a code behind the word"),
        pytest.param("exceeded max context length by 4000 tokens", None, id="the excess"),
        pytest.param("your context has 40000 tokens, too many", None, id="the size alone"),
        pytest.param("context length is 512 tokens", None, id="less than any window"),
        pytest.param("context length is 99999999999 tokens", None, id="more than any window"),
        pytest.param("context length is 10000001 tokens", None, id="a little more than any window"),
        pytest.param("this model supports up to 8192 completion tokens", None, id="the longest answer"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_window_is_read(text: str, tokens: int | None) -> None:
    assert window_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("max_tokens is too large: 100000. this model supports at most 16384 completion tokens, whereas", 16_384),
        ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for it", 64_000),
        ("range of max_tokens should be [1, 8192]", 8192),
        ("range of max_tokens should be [1,8192]", 8192),
        ("invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        (
            "a maxoutputtokens value of 100000 but the supported range is from 1 (inclusive) to 65537 (exclusive)",
            65_536,
        ),
        ("`max_completion_tokens` must be less than or equal to `8192`, the maximum value for", 8192),
        ("the maximum tokens you requested exceeds the model limit of 8192. try again with less", 8192),
        ("'max_output_tokens': integer above maximum value. expected a value <= 16384, but got 100000", 16_384),
        ("max_tokens: 32768 > context_window: 200000 - input_tokens: 190000 = available_tokens: 10000", 10_000),
        ("this model supports up to 8192 completion tokens", 8192),
        ("the maximum output tokens is 32,000", 32_000),
    ],
)
def test_the_longest_answer_is_read(text: str, tokens: int) -> None:
    assert answer_tokens(text) == tokens
    assert blames_answer(text)


@pytest.mark.parametrize(
    "text",
    [
        "unsupported parameter: 'max_tokens' is not supported with this model. use 'max_completion_tokens' instead.",
        "`max_tokens` must be greater than `thinking.budget_tokens`",
        "max_tokens must be at least 1",
        "max_tokens: field required",
        "'max_output_tokens': integer below minimum value. expected a value >= 16, but got 1",
        "requests with max_tokens > 5000 must have stream=true",
        "this model's maximum context length is 8192 tokens.",
    ],
)
def test_not_every_word_about_the_answer_s_length_is_a_bound(text: str) -> None:
    assert answer_tokens(text) is None
    assert not blames_answer(text)


@pytest.mark.parametrize(
    ("text", "window", "prompt"),
    [
        (
            "maximum context length is 131072 tokens. however, you requested about 140000 tokens "
            "(100000 of text input, 8000 of tool input, 32000 in the output).",
            131_072,
            108_000,
        ),
        (
            "maximum context length is 131,072 tokens. however, you requested 140,000 tokens "
            "(100,000 in the messages, 40,000 in the completion).",
            131_072,
            100_000,
        ),
        (
            "maximum context length is 16384 tokens. however, you requested 17000 tokens "
            "(10000 in the messages, 1000 in the functions, and 6000 in the completion).",
            16_384,
            11_000,
        ),
        (
            "'max_tokens' is too large: 32000. this model's maximum context length is 32768 tokens and your request "
            "has 1200 input tokens (32000 > 32768 - 1200).",
            32_768,
            1200,
        ),
        ("exceed context limit: 190000 + 20000 > 200000, decrease", 200_000, 190_000),
        (
            "maximum context length of 65536 tokens. you requested a total of 70000 tokens: 60000 tokens from the "
            "input messages and 10000 tokens for the completion.",
            65_536,
            60_000,
        ),
        ("you passed 130000 input characters and requested 65536 output tokens. however, the model's context length "
         "is only 131072 tokens", 131_072, 43_334),
        ("must be <= 8192. given: 5000 `inputs` tokens and 4000 `max_new_tokens`. `inputs` tokens must be <= 8192",
         8192, 5000),
    ],
)  # fmt: skip
def test_what_the_prompt_leaves_is_read(text: str, window: int, prompt: int) -> None:
    assert room_tokens(text) == window - prompt - ROOM_MARGIN


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("exceed context limit: 199211 + 20000 > 200000", id="too little to be used"),
        pytest.param(
            "maximum context length is 8192 tokens. (9000 in the messages, 500 in the completion)", id="nothing"
        ),
        pytest.param("maximum context length is 8192 tokens. you requested 9000 tokens", id="the parts are not said"),
        pytest.param("you requested (9000 in the messages, 500 in the completion)", id="the window is not said"),
    ],
)
def test_no_room_is_none(text: str) -> None:
    assert room_tokens(text) is None


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("you requested up to 65536 tokens, but can only afford 7117. to increase", 7117),
        ("you requested up to 65,536 tokens, but can only afford 7,117.", 7117),
        ("can only afford 1,234,567 tokens", 1_234_567),
        ("can only afford 300", 300),
        ("cannot afford 65536 tokens", None),
    ],
)
def test_what_there_is_money_for_is_read(text: str, tokens: int | None) -> None:
    assert affordable_tokens(text) == tokens


NUMBERS = st.integers(0, 20_000_000)
TEMPLATES = st.sampled_from(
    [
        "prompt is too long: {large} tokens > {small} maximum",
        "the input token count ({large}) exceeds the maximum number of tokens allowed ({small})",
        "input token count is {large} but model only supports up to {small}.",
        "request ({large} tokens) exceeds the available context size ({small} tokens)",
        "maximum context length is {small} tokens. however, you requested {large} tokens",
        "input length {large} exceeds the maximum allowed input length of {small} tokens",
    ]
)


@settings(max_examples=300)
@given(template=TEMPLATES, one=NUMBERS, other=NUMBERS, spelled=st.sampled_from(["{}", "{:,}", "{:_}"]))
def test_the_larger_number_is_never_taken_for_the_bound(template: str, one: int, other: int, spelled: str) -> None:
    small, large = sorted((one, other))

    read = window_tokens(template.format(small=spelled.format(small), large=spelled.format(large)))

    assert read == (small if LEAST_TOKENS <= small <= MOST_TOKENS else None)


@settings(max_examples=300)
@given(st.text(alphabet="0123456789,.><()+- maximum context length is tokens max_tokens at most of", max_size=200))
def test_whatever_is_read_is_sane(text: str) -> None:
    for read in (window_tokens(text), answer_tokens(text), room_tokens(text)):
        assert read is None or LEAST_TOKENS <= read <= MOST_TOKENS
