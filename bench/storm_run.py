"""The storm's run: the same programs on one narrow account, first each by itself, then through a fleet.

Every number but the wall time and the outcomes is the provider's own count, by account: each side has a key of its own,
and with it an account of its own that is exactly as narrow.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ..protocol.destination import fingerprint
from ..supervisor.home import Home
from ..supervisor.visit import visit
from .provider_calls import CallState, ProviderCall
from .provider_moods import Moods, Overload
from .provider_options import ProviderOptions
from .provider_process import ProviderProcess
from .provider_tally import AccountTally
from .storm_client import Outcome, Part, ProgramProcess
from .strangers import Strangers

CLIENTS_OF_ONE: Final = 6
"""Clients of one program: an agent and its subagents. Eight such programs with 48 clients made the storm that was
reported against one account."""


class Weather(StrEnum):
    """What the provider is like."""

    CONCURRENCY = "concurrency"
    """1302 for every call beyond the limit, and no `Retry-After`."""
    OVERLOAD = "overload"
    """The same, and from the second second on 1305 to everybody for a while."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The workload."""

    clients: int = 48
    calls: int = 3
    limit: int = 2
    prompt_tokens: int = 8_000
    think_s: float = 0.2
    weather: Weather = Weather.CONCURRENCY
    overload_s: float = 10.0

    @property
    def all_calls(self) -> int:
        """Calls that are to be answered."""
        return self.clients * self.calls

    @property
    def ideal_s(self) -> float:
        """How long they take if the account is never idle and never asked in vain."""
        return self.all_calls * self.think_s / self.limit


@dataclass(frozen=True, slots=True)
class Side:
    """What came of one side. Moments are seconds from its beginning."""

    name: str
    wall_s: float
    outcomes: tuple[Outcome, ...]
    tally: AccountTally
    refused_at: tuple[float, ...]
    answered_at: tuple[float, ...]

    @property
    def answered(self) -> int:
        """Calls that ended well."""
        return sum(one.is_answered for one in self.outcomes)

    @property
    def failed(self) -> int:
        """Calls that were given up after the last attempt."""
        return len(self.outcomes) - self.answered

    @property
    def refusals(self) -> int:
        """Answers that were a refusal."""
        return sum(self.tally.refused.values())

    @property
    def retries_per_min(self) -> float:
        """Attempts beyond each call's first."""
        return sum(one.attempts - 1 for one in self.outcomes) / self.wall_s * 60

    @property
    def tokens_in_vain(self) -> int:
        """Prompt tokens of what was refused: sent, and to be sent again."""
        return self.tally.tokens_refused


@dataclass(frozen=True, slots=True)
class Storm:
    """Both sides."""

    alone: Side
    covey: Side
    strangers_cpus: float


async def measure(plan: Plan) -> Storm:
    """Run one side, then the other."""
    strangers = Strangers(roots=[os.getpid()])
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="covey-storm-")))
        options = ProviderOptions(limit=plan.limit, think_s=plan.think_s, chunk_pace_s=0.0, chunks=1)
        provider = stack.enter_context(ProviderProcess(options))
        alone = await _side("alone", plan, provider, home=None)
        home = _furnish(folder, base_url=provider.base_url, limit=plan.limit)
        await stack.enter_async_context(visit(home, name="storm"))
        covey = await _side("covey", plan, provider, home=home)
        return Storm(alone=alone, covey=covey, strangers_cpus=strangers.cpus())


async def _side(name: str, plan: Plan, provider: ProviderProcess, *, home: Home | None) -> Side:
    key = f"storm-{name}"
    with ExitStack() as stack:
        programs: list[ProgramProcess] = []
        for count in _shares(plan.clients):
            programs.append(ProgramProcess(_part(plan, provider.base_url, key=key, clients=count, home=home)))
            stack.callback(programs[-1].kill)
        for program in programs:
            await asyncio.to_thread(program.ready)
        provider.clear()  # an overload of this side begins now, whenever the other one's was
        provider.set_moods(_moods(plan))
        # The provider's clock is its own: how far it is behind ours is the same all the time.
        began_unix, began = time.time(), time.perf_counter()
        for program in programs:
            program.go()
        outcomes = [one for program in programs for one in await asyncio.to_thread(program.outcomes)]
    wall_s = max(one.ended for one in outcomes) - began
    account = fingerprint(key) or ""
    shift = began_unix - provider.stats().started_unix
    calls = [call for call in provider.calls() if call.account == account]
    return Side(
        name=name,
        wall_s=wall_s,
        outcomes=tuple(outcomes),
        tally=provider.accounts().accounts[account],
        refused_at=_moments(calls, CallState.REFUSED, shift),
        answered_at=_moments(calls, CallState.COMPLETED, shift),
    )


def _shares(clients: int) -> list[int]:
    whole, rest = divmod(clients, CLIENTS_OF_ONE)
    return [CLIENTS_OF_ONE] * whole + ([rest] if rest else [])


def _part(plan: Plan, base_url: str, *, key: str, clients: int, home: Home | None) -> Part:
    return Part(
        base_url=base_url,
        key=key,
        clients=clients,
        calls=plan.calls,
        prompt_chars=plan.prompt_tokens * 4,
        home=str(home.path) if home is not None else None,
        own_limit=plan.limit if home is None else None,
    )


def _moods(plan: Plan) -> Moods:
    if plan.weather is Weather.CONCURRENCY:
        return Moods()
    return Moods(overload=Overload(from_s=1, to_s=1 + plan.overload_s))


def _moments(calls: list[ProviderCall], status: CallState, shift: float) -> tuple[float, ...]:
    return tuple(max(0.0, (call.ended_s or call.started_s) - shift) for call in calls if call.status is status)


def _furnish(folder: Path, *, base_url: str, limit: int) -> Home:
    home = Home.locate(folder / "home")
    home.create()
    home.config.write_text(
        "fleet:\n  workers: 1\nproviders:\n  sim:\n"
        f"    base_url: {base_url}\n    max_concurrent: {limit}\n    acquire_timeout_seconds: 0\n",
        encoding="utf-8",
    )
    return home
