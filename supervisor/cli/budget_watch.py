"""`covey budget --watch`: the list as it changes, in place on a terminal, elsewhere a line or an object a look."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NoReturn

from ...protocol.errors import AskTimeout, RemoteError
from .budget_list import find_budgets, line, list_json, list_parts
from .common import nobody_home
from .output import console, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...protocol.messages.broker import Budgets
    from ..home import Home


def watch(home: Home, interval_s: float, *, as_json: bool) -> NoReturn:
    """Look again and again until `KeyboardInterrupt`; a fleet that ends or comes back meanwhile is part of the show."""
    if as_json:
        _repeat(interval_s, lambda: print_json(_json(home)))
    if not console().is_terminal:
        _repeat(interval_s, lambda: print(_line(home), flush=True))
    _draw(home, interval_s)


def _draw(home: Home, interval_s: float) -> NoReturn:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    def frame() -> Group:
        found, now = _look(home), time.time()
        parts = [Text(found)] if isinstance(found, str) else list(list_parts(found, now=now))
        footer = f"{time.strftime('%H:%M:%S', time.localtime(now))}, every {interval_s:g} s; Ctrl-C ends"
        return Group(*parts, Text(footer, style="dim"))

    with Live(frame(), console=console(), auto_refresh=False) as live:
        _repeat(interval_s, lambda: live.update(frame(), refresh=True))


def _repeat(interval_s: float, show: Callable[[], None]) -> NoReturn:
    due = time.monotonic()
    while True:
        show()
        due = max(due + interval_s, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0)


def _look(home: Home) -> Budgets | str:
    """The budgets, or in words why there are none to see just now."""
    try:
        return find_budgets(home) or nobody_home(home)
    except (AskTimeout, RemoteError) as error:
        return str(error)


def _json(home: Home) -> dict[str, object]:
    found = _look(home)
    problem = found if isinstance(found, str) else None
    shown = list_json(home, None if isinstance(found, str) else found)
    return {"at_ms": int(time.time() * 1000), **shown, "problem": problem}


def _line(home: Home) -> str:
    found, now = _look(home), time.time()
    shown = found if isinstance(found, str) else line(found, now=now)
    return f"{time.strftime('%H:%M:%S', time.localtime(now))} {shown}"
