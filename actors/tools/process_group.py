"""One command in a process group of its own: started without a thread, ended as a whole.

The leader's exit is seen through a pidfd and the leader is reaped only after its group was killed: as long as it is a
zombie, its number cannot become the group of a stranger.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

STOP_GRACE_S = 0.5


class ProcessGroup:
    """A running command; owned by the loop thread. `end` must be called, whatever happened."""

    def __init__(self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], output: int) -> None:
        """Start `argv` with /dev/null as input and the descriptor `output` (ours to close) for all it writes."""
        # Popen and pidfd instead of asyncio's subprocess: before Python 3.12 that starts a thread for each child.
        self._process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = self._loop.create_future()
        """Done once the leader is gone; what it started may live on until `end`. To be waited for, not cancelled."""
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            self._signal(signal.SIGKILL)
            self._process.wait()
            raise
        self._loop.add_reader(self._pidfd, self._on_exit)

    async def end(self) -> int | None:
        """Kill what is left of the group and reap the leader; its exit code, None if it cannot die yet.

        Politely first if the leader still runs. Cancelled in that time, it kills at once.
        """
        try:
            if not self.exited.done():
                self.ask_to_end()
                await asyncio.wait([self.exited], timeout=STOP_GRACE_S)
        finally:
            self._kill()
        if not self.exited.done():
            await asyncio.wait([self.exited], timeout=STOP_GRACE_S)
        return self._process.returncode

    def ask_to_end(self) -> None:
        """Let the whole group end by itself; a stopped one is continued, or it would not notice."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def _kill(self) -> None:
        """End the group now; the leader is reaped as soon as the kernel lets go of it."""
        self._signal(signal.SIGKILL)
        if self.exited.done():
            self._process.wait()
        else:
            self.exited.add_done_callback(lambda _: self._process.wait())

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:  # not reaped: the number is still ours
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.exited.set_result(None)
