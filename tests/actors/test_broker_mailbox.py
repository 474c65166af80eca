"""What a request counts in the broker's mailbox: cheaply, and no less for a text somebody made long."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.actors.broker import Broker
from covey.actors.ports import Request
from covey.protocol.ids import CallId, Incarnation
from covey.protocol.messages.broker import Acquire, BrokerRequest, Destination, Outcome, Release, Revoke
from covey.protocol.peer import Peer
from covey.storage.lease_journal import LeaseJournal
from covey.storage.owners import me

LONG = "x" * 100_000
HOME = Destination(base_url="https://api.example.org/v1")
PEER = Peer(role="client", name="c", incarnation=Incarnation("inc_1"), owner=me())


def counted(folder: Path, body: BrokerRequest) -> int:
    journal = LeaseJournal(folder / "leases", life="life")
    try:
        # Never started: what a message counts is the sender's question.
        broker = Broker(providers={}, journal=journal, ledger=None)  # type: ignore[arg-type]  # nothing is recorded
        return broker.message_bytes(Request(peer=PEER, body=body, reply=lambda message: None))
    finally:
        journal.close()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(Acquire(call=CallId(LONG), destination=HOME, model="m"), id="the call of an acquire"),
        pytest.param(Acquire(call=CallId("c"), destination=HOME, model=LONG), id="a model"),
        pytest.param(Acquire(call=CallId("c"), destination=Destination(base_url=LONG), model="m"), id="a URL"),
        pytest.param(Acquire(call=CallId("c"), destination=HOME, model="m", tree=LONG), id="a tree"),
        pytest.param(Release(call=CallId(LONG)), id="the call of a release"),
        pytest.param(Release(call=CallId(LONG), outcome=Outcome()), id="the call of a release that tells its outcome"),
    ],
)
def test_a_long_text_counts_in_full(tmp_path: Path, body: BrokerRequest) -> None:
    assert counted(tmp_path, body) >= len(LONG)


@pytest.mark.parametrize(
    "body", [Acquire(call=CallId("c"), destination=HOME, model="m"), Release(call=CallId("c")), Revoke(agents=())]
)
def test_a_usual_request_counts_little(tmp_path: Path, body: BrokerRequest) -> None:
    assert 0 < counted(tmp_path, body) < 2048
