"""config.yaml: what is accepted, what is refused and how it says so."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from covey.protocol.errors import ConfigError, ConfigErrors
from covey.protocol.messages.broker import Priority
from covey.protocol.peak_hours import PeakHours
from covey.protocol.settings import (
    BudgetPeriod,
    BudgetSettings,
    CallSettings,
    FleetSettings,
    LimitSettings,
    ModelOverride,
    ModelSettings,
    Price,
    ProviderSettings,
    Settings,
    TimeoutSettings,
    builtin_providers,
)
from covey.supervisor import config_docs
from covey.supervisor.config import Accepted, Origin, Refused, examine, load
from covey.supervisor.config_keys import KEYS
from covey.supervisor.config_text import MOST_BYTES

CHECKOUT = Path(__file__).parents[2]
ZAI = builtin_providers()["zai"]


def accepted(text: str) -> Accepted:
    found = examine(text, "config.yaml")
    assert isinstance(found, Accepted), found
    return found


def refused(text: str) -> tuple[ConfigError, ...]:
    found = examine(text, "config.yaml")
    assert isinstance(found, Refused), found
    return found.errors


class TestDefaults:
    @pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "\ufeff", "providers:\nmodel:\nfleet: {}\n"])
    def test_nothing_configured_is_all_defaults(self, text: str) -> None:
        assert accepted(text).settings == Settings(providers=builtin_providers())

    def test_a_missing_file_is_all_defaults(self, tmp_path: Path) -> None:
        assert load(tmp_path / "config.yaml").settings == Settings(providers=builtin_providers())

    def test_the_table_and_the_settings_have_the_same_fields(self) -> None:
        elsewhere = {f"providers.<name>.{field}" for field in ("name", "model_limits", "priority_weights")}
        elsewhere |= {f"providers.<name>.{section}" for section in ("prices", "credits", "models", "timeouts")}
        elsewhere |= {"fleet.limits", "fleet.budget"}
        structs: dict[str, type[msgspec.Struct]] = {
            "providers.<name>": ProviderSettings,
            "model": ModelSettings,
            "fleet": FleetSettings,
            "fleet.limits": LimitSettings,
            "fleet.budget": BudgetSettings,
            "providers.<name>.prices.<model>": Price,
            "providers.<name>.credits.<model>": Price,
            "providers.<name>.models.<model>": ModelOverride,
            "providers.<name>.timeouts": TimeoutSettings,
            "calls": CallSettings,
        }
        fields = {
            f"{section}.{field.name}"
            for section, struct in structs.items()
            for field in msgspec.structs.fields(struct)
            if f"{section}.{field.name}" not in elsewhere
        } | {f"providers.<name>.priority_weights.{priority.value}" for priority in Priority}

        assert {key.pattern for key in KEYS} == fields

    def test_every_default_is_valid(self) -> None:
        assert not [key for key in KEYS if key.default is not None and key.kind.problem(key.default)]

    def test_the_docs_page_is_the_table(self) -> None:
        assert (CHECKOUT / "docs/config.md").read_text() == config_docs.page()


class TestAccepted:
    def test_everything_at_once(self) -> None:
        text = """
providers:
  local:
    base_url: http://127.0.0.1:8080/v1
    dialect: chat
    api_key_env: LOCAL_KEY
    max_concurrent: 4
    acquire_timeout_seconds: 1.5
model: {provider: local, name: "4.1"}
fleet:
  workers: 3
  max_agents: 10
  max_spawn_depth: 0
  max_turns: 7
  limits:
    rss_mb_soft: 200
    fds_hard: 0
    memory_pressure_percent: 12.5
