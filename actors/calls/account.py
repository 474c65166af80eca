"""The account of one attempt: exactly one record of what it cost, or none where the provider never heard of it.

The record is handed over in the same turn of the loop in which the end is known, before anything is waited for; so
nothing that happens later (the close of the connection, a cancel, the death of the process) can lose it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from ...protocol.dialects.base import Answer
from ...protocol.faults import Fault, FaultScope
from ...protocol.ids import CallId
from ...protocol.messages.broker import Outcome
from ...protocol.messages.ledger import CallRecorded, CallStatus
from ...protocol.prices import cost_usd, price_of
from ...protocol.usage import Usage
from .call_request import CallRequest, Record
from .route import Target

NOTHING: Final = Usage(input=0, output=0)
"""What a call has used that was refused, or that nobody heard of."""


class Account:
    """Opened when the slot is there; closed once, when the attempt's end is known."""

    def __init__(
        self, call: CallId, request: CallRequest, target: Target, *, record: Record, waited_s: float | None
    ) -> None:
        self.call = call
        self._request, self._target, self._record = request, target, record
        self._waited_s = waited_s
        self._now = asyncio.get_running_loop().time
        self._opened, self._opened_at_ms = self._now(), int(time.time() * 1000)
        self._first_byte: float | None = None
        self.is_sent = False
        """Whether the provider may have heard of it."""
        self.status: CallStatus | None = None
        """How the attempt ended; None before."""
        self._usage: Usage | None = None
        self._fault: Fault | None = None

    @property
    def took_s(self) -> float:
        """Seconds since the slot was there."""
        return self._now() - self._opened

    @property
    def was_cut(self) -> bool:
        """Whether it ended without an answer of the provider, which may count it for a moment longer."""
        return self.is_sent and self._fault is not None and self._fault.status is None

    @property
    def outcome(self) -> Outcome | None:
        """What the broker is told of the end; None where there is none yet, nobody knows it, or nobody was asked."""
        fault = self._fault
        if fault is None:
            return Outcome(usage=self._usage) if self.status is CallStatus.COMPLETED else None
        if fault.scope is FaultScope.LOCAL and not self.is_sent:
            return None
        return Outcome(fault=fault, usage=NOTHING if self.status is CallStatus.REFUSED else self._usage)

    def first_byte(self) -> None:
        """The first byte of the answer's body is there; later words of it change nothing."""
        if self._first_byte is None:
            self._first_byte = self._now()

    def close(self, status: CallStatus, answer: Answer | None = None, fault: Fault | None = None) -> None:
        """Hand the record over."""
        assert self.status is None, "one attempt has one record"
        self.status, self._fault = status, fault
        if self.is_sent:
            self._usage = answer.usage if answer is not None else None
        else:
            self._usage = NOTHING
        request, provider, model = self._request, self._target.provider, self._target.model
        self._record(
            CallRecorded(
                call=self.call,
                provider=provider.name,
                base_url=provider.base_url,
                model=model,
                status=status,
                started_at_ms=self._opened_at_ms,
                usage=self._usage,
                cost_estimated_usd=cost_usd(
                    self._usage, price_of(provider.prices, model), at=self._opened_at_ms / 1000
                ),
                session=request.session,
                agent=request.agent,
                task=request.task,
                model_answered=answer.model if answer is not None else None,
                response_id=answer.response_id if answer is not None else None,
                waited_ms=_ms(self._waited_s),
                first_byte_ms=_ms(self._first_byte - self._opened if self._first_byte is not None else None),
                duration_ms=_ms(self.took_s),
                fault=fault.summary if fault is not None else None,
                fault_code=fault.code if fault is not None else None,
                parent=request.parent_session,
                parent_agent=request.parent,
            )
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
