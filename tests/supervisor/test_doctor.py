"""What the doctor finds, check by check, over facts and files made by hand."""

from __future__ import annotations

import os
import resource
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from covey.protocol.settings import (
    ZAI_BASE_URL,
    FleetSettings,
    ModelSettings,
    ProviderSettings,
    Settings,
)
from covey.storage.mounts import file_system
from covey.supervisor.doctor import look, worst
from covey.supervisor.doctor_findings import Finding, Level, fail, ok, warn
from covey.supervisor.doctor_home import check_folder, check_sockets
from covey.supervisor.doctor_host import (
    AHEAD_S,
    check_clock,
    check_drift,
    check_files,
    check_zone,
    package_problem,
)
from covey.supervisor.doctor_providers import KEYS, URLS, Plan, check_providers, plan_of
from covey.supervisor.home import Home
from covey.supervisor.leftovers import Register, survivors

GENERAL = "https://api.z.ai/api/paas/v4"


def provider(
    name: str = "zai", base_url: str = ZAI_BASE_URL, api_key_env: str | None = "ZAI_API_KEY"
) -> ProviderSettings:
    return ProviderSettings(name=name, base_url=base_url, api_key_env=api_key_env, max_concurrent=2)


def found(
    *providers: ProviderSettings,
    environ: dict[str, str] | None = None,
    model: str | None = None,
    at_root: frozenset[str] | None = None,
    check: str,
) -> list[Finding]:
    settings = Settings(
        providers={one.name: one for one in providers},
        model=ModelSettings(provider=model, name="m") if model else None,
    )
    names = frozenset(settings.providers)
    findings = check_providers(settings, names, environ or {"ZAI_API_KEY": "sk-1"}, at_root=at_root)
    return [finding for finding in findings if finding.check == check]


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_that_is_there_is_named_by_its_budget_and_never_shown() -> None:
    (finding,) = found(provider(), environ={"ZAI_API_KEY": "sk-secret"}, check=KEYS)

    assert finding.level is Level.OK
    assert "ZAI_API_KEY, budget zai:" in finding.says
    assert "sk-secret" not in str(finding)


@pytest.mark.parametrize(
    ("environ", "model", "level"),
    [
        pytest.param({"X": ""}, None, Level.WARN, id="not set"),
        pytest.param({"ZAI_API_KEY": "  "}, None, Level.WARN, id="empty"),
        pytest.param({"X": ""}, "zai", Level.FAIL, id="not set, for the default model"),
        pytest.param({"ZAI_API_KEY": "\u201csk\u201d"}, None, Level.FAIL, id="typographic quotes"),
    ],
)
def test_a_key_that_is_missing_or_none_is_said(environ: dict[str, str], model: str | None, level: Level) -> None:
    (finding,) = found(provider(), environ=environ, model=model, check=KEYS)

    assert finding.level is level
    assert finding.to_do


def test_a_fleet_that_was_started_without_the_key_is_a_failure() -> None:
    (finding,) = found(provider(), at_root=frozenset({"PATH"}), check=KEYS)

    assert finding.says == "zai: the running fleet was started without ZAI_API_KEY"
    assert found(provider(), at_root=frozenset({"ZAI_API_KEY"}), check=KEYS)[0].level is Level.OK


def test_a_key_that_the_running_fleet_alone_has_is_no_lack() -> None:
    (finding,) = found(provider(), environ={"PATH": "/bin"}, at_root=frozenset({"ZAI_API_KEY"}), check=KEYS)

    assert finding.says == "zai: the running fleet has ZAI_API_KEY, here it is not set"
    assert finding.level is Level.OK


def test_a_provider_that_is_only_built_in_is_not_looked_at() -> None:
    settings = Settings(providers={"zai": provider()})

    findings = list(check_providers(settings, frozenset(), {}, at_root=None))

    assert [finding.check for finding in findings] == ["model"]


# --- urls and plans --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "plan"),
    [
        (ZAI_BASE_URL, Plan.CODING),
        ("https://api.z.ai/api/anthropic", Plan.CODING),
        ("https://open.bigmodel.cn/api/coding/paas/v4/", Plan.CODING),
        (GENERAL, Plan.GENERAL),
        ("https://api.z.ai/v1", Plan.UNKNOWN),
    ],
)
def test_a_url_of_z_ai_says_which_kind_of_account_is_meant(base_url: str, plan: Plan) -> None:
    assert plan_of(base_url) is plan


