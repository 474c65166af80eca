"""Estimates of messages: within a factor of two where it matters, and cheap for anything."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.actors.runtime.sizes import CONTAINERS, OPAQUE_BYTES, SAMPLE, estimate


class Part(msgspec.Struct, frozen=True):
    text: str
    number: int = 0


class Transcript(msgspec.Struct, frozen=True):
    parts: tuple[Part, ...]
    extra: dict[str, bytes] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    body: Part
    reply: object = print


KILO = "x" * 1_000


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        pytest.param(KILO, 1_000, id="str"),
        pytest.param(KILO.encode(), 1_000, id="bytes"),
        pytest.param(bytearray(1_000), 1_000, id="bytearray"),
        pytest.param(memoryview(bytes(1_000)), 1_000, id="memoryview"),
        pytest.param(Part(KILO), 1_000, id="struct"),
        pytest.param(Request(Part(KILO)), 1_000, id="dataclass"),
        pytest.param((KILO, KILO), 2_000, id="tuple"),
        pytest.param({KILO: KILO}, 2_000, id="dict"),
        pytest.param(Transcript((Part(KILO),) * 500), 500_000, id="transcript"),
        pytest.param(Transcript((), {str(n): bytes(1_000) for n in range(100)}), 100_000, id="many values"),
        pytest.param([*("" for _ in range(500)), *(KILO for _ in range(500))], 500_000, id="uneven list"),
    ],
)
def test_an_estimate_is_within_a_factor_of_two_of_the_payload(message: object, payload: int) -> None:
    assert payload <= estimate(message) <= 2 * payload


@pytest.mark.parametrize("message", [1, 1.5, None, True], ids=repr)
def test_a_flat_value_weighs_little(message: object) -> None:
    assert estimate(message) == sys.getsizeof(message) < 50


def test_what_is_unknown_is_taken_for_a_small_object() -> None:
    assert estimate(object()) == OPAQUE_BYTES


def test_a_message_that_contains_itself_has_a_size() -> None:
    loop: list[object] = []
    loop.append(loop)

    assert estimate(loop) > 0


def test_a_huge_message_is_not_walked_to_its_end() -> None:
    looked_at = 0

    class Counting(Mapping[int, int]):
        def __len__(self) -> int:
            return 10**6

        def __iter__(self):  # type: ignore[no-untyped-def]
            nonlocal looked_at
            for n in range(10**6):
                looked_at += 1
                yield n

        def __getitem__(self, key: int) -> int:
            return key

    assert estimate(Counting()) > 10**6
    assert looked_at <= 2 * SAMPLE


@given(
    st.recursive(st.none() | st.integers() | st.text() | st.binary(), lambda inner: st.lists(inner) | st.tuples(inner))
)
def test_an_estimate_is_never_negative_and_never_below_a_lone_text(message: object) -> None:
    size = estimate(message)

    assert size > 0
    if isinstance(message, str | bytes):
        assert size == sys.getsizeof(message)


def test_depth_is_bounded() -> None:
    deep: object = KILO
    for _ in range(10 * CONTAINERS):
        deep = (deep,)

    assert estimate(deep) < CONTAINERS * 2 * OPAQUE_BYTES
