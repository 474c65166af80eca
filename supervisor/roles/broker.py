"""The broker's process: the socket, the journal and the actor between them; and beside it the fleet's credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from ...actors.broker import Broker, Configured
from ...actors.keys.credentials import Providers, Settle
from ...actors.runtime.ref import ActorRef
from ...protocol.errors import CoveyError
from ...protocol.messages.ledger import LedgerReply
from ...protocol.messages.remote import RemoteBrokerRequest
from ...protocol.settings import Settings
from ...storage.lease_journal import LeaseJournal
from ...storage.outbox import Outbox
from ..config_watch import ConfigWatch
from ..credentials_service import LocalRequest, shared_desk, start_credentials
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
    credentials = await start_credentials(service.home, service.settings.providers, os.environ)
    hub = Hub(
        service.context,
        path=service.socket_path("broker"),
        listener_fd=os.dup(fds["broker"]),
        me=service.me,
        requests=LocalRequest,
        on_request=shared_desk(broker, credentials),
        on_left=broker.tell,
    )
    gate = service.gate("broker", fds, RemoteBrokerRequest, on_request=broker.tell, on_left=broker.tell)
    for actor in (broker, credentials):
        actor.watch(lambda down: service.stop_asked.set())

    def follow(settings: Settings) -> None:
        broker.tell(_configured(settings))
        credentials.tell(Providers(settings.providers))

    config = ConfigWatch(service.home.config, service.settings, on_change=lambda accepted: follow(accepted.settings))
    await service.ready()
    await service.stop_asked.wait()
    config.close()
    await _settled(credentials)
    hub.close()
    if gate is not None:
        gate.close()
    credentials.stop()
    broker.stop()
    await broker.stopped(deadline_s=STOP_S)
    await records.close(timeout_s=STOP_S)


def _configured(settings: Settings) -> Configured:
    return Configured(providers=settings.providers, budget=settings.fleet.budget)


async def _settled(credentials: ActorRef) -> None:
    """Let a renewal that is under way get its answer: the old refresh token may be used up by now."""
    with suppress(CoveyError):
        await credentials.ask(Settle(), deadline_s=STOP_S)
