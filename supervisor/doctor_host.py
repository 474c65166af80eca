"""The machine: its clock, its kernel, what processes may open, and the Python and packages we run on."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from ..protocol.settings import FleetSettings
from .cgroup import lineage
from .doctor_findings import Finding, fail, ok, warn

OLDEST_UNIX: Final = 1_735_689_600
"""2025-01-01: a clock before it was never set."""

AHEAD_S: Final = 120.0
PER_AGENT: Final = 2
"""A connection to a provider, and the pipe of a command."""

BASE_FILES: Final = 256
PRESSURE: Final = Path("/proc/pressure/memory")
TESTED: Final = ((3, 11), (3, 12), (3, 13))

_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*([<>=!~,.0-9\s]*)$")
_BOUND: Final = re.compile(r"(>=|<)\s*([0-9.]+)")
_PR_GET_PDEATHSIG: Final = 2


def check_host(fleet: FleetSettings, environ: Mapping[str, str], *, newest_unix: float | None) -> Iterator[Finding]:
    """Look at everything that does not depend on the home. `newest_unix` is when a file of it was last written."""
    yield check_clock(time.time(), newest_unix)
    yield check_zone(environ)
    yield check_files(fleet, resource.getrlimit(resource.RLIMIT_NOFILE))
    yield from check_kernel()
    yield from check_python()


def check_clock(now: float, newest_unix: float | None) -> Finding:
    """Whether the wall clock can be right: parks last until a wall time."""
    to_do = "set the clock (NTP): parks and quota windows end by it"
    if now < OLDEST_UNIX:
        return fail("clock", f"the clock says {time.strftime('%Y-%m-%d', time.gmtime(now))}", to_do)
    if newest_unix is not None and newest_unix > now + AHEAD_S:
        return warn("clock", f"files of the home were written {newest_unix - now:.0f} s from now", to_do)
    return ok("clock", f"it is {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))}")


def check_drift(started_unix: float, start_ticks: int, *, now: float, boottime: float) -> Finding:
    """Whether the wall clock was moved since the fleet was started; suspended time counts in both clocks."""
    wall_s = now - started_unix
    real_s = boottime - start_ticks / os.sysconf("SC_CLK_TCK")
    if abs(wall_s - real_s) > AHEAD_S:
        says = f"the clock was moved by {wall_s - real_s:.0f} s since the fleet was started"
        return warn("clock", says, "times in logs and parks that began before are off by that; nothing else is")
    return ok("clock", "the clock was not moved since the fleet was started")


def check_zone(environ: Mapping[str, str]) -> Finding:
    """Which time zone times are shown in. A name that does not exist is silently taken for UTC."""
    name = environ.get("TZ", "").lstrip(":")
    offset = time.strftime("%Z (UTC%z)")
    if name and not _is_zone(name):
        return warn("time zone", f"TZ={name} is no time zone; times are shown in {offset}", "correct or unset TZ")
    return ok("time zone", offset)


def check_files(fleet: FleetSettings, limit: tuple[int, int]) -> Finding:
    """Whether a worker may open what its share of the agents needs."""
    soft, hard = limit
    needed = BASE_FILES + PER_AGENT * -(-fleet.max_agents // fleet.workers)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ok(
            "open files", f"a process may open {soft if soft != resource.RLIM_INFINITY else 'any number of'} files"
        )
    says = f"a process may open {soft} files; {fleet.max_agents} agents on {fleet.workers} workers need {needed}"
    reach = "" if hard == resource.RLIM_INFINITY or hard >= needed else " (as root: the hard limit is lower, too)"
    to_do = f"ulimit -n {needed}{reach} before `covey up`, or lower fleet.max_agents"
    return (fail if soft < BASE_FILES else warn)("open files", says, to_do)


def check_kernel() -> Iterator[Finding]:
    """Features of the kernel: those we cannot do without, and those that make things better."""
    yield _needs("pidfd", _has_pidfd, "Linux 5.3 or newer, and a sandbox that allows pidfd_open")
    yield _needs("parent death signal", _has_pdeathsig, "a sandbox that allows prctl")
    groups = lineage()
    if groups and os.access(groups[0], os.W_OK):
        yield ok("cgroup", f"cgroup v2, and {groups[0]} is ours to divide: the whole fleet can be ended at once")
    else:
        yield ok("cgroup", "no cgroup v2 that is ours; processes are ended by groups and tags instead")
    if PRESSURE.exists():
        yield ok("memory pressure", "the kernel tells memory pressure (PSI)")
    else:
        to_do = "boot with psi=1, or set fleet.limits.memory_headroom_mb generously"
        yield warn(
            "memory pressure", "the kernel tells no memory pressure; memory_pressure_percent has no effect", to_do
        )


def check_python() -> Iterator[Finding]:
    """The interpreter, and the packages against what covey says it needs."""
    running = f"Python {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    if sys.version_info[:2] in TESTED:
        yield ok("python", running)
    else:
        known = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
        yield warn("python", f"{running} is not one that covey is tested with", f"use one of {known}")
    try:
        needed = requires("covey") or []
    except PackageNotFoundError:
        yield ok("packages", "covey runs from its source; versions were not compared")
        return
    problems = [problem for line in needed if "extra ==" not in line and (problem := package_problem(line, version))]
    for problem in problems:
        yield fail("packages", problem, "install covey again into this environment (`pip install .`)")
    if not problems:
        yield ok("packages", "every package has a version that covey takes")


def package_problem(requirement: str, found: Callable[[str], str]) -> str | None:
    """Say what is wrong with an installed package; None if it fits, or if the requirement says what we do not read."""
    parts = _REQUIREMENT.fullmatch(requirement.partition(";")[0].strip())
    if parts is None:
        return None
    name = parts[1]
    try:
        there = found(name)
    except PackageNotFoundError:
        return f"{name} is not installed"
    for sign, bound in _BOUND.findall(parts[2]):
        is_older = _release(there) < _release(bound)
        if is_older == (sign == ">="):
            return f"{name} {there} is installed, {name}{sign}{bound} is needed"
    return None


def _release(text: str) -> list[int]:
    """The numbers of a version, without zeros at the end; what follows them is of no interest here."""
    numbers = [int(part) for part in re.match(r"[0-9.]*", text)[0].split(".") if part]  # type: ignore[index] # matches ""
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def _needs(check: str, has: Callable[[], bool], what: str) -> Finding:
    return ok(check, "works") if has() else fail(check, "does not work here", f"covey needs {what}")


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True


def _has_pdeathsig() -> bool:
    found = ctypes.c_int(0)
    return bool(ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(found)) == 0)


def _is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo

    if re.match(r"[A-Za-z]{3,}[-+]?[0-9]|<", name):  # POSIX: it says its offset itself
        return True
    try:
        ZoneInfo(name.removeprefix("/usr/share/zoneinfo/"))
    except (KeyError, ValueError, OSError):
        return name.startswith("/") and Path(name).exists()
    return True
