"""The front door of `covey` and `python -m covey`: the commands of the fleet and those of the bench."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .bench.cli import COMMANDS as BENCH_COMMANDS
from .supervisor.cli.main import COMMANDS as FLEET_COMMANDS
from .supervisor.cli.main import main as front_door


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (`sys.argv` for None); the exit code."""
    return front_door(argv, {**FLEET_COMMANDS, **BENCH_COMMANDS})


if __name__ == "__main__":
    sys.exit(main())
