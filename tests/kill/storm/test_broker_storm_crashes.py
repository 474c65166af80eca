"""One blow at a time: what becomes of slots when the broker, a holder or a reader dies, stops or does not answer."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from under_fire import PATIENCE_S, MakeFleet, UnderFire, until

from covey import FleetTransport
from covey.actors.limits.book import CUT_LINGER_S
from covey.protocol.errors import BrokerSilent, FleetLost, SlotTimeout
from covey.supervisor.slots import BROKER_GRACE_S

pytestmark = [pytest.mark.kill, pytest.mark.slow]

KILLS = 7
SERVES_AGAIN_S = 0.3
"""The promise, on a machine with nothing else to do; tests share theirs and get `SLACK` times as long."""
FREE_S = 0.1 + CUT_LINGER_S
SLACK = 3
HOLD_S = 3.0
MODEL = "sim-1"

HOLDER = """
import asyncio, sys
import httpx
from covey import Fleet
from covey.protocol.ids import CallId
from covey.protocol.messages.broker import Acquire, Destination

home, url, slots, hold_s, streams = sys.argv[1:]
prompt = {"model": "sim-1", "stream": True, "messages": [{"role": "user", "content": "endless\\nsay: " + "x" * 10000}]}

async def main():
    async with Fleet.aconnect(home, start=False, name="holder") as fleet, httpx.AsyncClient(timeout=None) as http:
        for number in range(int(slots)):
            ask = Acquire(call=CallId(f"held-{number}"), destination=Destination(base_url=url), model="sim-1",
                          hold_s=float(hold_s))
            await fleet.slots.acquire(ask)
        if streams == "streams":
            # The answer begins, and nobody reads on.
            request = http.build_request("POST", url + "/chat/completions", json=prompt)
            answer = await http.send(request, stream=True)
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@contextmanager
def holder(fire: UnderFire, *, slots: int = 1, hold_s: float = 3600.0, streams: bool = False) -> Iterator[int]:
    """Another program, which holds slots; its pid, once it does."""
    arguments = [str(fire.path), fire.url, str(slots), str(hold_s), "streams" if streams else "-"]
    program = subprocess.Popen([sys.executable, "-P", "-c", HOLDER, *arguments], stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"held\n"
        yield program.pid
    finally:
        program.kill()
        program.communicate()


class Waiter(threading.Thread):
    """Waits for a slot without end, and gives it back at once."""

    def __init__(self, fire: UnderFire) -> None:
        super().__init__()
        self._fire = fire
        self.granted_at: float | None = None
        self.start()

    def run(self) -> None:
        with self._fire.fleet.slot(self._fire.url, model=MODEL):
            self.granted_at = time.monotonic()

    def served_after(self, began: float) -> float:
        """Seconds from then to the grant."""
        self.join(PATIENCE_S)
        assert self.granted_at is not None, "the waiter was served"
        return self.granted_at - began


def test_a_killed_brokers_successor_serves_at_once_and_knows_every_lease(make_fleet: MakeFleet) -> None:
    fire, took = make_fleet(limit=2), []
    with holder(fire):
        for _ in range(KILLS):
            pid = fire.pid_of("broker")
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            with fire.fleet.slot(fire.url, model=MODEL, timeout=PATIENCE_S):
                took.append(time.monotonic() - began)
                assert {"held-0"} < {lease.call for lease in fire.leases()}
                with pytest.raises(SlotTimeout), fire.fleet.slot(fire.url, model=MODEL, timeout=0.02):
                    pytest.fail("a third slot was given out")
            assert fire.pid_of("broker") not in {0, pid}
        assert [one.call for one in fire.budget().holders] == ["held-0"]
        assert fire.budget().peak_in_flight == 2

    print(f"served {_ms(took)} ms after the broker was killed")
    assert statistics.median(took) < SERVES_AGAIN_S * SLACK


def test_waiters_and_what_was_given_back_meanwhile_are_not_lost_with_the_broker(make_fleet: MakeFleet) -> None:
    fire = make_fleet(limit=1)
    with ExitStack() as held:
        held.enter_context(fire.fleet.slot(fire.url, model=MODEL))
        waiters = [Waiter(fire) for _ in range(5)]
        until(lambda: fire.budget().queued == len(waiters), "all wait")

        fire.kill_broker()
        began = time.monotonic()

    assert all(waiter.served_after(began) < PATIENCE_S for waiter in waiters)
    until(lambda: fire.leases() == [], "nothing is held")


def test_the_slots_of_a_killed_holder_are_free_at_once(make_fleet: MakeFleet) -> None:
    fire = make_fleet(limit=3)
    with holder(fire, slots=3) as pid:
        waiters = [Waiter(fire) for _ in range(3)]
        until(lambda: fire.budget().queued == len(waiters), "all wait")

        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)

        took = [waiter.served_after(began) for waiter in waiters]
    print(f"served {_ms(took)} ms after the holder was killed, of which {CUT_LINGER_S * 1000:.0f} the slots linger")
    assert min(took) >= CUT_LINGER_S
    assert max(took) < FREE_S * SLACK


