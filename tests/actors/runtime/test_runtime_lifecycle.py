"""From start to Down: acknowledged start, one way out, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref

import pytest

from covey.actors.runtime.actor import LoopActor
from covey.actors.runtime.dispatch import Dispatcher
from covey.actors.runtime.errors import ActorDown, StartFailedError
from covey.actors.runtime.exits import (
    Crashed,
    ExitReason,
    Killed,
    Lost,
    Normal,
    Shutdown,
    Stale,
    StartFailed,
    StartPhase,
)
from covey.actors.runtime.ref import ActorRef, Down, whereis
from covey.actors.runtime.virtual_time import run_virtual
from covey.protocol.errors import AskTimeout, UsageError


class Diary(LoopActor):
    """Writes down its life; a hook named in `breaks` raises, one in `hangs` takes an hour, one in `clings` for ever."""

    stop_deadline_s = 2.0

    def __init__(
        self,
        log: list[object],
        *,
        breaks: tuple[str, ...] = (),
        hangs: tuple[str, ...] = (),
        clings: tuple[str, ...] = (),
    ) -> None:
        self.log, self.breaks, self.hangs, self.clings = log, breaks, hangs, clings

    async def do(self, what: str) -> None:
        self.log.append(what)
        if what in self.breaks:
            raise ValueError(what)
        if what in self.hangs:
            await asyncio.sleep(3_600)
        while what in self.clings:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                self.log.append(f"{what} clings")
                if asyncio.get_running_loop().time() > 100:
                    raise

    async def on_start(self) -> None:  # type: ignore[override]  # may be `async def`, too
        await self.do("on_start")

    async def on_receive(self, message: object) -> object:
        await self.do(str(message))
        return message

    async def on_failure(self, exc: BaseException) -> None:  # type: ignore[override]  # pykka passes the triple
        await self.do("on_failure")

    async def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # pykka's knows no reason
        self.log.append(reason)
        await self.do("on_stop")


# --- start -----------------------------------------------------------------------------------------------------------


def test_start_ready_returns_when_on_start_is_over() -> None:
    async def main() -> None:
        log: list[object] = []
        ref = await Diary.start_ready(log, name="diary")
        assert log == ["on_start"]
        assert (ref.name, whereis("diary")) == ("diary", ref)
        assert str(ref) == f"diary#{ref.incarnation}"

    run_virtual(main())


def test_a_failed_on_start_reaches_the_starter_after_on_stop_and_frees_the_name() -> None:
    async def main() -> None:
        log: list[object] = []
        with pytest.raises(StartFailedError) as told:
            await Diary.start_ready(log, breaks=("on_start",), name="diary")
        reason = told.value.reason
        assert isinstance(reason, StartFailed)
        assert (reason.phase, reason.kind, reason.message) == (StartPhase.ON_START, "ValueError", "on_start")
        assert isinstance(told.value.__cause__, ValueError)
        assert log == ["on_start", reason, "on_stop"]
        assert whereis("diary") is None
        await Diary.start_ready([], name="diary")

    run_virtual(main())


def test_a_start_over_its_deadline_fails_and_is_cancelled() -> None:
    async def main() -> None:
        log: list[object] = []
        with pytest.raises(StartFailedError, match="not ready within 3 s"):
            await Diary.start_ready(log, hangs=("on_start",), deadline_s=3)
        assert asyncio.get_running_loop().time() == pytest.approx(3)
        assert log[-1] == "on_stop"

    run_virtual(main())


def test_a_constructor_that_raises_fails_the_start_and_leaves_nothing() -> None:
    class Broken(LoopActor):
        def __init__(self) -> None:
            self.early = self.actor_ref
            raise ValueError("no")

    async def main() -> None:
        with pytest.raises(StartFailedError) as told:
            await Broken.start_ready(name="broken")
        assert told.value.phase is StartPhase.INIT
        assert len(Dispatcher.here()) == 0
        with pytest.raises(ValueError, match="no"):
            Broken.start()

    run_virtual(main())


def test_a_name_is_taken_while_its_actor_lives_and_the_first_one_does_not_notice() -> None:
    async def main() -> None:
        first = await Diary.start_ready([], name="one")
        with pytest.raises(StartFailedError) as told:
            await Diary.start_ready([], name="one")
        assert told.value.phase is StartPhase.NAME
        assert whereis("one") is first
        first.stop()
        await first.stopped(deadline_s=1)
        second = await Diary.start_ready([], name="one")
        assert second.incarnation > first.incarnation
        with pytest.raises(ActorDown):
            first.tell("for the first only")

    run_virtual(main())


def test_a_ref_of_an_earlier_life_is_stale_once_a_later_one_has_the_name() -> None:
    async def main() -> None:
        first = await Diary.start_ready([], name="one")
        first.stop()
        assert await first.stopped(deadline_s=1) == Shutdown()
        with pytest.raises(ActorDown) as told:
            first.tell("nobody has the name")
        assert told.value.reason == Shutdown()

        log: list[object] = []
        second = await Diary.start_ready(log, name="one")
        stale = Stale(successor=second.incarnation, ended=Shutdown())
        with pytest.raises(ActorDown, match=f"belongs to incarnation {second.incarnation} now; it was stopped") as told:
            first.tell("for the first only")
        assert told.value.reason == stale
        with pytest.raises(ActorDown) as told:
            await first.ask("for the first only", deadline_s=1)
        assert told.value.reason == stale
        first.stop()
        first.kill()
        downs: list[Down] = []
        first.watch(downs.append)
        await asyncio.sleep(1)

        assert downs == [Down(first, stale)]
        assert (first.reason, await first.stopped(deadline_s=1)) == (Shutdown(), Shutdown())
        assert log == ["on_start"]
        assert second.is_alive()

    run_virtual(main())


def test_a_life_is_found_by_name_and_incarnation_and_never_a_later_one() -> None:
    async def main() -> None:
        first = await Diary.start_ready([], name="one")
        assert whereis("one", first.incarnation) is first
        first.stop()
        await first.stopped(deadline_s=1)
        assert whereis("one", first.incarnation) is None
        second = await Diary.start_ready([], name="one")
        assert whereis("one", first.incarnation) is None
        assert whereis("one", second.incarnation) is second
        assert whereis("one") is second

    run_virtual(main())


def test_a_successor_started_by_the_first_to_hear_makes_no_other_watcher_stale() -> None:
    async def main() -> None:
        downs: list[Down] = []
        first = await Diary.start_ready([], name="one")
        first.watch(lambda _: Diary._make(Dispatcher.here(), "one", ([],), {}).start(deadline_s=1))
        first.watch(downs.append)
        first.stop()
        await first.stopped(deadline_s=1)
        assert downs == [Down(first, Shutdown())]
        assert whereis("one") is not None

    run_virtual(main())


def test_a_kill_during_on_start_ends_the_start() -> None:
    async def main() -> None:
        starting = asyncio.ensure_future(Diary.start_ready([], hangs=("on_start",), name="slow"))
        await asyncio.sleep(0.1)
        ref = whereis("slow")
        assert ref is not None
        ref.kill()
        with pytest.raises(StartFailedError, match="was killed"):
            await starting

    run_virtual(main())


def test_a_starter_that_is_cancelled_takes_its_actor_along() -> None:
    async def main() -> None:
        log: list[object] = []
        starting = asyncio.ensure_future(Diary.start_ready(log, hangs=("on_start",), name="slow"))
        await asyncio.sleep(0.1)
        ref = whereis("slow")
        assert ref is not None
        starting.cancel()
        assert await ref.stopped(deadline_s=5) == Killed()
        assert log == ["on_start", Killed(), "on_stop"]

    run_virtual(main())


def test_start_returns_at_once_and_mail_waits_for_on_start() -> None:
    async def main() -> None:
        log: list[object] = []
        ref = Diary.start(log)
        ref.tell("mail")
        assert log == []
        await ref.ask("ask", deadline_s=1)
        assert log == ["on_start", "mail", "ask"]

    run_virtual(main())


def test_a_failed_start_by_start_shows_as_down_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        ref = Diary.start([], breaks=("on_start",))
        with pytest.raises(ActorDown) as told:
            await ref.ask("mail", deadline_s=1)
        assert isinstance(told.value.reason, StartFailed)
        await ref.stopped(deadline_s=5)

    run_virtual(main())
    assert "start_failed actor=Diary" in caplog.text


def test_starting_without_a_loop_is_refused() -> None:
    with pytest.raises(UsageError, match="Diary must be started where an event loop runs"):
        Diary.start([])


# --- the way out -----------------------------------------------------------------------------------------------------


async def ended(ref: ActorRef, how: str) -> ExitReason:
    match how:
        case "stop":
            ref.stop()
        case "kill":
            ref.kill()
        case "crash":
            ref.tell("break")
    return await ref.stopped(deadline_s=60)


@pytest.mark.parametrize(
    ("how", "reason", "path"),
    [
        pytest.param("stop", Shutdown, ["on_start", "on_stop"], id="stop"),
        pytest.param("kill", Killed, ["on_start", "on_stop"], id="kill"),
        pytest.param("crash", Crashed, ["on_start", "break", "on_failure", "on_stop"], id="crash"),
    ],
)
@pytest.mark.parametrize("trouble", ["none", "on_failure breaks", "on_stop breaks", "on_stop hangs", "on_stop clings"])
def test_every_end_runs_on_stop_once_and_comes_to_an_end(
    how: str, reason: type[ExitReason], path: list[str], trouble: str
) -> None:
    async def main() -> None:
        log: list[object] = []
        hook, _, kind = trouble.partition(" ")
        ref = await Diary.start_ready(
            log,
            breaks=("break", *([hook] if kind == "breaks" else [])),
            hangs=(hook,) if kind == "hangs" else (),
            clings=(hook,) if kind == "clings" else (),
        )
        assert isinstance(await ended(ref, how), reason)
        assert [entry for entry in log if isinstance(entry, str) and "clings" not in entry] == path
        assert [entry for entry in log if not isinstance(entry, str)] == [ref.reason]
        if kind == "clings":
            await asyncio.sleep(200)  # past the point up to which it clings

    run_virtual(main())


def test_a_stop_lets_the_running_message_finish_and_a_kill_does_not() -> None:
    class Slow(LoopActor):
        async def on_receive(self, message: object) -> object:
            await asyncio.sleep(10)
            return "finished"

    async def main() -> None:
        stopped, killed = await Slow.start_ready(), await Slow.start_ready()
        asks = [asyncio.ensure_future(ref.ask("work", deadline_s=60)) for ref in (stopped, killed)]
        await asyncio.sleep(1)
        stopped.stop()
        killed.kill()
        assert await asks[0] == "finished"
        with pytest.raises(ActorDown) as told:
            await asks[1]
        assert told.value.reason == Killed()

    run_virtual(main())


def test_a_handler_that_ignores_its_kill_is_left_behind_and_its_asker_told_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        log: list[object] = []
        ref = await Diary.start_ready(log, clings=("work",))
        asked = asyncio.ensure_future(ref.ask("work", deadline_s=60))
        await asyncio.sleep(1)
        ref.kill()
        with pytest.raises(ActorDown):
            await asked
        assert asyncio.get_running_loop().time() == pytest.approx(1)
        assert await ref.stopped(deadline_s=10) == Killed()
        assert "task_left_behind" in caplog.text
        ref_task = next(task for task in asyncio.all_tasks() if task.get_name() == ref.name)
        await asyncio.sleep(200)
        ref_task.cancel()
        await asyncio.wait({ref_task})

    run_virtual(main())


def test_a_kill_cuts_a_slow_on_stop_short() -> None:
    async def main() -> None:
        ref = await Diary.start_ready([], hangs=("on_stop",))
        ref.stop()
        await asyncio.sleep(0.5)
        ref.kill()
        assert await ref.stopped(deadline_s=1) == Shutdown()
        assert asyncio.get_running_loop().time() == pytest.approx(0.5)

    run_virtual(main())


def test_a_second_kill_in_the_same_instant_still_hurries_the_end() -> None:
    async def main() -> None:
        ref = await Diary.start_ready([], hangs=("on_stop",))
        ref.kill()
        ref.kill()  # cancels the end before its first step
        await ref.stopped(deadline_s=5)
        assert asyncio.get_running_loop().time() == pytest.approx(1)

    run_virtual(main())


def test_stop_and_kill_in_the_same_instant_end_it_once() -> None:
    async def main() -> None:
        log: list[object] = []
        ref = await Diary.start_ready(log)
        ref.stop()
        ref.kill()
        ref.kill()
        assert await ref.stopped(deadline_s=5) == Killed()
        assert log == ["on_start", Killed(), "on_stop"]

    run_virtual(main())


def test_an_end_cancelled_before_its_first_step_still_runs() -> None:
    async def main() -> None:
        log: list[object] = []
        ref = await Diary.start_ready(log)
        ref.kill()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            assert task is not None
            task.cancel()
        assert await ref.stopped(deadline_s=5) == Killed()
        assert log == ["on_start", Killed(), "on_stop"]

    run_virtual(main())


def test_stopped_gives_up_at_its_deadline_and_leaves_the_actor_alone() -> None:
    async def main() -> None:
        ref = await Diary.start_ready([])
        with pytest.raises(AskTimeout):
            await ref.stopped(deadline_s=1)
        assert ref.is_alive()

    run_virtual(main())


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
def test_a_stale_ref_frees_the_actors_state(how: str) -> None:
    async def main() -> None:
        ref = await Diary.start_ready([], breaks=("break",))
        ref.tell("mail")
        await ref.ask("mail", deadline_s=1)
        state = weakref.ref(ref._cell.actor)
        await ended(ref, how)
        await asyncio.sleep(0.1)
        if how == "crash":
            gc.collect()  # an exception and its frames are a cycle
        assert state() is None
        assert not ref.is_alive()

    gc.disable()
    try:
        run_virtual(main())
    finally:
        gc.enable()


# --- tasks and timers of the actor -----------------------------------------------------------------------------------


class Owner(LoopActor):
    def __init__(self, log: list[object]) -> None:
        self.log = log

    async def job(self, message: object) -> None:
        try:
            await asyncio.sleep(5)
            if isinstance(message, BaseException):
                raise message
            self.log.append("done")
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            self.log.append("cancelled")
            raise

    def on_receive(self, message: object) -> object:
        self.own(self.job(message), name="job")
        return None

    def on_failure(self, exc: BaseException) -> None:  # type: ignore[override]  # pykka passes the triple
        self.log.append(exc)

    def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # pykka's knows no reason
        self.log.append(reason)


def test_owned_tasks_are_cancelled_and_awaited_before_on_stop() -> None:
    async def main() -> None:
        log: list[object] = []
        ref = await Owner.start_ready(log)
        await ref.ask("work", deadline_s=1)
        await asyncio.sleep(1)
        ref.stop()
        await ref.stopped(deadline_s=5)
        assert log == ["cancelled", Shutdown()]

    run_virtual(main())


def test_an_owned_task_cancelled_before_it_began_leaves_no_warning_and_the_actor_alive() -> None:
    class Hasty(Owner):
        def on_receive(self, message: object) -> object:
            return self.own(self.job(message), name="job").cancel()

    async def main() -> None:
        log: list[object] = []
        ref = await Hasty.start_ready(log)
        assert await ref.ask("work", deadline_s=1) is True
        await asyncio.sleep(10)
        assert log == []
        assert ref.is_alive()

    run_virtual(main())


@pytest.mark.parametrize("error", [ValueError("job"), SystemExit(1)], ids=["ValueError", "SystemExit"])
def test_an_owned_task_that_raises_crashes_its_actor(error: BaseException) -> None:
    async def main() -> None:
        log: list[object] = []
        ref = await Owner.start_ready(log)
        ref.tell(error)
        reason = await ref.stopped(deadline_s=60)
        assert isinstance(reason, Crashed)
        assert (reason.during, reason.kind) == ("job", type(error).__name__)
        assert log == [error, reason]

    run_virtual(main())


def test_an_owned_task_that_ends_is_no_news() -> None:
    async def main() -> None:
        log: list[object] = []
        ref = await Owner.start_ready(log)
        ref.tell("work")
        await asyncio.sleep(10)
        assert log == ["done"]
        assert ref.is_alive()
        assert not ref._cell._tasks

    run_virtual(main())


def test_a_timer_tells_later_past_a_full_mailbox_and_can_be_cancelled() -> None:
    class Timed(LoopActor):
        mailbox_limit = 1

        def __init__(self) -> None:
            self.seen: list[object] = []

        def on_start(self) -> None:
            self.after(5, "five")
            self.after(3, "three").cancel()

        async def on_receive(self, message: object) -> object:
            self.seen.append(message)
            if message == "slow":
                await asyncio.sleep(10)
            return list(self.seen)

    async def main() -> None:
        ref = await Timed.start_ready()
        ref.tell("slow")
        await asyncio.sleep(1)
        ref.tell("fills the mailbox")
        await asyncio.sleep(20)
        assert await ref.ask("last", deadline_s=5) == ["slow", "fills the mailbox", "five", "last"]

    run_virtual(main())


def test_timers_end_with_their_actor() -> None:
    class Timed(LoopActor):
        def on_start(self) -> None:
            self.after(3_600, "later")

    async def main() -> None:
        ref = await Timed.start_ready()
        ref.stop()
        await ref.stopped(deadline_s=1)
        await asyncio.sleep(0.1)
        alive = weakref.ref(ref)
        del ref
        gc.collect()
        assert alive() is None, "a timer of an ended actor still waits"

    run_virtual(main())


# --- death watch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
def test_each_monitor_gets_one_down_with_the_reason_when_all_is_over(how: str) -> None:
    async def main() -> None:
        log: list[object] = []
        downs: list[Down] = []

        def breaks(_: Down) -> None:
            raise ValueError("a callback's own trouble")

        ref = await Diary.start_ready(log, breaks=("break",), name="watched")
        for _ in range(2):
            ref.watch(downs.append)
            ref.watch(lambda _: log.append(whereis("watched")))
        ref.watch(breaks)
        ref.watch(downs.append).cancel()
        monitor = ref.watch(lambda _: None)
        was_open = monitor.is_open
        reason = await ended(ref, how)
        assert (was_open, monitor.is_open) == (True, False)
        await asyncio.sleep(1)
        assert downs == [Down(ref, reason)] * 2
        assert log[-3:] == ["on_stop", None, None]

    run_virtual(main())


def test_a_monitor_on_a_dead_ref_fires_once_and_not_within_watch() -> None:
    async def main() -> None:
        downs: list[Down] = []
        ref = await Diary.start_ready([])
        await ended(ref, "stop")
        ref.watch(downs.append)
        ref.watch(downs.append).cancel()
        assert downs == []
        await asyncio.sleep(1)
        assert downs == [Down(ref, Shutdown())]

    run_virtual(main())


def test_an_actor_gets_the_down_of_another_ahead_of_its_mail() -> None:
    class Watcher(LoopActor):
        def __init__(self, target: ActorRef) -> None:
            self.target, self.seen = target, list[object]()

        def on_start(self) -> None:
            self.watch(self.target)

        async def on_receive(self, message: object) -> object:
            self.seen.append(message)
            if message == "slow":
                await asyncio.sleep(10)
            return list(self.seen)

    async def main() -> None:
        target = await Diary.start_ready([])
        watcher = await Watcher.start_ready(target)
        watcher.tell("slow")
        watcher.tell("mail")
        await asyncio.sleep(1)
        await ended(target, "stop")
        assert await watcher.ask("last", deadline_s=60) == ["slow", Down(target, Shutdown()), "mail", "last"]

    run_virtual(main())


# --- the loop's end --------------------------------------------------------------------------------------------------


def test_actors_forgotten_at_the_end_of_the_loop_still_run_on_stop() -> None:
    idle: list[object] = []
    busy: list[object] = []

    async def main() -> None:
        await Diary.start_ready(idle)
        ref = await Diary.start_ready(busy, hangs=("work",))
        ref.tell("work")
        await asyncio.sleep(1)

    run_virtual(main())
    assert idle == ["on_start", Killed(), "on_stop"]
    assert busy == ["on_start", "work", Killed(), "on_stop"]


def test_stop_all_stops_every_actor_and_kills_what_does_not_end() -> None:
    async def main() -> None:
        good, bad = list[object](), list[object]()
        await Diary.start_ready(good)
        ref = await Diary.start_ready(bad, hangs=("work",))
        ref.tell("work")
        await asyncio.sleep(1)
        await Dispatcher.here().stop_all(deadline_s=3)
        assert good == ["on_start", Shutdown(), "on_stop"]
        assert bad == ["on_start", "work", Killed(), "on_stop"]
        assert len(Dispatcher.here()) == 0
        assert asyncio.get_running_loop().time() == pytest.approx(4)

    run_virtual(main())


def test_a_loop_closed_without_goodbye_loses_its_actors_and_says_so() -> None:
    loop = asyncio.new_event_loop()
    ref = loop.run_until_complete(Diary.start_ready([]))
    loop.close()

    with pytest.raises(ActorDown) as told:
        ref.ask_blocking("anybody?", deadline_s=5)
    downs: list[Down] = []
    ref.watch(downs.append)

    assert told.value.reason == Lost()
    assert downs == [Down(ref, Lost())]


def test_crashes_are_logged_once_with_their_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        ref = await Diary.start_ready([], breaks=("break",), name="diary")
        await ended(ref, "crash")

    with caplog.at_level(logging.ERROR):
        run_virtual(main())
    crashes = [record for record in caplog.records if "actor_crashed" in record.message]
    assert len(crashes) == 1
    assert "during=str\nTraceback" in crashes[0].message


def test_a_normal_reason_is_told_apart_from_a_shutdown() -> None:
    class Brief(LoopActor):
        def on_start(self) -> None:
            self.stop()

    async def main() -> None:
        ref = await Brief.start_ready()
        assert await ref.stopped(deadline_s=1) == Normal()

    run_virtual(main())
