"""What the kernel says of a process and of memory: real files, and made ones for what this machine has not."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from covey.supervisor.cgroup import lineage
from covey.supervisor.gauges import read_memory, sample
from covey.supervisor.growth import Sample
from covey.supervisor.headroom import Reading


def test_a_process_that_grows_is_seen_to_grow() -> None:
    before = sample(os.getpid())
    held = bytearray(os.urandom(1) * (64 << 20))
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        after = sample(os.getpid())
    finally:
        release.set()
        thread.join()
        for fd in files:
            os.close(fd)

    assert before.rss_mb is not None
    assert after.rss_mb is not None
    assert 48 < after.rss_mb - before.rss_mb < 96
    assert (after.fds or 0) - (before.fds or 0) == 50
    assert (after.threads or 0) - (before.threads or 0) == 1
    assert len(held) == 64 << 20


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)

    assert sample(pid) == Sample()


def test_this_machine_says_how_much_memory_is_available() -> None:
    found = read_memory(lineage())

    assert found.available_mb is not None
    assert found.available_mb > 0


def test_the_tightest_group_and_the_highest_pressure_count(tmp_path: Path) -> None:
    proc, outer, inner = machine(tmp_path, available_mb=4000, pressure=1.5)
    group(outer, limit_mb=2000, current_mb=500, cached_mb=0, pressure=None)
    group(inner, limit_mb=1000, current_mb=900, cached_mb=300, pressure=12.25)

    assert read_memory([inner, outer], proc=proc) == Reading(available_mb=400.0, pressure_percent=12.25)


def test_a_group_without_a_limit_leaves_what_the_host_has(tmp_path: Path) -> None:
    proc, outer, inner = machine(tmp_path, available_mb=4000, pressure=1.5)
    group(outer, limit_mb=None, current_mb=500, cached_mb=0, pressure=0.0)

    assert read_memory([inner, outer], proc=proc) == Reading(available_mb=4000.0, pressure_percent=1.5)


def test_a_machine_that_says_nothing_is_unknown(tmp_path: Path) -> None:
    assert read_memory([tmp_path], proc=tmp_path) == Reading()


def machine(folder: Path, *, available_mb: int, pressure: float) -> tuple[Path, Path, Path]:
    proc, outer, inner = folder / "proc", folder / "outer", folder / "outer" / "inner"
    for path in (proc / "pressure", inner):
        path.mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal:  9999999 kB\nMemFree: 1 kB\nMemAvailable:  {available_mb * 1024} kB\n")
    (proc / "pressure" / "memory").write_text(psi(pressure))
    return proc, outer, inner


def group(path: Path, *, limit_mb: int | None, current_mb: int, cached_mb: int, pressure: float | None) -> None:
    (path / "memory.max").write_text("max\n" if limit_mb is None else f"{limit_mb << 20}\n")
    (path / "memory.high").write_text("max\n")
    (path / "memory.current").write_text(f"{current_mb << 20}\n")
    (path / "memory.stat").write_text(f"anon 1\nactive_file 7\ninactive_file {cached_mb << 20}\n")
    if pressure is not None:
        (path / "memory.pressure").write_text(psi(pressure))


def psi(some: float) -> str:
    return f"some avg10={some:.2f} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
