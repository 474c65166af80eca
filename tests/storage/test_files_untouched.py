"""Nobody opens or copies the database's files in the ledger's process: `close` would drop SQLite's locks on them."""

from __future__ import annotations

import ast
from pathlib import Path

import covey.storage

ROOT = Path(covey.storage.__file__).resolve().parent

OPENERS = {"open", "open_code", "fdopen", "read_bytes", "read_text", "write_bytes", "write_text", "truncate", "copy"}
COPIERS = {"copyfile", "copy2", "copytree", "move", "replace", "sendfile"}

ALLOWED = {
    # What each of them opens is no database.
    ("history.py", "read_bytes"): 1,  # a spool, and in the root
    ("locks.py", "open"): 1,  # spools and lock files
    ("orphans.py", "open"): 1,  # a spool by its descriptor
    ("owners.py", "open"): 3,  # /proc
    ("ownership.py", "open"): 1,  # the lock file
    ("mounts.py", "read_bytes"): 1,  # /proc
    ("pending.py", "open"): 2,  # the journal by its descriptor, and a folder
}
ELSEWHERE = {"lease_journal.py", "originals.py"}
"""Run in other processes: the broker, on a file of its own; commands, around a database that nobody has open."""
COMMANDS = {"backup.py", "repair.py", "salvage.py", "upkeep.py"}
"""All that may need `originals`, in processes that are no ledger."""
LEDGER = tuple(file.name for file in (ROOT.parent / "actors").glob("ledger*.py"))


def opened_in(file: Path) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in OPENERS | COPIERS and not _is_of_structs(node.func):
                found[file.name, name] = found.get((file.name, name), 0) + 1
    return found


def _is_of_structs(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and ast.unparse(function).startswith("msgspec.structs.")


def test_no_module_around_the_database_opens_a_file_that_is_not_known_to_be_another() -> None:
    files = [file for file in ROOT.glob("*.py") if file.name not in ELSEWHERE]
    files += [ROOT.parent / "actors" / name for name in LEDGER]
    found: dict[tuple[str, str], int] = {}
    for file in files:
        found |= opened_in(file)

    assert len(files) > 15
    assert {key: count for key, count in found.items() if count > ALLOWED.get(key, 0)} == {}


def test_the_names_of_the_database_files_are_given_to_stat_and_sqlite_only() -> None:
    named = {
        file.name
        for file in (*ROOT.glob("*.py"), *(ROOT.parent / "actors").glob("*.py"))
        if '-wal"' in file.read_text() or '-shm"' in file.read_text()
    }

    # `inspection` looks from another process, at a database that nobody has open.
    assert named == {"identity.py", "inspection.py", "store.py"}


def test_what_opens_files_around_a_database_is_for_commands_and_not_for_the_ledger() -> None:
    users: dict[str, set[str]] = {}
    for file in (
        *ROOT.glob("*.py"),
        *(ROOT.parent / "actors").rglob("*.py"),
        *(ROOT.parent / "supervisor/roles").glob("*.py"),
    ):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                users.setdefault(node.module.rpartition(".")[2], set()).add(file.name)

    assert users["originals"] == COMMANDS
    assert set().union(*(users.get(name.removesuffix(".py"), set()) for name in COMMANDS)) <= COMMANDS
