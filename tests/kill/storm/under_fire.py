"""A fleet whose broker may be killed as often as a test likes: the real one, but for restarts without limit and wait.

The provider bears many more calls than the limit that is configured, so that its peak says what really went out.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from covey import Fleet
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.protocol.messages.broker import BudgetView
from covey.storage.lease_journal import read_lease_journal
from covey.storage.leases import Lease

PATIENCE_S = 20.0
BEARS = 64

ROOT = """
import sys
from pathlib import Path
from msgspec.structs import replace
from covey.supervisor import root
from covey.supervisor.home import Home
from covey.supervisor.restarts import BackOff, RestartLimit
from covey.supervisor.spec import plan

made = root.fleet_plan
without_end, at_once = RestartLimit(restarts=100_000), BackOff(base_s=0.0, cap_s=0.0)

def forgiving(settings):
    spec = made(settings).spec
    children = tuple(replace(child, limit=without_end, back_off=at_once) for child in spec.children)
    return plan(replace(spec, children=children, limit=without_end))

root.fleet_plan = forgiving
sys.exit(root.run_root(Home(Path(sys.argv[1])), ready_fd=int(sys.argv[2]), leash_fd=None, talk=False))
"""

SCRIPT = """
rules:
  - {goal: "^quick", think_s: 0.005}
  - {goal: "^slow", think_s: 0.06}
  - {goal: "^long", think_s: 0.4}
  - {goal: "^endless", chunks: 100000, chunk_pace_s: 0.001}
"""


class UnderFire:
    """A running fleet and its provider."""

    def __init__(self, path: Path, provider: ProviderProcess, fleet: Fleet) -> None:
        self.path = path
        self.provider = provider
        self.fleet = fleet

    @property
    def url(self) -> str:
        """The provider's chat endpoint of coding plans."""
        return f"{self.provider.root_url}/api/coding/paas/v4"

    def pid_of(self, name: str) -> int:
        """The pid of a process of the tree; 0 while it is not there."""
        processes = self.fleet.status(deadline_s=0.1).processes
        return next(one.pid for one in processes if one.name == name)

    def kill_broker(self) -> None:
        """SIGKILL, if it lives just now."""
        if pid := self.pid_of("broker"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def budget(self) -> BudgetView:
        """The busiest account, as the broker has it."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self.fleet.status(deadline_s=1.0).budgets):
            assert time.monotonic() < deadline, "the broker says nothing"
        return max(found, key=lambda one: one.granted)

    def leases(self) -> list[Lease]:
        """What the journal says is outstanding."""
        return list(read_lease_journal(self.path / "run" / "leases.journal")[0].leases.values())


class MakeFleet(Protocol):
    """Brings up a fleet that ends with the test."""

    def __call__(self, *, limit: int = 1, config: str = "") -> UnderFire: ...


@contextmanager
def under_fire(*, limit: int = 1, config: str = "") -> Iterator[UnderFire]:
    """Bring a fleet up; `config` is more for its configuration file."""
    with tempfile.TemporaryDirectory(prefix="cvs-", dir="/tmp") as folder:
        path = Path(folder)
        (path / "work").mkdir()
        (path / "script.yaml").write_text(SCRIPT)
        options = ProviderOptions(limit=BEARS, think_s=0.005, chunk_pace_s=0.005, script=str(path / "script.yaml"))
        with ProviderProcess(options) as provider:
            (path / "config.yaml").write_text(
                f"providers:\n  sim:\n    base_url: {provider.base_url}\n    max_concurrent: {limit}\n"
                f"model:\n  provider: sim\n  name: sim-1\n{config}"
            )
            with _root(path), Fleet.connect(path, start=False) as fleet:
                yield UnderFire(path, provider, fleet)


def until(holds: Callable[[], bool], what: str, *, within_s: float = PATIENCE_S) -> float:
    """Wait for what nobody sends a message about; how long it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + within_s, f"{what}: not within {within_s} s"
        select.select([], [], [], 0.005)
    return time.monotonic() - began


@contextmanager
def _root(path: Path) -> Iterator[None]:
    ready, telling = os.pipe()
    with (path / "root.out").open("wb") as out:
        root = subprocess.Popen(
            [sys.executable, "-P", "-c", ROOT, str(path), str(telling)], pass_fds=[telling], stdout=out, stderr=out
        )
    os.close(telling)
    try:
        came = select.select([ready], [], [], PATIENCE_S)[0] and os.read(ready, 4096)
        assert came, (path / "root.out").read_text()
        yield
    finally:
        os.close(ready)
        root.terminate()
        try:
            root.wait(15)
        except subprocess.TimeoutExpired:
            root.kill()
            root.wait()
