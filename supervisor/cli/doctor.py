"""`covey doctor`: what is wrong with this machine, the home, the keys or the fleet, and what to do about it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from .common import add_home, add_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..doctor_findings import Finding

MARKS = {"ok": "green", "warn": "yellow", "fail": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    add_home(parser)
    add_json(parser)
    parser.add_argument(
        "--online", action="store_true", help="ask each provider one small question with each of its keys, too"
    )


def run(args: argparse.Namespace) -> int:
    """Look; exit code 1 if something fails. Warnings do not count."""
    from ..doctor import look, worst
    from ..doctor_findings import Level
    from ..home import Home
    from .output import print_json

    home = Home.locate(args.home)
    findings = list(look(home, os.environ, is_online=args.online))
    if args.json:
        print_json(as_json(str(home.path), findings))
    else:
        show(findings)
    return 1 if worst(findings) is Level.FAIL else 0


def as_json(home: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings; later versions only add keys and checks."""
    import msgspec

    levels = [finding.level.value for finding in findings]
    counts = {level: levels.count(level) for level in MARKS}
    return {"home": home, **counts, "checks": [msgspec.structs.asdict(finding) for finding in findings]}


def show(findings: Sequence[Finding]) -> None:
    """One line for each finding, and one below it for what is to be done."""
    from rich.text import Text

    from .budget_words import printable
    from .output import console

    out = console()
    wide = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        level = finding.level.value
        mark = Text(f"{level:<4}", style=MARKS[level])
        out.print(mark + Text(f"  {finding.check:<{wide}}  {printable(finding.says)}"))
        if finding.to_do is not None:
            out.print(Text(f"      {'':<{wide}}  → {printable(finding.to_do)}", style="bold"))
    levels = [finding.level.value for finding in findings]
    out.print(f"{levels.count('ok')} ok, {levels.count('warn')} to look at, {levels.count('fail')} to mend")
