"""Each call's way: read, let in or refused, answered by the player, counted to its end."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Final

import msgspec

from ..protocol.destination import fingerprint
from .provider_calls import CallBook, CallPage, ProviderStats
from .provider_chat import Asked
from .provider_delivery import STREAM_HEADERS, refuse, reply, stream
from .provider_dialects import Dialect, Writer, error_body, error_event, read, writer
from .provider_doors import Door
from .provider_errors import Refusal, Refused, refusal, trace_id
from .provider_gate import Asking, Gate
from .provider_http import Connection, Request, Response
from .provider_moods import Moods
from .provider_options import ProviderOptions
from .provider_quota import QuotaLimit
from .provider_tally import Accounts, Tallies
from .script_player import Answer, Player
from .script_steps import UnreadableStep

_BUSY: Final = frozenset({429, 503, 529})
"""Statuses of refusals that a client may be tempted to hammer against."""


class _Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a call, as it was read."""

    dialect: Dialect
    asking: Asking
    asked: Asked
    client_request_id: str | None
    user_agent: str | None


class Desk:
    """Takes calls on. Owned by the loop thread."""

    def __init__(self, options: ProviderOptions, player: Player, moods: Moods) -> None:
        self._player = player
        self._started, self._started_unix = time.monotonic(), time.time()
        self._book = CallBook(started_unix=self._started_unix)
        self._tallies = Tallies()
        self._first_moods = moods
        self._gate = Gate(options, moods, started_unix=self._started_unix)
        self._traces = 0

    # --- what it shows -----------------------------------------------------------------------------------------------

    @property
    def moods(self) -> Moods:
        """What holds now."""
        return self._gate.moods

    def stats(self) -> ProviderStats:
        """All counts together."""
        return self._book.stats(limit=self._gate.limit())

    def accounts(self) -> Accounts:
        """The counts by account and model."""
        return self._tallies.report(limit=self._gate.limit(), is_locked=self._gate.is_locked)

    def calls(self, *, after: int, limit: int) -> CallPage:
        """The calls themselves."""
        return self._book.page(after=after, limit=limit)

    def quota(self, request: Request) -> tuple[QuotaLimit, ...]:
        """What the quota endpoint shows to the caller's account."""
        return self._gate.quota(_account(_key(request)), now=self._now())

    def key_refusal(self, request: Request) -> Refusal | None:
        """Why the caller is shown nothing of this; None if his key is good."""
        return self._gate.key_refusal(_key(request))

    # --- what it is told ---------------------------------------------------------------------------------------------

    def set_moods(self, moods: Moods) -> None:
        """From now on it is like this."""
        self._gate.set_moods(moods, now=self._now())

    def unlock(self) -> None:
        """Take all fair-use locks away."""
        self._gate.unlock()

    def clear(self) -> None:
        """Be again as at the start: the script's moods, begun anew, and no lock."""
        self._gate.set_moods(Moods(), now=self._now())
        self._gate.set_moods(self._first_moods, now=self._now())
        self._gate.unlock()

    def reset(self) -> None:
        """Forget the calls that have ended."""
        self._book.reset()
        self._tallies.reset()

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, door: Door, request: Request, client: Connection) -> Response | Coroutine[None, None, None]:
        """Take a call on, or refuse it; counted before anything else can happen on the loop."""
        try:
            arrival = _arrival(door, request)
            why = self._gate.refusal(arrival.asking, now=self._now())
            move = self._player.next_move(arrival.asked.situation) if why is None else why
        except Refused as error:
            return self.error(error.refusal, door.dialect)
        except UnreadableStep as error:
            return self.error(refusal("1214", f"steps in the prompt: {error}"), door.dialect)
        if isinstance(move, Refusal):
            told, how = self._refuse(arrival, move), self.moods.refusal_bodies
            return told if how == "whole" else refuse(told, client, is_endless=how == "endless")
        return self._take(arrival, self._mortal(move), client)

    def error(self, refused: Refusal, dialect: Dialect) -> Response:
        """The error as a whole answer."""
        body = error_body(dialect, refused, self._trace(), numeric=self.moods.numeric_codes)
        return Response(refused.status, body, refused.headers)

    def _refuse(self, arrival: _Arrival, why: Refusal) -> Response:
        asking, now = arrival.asking, self._now()
        call = self._book.refuse(
            code=why.code,
            account=asking.account,
            model=asking.model,
            now=now,
            client_request_id=arrival.client_request_id,
            user_agent=arrival.user_agent,
        )
        self._tallies.refuse(call, prompt_tokens=arrival.asked.prompt_tokens)
        if why.status in _BUSY:
            self._gate.refused(asking.account, now=now)
        if why.code not in {str(code) for code in self.moods.in_band}:
            return self.error(why, arrival.dialect)
        if not arrival.asked.is_stream:
            return self.error(msgspec.structs.replace(why, status=200), arrival.dialect)
        return Response(200, self._event(why, arrival.dialect), {**why.headers, **STREAM_HEADERS})

    def _take(self, arrival: _Arrival, answer: Answer, client: Connection) -> Coroutine[None, None, None]:
        asking, asked, now = arrival.asking, arrival.asked, self._now()
        model = self.moods.answers_as.get(asking.model, asking.model)
        call = self._book.take(
            account=asking.account,
            model=asking.model,
            prompt_tokens=asked.prompt_tokens,
            now=now,
            answered_as=None if model == asking.model else model,
            client_request_id=arrival.client_request_id,
            user_agent=arrival.user_agent,
        )
        self._tallies.take(call)
        self._gate.enter(call.id, asking, now=now)
        written = writer(
            arrival.dialect,
            asked,
            answer,
            call=call.id,
            model=model,
            created=int(time.time()),
            has_cache=self.moods.prompt_cache,
        )
        # Here and not in the coroutine: one that is cancelled before it began runs no `finally`.
        client.when_lost(lambda: self._lost(call.id))
        delay_s = self._gate.headers_delay_s(asking, now=now)
        return self._deliver(arrival.dialect, written, client, is_stream=asked.is_stream, delay_s=delay_s)

    async def _deliver(
        self, dialect: Dialect, written: Writer, client: Connection, *, is_stream: bool, delay_s: float
    ) -> None:
        broken = refusal("1234", language=self.moods.language)
        if is_stream:
            every_ms = self.moods.keep_alive_ms
            usage_sent = await stream(
                written,
                client,
                error=self._event(broken, dialect),
                delay_s=delay_s,
                keep_alive_s=None if every_ms is None else every_ms / 1000,
            )
        else:
            usage_sent = await reply(written, client, error=self.error(broken, dialect), delay_s=delay_s)
        if usage_sent is None:
            return
        await client.drained()
        client.when_lost(None)
        now = self._now()
        ended = self._book.complete(
            written.call, completion_tokens=written.completion_tokens, usage_sent=usage_sent, now=now
        )
        self._gate.leave(written.call, now=now)
        if ended is not None:
            self._tallies.end(ended)
            self._gate.spend(ended.account, ended.prompt_tokens + ended.completion_tokens, now=now)

    def _lost(self, call: int) -> None:
        now = self._now()
        ended = self._book.abort(call, now=now)
        self._gate.leave(call, now=now)
        if ended is not None:
            self._tallies.end(ended)

    def _mortal(self, answer: Answer) -> Answer:
        bodies = self._gate.dying_body()
        # What a script says about this very answer comes first.
        if bodies is None or answer.cut_after_chunks is not None:
            return answer
        return msgspec.structs.replace(answer, cut_after_chunks=bodies.after_chunks, dies=bodies.dies)

    def _event(self, why: Refusal, dialect: Dialect) -> bytes:
        return error_event(dialect, why, self._trace(), numeric=self.moods.numeric_codes)

    def _trace(self) -> str:
        self._traces += 1
        return trace_id(self._started_unix + self._now(), self._traces)

    def _now(self) -> float:
        return round(time.monotonic() - self._started, 6)


def _arrival(door: Door, request: Request) -> _Arrival:
    asked, key = read(door.dialect, request.body), _key(request)
    who, agent = request.headers.get("x-client-request-id"), request.headers.get("user-agent")
    return _Arrival(
        dialect=door.dialect,
        asking=Asking(
            account=_account(key),
            key=key,
            model=asked.model,
            texts=asked.texts,
            prompt_tokens=asked.prompt_tokens,
            knobs=asked.knobs,
            plan_url=door.plan_url,
        ),
        asked=asked,
        # Cut: what a client sends is kept for as long as the call is listed.
        client_request_id=who and who[:200],
        user_agent=agent and agent[:200],
    )


def _key(request: Request) -> str:
    # The quota endpoint is sent the bare key, Anthropic's clients send it under a name of their own.
    given = request.headers.get("authorization") or request.headers.get("x-api-key", "")
    scheme, _, rest = given.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else given.strip()


def _account(key: str) -> str:
    return fingerprint(key) or "none"
