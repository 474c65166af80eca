"""Numbered work under SIGKILL of every role at random points: nothing acknowledged is lost, nothing is done twice.

The seed is in the test's id. `make kill` runs 200 of them (COVEY_KILL_SEEDS), the normal run a few.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from covey import Fleet
from covey.protocol.messages.ledger import CallRecorded

if TYPE_CHECKING:
    from conftest import House

pytestmark = [pytest.mark.kill, pytest.mark.slow]

SEEDS = range(int(os.environ.get("COVEY_KILL_SEEDS", "3")))
RECORDS = 300
VICTIMS = ("ledger", "broker", "worker-1", "worker-2", "zygote")

CLIENT = """
import sys
from covey import Fleet
name, count = sys.argv[1], int(sys.argv[2])
done = 0
with Fleet.connect(start=False, name=name) as fleet:
    while done < count:
        for number in range(done + 1, min(done + 10, count) + 1):
            fleet.record_usage({"prompt_tokens": number, "completion_tokens": 1}, base_url="http://x/v1", model="m",
                               call=f"{name}-{number}")
        fleet.flush(timeout=60)
        done = min(done + 10, count)
        print(done, flush=True)
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_numbered_work_is_done_once(seed: int, make_house: Callable[..., House]) -> None:
    chance = random.Random(seed)
    house = make_house(limit=3, think_s=0.05)
    house.up()
    clients = [_client(house, f"c{number}") for number in range(2)]
    goals = [f"child {number}\n" + 'use: list_files {"path": "."}\n' * 2 + f"say: {number}" for number in range(5)]
    file = house.work / "swarm.yaml"
    file.write_text("tasks:\n" + "".join(f"  - goal: {json.dumps(goal)}\n" for goal in goals))
    swarm = house.start("swarm", str(file), "--json")

    for _ in range(chance.randint(1, 4)):
        time.sleep(chance.random() * 0.4)  # a random point of the work, not a wait for something
        _kill(house, chance.choice(VICTIMS))

    out, err = swarm.communicate(timeout=90)
    acknowledged = [_acknowledged(client) for client in clients]
    assert swarm.returncode == 0, out + err
    assert [result["text"] for result in json.loads(out)["results"]] == [str(number) for number in range(5)]
    assert acknowledged == [RECORDS, RECORDS]
    rows = _rows(house)
    for number in range(2):
        counted = {call: row.usage for call, row in rows.items() if call.startswith(f"c{number}-")}
        assert len(counted) == RECORDS
        assert all(usage is not None and f"c{number}-{usage.prompt_tokens}" == call for call, usage in counted.items())
    _the_provider_agrees(house, rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_survives_the_root(seed: int, make_house: Callable[..., House]) -> None:
    chance = random.Random(1000 + seed)
    house = make_house(limit=3, think_s=0.05)
    root = house.up()
    clients = [_client(house, f"c{number}") for number in range(2)]
    time.sleep(chance.random() * 0.6)  # a random point of the work

    os.kill(root, signal.SIGKILL)

    killed_at = time.monotonic()
    acknowledged = [_acknowledged(client, dies=True) for client in clients]
    assert time.monotonic() - killed_at < 10, "they hear that the fleet has ended"
    house.up()
    rows = _rows(house)
    for number, upto in enumerate(acknowledged):
        kept = sorted(int(call.partition("-")[2]) for call in rows if call.startswith(f"c{number}-"))
        assert kept[:upto] == list(range(1, upto + 1))
        # What was handed over and not acknowledged may be there too, but in order and without gaps.
        assert kept == list(range(1, len(kept) + 1))


def _client(house: House, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", CLIENT, name, str(RECORDS)],
        env=house.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _acknowledged(client: subprocess.Popen[str], *, dies: bool = False) -> int:
    out, err = client.communicate(timeout=90)
    assert dies or client.returncode == 0, err
    lines = out.split()
    return int(lines[-1]) if lines else 0


def _kill(house: House, name: str) -> None:
    process = next(process for process in house.status()["processes"] if process["name"] == name)
    if process["pid"]:
        try:
            os.kill(process["pid"], signal.SIGKILL)
        except ProcessLookupError:
            return


def _rows(house: House) -> dict[str, CallRecorded]:
    """Every call in state.db, once what the dead left behind has been adopted."""
    with Fleet.connect(house.path, start=False) as fleet:
        deadline = time.monotonic() + 10.0
        while True:
            rows = _read(fleet)
            spools = [path for path in (house.path / "run" / "outbox").iterdir() if path.suffix == ".spool"]
            if len(spools) <= len(fleet.status().processes) or time.monotonic() > deadline:
                return rows
            time.sleep(0.05)


def _read(fleet: Fleet) -> dict[str, CallRecorded]:
    found: dict[str, CallRecorded] = {}
    after = 0
    while rows := fleet.calls(after=after):
        found |= {row.record.call: row.record for row in rows}
        after = rows[-1].row
    return found


def _the_provider_agrees(house: House, rows: dict[str, CallRecorded]) -> None:
    stats = house.provider.stats()
    assert stats.peak_in_flight <= 3
    assert not stats.refused
    for call in house.provider.calls():
        row = rows[call.client_request_id or ""]
        if call.usage_sent and row.usage is not None:
            assert row.usage.prompt_tokens == call.prompt_tokens
            assert row.usage.completion_tokens == call.completion_tokens
