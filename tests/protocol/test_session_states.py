"""The session's tables: what may happen when, and that nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from covey.protocol import frames
from covey.protocol.errors import ProtocolError
from covey.protocol.ids import Incarnation
from covey.protocol.messages.base import Done
from covey.protocol.peer import Owner, Peer
from covey.protocol.session import Session, body_of
from covey.protocol.session_states import ACCEPTOR, OPENER, State, Step, Table

BODY = body_of(Done())
SIDES = {"opener": OPENER, "acceptor": ACCEPTOR}


def peer(name: str) -> Peer:
    return Peer(
        role=name, name=name, incarnation=Incarnation(f"{name}-1"), owner=Owner(pid=1, start_ticks=1, boot_id="b")
    )


def greeting(kind: type[frames.Hello] | type[frames.Welcome], *, attempt: int) -> bytes:
    return frames.encode(kind(version=frames.VERSION, peer=peer("other"), attempt=attempt, next_seq=1, window=9))


def bring_to(side: str, state: State) -> Session:
    """A session of that side in that state."""
    opens = side == "opener"
    session = Session(peer(side), opens=opens)
    if state in (State.GREETING, State.OPEN, State.DRAINING) and opens:
        session.connected()
    if state in (State.OPEN, State.DRAINING):
        kind = frames.Welcome if opens else frames.Hello
        session.receive(greeting(kind, attempt=1), 0.0)
    session.ask(BODY)  # something to finish
    if state in (State.DRAINING, State.ADRIFT):
        session.drain()
    if state is State.CLOSED:
        session.close()
    assert session.state is state
    return session


def do(session: Session, step: Step) -> None:
    """Let that step happen to the session, as the world would."""
    frame: dict[Step, bytes] = {
        Step.HELLO: greeting(frames.Hello, attempt=2),
        Step.WELCOME: greeting(frames.Welcome, attempt=session._attempt),
        Step.STRANGER: frames.encode(frames.Stranger()),
        Step.TRAFFIC: frames.encode(frames.Ping(seq=0)),
        Step.LOST: frames.encode(frames.Tell(seq=7, body=msgspec.Raw(BODY))),
        Step.BYE: frames.encode(frames.Bye()),
    }
    own: dict[Step, Callable[[], object]] = {
        Step.CONNECTED: session.connected,
        Step.DRAIN: session.drain,
        Step.CLOSE: session.close,
        Step.SETTLED: lambda: session.give_up(1),
    }
    if step in own:
        own[step]()
    else:
        session.receive(frame[step], 5.0)


def cells(*, filled: bool) -> list[object]:
    """Every cell of both tables that is filled, or empty; GREETING is no state of an acceptor."""
    return [
        pytest.param(side, state, step, id=f"{side} {state.name} {step.name}")
        for side, table in SIDES.items()
        for state in State
        for step in Step
        if ((state, step) in table) is filled and not (side == "acceptor" and state is State.GREETING)
    ]


# What cannot be said from outside: a lost frame is noticed, and an end is settled, only where the table has it.
INTERNAL = {Step.LOST, Step.SETTLED}


def facts(session: Session) -> tuple[object, ...]:
    """All that a refused step could have changed."""
    return (
        session.state,
        session.is_open,
        session.peer,
        session.unanswered,
        session.in_work,
        session._attempt,
        session._expected,
        session._last_sent,
        session._heard_at,
        session._allowance.left,
        session.losses,
        session.dropped_tells,
        session.late_replies,
    )


@pytest.mark.parametrize(("side", "state", "step"), cells(filled=True))
def test_a_step_of_the_table_leads_where_the_table_says(side: str, state: State, step: Step) -> None:
    session = bring_to(side, state)

    do(session, step)

    assert session.state is SIDES[side][state, step]


@pytest.mark.parametrize(
    ("side", "state", "step"),
    [cell for cell in cells(filled=False) if cell.values[2] not in INTERNAL],  # type: ignore[attr-defined]
)
def test_a_step_without_a_cell_is_refused_and_changes_nothing(side: str, state: State, step: Step) -> None:
    session = bring_to(side, state)
    before = facts(session)

    with pytest.raises(ProtocolError):
        do(session, step)

    assert facts(session) == before


@pytest.mark.parametrize(
    ("side", "state", "step"),
    [cell for cell in cells(filled=False) if cell.values[2] in INTERNAL],  # type: ignore[attr-defined]
)
def test_even_the_session_itself_cannot_take_a_step_without_a_cell(side: str, state: State, step: Step) -> None:
    session = bring_to(side, state)
    before = facts(session)

    with pytest.raises(ProtocolError):
        session._step(step)

    assert facts(session) == before


@pytest.mark.parametrize("table", SIDES.values(), ids=SIDES)
def test_nothing_leads_out_of_closed(table: Table) -> None:
    assert {after for (state, _), after in table.items() if state is State.CLOSED} == {State.CLOSED}


@pytest.mark.parametrize("table", SIDES.values(), ids=SIDES)
def test_every_state_but_the_first_is_reached_and_every_one_can_be_left(table: Table) -> None:
    reached = {after for (before, _), after in table.items() if before is not after}
    states = {state for state, _ in table}

    assert states - {State.IDLE} <= reached
    assert all((state, Step.CLOSE) in table for state in states)
