"""The fan-out's run: a fleet, a provider that could serve all at once, and a client that submits one swarm.

Counted are all processes of the fleet and the client that submits the swarm (this one). The floor is the same number of
calls, with the same bodies, from one bare loop in this process: what the calls themselves cost.
"""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..supervisor.swarm import Swarm, Task, run_swarm
from ..supervisor.visit import visit
from .provider_options import ProviderOptions
from .provider_process import ProviderProcess
from .sampling import Peak, Sampler, cpu_s, tree_of
from .stage import MODEL, furnish

CALLS = 4
"""Calls of one child: three that ask for a tool, and the answer."""

GOAL = "\n".join(['use: list_files {"path": "."}'] * (CALLS - 1) + ["say: there is one file"])


@dataclass(frozen=True, slots=True)
class Fanout:
    """What was measured."""

    children: int
    children_ok: int
    calls: int
    wall_s: float
    ideal_s: float
    cpu_s: float
    peak: Peak
    idle: Peak
    peak_in_flight: int
    refused: int
    bare_wall_s: float
    bare_cpu_s: float


async def measure(*, children: int, limit: int, think_s: float) -> Fanout:
    """Run the floor, then the swarm."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="covey-fan-")))
        options = ProviderOptions(limit=limit, think_s=think_s, chunk_pace_s=0.0, chunks=1)
        provider = stack.enter_context(ProviderProcess(options))
        home, workspace = furnish(folder, base_url=provider.base_url, limit=limit, files={"a.txt": "one file\n"})
        fleet = await stack.enter_async_context(visit(home, name="fanout"))
        # What is measured must not pay for what measures: the floor runs in a process of its own.
        bare_wall_s, bare_cpu_s = await _bare(provider.base_url, children=children, limit=limit)
        provider.reset()
        sampler = Sampler(roots=[os.getpid()], without=[provider.pid])
        sampler.look()
        idle = Peak(sampler.peak.processes, sampler.peak.threads, sampler.peak.pss_mb, sampler.peak.fds)
        pids = [pid for pid in tree_of([os.getpid()], without=[provider.pid]) if pid != os.getpid()]
        watcher = asyncio.create_task(sampler.watch())
        cpu_before = cpu_s(pids)
        tasks = tuple(Task(goal=GOAL) for _ in range(children))
        done, wall_s = await run_swarm(fleet, Swarm(tasks=tasks), workspace=workspace)
        used_s = cpu_s(pids) - cpu_before
        watcher.cancel()
        stats = provider.stats()
    rounds = -(-children // limit)
    return Fanout(
        children=children,
        children_ok=sum(child.ok for child in done),
        calls=stats.calls,
        wall_s=wall_s,
        ideal_s=CALLS * think_s * rounds,
        cpu_s=used_s,
        peak=sampler.peak,
        idle=idle,
        peak_in_flight=stats.peak_in_flight,
        refused=sum(stats.refused.values()),
        bare_wall_s=bare_wall_s,
        bare_cpu_s=bare_cpu_s,
    )


async def _bare(base_url: str, *, children: int, limit: int) -> tuple[float, float]:
    """Wall and CPU seconds of a program that makes the calls and nothing else."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = await asyncio.create_subprocess_exec(
        *_bare_command(base_url, children, limit), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == 0, "the floor's program failed"
    return float(out), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _bare_command(base_url: str, children: int, limit: int) -> list[str]:
    import sys

    return [sys.executable, "-P", "-m", "covey.bench.fanout_run", base_url, str(children), str(limit)]


async def _calls_only(base_url: str, children: int, limit: int) -> float:
    import httpx

    gate = asyncio.Semaphore(limit)
    body: dict[str, Any] = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "say: hello"}]}

    async def child() -> None:
        async with httpx.AsyncClient(timeout=60.0, trust_env=False, verify=False) as client:
            for _ in range(CALLS):
                async with gate, client.stream("POST", f"{base_url}/chat/completions", json=body) as response:
                    async for _chunk in response.aiter_raw():
                        pass

    started = time.monotonic()
    await asyncio.gather(*(child() for _ in range(children)))
    return time.monotonic() - started


if __name__ == "__main__":
    import sys

    print(asyncio.run(_calls_only(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
