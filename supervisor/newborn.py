"""The first moments of a forked child: it lets go of everything the zygote had, and becomes a process of its own.

Runs between `fork` and the role's `main`. Exit handlers of the parent are not run; the end is `os._exit`.

What every child would do alike, the zygote does for all of them (`prepare`): whatever a child writes to, and be it the
reference count of a function it calls, is a page of memory that it no longer shares.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, NoReturn

from .logs import log_to_stderr
from .process import die_with_parent, set_title
from .zygote_wire import SpawnArguments, SpawnChild

Main = Callable[[str, SpawnArguments, Mapping[str, int]], int | None]
"""A role's main: its role, its arguments, its inherited descriptors by name. What it returns is the exit code."""

ROLES = "covey.supervisor.roles.{role}:main"
"""Where a role's main is found, unless told otherwise."""

BROKEN = 70
"""Exit code of a child that could not even begin."""


IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a zygote does not hear."""


def prepare() -> None:
    """Be the process that children are forked from: signals, standard streams, log and traces as they will need them.

    To be called with the standard descriptors open and one thread.
    """
    _reset_signals()
    for signo in IGNORED:
        signal.signal(signo, signal.SIG_IGN)
    _renew_streams()
    log_to_stderr()
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


def live(request: SpawnChild, fds: list[int], *, entry: str | Main, zygote: int) -> NoReturn:
    """Be the child of `request`: set up, run its main, exit with its code."""
    code = BROKEN
    try:
        die_with_parent(zygote)
        os.setpgid(0, 0)
        _hear_signals()
        close_all_but(fds)
        _open_log(request.log_path)
        _name(request)
        gc.enable()
        code = _run(request, fds, entry)
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
    finally:
        _end(code)


def _run(request: SpawnChild, fds: list[int], entry: str | Main) -> int:
    payload_fd, *handed_down = fds
    with open(payload_fd, "rb") as file:
        file.seek(0)
        payload = file.read()
    arguments = SpawnArguments(name=request.name, role=request.role, incarnation=request.incarnation, payload=payload)
    by_name = dict(zip(request.fds, handed_down, strict=True))
    try:
        return _main(entry, request.role)(request.role, arguments, by_name) or 0
    except SystemExit as end:
        return _exit_code(end)
    except BaseException:  # noqa: BLE001 - process main: the traceback is in the log, the code tells the supervisor
        sys.stdout.flush()
        traceback.print_exc()
        return 1


def _main(entry: str | Main, role: str) -> Main:
    if not isinstance(entry, str):
        return entry
    module, _, name = entry.format(role=role).partition(":")
    main: Main = getattr(import_module(module), name)
    return main


def _exit_code(end: SystemExit) -> int:
    """What the interpreter would make of it."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def _end(code: int) -> NoReturn:
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _reset_signals() -> None:
    """Defaults for all, except SIGPIPE, which Python turns into errors."""
    signal.set_wakeup_fd(-1)
    for signo in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        if signal.getsignal(signo) is not None:
            signal.signal(signo, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _hear_signals() -> None:
    """Defaults for what the zygote ignores or handles, except Ctrl-C, which is the root's business."""
    signal.set_wakeup_fd(-1)
    for signo in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(signo, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def close_all_but(kept: list[int]) -> None:
    """Close what the zygote had open; nothing but the standard streams and `kept` is left."""
    spare = {0, 1, 2, *kept}
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd in spare:
            continue
        try:
            os.close(fd)
        except OSError:
            continue  # the one that listed the folder


def _renew_streams() -> None:
    """Streams of our own on the standard descriptors: those of the root may be of any kind and hold its text."""
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as we live
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _open_log(path: str) -> None:
    """Nothing to read, and everything written goes to the end of the log, line by line."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)


def _name(request: SpawnChild) -> None:
    set_title(f"covey:{request.name}")
