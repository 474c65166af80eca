"""Leftovers: processes of an earlier fleet of this home that outlived their root, found by identity and ended.

A root writes down every process it makes (pid, start time, boot). Should it and its zygote be killed together, nobody
is left to bury what the workers had started; those processes carry the fleet's tag in their environment. The next
root ends both kinds before it starts anything. Nobody is found by name, and what runs outside of a dead fleet,
ourselves included, is never touched.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from ..protocol.ids import Incarnation
from ..protocol.peer import Owner
from ..storage.owners import boot_id, is_alive, open_pidfd, owner_of
from .cgroup import PREFIX, Group

TAG: Final = "COVEY_FLEET"
"""Environment variable of everything below a root: the root's incarnation."""

ZYGOTE_S: Final = 1.0
"""How long a zygote without a root may go on burying its own: it also finds what has no tag."""

GROUP_S: Final = 2.0
ROUND_S: Final = 0.5


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="fleet"):
    """First line of a register: whose processes these are."""

    fleet: Incarnation
    boot_id: str


class Born(msgspec.Struct, frozen=True, kw_only=True, tag="born"):
    """A process was made."""

    name: str
    pid: int
    start_ticks: int


class Grouped(msgspec.Struct, frozen=True, kw_only=True, tag="group"):
    """All of them are in this cgroup."""

    path: str


_line = msgspec.json.Encoder()
_lines = msgspec.json.Decoder(Header | Born | Grouped)


class Register:
    """The processes of a living fleet, one line each, for whoever comes after a root that was killed.

    Lines of processes that have ended stay until `most` are there: an identity that is over hits nobody.
    """

    def __init__(self, path: Path, fleet: Incarnation, *, group: Group | None = None, most: int = 1000) -> None:
        self._path, self._most = path, most
        self._header = Header(fleet=fleet, boot_id=boot_id())
        self._opening: list[Header | Born | Grouped] = [self._header]
        if group is not None:
            self._opening.append(Grouped(path=str(group.path)))
        self._lines: list[Born] = []
        self._write(self._opening)

    def add(self, name: str, *, pid: int, start_ticks: int) -> None:
        """Note a process. Nothing is fsynced: the page cache outlives us, and a boot ends all of them."""
        born = Born(name=name, pid=pid, start_ticks=start_ticks)
        self._lines.append(born)
        if len(self._lines) <= self._most:
            with open(self._path, "ab") as file:
                file.write(_line.encode(born) + b"\n")
            return
        self._lines = [line for line in self._lines if _is_there(line, self._header.boot_id)]
        # At least as many new ones before this is done again, however many are alive.
        self._most = max(self._most, 2 * len(self._lines))
        self._write([*self._opening, *self._lines])

    def remove(self) -> None:
        """The fleet is gone in order."""
        self._path.unlink(missing_ok=True)

    def _write(self, lines: Iterable[Header | Born | Grouped]) -> None:
        draft = self._path.with_suffix(".new")
        draft.write_bytes(b"".join(_line.encode(line) + b"\n" for line in lines))
        draft.chmod(0o600)
        draft.replace(self._path)


def reap(path: Path, *, timeout_s: float) -> tuple[int, ...]:
    """End what is left of the fleet that `path` is the register of; returns whom it killed. Without one: nobody.

    Returns early once nobody is left. The caller holds the home's lock, so that fleet has no root any more.
    """
    header, born, group = _read(path)
    if header is None or header.boot_id != boot_id():
        return ()
    deadline = time.monotonic() + timeout_s
    owners = [Owner(pid=one.pid, start_ticks=one.start_ticks, boot_id=header.boot_id) for one in born]
    # A zygote ends by itself without its root, and does it better than we could: it is the parent of all.
    zygotes = [owner for owner, one in zip(owners, born, strict=True) if one.name == "zygote"]
    _wait(_pidfds(zygotes), min(ZYGOTE_S, timeout_s))
    killed: dict[int, None] = {}
    if group is not None and group.path.name == f"{PREFIX}{header.fleet}" and not group.holds_us():
        killed.update(dict.fromkeys(group.members()))
        group.clear(timeout_s=min(GROUP_S, timeout_s))
    spared = _ourselves()
    while time.monotonic() < deadline:
        found = {owner.pid: owner for owner in (*owners, *_tagged(header.fleet))}
        found.update((owner.pid, owner) for owner in _below(found))
        pidfds = _pidfds(owner for pid, owner in found.items() if pid not in spared)
        if not pidfds:
            break
        for pid, pidfd in pidfds.items():
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            killed[pid] = None
        _wait(pidfds, ROUND_S)
    return tuple(killed)


