"""The examples, as a reader would run them; what is slow about them is only the start of a fleet."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import pytest

from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.protocol.settings import ModelSettings
from covey.supervisor.config import load
from covey.supervisor.swarm_file import read_swarm

EXAMPLES: Final = Path(__file__).parents[1] / "examples"


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a short path; a fleet that is left in it is taken down."""
    with tempfile.TemporaryDirectory(prefix="covey-ex-", dir="/tmp") as folder:
        yield Path(folder)
        covey(Path(folder), "down")


def run(home: Path, *words: str) -> str:
    environ = {**os.environ, "COVEY_HOME": str(home), "NO_PROXY": "127.0.0.1"}
    ended = subprocess.run(
        [sys.executable, "-P", *words], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def covey(home: Path, *words: str) -> str:
    return run(home, "-m", "covey", *words)


def test_slot_py_asks_under_the_limit_and_accounts_for_every_token(home: Path) -> None:
    with ProviderProcess(ProviderOptions(limit=1, think_s=0.05)) as provider:
        home.joinpath("config.yaml").write_text(
            f"providers:\n  sim:\n    base_url: {provider.base_url}\n    max_concurrent: 1\n"
        )
        said = run(home, str(EXAMPLES / "slot.py"), provider.base_url, "sim-1", "say: one", "say: two", "say: three")
        stats, calls = provider.stats(), provider.calls()

    assert said.split() == ["one", "two", "three"]
    assert (stats.completed, stats.peak_in_flight, stats.refused) == (3, 1, {})
    covey(home, "down")
    with closing(
        apsw.Connection(f"file:{home / 'state.db'}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    ) as db:
        stored = list(db.execute("SELECT call, input_tokens, output_tokens, status FROM calls"))
    assert sorted(stored) == sorted(
        (call.client_request_id, call.prompt_tokens, call.completion_tokens, "completed") for call in calls
    )


def test_the_local_model_example_is_a_swarm_of_six_without_tools() -> None:
    swarm = read_swarm(EXAMPLES / "local-model.yaml")

    assert (len(swarm.tasks), swarm.tools, swarm.max_answer_tokens) == (6, (), 48)


def test_the_local_model_example_has_a_configuration_that_is_accepted() -> None:
    settings = load(EXAMPLES / "local-model.config.yaml").settings

    assert settings.model == ModelSettings(provider="local", name="smollm2-135m")
    assert settings.providers["local"].max_concurrent == 2
