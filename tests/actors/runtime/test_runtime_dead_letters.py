"""What went nowhere: counted by reason, the last ones by name, no payload."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from covey.actors.runtime.actor import LoopActor
from covey.actors.runtime.dead_letters import LAST, DeadLetters, DeadReason
from covey.actors.runtime.dispatch import Dispatcher
from covey.actors.runtime.errors import ActorDown
from covey.actors.runtime.ref import ActorRef
from covey.actors.runtime.virtual_time import run_virtual
from covey.protocol.errors import AskTimeout, MailboxFull


class Prompt(msgspec.Struct, frozen=True):
    text: str = "secret"
    takes_s: float = 0.0


class Slow(LoopActor):
    mailbox_limit = 1

    async def on_receive(self, message: object) -> None:
        if isinstance(message, Prompt):
            await asyncio.sleep(message.takes_s)


class Newest(Slow):
    overflow = "drop_oldest"


async def refused(ref: ActorRef) -> None:
    ref.tell(Prompt())
    with pytest.raises(MailboxFull):
        ref.tell(Prompt())


async def down(ref: ActorRef) -> None:
    ref.stop()
    await ref.stopped(deadline_s=1)
    with pytest.raises(ActorDown):
        ref.tell(Prompt())


async def stale(ref: ActorRef) -> None:
    ref.stop()
    await ref.stopped(deadline_s=1)
    await Slow.start_ready(name=ref.name)
    with pytest.raises(ActorDown):
        ref.tell(Prompt())


async def dropped(ref: ActorRef) -> None:
    ref.tell(Prompt())
    ref.kill()


async def unwanted(ref: ActorRef) -> None:
    ref.tell(Prompt(takes_s=5))
    await asyncio.sleep(1)
    with pytest.raises(AskTimeout):
        await ref.ask(Prompt(), deadline_s=1)
    await asyncio.sleep(10)


async def late_reply(ref: ActorRef) -> None:
    with pytest.raises(AskTimeout):
        await ref.ask(Prompt(takes_s=5), deadline_s=1)
    await asyncio.sleep(10)


async def displaced(ref: ActorRef) -> None:
    ref.tell(Prompt())
    ref.tell(3)


@pytest.mark.parametrize("happens", [refused, down, stale, dropped, unwanted, late_reply, displaced])
def test_each_way_to_go_nowhere_leaves_one_letter_without_its_payload(happens: object) -> None:
    async def main() -> bytes:
        kind = Newest if happens is displaced else Slow
        ref = await kind.start_ready(name="slow")
        await happens(ref)  # type: ignore[operator]
        view = Dispatcher.here().view().dead_letters
        (letter,) = view.last
        reason = DeadReason(happens.__name__)  # type: ignore[attr-defined]
        assert (letter.to, letter.message, letter.reason) == (str(ref), "Prompt", reason)
        assert {reason: count for reason, count in view.counts.items() if count} == {reason: 1}
        assert set(view.counts) == set(DeadReason)
        return msgspec.json.encode(view)

    assert b"secret" not in run_virtual(main())


def test_the_last_ones_are_kept_and_all_are_counted() -> None:
    now = 10.0
    letters = DeadLetters(lambda: now)
    letters.add("first", 1, DeadReason.DOWN)
    letters.add_all("flood", list(range(10_000)), DeadReason.DROPPED)
    now = 12.0

    view = letters.view()

    assert (view.counts[DeadReason.DOWN], view.counts[DeadReason.DROPPED]) == (1, 10_000)
    assert len(view.last) == LAST
    assert {(letter.to, letter.age_s) for letter in view.last} == {("flood", 2.0)}
