"""A ranking against a sorted list, and what its operations cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from covey.supervisor.ranking import Ranking

STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "discard", "pop"]), st.integers(0, 20), st.integers(0, 3)))


@given(STEPS)
def test_it_is_a_sorted_list(steps: list[tuple[str, int, int]]) -> None:
    ranking: Ranking[str] = Ranking()
    model: list[tuple[int, int, str]] = []
    for time, (what, number, rank) in enumerate(steps):
        item = f"i{number}" if what != "pop" else ranking.first()
        model = [entry for entry in model if entry[2] != item]
        if what == "put":
            ranking.put(str(item), (rank,))
            model.append((rank, time, str(item)))
        elif item is not None:
            ranking.discard(item)

        assert ranking.first() == (min(model)[2] if model else None)
        assert len(ranking) == len(model)


class Counted:
    """An item that counts what is done with it."""

    done = 0

    def __hash__(self) -> int:
        Counted.done += 1
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        Counted.done += 1
        return self is other


def test_a_discard_does_not_look_at_the_others() -> None:
    costs = []
    for count in (100, 10_000):
        ranking: Ranking[Counted] = Ranking()
        items = [Counted() for _ in range(count)]
        for item in items:
            ranking.put(item, (0,))
        Counted.done = 0

        for item in items[count // 2 : count // 2 + 20]:
            ranking.discard(item)

        costs.append(Counted.done)
    assert costs[1] <= costs[0] + 10


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    ranking: Ranking[int] = Ranking()
    ranking.put(-1, (-1,))

    for number in range(10_000):
        ranking.put(number, (number,))
        ranking.discard(number)

    assert len(ranking) == 1
    assert len(ranking._heap) < 200  # what it holds is not to be seen from outside