"""
        local = ProviderSettings(
            name="local",
            base_url="http://127.0.0.1:8080/v1",
            api_key_env="LOCAL_KEY",
            max_concurrent=4,
            acquire_timeout_seconds=1.5,
        )

        assert accepted(text).settings == Settings(
            providers={"zai": ZAI, "local": local},
            model=ModelSettings(provider="local", name="4.1"),
            fleet=FleetSettings(
                workers=3,
                max_agents=10,
                max_spawn_depth=0,
                max_turns=7,
                limits=LimitSettings(rss_mb_soft=200, fds_hard=0, memory_pressure_percent=12.5),
            ),
        )

    def test_a_built_in_provider_is_merged_key_by_key(self) -> None:
        settings = accepted("providers: {zai: {max_concurrent: 5}}").settings

        assert settings.providers["zai"] == msgspec.structs.replace(ZAI, max_concurrent=5)

    def test_zero_is_no_limit(self) -> None:
        text = "providers: {x: {base_url: 'http://x', max_concurrent: 0}}"

        assert accepted(text).settings.providers["x"].max_concurrent is None
        assert not accepted(text).warnings

    def test_a_whole_number_serves_as_a_number(self) -> None:
        timeout = accepted("providers: {zai: {acquire_timeout_seconds: 3}}").settings.providers["zai"]

        assert timeout.acquire_timeout_seconds == 3.0
        assert isinstance(timeout.acquire_timeout_seconds, float)

    def test_values_say_where_they_come_from(self) -> None:
        values = {value.key: value for value in accepted("fleet:\n  workers: 3\n").values}

        assert (values["fleet.workers"].origin, values["fleet.workers"].line) == (Origin.FILE, 2)
        assert values["fleet.max_turns"].origin is Origin.DEFAULT
        assert values["providers.zai.base_url"].origin is Origin.BUILTIN

    @pytest.mark.parametrize(
        ("text", "line", "key"),
        [
            pytest.param("providers:\n  zai:\n    max_concurrent: 0\n", 3, "providers.zai.max_concurrent", id="zai"),
            pytest.param(
                "providers:\n  mine:\n    base_url: https://api.z.ai/v4\n",
                None,
                "providers.mine.max_concurrent",
                id="by host",
            ),
            pytest.param("model:\n  name: glm\n", 2, "model.provider", id="half a model"),
        ],
    )
    def test_what_is_probably_not_meant_is_a_warning(self, text: str, line: int | None, key: str) -> None:
        (warning,) = accepted(text).warnings

        assert (warning.line, warning.key) == (line, key)


WORKERS = "a whole number from 1 to 64"


class TestRefusedValues:
    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            pytest.param('"3"', '"3" (text) is not a whole number', id="number in quotes"),
            pytest.param("-1", "-1 is too small", id="negative"),
            pytest.param("65", "65 is too large", id="too large"),
            pytest.param("true", "true (a truth value) is not a whole number", id="truth value"),
            pytest.param("yes", "true (a truth value) is not a whole number", id="yes"),
            pytest.param("2.5", "2.5 is not a whole number", id="fraction"),
            pytest.param("2.0", "2.0 is not a whole number", id="whole fraction"),
            pytest.param(".nan", ".nan is not a whole number", id="nan"),
            pytest.param("-.inf", "-.inf is not a whole number", id="inf"),
            pytest.param("", "nothing is not a whole number", id="empty"),
            pytest.param("~", "nothing is not a whole number", id="null"),
            pytest.param("0x2", '"0x2" (text) is not a whole number', id="hexadecimal"),
            pytest.param("010", '"010" (text) is not a whole number', id="leading zero"),
            pytest.param("9" * 5000, "9" * 57, id="thousands of digits"),
            pytest.param("[1]", "a list where a single value belongs", id="list"),
            pytest.param("{a: 1}", "a mapping where a single value belongs", id="mapping"),
            pytest.param("!!int 3", "tags are not read", id="tag"),
            pytest.param("&a 3", "anchors and aliases are not read", id="anchor"),
        ],
    )
    def test_a_worker_count(self, value: str, problem: str) -> None:
        (error,) = refused(f"# one\nfleet:\n  workers: {value}\n")

        assert problem in error.problem or value.startswith("9")
        assert (error.file, error.line) == ("config.yaml", 3)
        assert error.key in ("fleet.workers", None)
        assert error.valid == WORKERS or error.key is None

    @pytest.mark.parametrize("value", [".nan", ".inf", "-.INF", "-0.5", "86401", "1e99", "'1'", "true", "[]"])
    def test_a_timeout(self, value: str) -> None:
        (error,) = refused(f"providers:\n  zai:\n    acquire_timeout_seconds: {value}\n")

        assert (error.line, error.key) == (3, "providers.zai.acquire_timeout_seconds")

    @pytest.mark.parametrize(
        "url",
        [
            "api.z.ai/v4",
            "ftp://host/v1",
            "http://",
            "https:///v1",
            "http://:80/v1",
            "http://host:99999",
            "http://host:0",
            "http://host:x",
            "http://[::1",
            "'http://a b'",
            "http://user:secret@host/v1",
            "http://host/v1?x=1",
            "http://host/v1#x",
            "http://hóst",
            "3",
            "''",
        ],
    )
    def test_a_base_url(self, url: str) -> None:
        (error,) = refused(f"providers:\n  x:\n    base_url: {url}\n")

        assert (error.line, error.key) == (3, "providers.x.base_url")
        assert "secret" not in str(error)

    @pytest.mark.parametrize("url", ["http://h", "HTTPS://h/v1/", "http://[::1]:8080/v1", "http://127.0.0.1:1"])
    def test_usable_base_urls_are_not_refused(self, url: str) -> None:
        assert accepted(f"providers: {{x: {{base_url: '{url}'}}}}").settings.providers["x"].base_url == url

    def test_a_key_in_place_of_a_variable_is_not_repeated(self) -> None:
        (error,) = refused("providers: {zai: {api_key_env: sk-secret.1}}")

        assert "secret" not in str(error)
        assert "not the key itself" in error.valid

    def test_an_inline_key_is_refused_and_not_repeated(self) -> None:
        (error,) = refused("providers:\n  zai:\n    api_key: sk-secret\n")

        assert (error.line, error.valid) == (3, "api_key_env: NAME_OF_THE_VARIABLE")
        assert "secret" not in str(error)

    @pytest.mark.parametrize("name", ["a.b", "'a b'", "-a", "''", "'" + "x" * 65 + "'", "a/b"])
    def test_a_provider_s_name(self, name: str) -> None:
        (error,) = refused(f"providers:\n  {name}:\n    base_url: http://x\n")

        assert error.line == 2

    def test_a_dialect(self) -> None:
        (error,) = refused("providers: {zai: {dialect: telex}}")

        assert (error.problem, error.valid) == ('"telex" (text) is not known', "chat or anthropic or responses")

    @pytest.mark.parametrize(
        ("key", "value", "problem"),
        [
            pytest.param("rss_mb_hard", "64", "64 is too small", id="less than a worker needs"),
            pytest.param("fds_soft", "1.5", "1.5 is not a whole number", id="half a file"),
            pytest.param("threads_hard", "-1", "-1 is too small", id="negative"),
            pytest.param("rss_mb_soft", "false", "false (a truth value) is not a whole number", id="truth value"),
            pytest.param("memory_headroom_mb", "1G", '"1G" (text) is not a whole number', id="unit"),
            pytest.param("memory_pressure_percent", "101", "101 is too large", id="more than all"),
        ],
    )
    def test_a_limit(self, key: str, value: str, problem: str) -> None:
        (error,) = refused(f"fleet:\n  limits:\n    {key}: {value}\n")

        assert (error.line, error.key, error.problem) == (3, f"fleet.limits.{key}", problem)


class TestRefusedKeys:
    @pytest.mark.parametrize(
        ("text", "line", "key", "hint"),
        [
            pytest.param("fleet:\n  wrokers: 1\n", 2, "fleet.wrokers", "fleet.workers?", id="misspelt"),
            pytest.param(
                "providers:\n zai:\n  max-concurrent: 1",
                3,
                "providers.zai.max-concurrent",
                "providers.zai.max_concurrent?",
                id="dash",
            ),
            pytest.param("workers: 1", 1, "workers", "fleet.workers?", id="wrong section"),
            pytest.param("provider: {}", 1, "provider", "providers?", id="misspelt section"),
            pytest.param("zzz: 1", 1, "zzz", "unknown key", id="no guess"),
            pytest.param("<<: {}", 1, "<<", "unknown key", id="merge key"),
        ],
    )
    def test_an_unknown_key(self, text: str, line: int, key: str, hint: str) -> None:
        (error,) = refused(text)

        assert (error.line, error.key) == (line, key)
        assert hint in error.problem

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            pytest.param("fleet: {}\n\nfleet: {}\n", 3, id="section"),
            pytest.param("fleet:\n  workers: 1\n  workers: 2\n", 3, id="value"),
            pytest.param("fleet: {workers: 1,\n'workers': 1}\n", 2, id="in quotes"),
            pytest.param("providers:\n  zai: {}\n  zai: {}\n", 3, id="provider"),
        ],
    )
    def test_a_key_that_stands_twice(self, text: str, line: int) -> None:
        (error,) = refused(text)

        assert error.line == line
        assert "a second time, first in line" in error.problem

    @pytest.mark.parametrize("name", ["1", "true", "null", "on", "1.5"])
    def test_a_name_that_yaml_reads_as_something_else(self, name: str) -> None:
        (error,) = refused(f"providers:\n  {name}:\n    base_url: http://x\n")

        assert (error.line, error.valid) == (2, f'text; in quotes: "{name}"')

    @pytest.mark.parametrize("text", ["? [a]\n: 1\n", "fleet:\n  ? {a: 1}\n  : 1\n"])
    def test_a_key_that_is_no_word(self, text: str) -> None:
        (error,) = refused(text)

        assert "is used as a key" in error.problem


class TestRefusedTogether:
    def test_a_provider_without_base_url(self) -> None:
        (error,) = refused("providers:\n  mine:\n    max_concurrent: 1\n")

        assert (error.line, error.key, error.problem) == (2, "providers.mine.base_url", "is missing")

    def test_a_model_whose_provider_does_not_exist(self) -> None:
        (error,) = refused("model:\n  provider: mine\n  name: x\n")

        assert (error.line, error.key, error.valid) == (2, "model.provider", "zai")

    @pytest.mark.parametrize(
        ("limits", "line", "key", "valid"),
        [
            pytest.param(
                "    rss_mb_hard: 300\n    rss_mb_soft: 301\n",
                4,
                "rss_mb_soft",
                "at most 300, or a higher fleet.limits.rss_mb_hard",
                id="both stand there",
            ),
            pytest.param(
                "    fds_soft: 9000\n",
                3,
                "fds_soft",
                "at most 8192, or a higher fleet.limits.fds_hard",
                id="soft above the default",
            ),
            pytest.param(
                "    threads_hard: 32\n",
                3,
                "threads_hard",
                "at least 64, or a lower fleet.limits.threads_soft",
                id="hard below the default",
            ),
        ],
    )
    def test_a_soft_limit_above_the_hard_one(self, limits: str, line: int, key: str, valid: str) -> None:
        (error,) = refused(f"fleet:\n  limits:\n{limits}")

        assert (error.line, error.key, error.valid) == (line, f"fleet.limits.{key}", valid)

    @pytest.mark.parametrize("limits", ["{fds_soft: 0, fds_hard: 200}", "{fds_hard: 0, fds_soft: 90000}"])
    def test_a_limit_that_is_off_has_no_order(self, limits: str) -> None:
        assert accepted(f"fleet: {{limits: {limits}}}").settings.fleet.limits != LimitSettings()

    def test_all_errors_are_reported_in_the_order_of_the_file(self) -> None:
        errors = refused("fleet:\n  workers: 0\nproviders:\n  x:\n    base_url: 1\n  b: {}\nmodel: 3\nz: 1\n")

        assert [(error.line, error.key) for error in errors] == [
            (2, "fleet.workers"),
            (5, "providers.x.base_url"),
            (6, "providers.b.base_url"),
            (7, "model"),
            (8, "z"),
        ]

    def test_several_errors_are_raised_as_one_with_their_count(self, tmp_path: Path) -> None:
        tmp_path.joinpath("config.yaml").write_text("a: 1\nb: 1\n")

        with pytest.raises(ConfigErrors, match=r"config\.yaml:1: a: .*\(and 1 more; `covey config check` shows all\)$"):
            load(tmp_path / "config.yaml")


class TestRefusedText:
    @pytest.mark.parametrize(
        ("text", "line"),
        [
            pytest.param("fleet:\n\tworkers: 1\n", 2, id="tab as indentation"),
            pytest.param("fleet:\n  workers:\t1\n", 2, id="tab before a value"),
            pytest.param("fleet:\n  workers: 1\n \t\n", 3, id="tab on an empty line"),
            pytest.param("fleet:\n  workers: 1\nprovid", 3, id="truncated in a key"),
            pytest.param('fleet:\n  workers: "1', 2, id="truncated in a text"),
            pytest.param("fleet: {workers: 1", 1, id="truncated in a mapping"),
            pytest.param("a: b: c\n", 1, id="two values"),
            pytest.param("- a\n", 1, id="a list"),
            pytest.param("\n\nhello\n", 3, id="a word"),
            pytest.param("a: 1\n---\nb: 2\n", 2, id="two documents"),
            pytest.param("a: \x07\n", 1, id="control character"),
            pytest.param('a:\n - "\\UFFFFFFFF"\n', 2, id="impossible character"),
            pytest.param("%YAML 1." + "9" * 5000 + "\n---\na: 1\n", 1, id="impossible version"),
            pytest.param("a: &x [1]\nb: *x\n", 1, id="alias"),
            pytest.param("a: " + "[" * 5000, 1, id="deep flow"),
            pytest.param("\n".join(" " * n + "a:" for n in range(200)), 16, id="deep block"),
        ],
    )
    def test_the_line_is_named(self, text: str, line: int) -> None:
        (error,) = refused(text)

        assert error.line == line

    def test_a_tab_is_called_a_tab(self) -> None:
        (error,) = refused("fleet:\n\tworkers: 1\n")

        assert (error.problem, error.valid) == ("a tab where YAML wants spaces", "spaces for indentation")

    def test_an_alias_bomb_costs_nothing(self) -> None:
        layers = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 40))

        (error,) = refused("l0: &l0 [x]\n" + layers)

        assert (error.line, error.problem) == (1, "anchors and aliases are not read")


class TestRefusedFiles:
    def test_a_file_that_is_too_large(self, tmp_path: Path) -> None:
        tmp_path.joinpath("config.yaml").write_text("#" * (MOST_BYTES + 1))

        with pytest.raises(ConfigError, match="too large"):
            load(tmp_path / "config.yaml")

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        tmp_path.joinpath("config.yaml").write_bytes(b"# one\n# \xff\n")

        with pytest.raises(ConfigError, match=r"config\.yaml:2: not UTF-8"):
            load(tmp_path / "config.yaml")

    def test_a_directory(self, tmp_path: Path) -> None:
        tmp_path.joinpath("config.yaml").mkdir()

        with pytest.raises(ConfigError, match=r"config\.yaml: cannot be read"):
            load(tmp_path / "config.yaml")

    def test_a_pipe_that_nobody_writes_to(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "config.yaml")

        with pytest.raises(ConfigError, match="not a regular file"):
            load(tmp_path / "config.yaml")


class TestProviders:
    """Keys that are more than a number: limits of models, weights, prices; and the fleet's budget."""

    def test_everything_a_budget_can_be_told(self) -> None:
        text = """
providers:
  x:
    base_url: http://x/v1
    max_concurrent: {"*": 4, large-2.5: 1, free: 0}
    release_lag_ms: 250
    priority_weights: {agent: 3}
    max_requests_per_minute: 60
    max_tokens_per_minute: 100000
    quota_poll_seconds: 0
    prices:
      large-2.5: {input: 1, output: 2.5, cache_read: 0}
    credits:
      large-2.5: {input: 690, output: 2400, request: 1, peak_hours: Mon-Fri 14:00-18:00 +08:00, off_peak_factor: 0.5}
fleet:
  budget: {max_tokens: 1000, max_cost_usd: 2.5, period: month}
"""
        settings = accepted(text).settings

        assert settings.providers["x"] == ProviderSettings(
            name="x",
            base_url="http://x/v1",
            max_concurrent=4,
            model_limits={"large-2.5": 1},
            release_lag_ms=250.0,
            priority_weights={"agent": 3},
            max_requests_per_minute=60,
            max_tokens_per_minute=100_000,
            quota_poll_seconds=0.0,
            prices={"large-2.5": Price(input=1.0, output=2.5, cache_read=0.0)},
            credits={
                "large-2.5": Price(
                    input=690.0,
                    output=2400.0,
                    request=1.0,
                    peak_hours=PeakHours(days=(0, 1, 2, 3, 4), begin=14 * 60, end=18 * 60, offset=8 * 60),
                    off_peak_factor=0.5,
                )
            },
        )
        assert settings.fleet.budget == BudgetSettings(max_tokens=1000, max_cost_usd=2.5, period=BudgetPeriod.MONTH)

    def test_a_mapping_of_limits_may_stand_below_its_key(self) -> None:
        text = 'providers:\n  zai:\n    max_concurrent:\n      "*": 5\n      glm-5: 2\n'

        assert accepted(text).settings.providers["zai"] == msgspec.structs.replace(
            ZAI, max_concurrent=5, model_limits={"glm-5": 2}
        )

    def test_zero_is_no_limit_per_minute_and_no_budget(self) -> None:
        text = "providers: {zai: {max_requests_per_minute: 0}}\nfleet: {budget: {max_tokens: 0, max_cost_usd: 0}}"

        assert accepted(text).settings == Settings(providers=builtin_providers())

    @pytest.mark.parametrize(
        ("limit", "key", "problem"),
        [
            pytest.param("{glm-5: 1}", "", "the mapping says nothing about all others", id="no star"),
            pytest.param("{}", "", "the mapping says nothing about all others", id="empty"),
            pytest.param('{"*": 2, glm-5: x}', "", 'glm-5: "x" (text) is not a whole number', id="text"),
            pytest.param('{"*": -1}', "", "*: -1 is too small", id="negative"),
            pytest.param('{"*": 2, glm-5: {a: 1}}', ".glm-5", "a mapping where a count belongs", id="deeper"),
            pytest.param('{"*": 2, "*": 3}', ".*", "stands here a second time", id="twice"),
            pytest.param('{"*": 2, 4.1: 3}', ".4.1", "the key is not text", id="a number for a name"),
            pytest.param("[2]", "", "a list where a single value belongs", id="list"),
        ],
    )
    def test_a_mapping_of_limits_that_cannot_be_meant(self, limit: str, key: str, problem: str) -> None:
        errors = refused(f"providers:\n  zai:\n    max_concurrent: {limit}\n")

        assert (errors[0].line, errors[0].key) == (3, f"providers.zai.max_concurrent{key}")
        assert problem in errors[0].problem

    def test_only_some_keys_take_a_mapping(self) -> None:
        (error,) = refused('providers: {zai: {release_lag_ms: {"*": 1}}}')

        assert error.problem == "a mapping where a single value belongs"

    def test_half_a_price_is_none(self) -> None:
        found = accepted("providers:\n  zai:\n    prices:\n      glm-4.6: {input: 1}\n")

        assert found.settings.providers["zai"].prices == {}
        assert [(warning.line, warning.key) for warning in found.warnings] == [
            (4, "providers.zai.prices.glm-4.6.output")
        ]

    def test_half_a_price_in_credits_is_none_and_refuses_nobody(self) -> None:
        found = accepted("providers:\n  zai:\n    credits:\n      glm-4.6: {input: 1}\n")

        assert found.settings.providers["zai"].credits == {}
        assert [warning.message for warning in found.warnings] == ["is not set, so glm-4.6 has no price in credits"]

    @pytest.mark.parametrize(
        ("text", "key"),
        [
            pytest.param("providers: {zai: {prices: {m: {peak_hours: 9-17}}}}", "prices.m.peak_hours", id="no hours"),
            pytest.param(
                "providers: {zai: {credits: {m: {peak_hours: 14:10-18:00}}}}", "credits.m.peak_hours", id="no quarters"
            ),
            pytest.param(
                "providers: {zai: {prices: {m: {off_peak_factor: 2}}}}", "prices.m.off_peak_factor", id="dearer"
            ),
            pytest.param("providers: {zai: {prices: {m: {input: -1, output: 1}}}}", "prices.m.input", id="negative"),
            pytest.param("providers: {zai: {prices: {m: {in: 1}}}}", "prices.m.in", id="unknown"),
            pytest.param("providers: {zai: {prices: {'': {input: 1, output: 1}}}}", "prices.", id="no name"),
            pytest.param("providers: {zai: {priority_weights: {agent: 0}}}", "priority_weights.agent", id="no weight"),
            pytest.param("providers: {zai: {priority_weights: {agents: 1}}}", "priority_weights.agents", id="class"),
        ],
    )
    def test_what_is_refused_says_where(self, text: str, key: str) -> None:
        assert f"providers.zai.{key}" in [error.key for error in refused(text)]

    def test_a_period_has_three_names(self) -> None:
        (error,) = refused("fleet: {budget: {period: week}}")

        assert error.valid == "day or month or life"

    def test_no_limit_for_zai_is_warned_about_in_a_mapping_too(self) -> None:
        (warning,) = accepted('providers: {zai: {max_concurrent: {"*": 0, glm-5: 1}}}').warnings

        assert warning.key == "providers.zai.max_concurrent"
