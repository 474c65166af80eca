"""The front door: finds the command, runs it, and turns how it ended into an exit code.

A command is a module with `add_arguments` and `run`. It is imported when it was chosen and not before, so that
`covey --help` costs what Python costs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import select
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn, Protocol, cast

from ...protocol.errors import ConfigError, CoveyError, LimitError, UsageError
from ...protocol.version import VERSION

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
LIMITED: Final = 3
INTERRUPTED: Final = 130

EPILOG: Final = """\
exit codes:
  0    done
  1    failed
  2    the command line or config.yaml is not valid; nothing was done
  3    parked, or refused by a limit; the same command may succeed later
  130  interrupted

Errors are one line on stderr; with --json also {"error": {"kind": …, "message": …}} on stdout.
The home directory is $COVEY_HOME, or else ~/.covey.
"""


class Command(NamedTuple):
    """A command that can be called: where it lives, and what it does in one line."""

    module: str
    summary: str


class CommandModule(Protocol):
    """What the module of a command provides."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit code."""
        ...


COMMANDS: Final[Mapping[str, Command]] = {
    "up": Command("covey.supervisor.cli.up", "start the fleet of this home"),
    "down": Command("covey.supervisor.cli.down", "stop it and everything below it"),
    "status": Command("covey.supervisor.cli.status", "show processes, budgets, agents and the ledger"),
    "budget": Command("covey.supervisor.cli.budget", "show and change what may be asked of provider accounts"),
    "tree": Command("covey.supervisor.cli.tree", "show the process tree with its agents"),
    "restart": Command("covey.supervisor.cli.restart", "replace processes of the running fleet"),
    "logs": Command("covey.supervisor.cli.logs", "show what the fleet's processes logged"),
    "run": Command("covey.supervisor.cli.run", "run one agent with tools until its goal is reached"),
    "swarm": Command("covey.supervisor.cli.swarm", "run many agents from a file of tasks"),
    "auth": Command("covey.supervisor.cli.auth", "keep the keys that providers are called with"),
    "keys": Command("covey.supervisor.cli.keys", "say who may reach the fleet over the network"),
    "config": Command("covey.supervisor.cli.config", "read, change and check config.yaml"),
    "models": Command("covey.supervisor.cli.models", "show what is known of the models of the providers"),
    "usage": Command("covey.supervisor.cli.usage", "show what calls used and cost"),
    "sessions": Command("covey.supervisor.cli.sessions", "list, read, search, export and go on with sessions"),
    "db": Command("covey.supervisor.cli.db", "check, back up, repair, export and fill state.db"),
    "doctor": Command("covey.supervisor.cli.doctor", "check this machine, the home and the keys, and say what to do"),
}


class LazyParser(argparse.ArgumentParser):
    """A parser that asks its command for the arguments when the command was chosen, and raises instead of exiting."""

    def __init__(self, *, command: Command | None = None, dest: str = "", **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)
        self._command, self._dest = command, dest

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, with the command's arguments declared."""
        if self._command is not None:
            module = cast(CommandModule, importlib.import_module(self._command.module))
            self._command = None
            module.add_arguments(self)
            self.set_defaults(**{self._dest: module})
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`; a key that somebody typed is not repeated."""
        from ...protocol.redaction import redact

        raise UsageError(f"{redact(message)}; see `{self.prog} --help`")


def add_commands(parser: argparse.ArgumentParser, commands: Mapping[str, Command], *, dest: str) -> None:
    """Let `parser` accept one of `commands`; `run_chosen` with the same `dest` runs it."""
    choices = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=LazyParser)
    for name, command in commands.items():
        choices.add_parser(name, help=command.summary, description=command.summary, command=command, dest=dest)


def run_chosen(args: argparse.Namespace, *, dest: str) -> int:
    """Run the command that was chosen from `add_commands`."""
    module: CommandModule = getattr(args, dest)
    return module.run(args)


def main(argv: Sequence[str] | None, commands: Mapping[str, Command]) -> int:
    """Run one command line (`sys.argv` for None); the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words, commands)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_left():
            raise
        _forget_stdout()
        return FAILED
    return code


def _run(words: list[str], commands: Mapping[str, Command]) -> int:
    args = argparse.Namespace(json="--json" in words)
    try:
        args = _parser(commands).parse_args(words)
        return run_chosen(args, dest="command_module")
    except SystemExit as exit_:
        return _exit_code(exit_)
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except CoveyError as error:
        _complain(str(error))
        if getattr(args, "json", False):
            _print_error_object(error)
        return _code(error)


def _parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    parser = LazyParser(
        prog="covey",
        description="Keeps fleets of LLM agents alive.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"covey {VERSION}")
    add_commands(parser, commands, dest="command_module")
    return parser


def _exit_code(exit_: SystemExit) -> int:
    if exit_.code is None or isinstance(exit_.code, int):
        return exit_.code or DONE
    _complain(str(exit_.code))
    return FAILED


def _code(error: CoveyError) -> int:
    if isinstance(error, UsageError | ConfigError):
        return USAGE
    return LIMITED if isinstance(error, LimitError) else FAILED


def _complain(message: str) -> None:
    print("covey:", _printable(message).replace("\n", " "), file=sys.stderr)


def _print_error_object(error: CoveyError) -> None:
    from .output import print_json

    print_json({"error": {"kind": type(error).__name__, "message": _printable(str(error))}})


def _printable(text: str) -> str:
    """The names of files need not be Unicode."""
    return text.encode("utf-8", "backslashreplace").decode()


def _reader_left() -> bool:
    """Whether it was our stdout whose reader is gone, and not a pipe of the command."""
    with suppress(OSError, ValueError, AttributeError):
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    return False


def _forget_stdout() -> None:
    """Python flushes stdout once more at its end; nobody shall hear about it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
