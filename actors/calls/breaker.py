"""The circuit breaker: a backend that was silent five times in a row is left alone for a while.

Every silence costs minutes and holds a slot. After `stale_calls` of them, over all calls of the process, the backend is
refused at once; then one call at a time may try it, and what any call hears from it closes the circuit:

    closed ──stale x n──> open ──time──> half-open (one probe at a time) ──anything heard──> closed
                            ^──────────── the probe is stale ─┘               (twice as long)

Pure state, owned by the loop: `now` is passed in. Bounded: the backends unheard of for longest are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

import msgspec

from ...protocol.backend import Backend, surface
from ...protocol.fault_kinds import FaultScope

FIRST_OPEN_S: Final = 60.0
LONGEST_OPEN_S: Final = 600.0
PROBE_S: Final = 5.0
"""While a probe is out, others may ask this often whether it has heard something."""
KEPT: Final = 1024


class Entry(msgspec.Struct, frozen=True):
    """A call was let through to `backend`; to be given to `left` once, however it ends."""

    backend: Backend
    is_probe: bool = False


class _Circuit:
    """One backend's. `opened` counts how often in a row; `until` is None while it is closed.

    `probe` is the entry itself: one of an earlier opening that ends late is another.
    """

    __slots__ = ("opened", "probe", "stale", "until")

    def __init__(self) -> None:
        self.stale = self.opened = 0
        self.until: float | None = None
        self.probe: Entry | None = None


class Breaker:
    """The circuits of all backends; owned by the loop. A backend of which an axis is unknown has none."""

    def __init__(self, stale_calls: int = 5, *, kept: int = KEPT) -> None:
        self._stale_calls, self._kept = stale_calls, kept
        self._circuits: OrderedDict[Hashable, _Circuit] = OrderedDict()

    def __len__(self) -> int:
        return len(self._circuits)

    def closed_for_s(self, backend: Backend, now: float) -> float | None:
        """Seconds until `backend` may be asked; None: now. Takes nothing, so it is no promise."""
        circuit = self._circuits.get(_key(backend))
        if circuit is None or circuit.until is None:
            return None
        if now < circuit.until:
            return circuit.until - now
        return PROBE_S if circuit.probe is not None else None

    def enter(self, backend: Backend, now: float) -> Entry | float:
        """Let one call through; else the seconds until it is worth asking again."""
        wait_s = self.closed_for_s(backend, now)
        if wait_s is not None:
            return wait_s
        circuit = self._circuits.get(_key(backend))
        entry = Entry(backend, is_probe=circuit is not None and circuit.until is not None)
        if circuit is not None and entry.is_probe:
            circuit.probe = entry
        return entry

    def heard(self, backend: Backend) -> None:
        """It said something: whatever was, is over."""
        self._circuits.pop(_key(backend), None)

    def left(self, entry: Entry, now: float, *, is_stale: bool) -> None:
        """A call that was let through has ended, in silence or in a way that says nothing of the backend's."""
        if not is_stale:
            self._free(entry)
        elif self._stale_calls > 0 and _key(entry.backend) is not None:
            self._went_stale(entry, now)

    def _free(self, entry: Entry) -> None:
        circuit = self._circuits.get(_key(entry.backend))
        if circuit is not None and circuit.probe is entry:
            circuit.probe = None

    def _went_stale(self, entry: Entry, now: float) -> None:
        circuit = self._circuit(entry.backend)
        circuit.stale += 1
        if circuit.until is not None and circuit.probe is not entry:
            return  # it was out when the circuit opened: this is still the same silence
        if circuit.until is None and circuit.stale < self._stale_calls:
            return
        circuit.until = now + min(LONGEST_OPEN_S, FIRST_OPEN_S * 2.0 ** min(circuit.opened, 16))
        circuit.opened += 1
        circuit.probe = None

    def _circuit(self, backend: Backend) -> _Circuit:
        key = _key(backend)
        circuit = self._circuits.setdefault(key, _Circuit())
        self._circuits.move_to_end(key)
        if len(self._circuits) > self._kept:
            self._circuits.popitem(last=False)
        return circuit


def _key(backend: Backend) -> Hashable | None:
    return surface(backend, FaultScope.MODEL)
