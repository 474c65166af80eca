"""`covey bench NAME`: one module per benchmark, imported when called."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from ..supervisor.cli.main import Command, add_commands, run_chosen

COMMANDS: Final[Mapping[str, Command]] = {
    "demo": Command("covey.bench.demo", "see a swarm under one limit, against a simulated provider"),
    "bench": Command("covey.bench.cli", "run a benchmark, or the simulated provider"),
}

BENCHES: Final[Mapping[str, Command]] = {
    "provider": Command("covey.bench.provider", "serve the simulated provider on loopback until SIGTERM"),
    "link": Command("covey.bench.link", "what a link between two processes costs, beside bare sockets"),
    "ledger": Command("covey.bench.ledger", "what it costs to have a record kept, and how soon a ledger is back"),
    "broker": Command("covey.bench.broker", "what a slot costs, alone and in a crowd, beside bare sockets"),
    "calls": Command("covey.bench.calls", "what a provider call costs, beside bare HTTP clients"),
    "storm": Command("covey.bench.storm", "many clients on one narrow account, each by itself and through a fleet"),
    "actors": Command("covey.bench.actors", "what actors cost beside bare queues and tasks: idle, asked, stopped"),
    "restart": Command("covey.bench.restart", "how soon a killed worker is replaced, and what an idle fleet takes"),
    "fanout": Command("covey.bench.fanout", "run many children at once: wall time, threads, memory"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each benchmark."""
    add_commands(parser, BENCHES, dest="bench_module")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark that was chosen."""
    return run_chosen(args, dest="bench_module")
