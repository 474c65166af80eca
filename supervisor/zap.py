"""Who may come in over the network: ZeroMQ asks us about every key at each handshake (ZAP, rfc.zeromq.org/spec/27).

A handler on the process's own loop, not a thread. It has to be there before anything is bound. Without it, or while it
is dead, nobody comes in: the sockets enforce their domain, and a question without an answer ends the handshake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import zmq
from zmq.utils import z85

from ..storage.logs import log_event
from .pump import NOBLOCK, Pump

log = logging.getLogger(__name__)

ADDRESS: Final = "inproc://zeromq.zap.01"
VERSION: Final = b"1.0"
DOMAIN: Final = b"covey"

Judge = Callable[[bytes], str | None]
"""The name under which this public key (Z85) may come in; None if it may not."""


class Zap:
    """Answers ZeroMQ's questions of this process. One for each context; owned by the loop thread."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], judge: Judge) -> None:
        self._judge = judge
        self.accepted = 0
        self.refused = 0
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        try:
            self._socket.bind(ADDRESS)
        except zmq.ZMQError:
            self._socket.close()
            raise
        self._pump = Pump(self._socket, self._take)

    def close(self) -> None:
        """Answer no more: from now on nobody comes in. Idempotent."""
        if not self._socket.closed:
            self._pump.close()
            self._socket.close()

    def _take(self) -> int:
        question = self._socket.recv_multipart(NOBLOCK)
        answer = self._answer(question)
        if answer is not None:
            self._socket.send_multipart(answer, NOBLOCK)
        return 1

    def _answer(self, question: list[bytes]) -> list[bytes] | None:
        if len(question) < 8:
            return None  # not a question; ZeroMQ itself asks, so this cannot be answered
        asker, empty, version, number, domain, address, _, mechanism, *credentials = question
        head = [asker, empty, VERSION, number]
        if version != VERSION or domain != DOMAIN or mechanism != b"CURVE" or len(credentials) != 1:
            return [*head, b"400", b"not this way", b"", b""]
        key = z85.encode(credentials[0])
        name = self._judge(key)
        where = address.decode(errors="replace")
        if name is None:
            self.refused += 1
            log_event(log, "stranger_refused", level=logging.WARNING, address=where, refused=self.refused)
            return [*head, b"400", b"unknown key", b"", b""]
        self.accepted += 1
        log_event(log, "remote_accepted", client=name, address=where)
        return [*head, b"200", b"OK", name.encode(), b""]
