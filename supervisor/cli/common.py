"""What most commands share on their command line."""

from __future__ import annotations

import argparse


def add_home(parser: argparse.ArgumentParser) -> None:
    """`--home`: which fleet is meant."""
    parser.add_argument("--home", metavar="DIR", help="the fleet's home (default: $COVEY_HOME or ~/.covey)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`: one object on stdout instead of text."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def ago(seconds: float) -> str:
    """A duration for people: `0.4 s`, `12 s`, `3 min`, `5.2 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