@pytest.mark.parametrize(
    ("base_url", "level", "to_do"),
    [
        (ZAI_BASE_URL, Level.OK, None),
        (GENERAL, Level.WARN, "https://api.z.ai/api/coding/paas/v4"),
        ("https://api.z.ai/v1", Level.WARN, ZAI_BASE_URL),
        ("https://api.z.ai/api/anthropic", Level.OK, None),
    ],
)
def test_a_url_that_does_not_fit_comes_with_the_one_that_does(base_url: str, level: Level, to_do: str | None) -> None:
    (finding,) = found(provider(base_url=base_url), check=URLS)

    assert finding.level is level
    assert (finding.to_do is None) if to_do is None else (to_do in (finding.to_do or ""))


@pytest.mark.parametrize(
    ("base_url", "is_bad"),
    [
        ("http://api.z.ai/api/coding/paas/v4", True),
        ("http://example.com/v1", True),
        ("http://127.0.0.1:8080/v1", False),
        ("https://example.com/v1", False),
    ],
)
def test_a_key_is_not_to_travel_readable(base_url: str, is_bad: bool) -> None:
    findings = found(provider("some", base_url), check=URLS)

    assert any(finding.level is Level.FAIL for finding in findings) is is_bad


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (provider("general", GENERAL), "zai and general share a key, but not a plan"),
        (
            provider("cn", "https://open.bigmodel.cn/api/coding/paas/v4"),
            "zai and cn share a key, but keys hold for one host",
        ),
        (provider("general", GENERAL, "OTHER_KEY"), None),
    ],
)
def test_one_key_for_two_kinds_of_account_is_said(other: ProviderSettings, says: str | None) -> None:
    findings = found(provider(), other, environ={"ZAI_API_KEY": "sk", "OTHER_KEY": "sk"}, check=URLS)

    shared = [finding.says for finding in findings if "share a key" in finding.says]
    assert shared == ([] if says is None else [says])


# --- the home --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "level"),
    [(0o700, Level.OK), (0o750, Level.WARN), (0o770, Level.FAIL), (0o707, Level.FAIL)],
)
def test_a_home_is_for_its_owner_alone(tmp_path: Path, mode: int, level: Level) -> None:
    home = tmp_path / "h"
    home.mkdir()
    home.chmod(mode)

    (finding,) = check_folder(home)

    assert finding.level is level
    assert finding.to_do == (None if level is Level.OK else f"chmod 0700 {home}")


def test_a_home_that_is_a_file_fails_and_one_that_is_not_there_yet_does_not(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    assert next(check_folder(file)).level is Level.FAIL
    assert next(check_folder(tmp_path / "new")).level is Level.OK


def test_a_deep_home_has_its_sockets_elsewhere_and_says_so(tmp_path: Path) -> None:
    shallow, deep = Home(Path("/tmp/cvx")), Home(tmp_path / ("d" * 100))

    assert check_sockets(shallow) == ok("sockets", "the longest path has 24 of 107 bytes")
    assert "because the home lies too deep" in check_sockets(deep).says


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\n"
        "3 1 0:6 / /srv/with\\040blank rw - nfs4 host:/x rw\n"
        "4 1 0:7 / /srv/with\\040blank rw - 9p share rw\n"
    )

    assert file_system(Path("/home/me"), mounts) == "ext4"
    assert file_system(Path("/tmp"), mounts) == "tmpfs"
    assert file_system(Path("/tmpfoo"), mounts) == "ext4"
    assert file_system(Path("/srv/with blank/home"), mounts) == "9p"
    assert file_system(Path("/"), tmp_path / "none") is None


# --- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "newest", "level"),
    [
        (1_790_000_000.0, None, Level.OK),
        (1_790_000_000.0, 1_790_000_000.0 + AHEAD_S - 1, Level.OK),
        (1_790_000_000.0, 1_790_000_000.0 + AHEAD_S + 1, Level.WARN),
        (0.0, None, Level.FAIL),
    ],
)
def test_a_clock_that_cannot_be_right_is_said(now: float, newest: float | None, level: Level) -> None:
    assert check_clock(now, newest).level is level


def test_a_clock_that_was_moved_under_a_running_fleet_is_said() -> None:
    ticks = os.sysconf("SC_CLK_TCK")

    def drift(moved_s: float) -> Finding:
        return check_drift(1000.0, 500 * ticks, now=1600.0 + moved_s, boottime=1100.0)

    assert drift(0.0).level is Level.OK
    assert drift(3600.0).says == "the clock was moved by 3600 s since the fleet was started"
    assert drift(-3600.0).level is Level.WARN


