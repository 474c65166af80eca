"""A client of the calls benchmark: one way of making calls, in a process of its own that says what they cost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from enum import StrEnum

import msgspec

from ..supervisor.loops import run
from .calls_meter import Cost, Load, measured
from .files import raise_file_limit


class Way(StrEnum):
    """How calls are made."""

    COVEY = "covey"
    """With a slot from the broker, and accounts with the ledger."""
    COVEY_UNLIMITED = "covey_unlimited"
    """The same to an account that nobody counts: no slot."""
    AIOHTTP = "aiohttp"
    """On the loop that covey runs on."""
    AIOHTTP_ASYNCIO = "aiohttp_asyncio"
    """On asyncio's own."""
    BARE = "bare"


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is to do."""

    way: Way
    load: Load
    base_url: str
    home: str
    """Of the fleet that covey's ways join."""


class ClientFailed(RuntimeError):
    """A client ended without an account."""


def send(errand: Errand, *, timeout_s: float) -> Cost:
    """Have it done; blocking. Raises `ClientFailed`."""
    argv = [sys.executable, "-P", "-c", "from covey.bench.calls_client import main; main()"]
    done = subprocess.run(argv, input=msgspec.json.encode(errand), capture_output=True, timeout=timeout_s, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-2000:]
        raise ClientFailed(f"the client that makes calls by {errand.way} ended with {done.returncode}: {said}")
    return msgspec.json.decode(done.stdout, type=Cost)


def main() -> None:
    """Do the errand on standard input, and say what it cost on standard output."""
    errand = msgspec.json.decode(sys.stdin.buffer.read(), type=Errand)
    raise_file_limit()
    cost = asyncio.run(_do(errand)) if errand.way is Way.AIOHTTP_ASYNCIO else run(_do(errand))
    sys.stdout.buffer.write(msgspec.json.encode(cost))


async def _do(errand: Errand) -> Cost:
    if errand.way in (Way.COVEY, Way.COVEY_UNLIMITED):
        from .calls_covey import covey_calls

        async with covey_calls(errand.base_url, errand.home) as (call, settle):
            return await measured(call, errand.load, settle=settle)
    from .calls_floors import aiohttp_calls, bare_calls

    calls = bare_calls if errand.way is Way.BARE else aiohttp_calls
    async with calls(errand.base_url) as call:
        return await measured(call, errand.load)
