"""`covey config`, from the command line to the file and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey.__main__ import main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVEY_HOME", str(tmp_path))
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return msgspec.json.decode(capsys.readouterr().out)


def test_what_was_set_is_got_with_its_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "providers.zai.max_concurrent", "3"]) == 0
    assert main(["config", "get", "providers.zai.max_concurrent"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        f"providers.zai.max_concurrent: 3  # {home}/config.yaml:3, was 2",
        f"providers.zai.max_concurrent: 3  # {home}/config.yaml:3",
    ]


def test_a_default_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "get", "fleet.workers"]) == 0

    assert capsys.readouterr().out == "fleet.workers: 2  # default\n"


def test_a_section_shows_its_keys(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "get", "providers.zai", "--json"]) == 0

    values = printed(capsys)["values"]
    assert {value["key"].split(".")[1] for value in values} == {"zai"}
    assert {"providers.zai.base_url", "providers.zai.priority_weights.agent"} <= {value["key"] for value in values}


def test_json_carries_types_and_places(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.joinpath("config.yaml").write_text("fleet:\n  workers: 3\n")

    assert main(["config", "get", "fleet.workers", "--json"]) == 0

    assert printed(capsys) == {
        "file": f"{home}/config.yaml",
        "values": [{"key": "fleet.workers", "value": 3, "origin": "file", "line": 2}],
    }


def test_home_can_be_named(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"

    assert main(["config", "set", "fleet.workers", "3", "--home", str(other)]) == 0

    assert other.joinpath("config.yaml").exists()
    assert not home.joinpath("config.yaml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set", "fleet.workers", "true"], "valid: a whole number from 1 to 64"),
        (["set", "fleet.wrokers", "3"], "did you mean fleet.workers?"),
        (["set", "fleet.workers", "-1"], "-1 is too small"),
        (["get", "fleet.wrokers"], "did you mean fleet.workers?"),
        (["get", "providers.mine"], "there are: zai"),
        (["set", "fleet.workers"], "see `covey config set --help`"),
        ([], "see `covey config --help`"),
    ],
)
def test_what_cannot_be_meant_is_usage(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["config", *words]) == 2

    assert message in capsys.readouterr().err
    assert not home.joinpath("config.yaml").exists()


def test_check_shows_every_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.joinpath("config.yaml").write_text("fleet:\n  workers: '3'\n  max_turns: -1\n")

    assert main(["config", "check"]) == 2

    assert [line.split(": ")[:2] for line in capsys.readouterr().out.splitlines()] == [
        [f"{home}/config.yaml:2", "fleet.workers"],
        [f"{home}/config.yaml:3", "fleet.max_turns"],
    ]


def test_check_as_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.joinpath("config.yaml").write_text("fleet:\n\tworkers: 3\n")

    assert main(["config", "check", "--json"]) == 2

    assert printed(capsys) == {
        "ok": False,
        "file": f"{home}/config.yaml",
        "errors": [
            {
                "file": f"{home}/config.yaml",
                "line": 2,
                "key": None,
                "problem": "a tab where YAML wants spaces",
                "valid": "spaces for indentation",
            }
        ],
        "warnings": [],
    }


def test_check_accepts_and_warns(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.joinpath("config.yaml").write_text("providers: {zai: {max_concurrent: 0}}\n")

    assert main(["config", "check"]) == 0

    shown = capsys.readouterr()
    assert shown.out == f"{home}/config.yaml: valid\n"
    assert shown.err.startswith(f"covey: warning: {home}/config.yaml:1: providers.zai.max_concurrent: no limit")


def test_check_of_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check"]) == 0

    assert "not there; everything is at its default" in capsys.readouterr().out


def test_get_of_an_invalid_file_is_one_line_and_one_object(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.joinpath("config.yaml").write_text("fleet: 3\n")

    assert main(["config", "get", "--json"]) == 2

    shown = capsys.readouterr()
    error = msgspec.json.decode(shown.out)["error"]
    assert error["kind"] == "ConfigError"
    assert shown.err == f"covey: {error['message']}\n"
    assert f"{home}/config.yaml:1: fleet:" in error["message"]
