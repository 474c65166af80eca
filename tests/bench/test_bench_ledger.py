"""`covey bench ledger` with small numbers: the shape of what it prints. The bounds are for the real ones."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from covey.bench.ledger_client import record
from covey.bench.ledger_floor import fill
from covey.protocol.ids import Incarnation
from covey.storage.store import Store


@pytest.mark.slow
def test_json_holds_results_beside_the_floors_of_the_same_run_and_every_bound() -> None:
    command = [sys.executable, "-P", "-m", "covey", "bench", "ledger", "--quick", "--json"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    printed = json.loads(done.stdout)
    bounds = {bound["name"]: bound for bound in printed["bounds"]}
    assert done.stderr == ""
    assert printed["bench"] == "ledger"
    assert {name: bound["limit"] for name, bound in bounds.items()} == {
        "enqueue_p50_us": 10.0,
        "enqueue_p99_us": 50.0,
        "share_of_bare": 0.7,
        "kept_p99_ms": 20.0,
        "kept_max_ms": 50.0,
        "large_kept_p99_ratio": 1.5,
        "wal_mb": 64.0,
        "restart_p50_ms": 200.0,
    }
    assert done.returncode == (0 if all(bound["ok"] for bound in bounds.values()) else 1)
    figures = {**printed["results"], **printed["floors"]}
    assert all(math.isfinite(figure) for figure in figures.values())
    assert 0 < figures["record_ledger_cpu_us"] < 1000
    assert figures["records_per_s"] > 0
    assert figures["bare_records_per_s"] > 0


def test_a_filled_database_is_as_large_as_was_asked_and_takes_records(tmp_path: Path) -> None:
    fill(tmp_path / "state.db", 8 << 20)

    assert 8 << 20 < (tmp_path / "state.db").stat().st_size < 40 << 20
    store = Store(tmp_path / "state.db")
    life = Incarnation("a")
    applied = store.apply([(life, seq, record("a", seq)) for seq in range(1, 101)])
    assert (applied.new, applied.unstorable) == (100, 0)
    assert store.rows() > 100
    store.close()
