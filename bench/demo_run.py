"""The demo's run: a provider with a ceiling, a fleet, and several programs that share the account."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ..protocol.ids import AgentId
from ..protocol.messages.broker import BudgetView
from ..protocol.messages.ledger import CallRecorded, Totals
from ..supervisor.client import AsyncFleet
from ..supervisor.swarm import Swarm, Task, run_swarm
from ..supervisor.visit import visit
from .agreement import Views
from .provider_calls import CallState
from .provider_options import ProviderOptions
from .provider_process import ProviderProcess
from .sampling import Peak, Sampler
from .stage import MODEL, furnish

FOUND = {
    "notes.txt": "The geese fly in a V: each takes its turn in front.\n",
    "plan.md": "# Plan\n1. look around\n2. say what you see\n",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What the demo is to do. `kill` names a role of which one process is killed half-way."""

    children: int
    gateways: int
    limit: int
    think_s: float = 0.2
    kill: str | None = None


class ChildFact(msgspec.Struct):
    """What a gateway says of one of its children."""

    child: str = ""
    state: str = ""
    turn: int = 0
    tokens: int = 0
    error: str | None = None
    ok: int | None = None


@dataclass(slots=True)
class Scene:
    """What can be seen while it runs."""

    limit: int
    children: dict[str, ChildFact] = field(default_factory=dict)
    in_flight: int = 0
    queued: int = 0
    gateways_ok: int = 0
    killed: str | None = None

    def shares(self) -> str:
        """The state in one line."""
        tokens = sum(child.tokens for child in self.children.values())
        done = sum(child.state == "done" for child in self.children.values())
        return (
            f"slots {self.in_flight} of {self.limit} in use, {self.queued} waiting · "
            f"{done} of {len(self.children)} children done · {tokens} tokens"
            + (f" · {self.killed}" if self.killed else "")
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went."""

    views: Views
    totals: Totals
    wall_s: float
    peak: Peak
    killed: str | None
    failures: tuple[str, ...]


async def run_demo(wish: Wish, watch: Callable[[Scene], None]) -> Outcome:
    """Run it in a home that is gone afterwards; `watch` is called several times a second."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="covey-demo-")))
        provider = ProviderProcess(ProviderOptions(limit=wish.limit, think_s=wish.think_s))
        await asyncio.to_thread(provider.__enter__)
        stack.callback(provider.__exit__)
        home, _ = furnish(folder, base_url=provider.base_url, limit=wish.limit, files=FOUND)
        fleet = await stack.enter_async_context(visit(home, name="covey demo"))
        return await _Demo(wish, fleet, provider, folder, watch).run()


class _Demo:
    def __init__(
        self,
        wish: Wish,
        fleet: AsyncFleet,
        provider: ProviderProcess,
        folder: Path,
        watch: Callable[[Scene], None],
    ) -> None:
        self._wish = wish
        self._fleet = fleet
        self._provider = provider
        self._folder = folder
        self._watch = watch
        self._scene = Scene(wish.limit)
        self._failures: list[str] = []
        self._numbers: dict[AgentId, str] = {}

    async def run(self) -> Outcome:
        shares = _shares(self._wish.children, self._wish.gateways + 1)
        sampler = Sampler(roots=[os.getpid()], without=[self._provider.pid])
        # The fleet was started in a session of its own, but as our child: it is below us.
        helpers = [asyncio.create_task(sampler.watch()), asyncio.create_task(self._look())]
        if self._wish.kill is not None:
            helpers.append(asyncio.create_task(self._kill_half_way(self._wish.kill)))
        started = time.monotonic()
        try:
            swarm_ok, *gateways_ok = await asyncio.gather(
                self._swarm(shares[0]), *(self._gateway(at, share) for at, share in enumerate(shares[1:], 1) if share)
            )
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        wall_s = time.monotonic() - started
        return await self._outcome(swarm_ok + sum(gateways_ok), wall_s, sampler.peak)

    async def _swarm(self, count: int) -> int:
        """The fleet's own share."""
        if not count:
            return 0
        tasks = tuple(Task(goal=f"swarm.{number}: look around and say what you see") for number in range(1, count + 1))

        def spawned(number: int, agent: AgentId) -> None:
            self._numbers[agent] = f"swarm.{number + 1}"

        children, _ = await run_swarm(
            self._fleet, Swarm(tasks=tasks), workspace=self._folder / "workspace", on_spawned=spawned
        )
        self._failures += [
            f"{child.task.goal.split(':')[0]}: {child.result.error}" for child in children if not child.ok
        ]
        return sum(child.ok for child in children)

    async def _gateway(self, number: int, share: int) -> int:
        """A program of its own; returns how many of its children finished."""
        command = [sys.executable, "-P", "-m", "covey.bench.gateway", "--home", str(self._fleet.home.path)]
        command += ["--name", f"gateway-{number}", "--children", str(share), "--model", MODEL]
        command += ["--base-url", self._provider.base_url, "--workspace", str(self._folder / "workspace")]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None, "opened as a pipe"
        assert process.stderr is not None, "opened as a pipe"
        ok = 0
        try:
            async for line in process.stdout:
                fact = msgspec.json.decode(line, type=ChildFact)
                if fact.ok is not None:
                    ok = fact.ok
                    continue
                self._scene.children[fact.child] = fact
                if fact.error:
                    self._failures.append(f"{fact.child}: {fact.error}")
            said = (await process.stderr.read()).decode(errors="replace").strip()
            if await process.wait() != 0 and said:
                self._failures.append(f"gateway-{number}: {said.splitlines()[-1]}")
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return ok

    async def _look(self) -> None:
        """Keep the scene up to date."""
        while True:
            status = await self._fleet.status()
            for agent in status.agents:
                name = self._numbers.get(agent.id)
                if name is not None:
                    self._scene.children[name] = ChildFact(
                        child=name, state=agent.state.value, turn=agent.turn, tokens=agent.tokens
                    )
            budget = _busiest(status.budgets or ())
            if budget is not None:
                self._scene.in_flight, self._scene.queued = budget.in_flight, budget.queued
            self._watch(self._scene)
            await asyncio.sleep(0.15)

    async def _kill_half_way(self, role: str) -> None:
        """SIGKILL one process of that role once about a third of the calls to come have been made."""
        while True:
            stats = await asyncio.to_thread(self._provider.stats)
            if stats.calls >= max(2, self._wish.children):
                break
            await asyncio.sleep(0.05)
        status = await self._fleet.status()
        # A worker with a call in flight, if there is one: that is the one whose death is felt.
        busy = {holder.pid for budget in status.budgets or () for holder in budget.holders}
        candidates = [process for process in status.processes if process.role == role]
        victim = next((process for process in candidates if process.pid in busy), candidates[0])
        os.kill(victim.pid, signal.SIGKILL)
        self._scene.killed = f"{victim.name} (pid {victim.pid}) was killed"

    async def _outcome(self, children_ok: int, wall_s: float, peak: Peak) -> Outcome:
        await self._settled()
        status = await self._fleet.status(deadline_s=5.0)
        stats = await asyncio.to_thread(self._provider.stats)
        taken = [call for call in await asyncio.to_thread(self._provider.calls) if call.status is not CallState.REFUSED]
        views = Views(
            limit=self._wish.limit,
            children=self._wish.children,
            children_ok=children_ok,
            stats=stats,
            provider={call.client_request_id: call for call in taken if call.client_request_id},
            anonymous=sum(not call.client_request_id for call in taken),
            budget=_busiest(status.budgets or ()),
            ledger=await self._ledger_calls(),
        )
        totals = await self._fleet.totals()
        return Outcome(views, totals, wall_s, peak, self._scene.killed, tuple(self._failures))

    async def _settled(self) -> None:
        """What the dead left behind is adopted within moments: wait until every granted slot is a row."""
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            status = await self._fleet.status(deadline_s=5.0)
            budget = _busiest(status.budgets or ())
            if budget is None or (budget.in_flight == 0 and len(await self._ledger_calls()) == budget.granted):
                return
            await asyncio.sleep(0.1)

    async def _ledger_calls(self) -> dict[str, CallRecorded]:
        found: dict[str, CallRecorded] = {}
        after = 0
        while rows := await self._fleet.calls(after=after):
            found |= {row.record.call: row.record for row in rows}
            after = rows[-1].row
        return found


def _busiest(budgets: tuple[BudgetView, ...]) -> BudgetView | None:
    return max(budgets, key=lambda budget: budget.granted, default=None)


def _shares(total: int, parts: int) -> list[int]:
    """`total` as evenly as it goes; the first parts take one more."""
    return [total // parts + (at < total % parts) for at in range(parts)]
