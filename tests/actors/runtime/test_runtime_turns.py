"""Turns: one message at a time, nobody held up, a raise ends one actor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from covey.actors.runtime.actor import LoopActor
from covey.actors.runtime.dispatch import Dispatcher
from covey.actors.runtime.errors import ActorDown
from covey.actors.runtime.exits import Crashed, ExitReason, Normal, Shutdown
from covey.actors.runtime.ref import ActorRef
from covey.actors.runtime.steps import KINDS_LIMIT, LAST_SLOW, Meter
from covey.actors.runtime.virtual_time import VirtualTimeLoop, run_virtual
from covey.protocol.errors import MailboxFull


class Script(LoopActor):
    """Runs what it is sent; keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def on_receive(self, message: object) -> object:
        if callable(message):
            return message(self)
        self.seen.append(message)
        return None

    def on_failure(self, exc: BaseException) -> None:  # type: ignore[override]  # pykka passes the triple
        self.seen.append(exc)

    def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # pykka's knows no reason
        self.seen.append(reason)


def raising(error: BaseException) -> Callable[[Script], None]:
    def handler(_: Script) -> None:
        raise error

    return handler


def raising_late(error: BaseException) -> Callable[[Script], Awaitable[None]]:
    async def handler(_: Script) -> None:
        await asyncio.sleep(1)
        raise error

    return handler


def test_the_returned_value_answers_an_ask_for_def_and_async_def() -> None:
    async def later(_: Script) -> str:
        await asyncio.sleep(1)
        return "later"

    async def main() -> list[object]:
        ref = await Script.start_ready()
        return [await ref.ask(lambda _: "now", deadline_s=5), await ref.ask(later, deadline_s=5)]

    assert run_virtual(main()) == ["now", "later"]


def test_messages_of_one_sender_arrive_in_order() -> None:
    async def main() -> object:
        ref = await Script.start_ready()
        for n in range(100):
            ref.tell(n)
        return await ref.ask(lambda actor: list(actor.seen), deadline_s=5)

    assert run_virtual(main()) == list(range(100))


def test_a_suspended_handler_holds_up_its_own_actor_only() -> None:
    async def wait(actor: Script) -> None:
        await asyncio.sleep(10)
        actor.seen.append(asyncio.get_running_loop().time())

    async def main() -> tuple[float, list[object]]:
        slow, other = await Script.start_ready(), await Script.start_ready()
        slow.tell(wait)
        slow.tell("behind")
        await other.ask(lambda _: None, deadline_s=1)
        other_done = asyncio.get_running_loop().time()
        seen = await slow.ask(lambda actor: list(actor.seen), deadline_s=60)
        assert isinstance(seen, list)
        return other_done, seen

    other_done, seen = run_virtual(main())
    assert other_done < 1
    assert seen == [pytest.approx(10), "behind"]


def test_a_flooded_actor_gives_the_loop_to_others_after_its_throughput() -> None:
    async def main() -> object:
        flooded, other = await Script.start_ready(), await Script.start_ready()
        for n in range(1_000):
            flooded.tell(n)
        other.tell(lambda actor: actor.seen.append(len(seen_by(flooded))))
        return await other.ask(lambda actor: actor.seen[0], deadline_s=5)

    handled = run_virtual(main())
    assert isinstance(handled, int)
    assert handled <= 2 * Script.throughput


def seen_by(ref: ActorRef) -> list[object]:
    actor = ref._cell.actor
    assert isinstance(actor, Script)
    return actor.seen