def survivors(path: Path) -> tuple[Owner, ...]:
    """Who is left of the fleet that `path` is the register of; ends nobody. The fleet has no root any more."""
    header, born, _ = _read(path)
    if header is None or header.boot_id != boot_id():
        return ()
    owners = [Owner(pid=one.pid, start_ticks=one.start_ticks, boot_id=header.boot_id) for one in born]
    found = {owner.pid: owner for owner in (*owners, *_tagged(header.fleet)) if is_alive(owner)}
    spared = _ourselves()
    return tuple(owner for pid, owner in sorted(found.items()) if pid not in spared)


def _read(path: Path) -> tuple[Header | None, list[Born], Group | None]:
    """What a register says; a line that was cut by the death of its writer ends it."""
    header: Header | None = None
    born: list[Born] = []
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None, [], None
    group: Group | None = None
    for line in content.splitlines():
        try:
            entry = _lines.decode(line)
        except (msgspec.DecodeError, UnicodeError):
            break
        match entry:
            case Header():
                header = entry
            case Grouped(path=folder):
                group = Group(Path(folder))
            case Born():
                born.append(entry)
    return header, born, group


def _is_there(born: Born, boot: str) -> bool:
    pidfd = open_pidfd(Owner(pid=born.pid, start_ticks=born.start_ticks, boot_id=boot))
    if pidfd is not None:
        os.close(pidfd)
    return pidfd is not None


def _pidfds(owners: Iterable[Owner]) -> dict[int, int]:
    """Pidfds of those that have not ended; zombies have."""
    found: dict[int, int] = {}
    for owner in owners:
        pidfd = open_pidfd(owner)
        if pidfd is None:
            continue
        if _has_ended(pidfd):
            os.close(pidfd)
        else:
            found[owner.pid] = pidfd
    return found


def _has_ended(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def _wait(pidfds: Mapping[int, int], timeout_s: float) -> None:
    """Wait until all of them have ended, or for `timeout_s`; closes the descriptors."""
    deadline = time.monotonic() + timeout_s
    for pidfd in pidfds.values():
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
        os.close(pidfd)


def _tagged(fleet: Incarnation) -> Iterator[Owner]:
    """Whoever has the tag of that fleet in the environment it was executed with, as far as we may look."""
    tag = f"{TAG}={fleet}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        # Who it is comes first: a pid that is reused between the two looks is then another process, and not hit.
        owner = owner_of(int(name))
        if owner is None:
            continue
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if tag in environment.split(b"\0"):
            yield owner


def _below(found: Mapping[int, Owner]) -> list[Owner]:
    """All descendants of those processes that are still there."""
    todo, below = [pid for pid in found if _is_running(found[pid])], []
    while todo:
        parent = todo.pop()
        for pid in _children(parent):
            # Still a child of it once we know who it is: so it is no stranger with the same pid.
            if pid not in found and (owner := owner_of(pid)) is not None and _parent(pid) == parent:
                below.append(owner)
                todo.append(pid)
    return below


def _is_running(owner: Owner) -> bool:
    return owner_of(owner.pid) == owner


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return [
            int(child)
            for thread in threads
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _ourselves() -> set[int]:
    """This process and everybody above it: a root may be started from inside of what an earlier one left behind."""
    spared: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in spared:
        spared.add(pid)
        pid = _parent(pid)
    return spared


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[1])
