"""The ledger's process: the socket in front of the one writer of state.db."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial

from ...actors.ledger import LedgerWriter
from ...actors.ports import Request
from ...protocol.errors import CoveyError
from ...protocol.messages.base import Failed, Wire
from ...protocol.messages.ledger import Append, Committed, LedgerRequest
from ...protocol.messages.remote import RemoteLedgerRequest
from ..hub import Hub
from ..service import Service, run_service
from ..zygote_wire import SpawnArguments

CLOSE_S = 8.0
SWITCH_S = 0.0005
"""Beside a busy loop every SQLite call waits for the interpreter lock: with the default of 5 ms, commits of seconds
were seen; with this none."""
GC_OBJECTS = 50_000
"""So many new objects before the garbage collector looks: with 700, the default, every group of records sets it off."""


def main(role: str, arguments: SpawnArguments, fds: Mapping[str, int]) -> int:
    """Serve until SIGTERM; an error of state.db that cannot be served ends the process."""
    return run_service(arguments.payload, lambda service: _serve(service, fds))


async def _serve(service: Service, fds: Mapping[str, int]) -> None:
    tune()
    writer = LedgerWriter(service.home.state_db, service.home.outbox)
    await writer.start()
    writer.ended.add_done_callback(lambda ended: service.stop_asked.set())
    hub = Hub(
        service.context,
        path=service.socket_path("ledger"),
        listener_fd=os.dup(fds["ledger"]),
        me=service.me,
        requests=LedgerRequest,
        on_request=partial(answer, writer),
    )
    gate = service.gate("ledger", fds, RemoteLedgerRequest, on_request=partial(answer, writer))
    await service.ready()
    await service.stop_asked.wait()
    hub.close()
    if gate is not None:
        gate.close()
    await writer.close(timeout_s=CLOSE_S)


def tune() -> None:
    """Prepare the interpreter of this process for a ledger's work."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(GC_OBJECTS)


def answer(writer: LedgerWriter, request: Request[LedgerRequest]) -> None:
    """Give a request of another process to the writer; a refusal is the answer as well."""
    body = request.body
    try:
        if isinstance(body, Append):
            entries = tuple(enumerate(body.records, body.first))
            writer.submit(request.peer.incarnation, entries, partial(_committed, request.reply))
        else:
            writer.query(body, request.reply)
    except CoveyError as error:
        request.reply(Failed(kind=type(error).__name__, message=str(error)))


def _committed(reply: Callable[[Wire], None], upto: int) -> None:
    reply(Committed(upto=upto))
