"""What the doctor says about kept keys: it finds, it says what to do, and it changes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.protocol.settings import ZAI_BASE_URL, ModelSettings, ProviderSettings, Settings
from covey.storage.credentials import PlainCredential
from covey.supervisor.credential_file import CredentialFile
from covey.supervisor.doctor_credentials import check_credentials
from covey.supervisor.doctor_findings import Level
from covey.supervisor.doctor_providers import KEYS, check_providers
from covey.supervisor.home import Home

KEY = PlainCredential(label="key1", key="sk-secret", added_ms=1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    CredentialFile(home).change(lambda kept: kept.with_credential("zai", KEY))
    return home


def test_a_file_that_is_in_order_is_named_with_whose_keys_it_has(home: Home) -> None:
    names, (finding,) = check_credentials(home)

    assert (sorted(names), finding.level) == (["zai"], Level.OK)
    assert "sk-secret" not in finding.says


def test_no_file_is_nothing_to_say(tmp_path: Path) -> None:
    assert check_credentials(Home(tmp_path)) == (frozenset(), [])


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        pytest.param(lambda path: path.chmod(0o644), "not closed to others (mode 0644)", id="readable"),
        pytest.param(lambda path: path.chmod(0o666), "not closed to others (mode 0666)", id="writable"),
        pytest.param(lambda path: path.write_bytes(b"{"), "is damaged", id="damaged"),
        pytest.param(lambda path: (path.unlink(), path.symlink_to("x")), "symbolic link", id="a link"),
    ],
)
def test_what_is_wrong_is_said_and_left_alone(home: Home, spoil: Callable[[Path], object], says: str) -> None:
    path = home.path / "credentials.json"
    spoil(path)
    mode = stat.S_IMODE(os.lstat(path).st_mode)

    names, (finding,) = check_credentials(home)

    assert (names, finding.level) == (frozenset(), Level.FAIL)
    assert says in finding.says
    assert finding.to_do
    assert stat.S_IMODE(os.lstat(path).st_mode) == mode


@pytest.mark.parametrize(
    ("provider", "stored", "says"),
    [
        pytest.param(
            ProviderSettings(name="zai", base_url=ZAI_BASE_URL, api_key_env="ZAI_API_KEY"), {"zai"}, "kept in the home",
            id="store",
        ),
        pytest.param(
            ProviderSettings(name="zai", base_url=ZAI_BASE_URL, api_key_command="pass show zai"), set(),
            "a command prints its key", id="command",
        ),
    ],
)  # fmt: skip
def test_a_key_that_comes_from_elsewhere_is_not_missed(provider: ProviderSettings, stored: set[str], says: str) -> None:
    settings = Settings(providers={"zai": provider}, model=ModelSettings(provider="zai", name="m"))

    found = check_providers(settings, frozenset({"zai"}), {}, at_root=None, stored=frozenset(stored))

    (finding,) = [one for one in found if one.check == KEYS]
    assert (finding.level, says in finding.says) == (Level.OK, True)