@pytest.mark.parametrize(
    ("name", "level"),
    [("", Level.OK), ("UTC", Level.OK), ("CET-1CEST", Level.OK), ("Mars/Olympus", Level.WARN), (":UTC", Level.OK)],
)
def test_a_time_zone_that_does_not_exist_is_said(name: str, level: Level) -> None:
    assert check_zone({"TZ": name}).level is level


@pytest.mark.parametrize(
    ("limit", "level"),
    [
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), Level.OK),
        ((20_000, 20_000), Level.OK),
        ((1024, 20_000), Level.WARN),
        ((64, 64), Level.FAIL),
    ],
)
def test_too_few_open_files_for_the_agents_that_may_be_are_said(limit: tuple[int, int], level: Level) -> None:
    finding = check_files(FleetSettings(max_agents=1000, workers=2), limit)

    assert finding.level is level
    assert finding.to_do is None or "ulimit -n 1256" in finding.to_do


@pytest.mark.parametrize(
    ("requirement", "installed", "problem"),
    [
        ("httpx<1,>=0.27", "0.27.0", None),
        ("httpx<1,>=0.27", "0.26.9", "httpx 0.26.9 is installed, httpx>=0.27 is needed"),
        ("httpx<1,>=0.27", "1.0", "httpx 1.0 is installed, httpx<1 is needed"),
        ("apsw>=3.46", "3.54.1.0", None),
        ("rich>=13.7", None, "rich is not installed"),
        ("odd @ https://example.com/odd.whl", "1", None),
        ("six>=1; python_version < '3'", "0.9", "six 0.9 is installed, six>=1 is needed"),
    ],
)
def test_packages_are_compared_with_what_is_needed(
    requirement: str, installed: str | None, problem: str | None
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise PackageNotFoundError(name)
        return installed

    assert package_problem(requirement, version) == problem


# --- the whole -------------------------------------------------------------------------------------------------------


def test_the_worst_finding_decides() -> None:
    assert worst([]) is Level.OK
    assert worst([ok("a", ""), warn("b", "", "")]) is Level.WARN
    assert worst([warn("b", "", ""), fail("c", "", ""), ok("a", "")]) is Level.FAIL


def test_a_look_at_a_new_home_leaves_no_trace_and_is_over_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")

    started = time.monotonic()
    checks = {finding.check for finding in look(home, {}, is_online=False)}

    assert time.monotonic() - started < 1.0
    assert not home.path.exists()
    assert checks >= {"config", "model", "home", "sockets", "disk", "file system", "fleet", "state.db", "leftovers"}
    assert checks >= {
        "clock",
        "time zone",
        "open files",
        "pidfd",
        "parent death signal",
        "cgroup",
        "python",
        "packages",
    }


def test_a_config_that_is_refused_is_said_with_its_line_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.write_text("fleet:\n  workers: 0\n  max_turns: many\n")

    findings = list(look(home, {}, is_online=True))

    refused = [finding for finding in findings if finding.check == "config"]
    assert [finding.level for finding in refused] == [Level.FAIL, Level.FAIL]
    assert refused[0].says == f"{home.config}:2: fleet.workers: 0 is too small"
    assert "disk" in {finding.check for finding in findings}


def test_no_limit_for_z_ai_is_a_warning(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.write_text("providers:\n  zai:\n    max_concurrent: 0\n")

    findings = list(look(home, {}, is_online=False))

    assert any(finding.level is Level.WARN and "providers.zai.max_concurrent" in finding.says for finding in findings)


def test_who_is_left_of_an_earlier_fleet_is_found_by_identity(tmp_path: Path, processes: object) -> None:
    from covey.protocol.ids import Incarnation
    from covey.supervisor.process import start_ticks

    register = Register(tmp_path / "processes.jsonl", Incarnation("1-gone"))
    pid, told = processes.fork(lambda: time.sleep(60))  # type: ignore[attr-defined] # the fixture's class is conftest's
    register.add("worker-1", pid=pid, start_ticks=start_ticks(pid))
    register.add("worker-2", pid=pid, start_ticks=start_ticks(pid) + 1)

    assert [owner.pid for owner in survivors(tmp_path / "processes.jsonl")] == [pid]
    processes.kill(pid)  # type: ignore[attr-defined] # as above
    os.close(told)
    assert survivors(tmp_path / "processes.jsonl") == ()
    assert survivors(tmp_path / "none") == ()