@pytest.mark.parametrize("is_stopped", [True, False], ids=["is stopped", "does not read"])
def test_a_holder_that_does_nothing_keeps_its_slot_until_the_calls_own_deadline(
    make_fleet: MakeFleet, is_stopped: bool
) -> None:
    fire = make_fleet(limit=1)
    with holder(fire, hold_s=HOLD_S, streams=True) as pid:
        [lease] = fire.leases()
        if is_stopped:
            os.kill(pid, signal.SIGSTOP)

        # A signal is sent at once, and acts when its process has its next turn.
        until(lambda: fire.budget().holders[0].is_stalled is is_stopped, "it is shown")
        [shown] = fire.budget().holders
        with pytest.raises(SlotTimeout), fire.fleet.slot(fire.url, model=MODEL, timeout=0.2):
            pytest.fail("it is held")
        with fire.fleet.slot(fire.url, model=MODEL, timeout=PATIENCE_S):
            granted_at = time.clock_gettime(time.CLOCK_BOOTTIME)
            # Its end frees nothing a second time.
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(SlotTimeout), fire.fleet.slot(fire.url, model=MODEL, timeout=0.2):
                pytest.fail("it is held by another")

    assert (shown.call, shown.is_stalled) == ("held-0", is_stopped)
    assert 0 <= granted_at - lease.expires_at < 0.1 * SLACK


def test_while_the_broker_says_nothing_callers_wait_or_fail_by_themselves_and_nobody_is_called(
    make_fleet: MakeFleet,
) -> None:
    fire = make_fleet(limit=1)
    with fire.fleet.slot(fire.url, model=MODEL):
        pass
    broker = fire.pid_of("broker")
    prompt = {"model": MODEL, "messages": [{"role": "user", "content": "say: hello"}]}
    patient = FleetTransport(fire.fleet)
    with httpx.Client(timeout=PATIENCE_S, transport=patient) as http:
        os.kill(broker, signal.SIGSTOP)
        waiter = Waiter(fire)
        began = time.monotonic()

        with pytest.raises(BrokerSilent), fire.fleet.slot(fire.url, model=MODEL, timeout=0.2):
            pytest.fail("nobody gave it out")
        failed_after = time.monotonic() - began
        with (
            httpx.Client(transport=FleetTransport(fire.fleet, timeout=0.0)) as impatient,
            pytest.raises(BrokerSilent),
        ):
            impatient.post(f"{fire.url}/chat/completions", json=prompt)
        calls_before = fire.provider.stats().calls
        is_waiting = waiter.is_alive()
        os.kill(broker, signal.SIGCONT)
        waiter.served_after(began)
        answer = http.post(f"{fire.url}/chat/completions", json=prompt)

    assert 0.2 <= failed_after < 0.2 + BROKER_GRACE_S + 1.0
    assert calls_before == 0
    assert is_waiting
    assert answer.status_code == httpx.codes.OK
    until(lambda: fire.leases() == [], "those that gave up hold nothing")


def test_whoever_turns_to_the_ledger_first_after_the_end_of_the_fleet_hears_of_it_at_once(
    make_fleet: MakeFleet,
) -> None:
    fire = make_fleet()
    os.kill(fire.pid_of("root"), signal.SIGKILL)
    until(lambda: _is_lost(fire), "it is known that the fleet has ended")

    fire.fleet.record_usage({"prompt_tokens": 1, "completion_tokens": 1}, base_url=fire.url, model=MODEL)
    began = time.monotonic()
    with pytest.raises(FleetLost):
        fire.fleet.flush(timeout=PATIENCE_S)

    assert time.monotonic() - began < 1.0


def _is_lost(fire: UnderFire) -> bool:
    try:
        fire.fleet.agents()
    except FleetLost:
        return True
    return False


def _ms(seconds: list[float]) -> str:
    ordered = sorted(one * 1000 for one in seconds)
    return f"{statistics.median(ordered):.0f} (from {ordered[0]:.0f} to {ordered[-1]:.0f})"
