"""The floor of the broker benchmark: a bare DEALER here and a bare ROUTER in another process, in the same run."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import zmq

from ..supervisor.sockets import make_context, make_dealer
from .link_service import ServiceProcess

WAIT_MS: Final = 20_000


class BareEnd:
    """Sends as many bytes as an acquire has, and takes the answer. Blocking; owned by one thread."""

    def __init__(self, dealer: zmq.Socket[bytes], *, request_bytes: int) -> None:
        self._dealer = dealer
        self._request = bytes(request_bytes)

    def trips(self, count: int, *, pause_s: float) -> list[float]:
        """Seconds of so many round trips, with a pause before each."""
        trips = []
        for _ in range(count):
            time.sleep(pause_s)
            began = time.perf_counter()
            self._dealer.send(self._request)
            self._dealer.recv()
            trips.append(time.perf_counter() - began)
        return trips


@contextmanager
def bare_end(*, request_bytes: int) -> Iterator[BareEnd]:
    """Have one while inside."""
    with ExitStack() as stack:
        path = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cvb-"))) / "bare.sock")
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen()
        router = ServiceProcess("bare", path, listener)
        stack.callback(router.kill)
        router.serve()
        context = make_context()
        stack.callback(context.destroy, linger=0)
        dealer = make_dealer(context, path=path, identity="bench:bare")
        # It waits where a link would be told to come again.
        dealer.setsockopt(zmq.IMMEDIATE, 0)
        dealer.setsockopt(zmq.SNDTIMEO, WAIT_MS)
        dealer.setsockopt(zmq.RCVTIMEO, WAIT_MS)
        dealer.connect(f"ipc://{path}")
        yield BareEnd(dealer, request_bytes=request_bytes)
