"""One agent of a command, and its children, watched until the agent ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol.messages.fleet import AgentResult
    from ..client import AsyncFleet
    from ..handles import AsyncAgent
    from .live import LiveView


async def watched(fleet: AsyncFleet, agent: AsyncAgent, *, wanted: bool) -> AgentResult:
    """Return how it ended; meanwhile show what it does, if that is wanted. Interrupted, it stops the agent."""
    from .live import LiveView

    with LiveView(wanted=wanted) as view:
        watcher = asyncio.create_task(_show(fleet, agent, view))
        try:
            return await agent.result()
        except asyncio.CancelledError:
            await asyncio.shield(agent.stop())
            raise
        finally:
            watcher.cancel()


async def _show(fleet: AsyncFleet, agent: AsyncAgent, view: LiveView) -> None:
    from .live import Row
    from .swarm import REFRESH_S

    while view.is_on:
        family = {agent.id}
        rows = []
        for one in await fleet.agents():
            if one.id in family or one.parent in family:
                family.add(one.id)
                rows.append(Row(one.id, one.worker or "", one.state.value, one.turn, one.tokens))
        view.show(rows, f"{sum(row.tokens for row in rows)} tokens")
        await asyncio.sleep(REFRESH_S)
