"""What the root and its zygote say to each other, over a SOCK_SEQPACKET pair: one struct a packet.

Trusted on both sides: they are one program. File descriptors travel beside the packet (SCM_RIGHTS).
"""

from __future__ import annotations

import socket
from array import array
from collections.abc import Sequence

import msgspec

from ..protocol.ids import Incarnation
from .exits import Exited, Signalled, from_status

PACKET_BYTES = 64 * 1024
"""No packet is larger: whatever has no natural bound (arguments) travels as a memory file."""

_INT_BYTES = array("i").itemsize

FDS_MAX = 64
"""File descriptors beside one packet; the kernel's own bound is 253."""


class SpawnArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What a role's `main` is told about its life."""

    name: str
    role: str
    incarnation: Incarnation
    payload: bytes = b""


class SpawnChild(msgspec.Struct, frozen=True, kw_only=True, tag="spawn_child"):
    """Root to zygote: fork a child. Beside it: the payload as a memory file, then one descriptor per name in `fds`."""

    name: str
    role: str
    incarnation: Incarnation
    log_path: str
    fds: tuple[str, ...] = ()


class ZygoteReady(msgspec.Struct, frozen=True, kw_only=True, tag="zygote_ready"):
    """Warm: `missing` modules could not be imported, so children that need them pay for it themselves."""

    pid: int
    missing: tuple[str, ...] = ()


class ChildSpawned(msgspec.Struct, frozen=True, kw_only=True, tag="child_spawned"):
    """The child exists. Beside it: its pidfd. `start_ticks` was read before anybody could have reaped it."""

    name: str
    incarnation: Incarnation
    pid: int
    start_ticks: int


class SpawnFailed(msgspec.Struct, frozen=True, kw_only=True, tag="spawn_failed"):
    """There is no child; `error` is the kernel's word."""

    name: str
    incarnation: Incarnation
    error: str


class ChildExited(msgspec.Struct, frozen=True, kw_only=True, tag="child_exited"):
    """The child was reaped; `status` is waitpid's."""

    name: str
    incarnation: Incarnation
    pid: int
    status: int

    @property
    def reason(self) -> Exited | Signalled:
        """The status in words."""
        return from_status(self.status)


class StrangersKilled(msgspec.Struct, frozen=True, kw_only=True, tag="strangers_killed"):
    """Processes that a dead child had left behind, found and killed."""

    pids: tuple[int, ...]


ZygoteReport = ZygoteReady | ChildSpawned | SpawnFailed | ChildExited | StrangersKilled

_FD_BYTES = array("i").itemsize

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(SpawnChild)
_reports = msgspec.msgpack.Decoder(ZygoteReport)


def send(sock: socket.socket, packet: SpawnChild | ZygoteReport, fds: Sequence[int]) -> None:
    """Send without waiting: BlockingIOError if the pipe is full, BrokenPipeError if nobody is there."""
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
    sock.sendmsg([_encoder.encode(packet)], beside, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def receive_request(sock: socket.socket) -> tuple[SpawnChild, list[int]] | None:
    """The next request and its descriptors (close-on-exec, ours to close); None once the root is gone."""
    data, fds = _receive(sock)
    return (_requests.decode(data), fds) if data else None


def receive_report(sock: socket.socket) -> tuple[ZygoteReport, list[int]] | None:
    """The next report and its descriptors (close-on-exec, ours to close); None once the zygote is gone."""
    data, fds = _receive(sock)
    return (_reports.decode(data), fds) if data else None


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """BlockingIOError if there is nothing; nothing at all (b"") is the end."""
    try:
        return _receive_packet(sock)
    except ConnectionResetError:
        # The other side died with packets of ours unread. Said once; its own last packets are still there.
        return _receive_packet(sock)


def _receive_packet(sock: socket.socket) -> tuple[bytes, list[int]]:
    # Not socket.recv_fds and send_fds: they take flags and drop them (Python 3.11 to 3.13), so both would block, and
    # what is received would survive an exec.
    room = socket.CMSG_SPACE(FDS_MAX * _FD_BYTES)
    data, beside, _, _ = sock.recvmsg(PACKET_BYTES, room, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    fds = array("i")
    for level, kind, content in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % _FD_BYTES])
    return data, fds.tolist()
