"""Credit: how much one side of a session may send before the other has taken it in.

Pure. The receiver grants, the sender counts; both begin anew with every opening of the session. Credit covers asks and
tells. Replies need none: an answer that had to wait for credit could keep the peer from ever granting any.
"""

from __future__ import annotations

from .errors import ProtocolError


class Allowance:
    """The sender's side: what may still be sent. Nothing before `begin`."""

    __slots__ = ("_granted", "_sent")

    def __init__(self) -> None:
        self._granted = 0
        self._sent = 0

    @property
    def left(self) -> int:
        """How much may be sent now."""
        return self._granted - self._sent

    def begin(self, window: int) -> None:
        """The session opens, and the peer takes `window` messages."""
        self._granted, self._sent = window, 0

    def grant(self, upto: int) -> None:
        """The peer takes `upto` messages in all since the opening; a smaller grant than before changes nothing."""
        self._granted = max(self._granted, upto)

    def take(self) -> bool:
        """Spend one, if there is one."""
        if self._sent >= self._granted:
            return False
        self._sent += 1
        return True


class Window:
    """The receiver's side: what the peer was told it may send."""

    __slots__ = ("_granted", "_taken", "size")

    def __init__(self, size: int) -> None:
        assert size > 0, "with no credit at all nothing could ever be sent"
        self.size = size
        self._granted = 0
        self._taken = 0

    def begin(self) -> None:
        """The session opens; the greeting has granted `size`."""
        self._granted, self._taken = self.size, 0

    def take(self) -> int | None:
        """Count one message that was taken in. What to grant in all, when it is time to say so.

        Said once half the window is used: rarely enough to cost nothing, early enough that a busy sender never waits.
        Raises `ProtocolError` for one that was not granted, and does not count it.
        """
        if self._taken >= self._granted:
            raise ProtocolError(f"the peer sent more than the {self._granted} messages it was granted")
        self._taken += 1
        if (self._granted - self._taken) * 2 > self.size:
            return None
        self._granted = self._taken + self.size
        return self._granted
