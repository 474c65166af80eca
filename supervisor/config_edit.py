"""`covey config set` on the disk: one change at a time, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..protocol.errors import ConfigError, HomeError, UsageError
from .config import Accepted, Effective, Refused, examine
from .config_amend import amend
from .config_composites import Counts, Mapping
from .config_entries import mapping_in, unknown_key
from .config_keys import MODEL_NAME, PROVIDER_NAME, Key, find_key, is_of_model, is_section, names_below, split_key
from .config_keys import Path as KeyPath
from .config_kinds import Value
from .config_text import read_text
from .home import Home, replace_file

LOCK_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Change:
    """What `set_value` did."""

    file: Path
    before: Effective | None
    """None for a key of a provider that did not exist."""
    after: Effective
    accepted: Accepted


def set_value(home: Home, key: str, text: str) -> Change:
    """Set `key` to the value that `text` reads as, on the disk when this returns.

    Raises `UsageError` for a key or value that is refused, `ConfigError` if the file is or would become invalid,
    `HomeError` if it cannot be written. Nothing was written then.
    """
    path, value = parse_assignment(key, text)
    home.create()
    with _locked(home.config_lock):
        file = Path(os.path.realpath(home.config))
        old = read_text(file)
        new = amend(old, str(home.config), path, value)
        match examine(new, str(home.config)):
            case Refused(errors):
                raise _blame(old, errors[0])
            case Accepted() as accepted:
                if new != old:
                    _replace(file, new.encode())
        after = next(found for found in accepted.values if found.key == key)
        return Change(home.config, _value_before(old, key), after, accepted)


def parse_assignment(key: str, text: str) -> tuple[KeyPath, Value]:
    """Check a key and a value from a command line; raises `UsageError`."""
    path = split_key(key)
    row = require_key(path)
    try:
        if isinstance(row.kind, Counts | Mapping) and text.lstrip().startswith("{"):
            return path, mapping_in(text, path, row.kind)
    except ConfigError as error:
        raise UsageError(f"{error.key or key}: {error.problem}; valid: {error.valid}") from None
    value = row.kind.read(text)
    if problem := row.kind.problem(value):
        raise UsageError(f"{key}: {problem}; valid: {row.kind.valid}")
    return path, value


def require_key(path: KeyPath) -> Key:
    """The table's row for `path`; raises `UsageError` with what would be valid."""
    require_known(path)
    if row := find_key(path):
        return row
    raise UsageError(f"{'.'.join(path)} is a section; valid: one of its keys, {', '.join(names_below(path))}")


def require_known(path: KeyPath) -> None:
    """Raise `UsageError` unless `path` is a key or a section."""
    for known in (path[:length] for length in range(1, len(path) + 1)):
        key = ".".join(known)
        if is_of_model(known) and (problem := MODEL_NAME.problem(known[3])):
            raise UsageError(f"{key}: {problem}; valid: {MODEL_NAME.valid}")
        if known[0] == "providers" and len(known) == 2 and (problem := PROVIDER_NAME.problem(known[1])):
            raise UsageError(f"{key}: {problem}; valid: {PROVIDER_NAME.valid}")
        if not is_section(known) and (find_key(known) is None or known != path):
            problem, valid = unknown_key(path[: len(known) + (find_key(known) is not None)])
            raise UsageError(f"{key}: {problem}; valid: {valid}")


def _value_before(text: str, key: str) -> Effective | None:
    match examine(text, ""):
        case Accepted(values=values):
            return next((found for found in values if found.key == key), None)
        case Refused():
            return None


def _blame(old: str, error: ConfigError) -> ConfigError:
    """An error of the changed text as one of the file that is there: with its line, or with none if it is new."""
    match examine(old, error.file):
        case Refused(errors):
            for known in errors:
                if (known.key, known.problem) == (error.key, error.problem):
                    return known
        case Accepted():
            pass
    return ConfigError(error.problem, file=error.file, line=None, key=error.key, valid=error.valid)


def _replace(file: Path, content: bytes) -> None:
    """Write the file, keeping mode and owner of the one that is there."""
    try:
        found = file.stat()
    except FileNotFoundError:
        replace_file(file, content, mode=0o600)
        return
    owner = (found.st_uid, found.st_gid) if found.st_uid != os.geteuid() else None
    replace_file(file, content, mode=stat.S_IMODE(found.st_mode), owner=owner)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; a holder that dies gives it back. Raises `HomeError` after `LOCK_TIMEOUT_S`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise HomeError(str(path), f"cannot be opened: {error.strerror}") from error
    try:
        _wait_for_lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, path: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                problem = f"another process has been changing config.yaml for {LOCK_TIMEOUT_S:g} s"
                raise HomeError(str(path), problem) from None
            time.sleep(0.01)  # flock has no timeout of its own
        else:
            return
