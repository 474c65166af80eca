"""Script files: what is read, and how a mistake is reported."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from covey.bench.script import Refuse, Rule, Script, Turn
from covey.bench.script_file import SHAPES, VALID, load_script
from covey.protocol.errors import ConfigError

SCENARIOS = sorted(
    (entry.name, str(entry))
    for entry in (resources.files("covey.bench") / "scenarios").iterdir()
    if entry.name.endswith(".yaml")
)


def load(tmp_path: Path, text: str) -> Script:
    path = tmp_path / "script.yaml"
    path.write_text(text, encoding="utf-8")
    return load_script(str(path))


def refused(tmp_path: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return caught.value


def test_no_file_is_an_empty_script() -> None:
    assert load_script(None) == Script()


def test_a_file_with_everything_is_read_as_it_stands(tmp_path: Path) -> None:
    text = """\
rules:
  - goal: "(?i)beans"
    model: ^glm
    think_s: 1
    turns:
      - tools: ['list_files {"path": "."}', 'f {} && g {}']
        chunk_pace_s: 0.5
      - refuse: {code: 1308, status: 429, message: wait, headers: {Retry-After: 7}, times: 3}
        say: done
        cut_after_chunks: 2
        finish_reason: length
        usage: none
  - turns: 6
"""
    script = load(tmp_path, text)

    refuse = Refuse(code=1308, status=429, message="wait", headers={"Retry-After": 7}, times=3)
    first = Turn(tools=('list_files {"path": "."}', "f {} && g {}"), chunk_pace_s=0.5)
    second = Turn(refuse=refuse, say="done", cut_after_chunks=2, finish_reason="length", usage="none")
    rules = (Rule(goal="(?i)beans", model="^glm", think_s=1.0, turns=(first, second)), Rule(turns=6))
    assert script == Script(rules=rules)
    assert [use.name for use in first.uses()] == ["list_files", "f", "g"]


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        pytest.param("", None, "rules", "empty or missing", id="empty"),
        pytest.param("- x\n", 1, None, "list", id="a list"),
        pytest.param("rules: [\n", 1, None, "not YAML", id="cut off"),
        pytest.param("rules:\n\t- goal: x\n", 2, None, "tab", id="tabs"),
        pytest.param("moods: {limit: -1}\n", 1, "moods.limit", "from 0", id="a mood out of range"),
        pytest.param("moods:\n  limt: 1\n", 2, "moods.limt", "limit, model_limits", id="unknown mood"),
        pytest.param("moods:\n  plan_keys: '('\n", 2, "moods.plan_keys", "regular expr", id="a mood's bad regexp"),
        pytest.param(
            "moods:\n  windows:\n    - unti: 3\n",
            3,
            "moods.windows[0].unti",
            "type, unit",
            id="unknown key of a window",
        ),
        pytest.param(
            "moods:\n  refused_models: {m: []}\n", 2, "moods.refused_models", "code like 1311", id="a model's odd code"
        ),
        pytest.param("moods:\n  bodies: {dies: old}\n", 2, "moods.bodies.dies", "`cut`", id="unknown death"),
        pytest.param("rules: []\nrule: []\n", 2, "rule", "the keys rules", id="unknown key at the top"),
        pytest.param("rules:\n - goal: x\n   gaol: y\n", 3, "rules[0].gaol", "goal, model", id="unknown key of a rule"),
        pytest.param(
            "rules:\n - turns:\n    - say: a\n    - sya: b\n", 4, "rules[0].turns[1].sya", "tools, say", id="of a turn"
        ),
        pytest.param(
            "rules:\n - goal: x\n   goal: y\n", 3, "rules[0].goal", "each key once", id="key that stands twice"
        ),
        pytest.param("rules:\n - think_s: -1\n", 2, "rules[0].think_s", "seconds from 0", id="negative"),
        pytest.param("rules:\n - think_s: .nan\n", 2, "rules[0].think_s", "seconds from 0", id="not a number"),
        pytest.param("rules:\n - think_s: true\n", 2, "rules[0].think_s", "seconds from 0", id="truth value"),
        pytest.param("rules:\n - chunks: '3'\n", 2, "rules[0].chunks", "from 1 to", id="number in quotes"),
        pytest.param("rules:\n - turns: 0\n", 2, "rules[0].turns", "list of turns", id="no calls at all"),
        pytest.param("rules:\n - goal: '('\n", 2, "rules[0].goal", "is no regular expression", id="bad regexp"),
        pytest.param(
            "rules:\n - turns:\n    - tools: ['f {']\n",
            3,
            "rules[0].turns[0].tools",
            "arguments of f",
            id="bad tool call",
        ),
        pytest.param(
            "rules:\n - turns:\n    - refuse: {code: 1, status: 200}\n",
            3,
            "rules[0].turns[0].refuse.status",
            "400 to 599",
            id="refusal with a good status",
        ),
        pytest.param(
            "rules:\n - turns:\n    - refuse: {code: 1, headers: {'a b': c}}\n",
            3,
            "rules[0].turns[0].refuse.headers",
            "no HTTP header",
            id="bad header",
        ),
        pytest.param(
            "rules:\n - turns:\n    - refuse: {code: 1, headers: {Content-Length: 3}}\n",
            3,
            "rules[0].turns[0].refuse.headers",
            "the server itself",
            id="header that is ours",
        ),
        pytest.param(
            "rules:\n - turns:\n    - refuse: {code: 1}\n      say: never\n",
            3,
            "rules[0].turns[0].refuse",
            "`times`",
            id="words after a refusal without end",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_what_would_be_valid(
    tmp_path: Path, text: str, line: int | None, key: str | None, says: str
) -> None:
    error = refused(tmp_path, text)

    assert (error.line, error.key) == (line, key)
    assert says in str(error)
    assert str(tmp_path / "script.yaml") in str(error)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_script(str(tmp_path / "nowhere.yaml"))


def test_every_key_says_what_it_takes() -> None:
    keys = {key for shape in (Script, *SHAPES.values()) for key in shape.__struct_fields__}

    assert keys == VALID.keys()


@pytest.mark.parametrize("path", [path for _, path in SCENARIOS], ids=[name for name, _ in SCENARIOS])
def test_the_scenarios_that_come_along_are_valid_and_explain_themselves(path: str) -> None:
    assert load_script(path) != Script()
    assert Path(path).read_text(encoding="utf-8").startswith("# ")


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 3
