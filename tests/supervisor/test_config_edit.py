"""`covey config set`: the text around a change, and the file on the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from covey.protocol.errors import ConfigError, HomeError, UsageError
from covey.supervisor import config_edit
from covey.supervisor.config import Effective, Origin, load
from covey.supervisor.config_amend import amend
from covey.supervisor.config_edit import set_value
from covey.supervisor.config_kinds import Value, write_plain
from covey.supervisor.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def write(home: Home, text: str) -> None:
    home.create()
    home.config.write_bytes(text.encode())


class TestAmend:
    @pytest.mark.parametrize(
        ("before", "key", "value", "after"),
        [
            pytest.param("", "fleet.workers", 3, "fleet:\n  workers: 3\n", id="empty file"),
            pytest.param("# mine", "fleet.workers", 3, "# mine\nfleet:\n  workers: 3\n", id="only a comment"),
            pytest.param("---\n", "fleet.workers", 3, "---\nfleet:\n  workers: 3\n", id="only a start"),
            pytest.param(
                "fleet:\n    workers: 2  # two\n",
                "fleet.workers",
                3,
                "fleet:\n    workers: 3  # two\n",
                id="value with a comment",
            ),
            pytest.param(
                "fleet:\n    workers: 2  # two\n# next\nmodel:\n    name: x\n",
                "fleet.max_turns",
                9,
                "fleet:\n    workers: 2  # two\n    max_turns: 9\n# next\nmodel:\n    name: x\n",
                id="new key above the next section's comment",
            ),
            pytest.param(
                "fleet:  # ours\n# next\nmodel:\n",
                "fleet.workers",
                3,
                "fleet:  # ours\n  workers: 3\n# next\nmodel:\n",
                id="empty section",
            ),
            pytest.param(
                "providers: {x: {max_concurrent: 3}} # c\n",
                "providers.x.max_concurrent",
                {"*": 2, "glm-5": 1},
                'providers: {x: {max_concurrent: {"*": 2, glm-5: 1}}} # c\n',
                id="a mapping for a number",
            ),
            pytest.param(
                'providers:\n  x:\n    max_concurrent:\n      "*": 2 # all\n# next\nfleet:\n',
                "providers.x.max_concurrent",
                3,
                "providers:\n  x:\n    max_concurrent:\n      3 # all\n# next\nfleet:\n",
                id="a number for a mapping below",
            ),
            pytest.param("fleet: ~ # c\n", "fleet.workers", 3, "fleet: {workers: 3} # c\n", id="null section"),
            pytest.param("fleet: {} # c\n", "fleet.workers", 3, "fleet: {workers: 3} # c\n", id="empty flow"),
            pytest.param(
                "fleet: {max_turns: 1, # inner\n  }\n",
                "fleet.workers",
                3,
                "fleet: {max_turns: 1, workers: 3, # inner\n  }\n",
                id="flow with a comment inside",
            ),
            pytest.param(
                "{fleet: }\n", "fleet.workers", 3, "{fleet: {workers: 3} }\n", id="empty section in a flow mapping"
            ),
            pytest.param(
                "fleet:\r\n  workers: 2\r\n# end",
                "model.name",
                "x",
                "fleet:\r\n  workers: 2\r\nmodel:\r\n  name: x\r\n# end",
                id="line ends of another system",
            ),
            pytest.param(
                "providers: {zai: {}}\n",
                "providers.mine.base_url",
                "http://x/v1",
                "providers: {zai: {}, mine: {base_url: http://x/v1}}\n",
                id="new provider in a flow mapping",
            ),
            pytest.param(
                "providers:\n  zai:\n    max_concurrent: 2\n",
                "providers.123.base_url",
                "http://x/v1",
                'providers:\n  zai:\n    max_concurrent: 2\n  "123":\n    base_url: http://x/v1\n',
                id="new provider whose name has to be quoted",
            ),
            pytest.param("model: {name: x}", "model.name", "yes", 'model: {name: "yes"}', id="text like a truth value"),
            pytest.param("model:\n  name:  # c\n", "model.name", "x", "model:\n  name: x  # c\n", id="empty value"),
            pytest.param(
                "fleet:\n  workers: 'two'\n", "fleet.workers", 2, "fleet:\n  workers: 2\n", id="repair of a bad value"
            ),
            pytest.param(
                "fleet:\n  workers: [1]\n", "fleet.workers", 2, "fleet:\n  workers: 2\n", id="repair of a bad list"
            ),
        ],
    )
    def test_only_the_value_changes(self, before: str, key: str, value: Value, after: str) -> None:
        assert amend(before, "f", tuple(key.split(".")), value) == after

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("---\n...\n", id="after the end mark"),
            pytest.param("", id="nothing"),
        ],
    )
    def test_a_change_that_reads_back_differently_is_refused(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if not text:
            monkeypatch.setattr("covey.supervisor.config_amend.write_plain", lambda value: "4")

        with pytest.raises(ConfigError, match="cannot be changed automatically") as caught:
            amend(text, "f", ("model", "name"), "x")

        assert caught.value.key == "model.name"


class TestSetValue:
    def test_a_new_file_is_private(self, home: Home) -> None:
        change = set_value(home, "providers.zai.max_concurrent", "3")

        assert home.config.read_text() == "providers:\n  zai:\n    max_concurrent: 3\n"
        assert home.config.stat().st_mode & 0o777 == 0o600
        assert (change.after.value, change.after.origin, change.after.line) == (3, Origin.FILE, 3)
        assert change.before is not None
        assert change.before.value == 2

    def test_the_mode_stays(self, home: Home) -> None:
        write(home, "")
        home.config.chmod(0o644)

        set_value(home, "fleet.workers", "3")

        assert home.config.stat().st_mode & 0o777 == 0o644

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_the_owner_stays(self, home: Home) -> None:
        write(home, "")
        os.chown(home.config, 12345, 12345)

        set_value(home, "fleet.workers", "3")

        assert home.config.stat().st_uid == 12345

    def test_a_link_is_followed_and_stays_a_link(self, home: Home, tmp_path: Path) -> None:
        home.create()
        target = tmp_path / "dotfiles.yaml"
        target.write_text("# kept\n")
        home.config.symlink_to(target)

        set_value(home, "fleet.workers", "3")

        assert home.config.is_symlink()
        assert target.read_text() == "# kept\nfleet:\n  workers: 3\n"

    def test_no_draft_is_left(self, home: Home) -> None:
        set_value(home, "fleet.workers", "3")

        assert sorted(path.name for path in home.path.iterdir()) == ["config.lock", "config.yaml"]

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("fleet.workers", "true"),
            ("fleet.workers", "'3'"),
            ("fleet.workers", "-1"),
            ("fleet.workers", "2.5"),
            ("fleet.workers", "[3]"),
            ("fleet.workers", ""),
            ("fleet.workers", " 3"),
            ("fleet.wrokers", "3"),
            ("fleet", "3"),
            ("fleet.workers.x", "3"),
            ("", "3"),
            ("providers.a b.base_url", "http://x"),
            ("providers.<name>.base_url", "http://x"),
            ("providers.zai.api_key", "sk-secret"),
            ("providers.zai.base_url", "x"),
            ("providers.zai.acquire_timeout_seconds", ".nan"),
            ("model.name", "a\nb"),
            ("model.name", "\udcff"),
        ],
    )
    def test_a_bad_key_or_value_writes_nothing(self, home: Home, key: str, value: str) -> None:
        with pytest.raises(UsageError, match="valid: ") as caught:
            set_value(home, key, value)

        assert "secret" not in str(caught.value)
        assert not home.path.exists()

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("fleet:\n\tworkers: 1\n", id="tab"),
            pytest.param("fleet: {workers: 1", id="truncated"),
            pytest.param("fleet: {}\nfleet: {}\n", id="duplicate key"),
            pytest.param("fleet:\n  max_turns: '3'\n", id="another bad value"),
            pytest.param("- a\n", id="list"),
            pytest.param("fleet: [1]\n", id="list in place of the section"),
            pytest.param("fleet: 3\n", id="value in place of the section"),
            pytest.param("model: {provider: nobody, name: x}\n", id="missing provider"),
        ],
    )
    def test_nothing_is_written_to_a_file_that_is_invalid(self, home: Home, text: str) -> None:
        write(home, text)

        with pytest.raises(ConfigError) as caught:
            set_value(home, "fleet.workers", "3")

        assert caught.value.line is not None
        assert home.config.read_text() == text

    def test_nothing_is_written_that_would_be_invalid(self, home: Home) -> None:
        write(home, "# mine\n")

        with pytest.raises(ConfigError, match=r"providers\.mine\.base_url: is missing") as caught:
            set_value(home, "providers.mine.max_concurrent", "3")

        assert caught.value.line is None
        assert home.config.read_text() == "# mine\n"

    def test_the_provider_a_model_waits_for_can_be_added(self, home: Home) -> None:
        write(home, "model: {provider: mine, name: x}\n")

        change = set_value(home, "providers.mine.base_url", "http://x")

        assert change.accepted.settings.model is not None

    def test_a_model_can_be_set_key_by_key(self, home: Home) -> None:
        first = set_value(home, "model.name", "glm-4.6")
        second = set_value(home, "model.provider", "zai")

        assert first.accepted.settings.model is None
        assert second.accepted.settings.model is not None

    def test_the_wait_for_the_lock_ends(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(config_edit, "LOCK_TIMEOUT_S", 0.05)
        home.create()

        with config_edit._locked(home.config_lock), pytest.raises(HomeError, match="another process"):
            set_value(home, "fleet.workers", "3")

        assert not home.config.exists()


SETTER = """
import sys
from covey.supervisor.config_edit import set_value
from covey.supervisor.home import Home
for round in range(15):
    set_value(Home.locate(sys.argv[1]), sys.argv[2], str(round + 1))
