"""Reading an account's quota: one small GET with the account's key, to the host that gets its calls anyway.

A reading has a deadline and a bound on its size and never raises for what the other side does. `QuotaReader` does it
beside the calls of a process, one at a time, so that no call is ever later for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import httpx

from ..protocol.errors import LinkFull
from ..protocol.ids import BudgetKey
from ..protocol.messages.broker import QuotaSeen, QuotaWindow
from ..protocol.quota import QuotaUnread, quota_url, read_windows
from ..storage.logs import log_event
from .calls.connection_faults import connection_fault
from .transport import open_client

log = logging.getLogger(__name__)

READ_S: Final = 10.0
MOST_BYTES: Final = 65_536

AGAIN_S: Final = 60.0
"""So long an account that could not be read is left alone."""


@dataclass(frozen=True, slots=True)
class Got:
    """An answer, cut at `MOST_BYTES`."""

    status: int
    body: bytes


async def get(url: str, *, headers: dict[str, str], deadline_s: float = READ_S) -> Got | str:
    """The answer to a small GET, or in words why there is none. Redirects are not followed: the key stays here."""
    try:
        async with asyncio.timeout(deadline_s), open_client(url) as client:
            # Unpacked by nobody, so that the bound on its size is one on memory too.
            plain = {**headers, "accept-encoding": "identity"}
            async with client.stream("GET", url, headers=plain) as response:
                body = bytearray()
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) >= MOST_BYTES:
                        break
                return Got(response.status_code, bytes(body[:MOST_BYTES]))
    except TimeoutError:
        return f"no answer within {deadline_s:g} s"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return connection_fault(error, in_body=False).message


async def read_quota(
    base_url: str, api_key: str, *, deadline_s: float = READ_S
) -> tuple[QuotaWindow, ...] | QuotaUnread:
    """The windows of the account that `api_key` belongs to. The key goes to the host of `base_url` and into no text."""
    url, key = quota_url(base_url), api_key.strip()
    if url is None:
        return QuotaUnread(problem=f"{base_url} has no host")
    if not key or not (key.isascii() and key.isprintable()):
        return QuotaUnread(problem="the key holds characters that no key has", is_key_refused=True)
    found = await _ask(url, key, deadline_s)
    if isinstance(found, QuotaUnread) and found.is_key_refused:
        # The vendor's own tools show the bare key here; other hosts take it only as every other endpoint does.
        again = await _ask(url, f"Bearer {key}", deadline_s)
        found = found if isinstance(again, QuotaUnread) else again
    if isinstance(found, QuotaUnread):
        return QuotaUnread(problem=found.problem.replace(key, "[key]"), is_key_refused=found.is_key_refused)
    return found


async def _ask(url: str, authorization: str, deadline_s: float) -> tuple[QuotaWindow, ...] | QuotaUnread:
    headers = {"authorization": authorization, "accept": "application/json", "accept-language": "en-US,en"}
    got = await get(url, headers=headers, deadline_s=deadline_s)
    if isinstance(got, str):
        return QuotaUnread(problem=got)
    return read_windows(got.body, status=got.status)


class QuotaReader:
    """Reads quotas for the broker, one at a time; more wishes meanwhile are dropped. Owned by the loop thread.

    `report` gets what was read; a reading that failed is not reported, and the broker wishes for another in time.
    """

    def __init__(self, report: Callable[[QuotaSeen], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._not_before: dict[BudgetKey, float] = {}

    def wish(self, budget: BudgetKey, base_url: str, api_key: str | None) -> None:
        """Read this account's quota soon, unless another one is being read, it has just failed, or there is no key."""
        now = self._clock()
        is_busy = self._task is not None and not self._task.done()
        if api_key is None or is_busy or now < self._not_before.get(budget, now):
            return
        self._task = asyncio.get_running_loop().create_task(self._read(budget, base_url, api_key))

    async def close(self) -> None:
        """Read no more. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _read(self, budget: BudgetKey, base_url: str, api_key: str) -> None:
        found = await read_quota(base_url, api_key)
        if isinstance(found, QuotaUnread):
            self._not_before[budget] = self._clock() + AGAIN_S
            log_event(log, "quota_unread", level=logging.WARNING, budget=budget, problem=found.problem)
            return
        with suppress(LinkFull):  # it is old news by the time there is room
            self._report(QuotaSeen(budget=budget, windows=found))
