"""The broker's process: the socket, the journal and the actor between them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...actors.broker import Broker, Configured
from ...protocol.messages.broker import BrokerRequest
from ...protocol.messages.ledger import LedgerReply
from ...protocol.messages.remote import RemoteBrokerRequest
from ...protocol.settings import Settings
from ...storage.lease_journal import LeaseJournal
from ...storage.outbox import Outbox
from ..config_watch import ConfigWatch
from ..hub import Hub
from ..records import Records
from ..service import Service, run_service
from ..zygote_wire import SpawnArguments

STOP_S = 4.0


def main(role: str, arguments: SpawnArguments, fds: Mapping[str, int]) -> int:
    """Serve until SIGTERM."""
    return run_service(arguments.payload, lambda service: _serve(service, fds))


async def _serve(service: Service, fds: Mapping[str, int]) -> None:
    outbox = Outbox(service.home.outbox, role="broker", incarnation=service.me.incarnation)
    records = Records(service.link("ledger", LedgerReply), outbox)
    journal = LeaseJournal(service.home.run / "leases.journal", life=service.arguments.fleet)
    broker = await Broker.start_ready(
        providers=service.settings.providers,
        budget=service.settings.fleet.budget,
        journal=journal,
        ledger=records,
        name="broker",
        deadline_s=10.0,
    )
    hub = Hub(
        service.context,
        path=service.socket_path("broker"),
        listener_fd=os.dup(fds["broker"]),
        me=service.me,
        requests=BrokerRequest,
        on_request=broker.tell,
        on_left=broker.tell,
    )
    gate = service.gate("broker", fds, RemoteBrokerRequest, on_request=broker.tell, on_left=broker.tell)
    broker.watch(lambda down: service.stop_asked.set())
    config = ConfigWatch(
        service.home.config,
        service.settings,
        on_change=lambda accepted: broker.tell(_configured(accepted.settings)),
    )
    await service.ready()
    await service.stop_asked.wait()
    config.close()
    hub.close()
    if gate is not None:
        gate.close()
    broker.stop()
    await broker.stopped(deadline_s=STOP_S)
    await records.close(timeout_s=STOP_S)


def _configured(settings: Settings) -> Configured:
    return Configured(providers=settings.providers, budget=settings.fleet.budget)
