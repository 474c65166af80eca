"""The simulated model's moves, as a pure function of the request and the script."""

from __future__ import annotations

import json

import msgspec
import pytest

from covey.bench.provider_errors import Refusal
from covey.bench.script import Pace, Refuse, Rule, Script, Turn
from covey.bench.script_player import Answer, Player, Situation

PACE = Pace(think_s=0.2, chunks=4, chunk_pace_s=0.01)
TOOLS = frozenset({"read_file", "write_file", "list_files", "terminal", "delegate_task"})


def at(goal: str, rounds: int = 0, **more: object) -> Situation:
    start = Situation(model="m", goal=goal, opening=goal, rounds=rounds, tools=TOOLS)
    return msgspec.structs.replace(start, **more)


def move(script: Script, now: Situation) -> Answer:
    answer = Player(script, PACE).next_move(now)
    assert isinstance(answer, Answer)
    return answer


def conversation(goal: str, script: Script = Script(), **more: object) -> list[list[str]]:  # noqa: B008 - frozen
    moves = [move(script, at(goal, rounds, **more)) for rounds in range(12)]
    ends = next(index for index, answer in enumerate(moves) if not answer.tools)
    return [[use.name for use in answer.tools] for answer in moves[:ends]]


def test_the_same_request_always_gets_the_same_answer() -> None:
    assert move(Script(), at("find it")) == move(Script(), at("find it"))


def test_different_goals_go_different_ways_and_none_reads_before_it_wrote() -> None:
    ways = {tuple(name for turn in conversation(f"goal {n}") for name in turn) for n in range(40)}

    assert len(ways) == 4
    for way in ways:
        assert len(way) == 3
        if "read_file" in way:
            assert way.index("write_file") < way.index("read_file")


def test_a_conversation_writes_and_reads_a_file_of_its_own() -> None:
    paths = {
        json.loads(use.arguments).get("path")
        for goal in ("a", "b")
        for rounds in range(3)
        for use in move(Script(), at(goal, rounds)).tools
        if use.name == "write_file"
    }

    assert len(paths) == 2


@pytest.mark.parametrize(
    ("tools", "calls"),
    [
        pytest.param(frozenset(), 0, id="no tools, no calls"),
        pytest.param(frozenset({"my_own_tool"}), 0, id="unknown tools only"),
        pytest.param(frozenset({"list_files"}), 3, id="one known tool, three times"),
    ],
)
def test_only_tools_that_are_offered_are_improvised(tools: frozenset[str], calls: int) -> None:
    assert len(conversation("x", tools=tools)) == calls


def test_a_prompt_may_ask_for_a_number_of_calls() -> None:
    assert len(conversation("turns: 6")) == 5
    assert len(conversation("turns: 1")) == 0


def test_a_rule_may_ask_for_a_number_of_calls_and_the_prompt_knows_better() -> None:
    script = Script(rules=(Rule(turns=2),))

    assert len(conversation("x", script)) == 1
    assert len(conversation("turns: 3", script)) == 2


def test_the_first_rule_that_matches_goal_and_model_decides() -> None:
    script = Script(
        rules=(
            Rule(goal="beans", model="^glm", turns=(Turn(say="both"),)),
            Rule(goal="beans", turns=(Turn(say="goal"),)),
            Rule(model="^glm", turns=(Turn(say="model"),)),
        )
    )

    assert move(script, at("count beans", model="glm-5")).text == "both"
    assert move(script, at("count beans")).text == "goal"
    assert move(script, at("x", model="glm-5")).text == "model"
    assert move(script, at("x", rounds=9)).text.startswith("Done: x")


def test_after_the_last_turn_comes_a_text_that_quotes_goal_and_result() -> None:
    script = Script(rules=(Rule(turns=(Turn(tools=("f {}",)),)),))

    assert [use.name for use in move(script, at("x")).tools] == ["f"]
    assert move(script, at("the goal", 1, last_result="the result\n")).text == (
        "Done: the goal\nThe last tool said: the result"
    )


def test_pace_is_the_turns_own_then_the_rules_then_the_options() -> None:
    script = Script(rules=(Rule(think_s=5, chunks=9, turns=(Turn(say="x", think_s=0),)),))

    assert move(script, at("x")).pace == Pace(think_s=0, chunks=9, chunk_pace_s=0.01)


def test_a_refusal_for_some_calls_is_counted_over_all_conversations() -> None:
    player = Player(Script(rules=(Rule(turns=(Turn(refuse=Refuse(code=1305, times=2), say="ok"),)),)), PACE)

    moves = [player.next_move(at(goal)) for goal in "abc"]
    assert [isinstance(answer, Refusal) for answer in moves] == [True, True, False]
    assert isinstance(moves[0], Refusal)
    assert (moves[0].status, moves[0].code) == (429, "1305")


def test_a_refusal_without_a_number_never_ends() -> None:
    player = Player(Script(rules=(Rule(turns=(Turn(refuse=Refuse(code="1313")),)),)), PACE)

    assert all(isinstance(player.next_move(at("x")), Refusal) for _ in range(5))
