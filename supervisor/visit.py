"""A command's visit to a fleet: join the one that runs, or bring one up for as long as the command takes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from .client import AsyncFleet
from .home import Home
from .launch import Leashed, launch_leashed
from .one_off import in_thread
from .running import running_root

STOP_S = 15.0


@asynccontextmanager
async def visit(home: Home, *, name: str) -> AsyncIterator[AsyncFleet]:
    """The fleet of this home. One that was brought up for us is stopped at the end, also if we are killed."""
    launched = None if running_root(home) else await in_thread(launch_leashed, home)
    try:
        fleet = await AsyncFleet.join(home, name=name)
        try:
            yield fleet
        finally:
            await fleet.close()
    finally:
        if launched is not None:
            await in_thread(_stop, launched)


def _stop(launched: Leashed) -> None:
    os.close(launched.leash)
    try:
        launched.process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        launched.process.kill()
        with suppress(subprocess.TimeoutExpired):
            launched.process.wait(timeout=5.0)
