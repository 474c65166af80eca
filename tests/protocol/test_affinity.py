"""Keys of conversations: the same for the same one, another for any other, and nothing can be read out of them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.affinity import affinity_key, session_affinity
from covey.protocol.ids import SessionId

TEXTS = st.text() | st.sampled_from(["a|b", "a", "b|1", "1", "\udce9"])
NAMED = st.tuples(TEXTS, TEXTS, st.integers(0, 20))


@given(one=NAMED, other=NAMED)
def test_two_keys_are_the_same_exactly_if_source_key_and_generation_are(
    one: tuple[str, str, int], other: tuple[str, str, int]
) -> None:
    assert (affinity_key(*one) == affinity_key(*other)) == (one == other)


def test_parts_that_look_alike_in_a_row_are_told_apart() -> None:
    assert affinity_key("a", "b|1", 2) != affinity_key("a|b", "1", 2)
    assert affinity_key("a", "b", 12) != affinity_key("a", "b1", 2)


def test_a_key_is_a_prefix_and_a_hash_that_tells_nothing() -> None:
    key = affinity_key("telegram", "chat-12345678", 3)

    assert re.fullmatch(r"cvy_[0-9a-f]{24}", key)


def test_a_session_is_no_conversation_of_the_same_name() -> None:
    assert session_affinity(SessionId("ses_1")) != affinity_key("session", "ses_1", 0)
    assert session_affinity(SessionId("ses_1")) != session_affinity(SessionId("ses_2"))
