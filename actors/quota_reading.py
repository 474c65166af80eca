"""Reading an account's quota: one small GET with the account's key, to the host that gets its calls anyway.

It goes the way its calls go (proxy, certificates). A reading has a deadline and a bound on its size and never raises
for what the other side does. `QuotaReader` does it beside the calls of a process, one at a time, so that no call is
ever later for it.
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

from ..protocol.errors import ConnectionSettingRefused, LinkFull
from ..protocol.ids import BudgetKey
from ..protocol.messages.broker import QuotaSeen, QuotaWindow
from ..protocol.quota import QuotaUnread, quota_url, read_windows
from ..protocol.settings import ProviderSettings
from ..storage.logs import log_event
from .calls.connection_faults import connection_fault
from .http.clients import Clients

log = logging.getLogger(__name__)

READ_S: Final = 10.0
MOST_BYTES: Final = 65_536

AGAIN_S: Final = 60.0
"""So long an account that could not be read is left alone."""


@dataclass(frozen=True, slots=True)
class Got:
    """An answer, cut at the bound on its size."""

    status: int
    body: bytes


async def get(
    clients: Clients,
    provider: ProviderSettings,
    url: str,
    *,
    headers: dict[str, str],
    deadline_s: float = READ_S,
    most_bytes: int = MOST_BYTES,
) -> Got | str:
    """The answer to a small GET, or in words why there is none. Redirects are not followed: the key stays here.

    `url` is on the host of `provider`, and is reached as its calls are.
    """
    try:
        async with asyncio.timeout(deadline_s):
            # Past httpx's client, which would show one account the cookies of another one; and unpacked by nobody, so
            # that the bound on the size is one on memory too.
            sent = httpx.Request("GET", url, headers=httpx.Headers(headers, encoding="utf-8"))
            response = await clients.send(provider, sent)
            try:
                return Got(response.status_code, await _body(response, most_bytes))
            finally:
                await response.aclose()
    except TimeoutError:
        return f"no answer within {deadline_s:g} s"
    except ConnectionSettingRefused as error:
        return str(error)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return connection_fault(error, in_body=False).message


async def _body(response: httpx.Response, most_bytes: int) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) >= most_bytes:
            break
    return bytes(body[:most_bytes])


async def read_quota(
    clients: Clients, provider: ProviderSettings, api_key: str, *, deadline_s: float = READ_S
) -> tuple[QuotaWindow, ...] | QuotaUnread:
    """The windows of the account that `api_key` belongs to. The key goes to the provider's host and into no text."""
    url, key = quota_url(provider.base_url), api_key.strip()
    if url is None:
        return QuotaUnread(problem=f"{provider.base_url} has no host")
    if not key or not (key.isascii() and key.isprintable()):
        return QuotaUnread(problem="the key holds characters that no key has", is_key_refused=True)

    async def ask(authorization: str) -> tuple[QuotaWindow, ...] | QuotaUnread:
        headers = {"authorization": authorization, "accept": "application/json", "accept-language": "en-US,en"}
        got = await get(clients, provider, url, headers=headers, deadline_s=deadline_s)
        return QuotaUnread(problem=got) if isinstance(got, str) else read_windows(got.body, status=got.status)

    found = await ask(key)
    if isinstance(found, QuotaUnread) and found.is_key_refused:
        # The vendor's own tools show the bare key here; other hosts take it only as every other endpoint does.
        again = await ask(f"Bearer {key}")
        found = found if isinstance(again, QuotaUnread) else again
    if isinstance(found, QuotaUnread):
        return QuotaUnread(problem=found.problem.replace(key, "[key]"), is_key_refused=found.is_key_refused)
    return found


class QuotaReader:
    """Reads quotas for the broker, one at a time; more wishes meanwhile are dropped. Owned by the loop thread.

    `report` gets what was read; a reading that failed is not reported, and the broker wishes for another in time.
    """

    def __init__(
        self, report: Callable[[QuotaSeen], None], clients: Clients, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The `clients` stay the caller's; they are to be closed later than this."""
        self._report = report
        self._clients = clients
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._not_before: dict[BudgetKey, float] = {}

    def wish(self, budget: BudgetKey, provider: ProviderSettings, api_key: str | None) -> None:
        """Read this account's quota soon, unless another one is being read, it has just failed, or there is no key."""
        now = self._clock()
        is_busy = self._task is not None and not self._task.done()
        if api_key is None or is_busy or now < self._not_before.get(budget, now):
            return
        self._task = asyncio.get_running_loop().create_task(self._read(budget, provider, api_key))

    async def close(self) -> None:
        """Read no more. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _read(self, budget: BudgetKey, provider: ProviderSettings, api_key: str) -> None:
        found = await read_quota(self._clients, provider, api_key)
        if isinstance(found, QuotaUnread):
            self._not_before[budget] = self._clock() + AGAIN_S
            log_event(log, "quota_unread", level=logging.WARNING, budget=budget, problem=found.problem)
            return
        with suppress(LinkFull):  # it is old news by the time there is room
            self._report(QuotaSeen(budget=budget, windows=found))