@pytest.mark.parametrize("make", [raising, raising_late], ids=["def", "async def"])
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "told"])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("broken"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        StopIteration(),
        BaseException(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_raise_answers_the_asker_and_ends_this_actor_only(
    make: Callable[[BaseException], object], asked: bool, error: BaseException
) -> None:
    async def main() -> None:
        ref, other = await Script.start_ready(), await Script.start_ready()
        seen = seen_by(ref)
        if asked:
            with pytest.raises((ValueError, RuntimeError, ActorDown)) as told:
                await ref.ask(make(error), deadline_s=5)
            assert isinstance(told.value, ActorDown | type(error) | RuntimeError)
        else:
            ref.tell(make(error))

        reason = await ref.stopped(deadline_s=5)

        assert isinstance(reason, Crashed)
        assert reason.during == "function"
        assert "handler" in reason.trace
        assert [type(entry) for entry in seen] == [type(seen[0]), Crashed]
        assert isinstance(seen[0], BaseException)
        assert await other.ask(lambda _: "lives", deadline_s=5) == "lives"

    run_virtual(main())


def test_the_handlers_exception_reaches_the_asker_as_it_was_raised() -> None:
    error = ValueError("mine")

    async def main() -> None:
        ref = await Script.start_ready()
        with pytest.raises(ValueError, match="mine") as told:
            await ref.ask(raising(error), deadline_s=5)
        assert told.value is error

    run_virtual(main())


def test_what_waits_behind_a_crash_is_answered_with_the_reason() -> None:
    async def main() -> None:
        ref = await Script.start_ready()
        ref.tell(raising(ValueError("first")))
        with pytest.raises(ActorDown) as told:
            await ref.ask("second", deadline_s=5)
        assert isinstance(told.value.reason, Crashed)

    run_virtual(main())


def test_a_stop_overtakes_ten_thousand_waiting_messages() -> None:
    async def main() -> None:
        ref = await Script.start_ready()
        seen = seen_by(ref)
        for n in range(10_000):
            ref.tell(n)
        ref.stop()
        assert await ref.stopped(deadline_s=1) == Shutdown()
        assert seen == [Shutdown()]

    run_virtual(main())


def test_a_full_mailbox_hands_the_message_back_and_accepts_again_when_there_is_room() -> None:
    class Small(Script):
        mailbox_limit = 2

    async def main() -> None:
        ref = await Small.start_ready()
        ref.tell("a")
        ref.tell("b")
        with pytest.raises(MailboxFull) as told:
            ref.tell("c")
        with pytest.raises(MailboxFull):
            await ref.ask("d", deadline_s=1)
        await asyncio.sleep(0.1)
        ref.tell(told.value.message)
        assert await ref.ask(lambda actor: list(actor.seen), deadline_s=1) == ["a", "b", "c"]

    run_virtual(main())


def test_a_mailbox_full_by_bytes_says_so_and_hands_the_message_back() -> None:
    class Small(Script):
        mailbox_bytes_limit = 1_000

    async def main() -> None:
        ref = await Small.start_ready()
        ref.tell("a" * 500)
        with pytest.raises(MailboxFull, match=r"is full \(1000 bytes\)") as told:
            ref.tell("b" * 500)
        assert (told.value.unit, told.value.message) == ("bytes", "b" * 500)
        ref.tell("c")
        assert await ref.ask(lambda actor: list(actor.seen), deadline_s=1) == ["a" * 500, "c"]

    run_virtual(main())


def test_the_class_says_what_a_message_weighs() -> None:
    class Weighing(Script):
        mailbox_bytes_limit = 10

        def message_bytes(self, message: object) -> int:
            return message if isinstance(message, int) else 0

    async def main() -> None:
        ref = await Weighing.start_ready()
        ref.tell(6)
        with pytest.raises(MailboxFull):
            ref.tell(5)
        ref.tell("as long as you like" * 1_000)
        ref.tell(4)

    run_virtual(main())


def test_an_ask_dropped_as_the_oldest_is_told_so() -> None:
    class Newest(Script):
        mailbox_limit = 1
        overflow = "drop_oldest"

    async def main() -> None:
        ref = await Newest.start_ready()
        seen = seen_by(ref)
        asked = asyncio.ensure_future(ref.ask("oldest", deadline_s=1))
        await asyncio.sleep(0)  # the ask is put; the turn it woke comes after this step
        ref.tell("newest")
        with pytest.raises(MailboxFull) as told:
            await asked
        assert told.value.message == "oldest"
        assert seen == ["newest"]

    run_virtual(main())


def test_tells_of_one_key_become_one_and_asks_stay_apart() -> None:
    class Latest(Script):
        overflow = "coalesce"

        def coalesce_key(self, message: object) -> object:
            return "progress" if isinstance(message, int) else None

    async def main() -> object:
        ref = await Latest.start_ready()
        for n in range(100):
            ref.tell(n)
        await asyncio.gather(ref.ask(200, deadline_s=1), ref.ask(201, deadline_s=1))
        return await ref.ask(lambda actor: list(actor.seen), deadline_s=1)

    assert run_virtual(main()) == [99, 200, 201]


@pytest.mark.parametrize("shape", ["def", "async def", "own"])
def test_a_step_over_100_ms_is_logged_with_actor_and_message(shape: str, caplog: pytest.LogCaptureFixture) -> None:
    def block() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.advance(0.25)

    async def block_later() -> None:
        await asyncio.sleep(1)
        block()

    class Blocking(LoopActor):
        def on_receive(self, message: object) -> object:
            match message:
                case "def":
                    block()
                    return None
                case "own":
                    return self.own(block_later(), name="digest")
            return block_later()

    async def main() -> int:
        ref = await Blocking.start_ready(name="blocker")
        await ref.ask(shape, deadline_s=60)
        view = Dispatcher.here().view().steps
        (slow,) = view.last
        assert (slow.actor, slow.during, round(slow.blocked_ms)) == ("blocker", during, 250)
        assert (view.by_message, view.worst) == ({during: 1}, slow)
        return view.slow

    during = "digest" if shape == "own" else "str"
    with caplog.at_level(logging.WARNING):
        assert run_virtual(main()) == 1
    assert f"step_slow actor=blocker during={during} blocked_ms=250" in caplog.text


def test_slow_steps_are_remembered_within_bounds() -> None:
    now = 0.0
    meter = Meter(lambda: now)
    for n in range(3 * KINDS_LIMIT):
        meter.begin("worker", f"task-{n}")
        now += 0.2 if n != 7 else 0.5
        meter.end()

    view = meter.view()

    assert (view.slow, len(view.last), len(view.by_message)) == (3 * KINDS_LIMIT, LAST_SLOW, KINDS_LIMIT + 1)
    assert view.by_message["others"] == 2 * KINDS_LIMIT
    assert view.worst is not None
    assert (view.worst.during, round(view.worst.blocked_ms)) == ("task-7", 500)


def test_waiting_is_not_blocking() -> None:
    async def main() -> int:
        ref = await Script.start_ready()

        async def wait(_: Script) -> None:
            await asyncio.sleep(3_600)

        await ref.ask(wait, deadline_s=7_200)
        return ref._cell.home.meter.slow

    assert run_virtual(main()) == 0


def test_a_handler_can_end_its_own_actor_normally() -> None:
    async def main() -> None:
        ref = await Script.start_ready()
        ref.tell(lambda actor: actor.stop())
        assert await ref.stopped(deadline_s=1) == Normal()

    run_virtual(main())
