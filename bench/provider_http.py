"""HTTP/1.1 on one connection, for a server that must know when its client is gone.

h11 knows the protocol, this module moves the bytes. Reading never stops, so that a closed connection is noticed at
once, while a request is thought about just as in the middle of a stream. A client that closes its sending side counts
as gone. Owned by the loop thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from urllib.parse import parse_qsl

import h11

MAX_BODY = 64 * 2**20
"""Bytes of a request's body; a longer one is answered with 413."""

MAX_AHEAD = 2**20
"""Bytes a client may send before it has the answer to its last request; more close the connection."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was received to its last byte. Names of headers are lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] | None = None


Handler = Callable[[Request, "Connection"], Response | Coroutine[None, None, None]]
"""Answers a request: at once, or in a coroutine that the connection runs, and cancels when it is lost."""


class Connection(asyncio.Protocol):
    """One client's connection; also the place where a handler puts its answer."""

    def __init__(self, handler: Handler, members: set[Connection]) -> None:
        self._handler = handler
        self._members = members
        self._http = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._ahead = 0
        self._on_lost: Callable[[], None] | None = None
        self._held = b""
        self._room = asyncio.Event()
        self._room.set()
        self.task: asyncio.Task[None] | None = None

    # --- for the handler ---------------------------------------------------------------------------------------------

    @property
    def is_local(self) -> bool:
        """Whether the client is on this machine, and came by loopback."""
        peer = self._transport.get_extra_info("peername")
        if not isinstance(peer, tuple):
            return True
        address = ip_address(str(peer[0]).partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback

    def when_lost(self, then: Callable[[], None] | None) -> None:
        """Call `then` the moment the connection is lost; None takes it back."""
        self._on_lost = then

    def respond(self, response: Response) -> None:
        """Give a whole answer."""
        self._transport.write(self._whole(response))

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin an answer whose body follows in pieces; the head leaves in one packet with the first of them."""
        self._held = self._send_head(status, headers.items())

    def send(self, piece: bytes) -> None:
        """Send one more piece of the body."""
        self._transport.write(self._release() + self._send(piece))

    def finish(self, piece: bytes) -> None:
        """Send the last piece and the body's end in one packet: a client that has one has both."""
        self._transport.write(self._release() + self._send(piece) + self._wire(h11.EndOfMessage()))

    async def drained(self) -> None:
        """Return once every byte was handed to the kernel; at once if that is so already."""
        await self._room.wait()

    def cut(self) -> None:
        """Close in the middle, after what was sent so far."""
        self._transport.close()

    def abort(self) -> None:
        """Close now; unsent bytes are dropped."""
        self._transport.abort()

    # --- for the loop ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream server makes stream transports"
        self._transport = transport
        # Both marks at 0: `_room` is then exactly "nothing of ours waits in this process".
        transport.set_write_buffer_limits(high=0)
        self._members.add(self)

    def data_received(self, data: bytes) -> None:
        if self.task is not None:
            self._ahead += len(data)
            if self._ahead > MAX_AHEAD:
                return self._transport.abort()
        self._http.receive_data(data)
        if self.task is None:
            self._advance()
        return None

    def eof_received(self) -> None:
        # The transport's own close would first wait until a client that reads nothing has read everything.
        self._transport.abort()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._members.discard(self)
        then, self._on_lost = self._on_lost, None
        if then is not None:
            then()
        if self.task is not None:
            self.task.cancel()

    # --- one request after the other ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        try:
            while self.task is None and not self._transport.is_closing():
                if not self._take(self._http.next_event()):
                    return
        except h11.RemoteProtocolError as error:
            self._complain(error.error_status_hint, str(error))

    def _take(self, event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]) -> bool:
        """Act on what h11 read; False once there is nothing more to read for now."""
        match event:
            case h11.Request():
                self._head = event
                self._body.clear()
                if self._http.they_are_waiting_for_100_continue:
                    self._transport.write(self._wire(h11.InformationalResponse(status_code=100, headers=[])))
            case h11.Data():
                self._body += event.data
                if len(self._body) > MAX_BODY:
                    self._complain(413, f"the body is longer than {MAX_BODY} bytes")
            case h11.EndOfMessage():
                self._dispatch(self._request())
            case _:
                return False
        return True

    def _request(self) -> Request:
        head = self._head
        assert head is not None, "h11 ends no message that it did not begin"
        path, _, query = head.target.decode("ascii").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
        return Request(head.method.decode("ascii"), path, dict(parse_qsl(query)), headers, bytes(self._body))

    def _dispatch(self, request: Request) -> None:
        answer = self._handler(request, self)
        if isinstance(answer, Response):
            self.respond(answer)
            if self._room.is_set():
                return self._next_cycle()
        self._ahead = 0
        self.task = asyncio.get_running_loop().create_task(self._run(answer))
        return None

    async def _run(self, work: Response | Coroutine[None, None, None]) -> None:
        try:
            if not isinstance(work, Response):
                await work
            await self.drained()
        except BaseException:
            # Whatever went wrong, the client must not wait for the rest; the error goes to the loop.
            self._transport.abort()
            raise
        self.task = None
        self._next_cycle()
        self._advance()

    def _next_cycle(self) -> None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self._transport.close()

    def _complain(self, status: int, problem: str) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._transport.write(self._whole(Response(status, problem.encode(), {"content-type": "text/plain"})))
        self._transport.close()

    # --- bytes -------------------------------------------------------------------------------------------------------

    def _release(self) -> bytes:
        held, self._held = self._held, b""
        return held

    def _whole(self, response: Response) -> bytes:
        is_head = self._head is not None and self._head.method == b"HEAD"
        headers = {"content-type": "application/json", "content-length": str(len(response.body))}
        head = self._send_head(response.status, (headers | dict(response.headers or {})).items())
        return head + (b"" if is_head else self._send(response.body)) + self._wire(h11.EndOfMessage())

    def _send_head(self, status: int, headers: Iterable[tuple[str, str]]) -> bytes:
        return self._wire(h11.Response(status_code=status, headers=list(headers)))

    def _send(self, piece: bytes) -> bytes:
        return self._wire(h11.Data(data=piece)) if piece else b""

    def _wire(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""
