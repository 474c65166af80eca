"""The fleet as an agent sees it: where its children run, and where its state is shown."""

from __future__ import annotations

import asyncio
from typing import cast

from ..protocol.ids import AgentId
from ..protocol.messages.fleet import (
    AgentResult,
    AgentSpec,
    AgentView,
    AwaitAgent,
    Finished,
    Progress,
    Spawn,
    StopAgents,
)
from .link import Link

REPORT_EVERY_S = 0.1
ANSWER_S = 30.0


class Family:
    """Implements `actors.ports.Children` over the link to the root. Owned by the loop thread.

    Reports are merged per agent and sent at most ten times a second: people look at them, nothing depends on them.
    """

    def __init__(self, root: Link) -> None:
        self._root = root
        self._loop = asyncio.get_running_loop()
        self._views: dict[AgentId, AgentView] = {}
        self._due: asyncio.TimerHandle | None = None

    async def spawn(self, spec: AgentSpec) -> None:
        """See `actors.ports.Children.spawn`."""
        await self._root.ask(Spawn(spec=spec), timeout_s=ANSWER_S)

    async def result(self, agent: AgentId) -> AgentResult:
        """See `actors.ports.Children.result`."""
        reply = await self._root.ask(AwaitAgent(agent=agent), timeout_s=None)
        return cast(Finished, reply).result

    async def stop(self, agents: tuple[AgentId, ...]) -> None:
        """See `actors.ports.Children.stop`."""
        await self._root.ask(StopAgents(agents=agents), timeout_s=ANSWER_S)

    def report(self, view: AgentView) -> None:
        """See `actors.ports.Children.report`."""
        self._views[view.id] = view
        if self._due is None:
            self._due = self._loop.call_later(REPORT_EVERY_S, self._send)

    def close(self) -> None:
        """Report no more."""
        if self._due is not None:
            self._due.cancel()

    def _send(self) -> None:
        self._due = None
        views, self._views = self._views, {}
        self._root.tell(Progress(agents=tuple(views.values())))