"""


def test_concurrent_changes_do_not_lose_each_other(home: Home) -> None:
    write(home, "# kept\n")
    keys = ["fleet.workers", "fleet.max_turns", "providers.zai.max_concurrent"]

    setters = [subprocess.Popen([sys.executable, "-P", "-c", SETTER, str(home.path), key]) for key in keys]

    assert [setter.wait(timeout=30) for setter in setters] == [0, 0, 0]
    text = home.config.read_text()
    assert text.count(": 15\n") == 3
    assert text.startswith("# kept\n")


class TestSetting:
    """Keys whose values are more than one word, from the command line and back."""

    @pytest.mark.parametrize(
        ("key", "text", "value"),
        [
            pytest.param("providers.zai.max_concurrent", '{"*": 2, glm-5: 1}', {"*": 2, "glm-5": 1}, id="mapping"),
            pytest.param("providers.zai.max_concurrent", "{'*': 4}", {"*": 4}, id="mapping of one"),
            pytest.param("providers.zai.prices.glm-4.6.input", "0.6", 0.6, id="a model with a dot"),
            pytest.param("providers.zai.prices.a/b.c.d.output", "2", 2, id="a model with two"),
            pytest.param("providers.zai.priority_weights.agent", "3", 3, id="weight"),
            pytest.param("providers.zai.release_lag_ms", "250", 250, id="lag"),
            pytest.param("providers.zai.max_tokens_per_minute", "1000", 1000, id="per minute"),
            pytest.param("fleet.budget.max_cost_usd", "2.5", 2.5, id="budget"),
            pytest.param("fleet.budget.period", "month", "month", id="period"),
        ],
    )
    def test_what_is_set_is_what_is_read(self, home: Home, key: str, text: str, value: object) -> None:
        change = set_value(home, key, text)

        assert (change.after.key, change.after.value, change.after.origin) == (key, value, Origin.FILE)
        again = {found.key: found.value for found in load(home.config).values}
        assert again[key] == value

    def test_a_mapping_gives_way_to_a_number_and_back(self, home: Home) -> None:
        for text in ('{"*": 2, glm-5: 1}', "3", '{"*": 5}'):
            shown = write_plain(set_value(home, "providers.zai.max_concurrent", text).after.value)
            assert set_value(home, "providers.zai.max_concurrent", shown).before == Effective(
                key="providers.zai.max_concurrent", value=read(text), origin=Origin.FILE, line=3
            )

    @pytest.mark.parametrize(
        ("key", "text", "problem"),
        [
            pytest.param("providers.zai.max_concurrent", "{glm-5: 1}", "all others", id="no star"),
            pytest.param("providers.zai.max_concurrent", '{"*": 1', "not YAML", id="no end"),
            pytest.param("providers.zai.max_concurrent", '{"*": 1, "*": 2}', "second time", id="twice"),
            pytest.param("providers.zai.release_lag_ms", '{"*": 1}', "not a number", id="no mapping here"),
            pytest.param("providers.zai.prices.glm-4.6", "1", "is a section", id="a price has parts"),
            pytest.param("providers.zai.prices.glm-4.6.inputs", "1", "input, output", id="misspelt"),
        ],
    )
    def test_what_cannot_be_meant_is_refused_and_nothing_written(
        self, home: Home, key: str, text: str, problem: str
    ) -> None:
        with pytest.raises(UsageError, match=problem):
            set_value(home, key, text)

        assert not home.config.exists()


def read(text: str) -> Value:
    value: Value = json.loads(text.replace("glm-5", '"glm-5"'))
    return value
