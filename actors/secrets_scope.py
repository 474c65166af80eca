"""Secrets of the profile that is served right now; one process may serve several.

Inside of a scope its secrets are all there are: what it has not is missing, however the process was started. Outside
of one the environment answers; but once a process serves several profiles, nobody can say whose secret is meant, and
that is an error: a call must not go out at the expense of somebody else.

The scope is a context variable. Tasks inherit it; a plain executor does not, before Python 3.14: `in_scope` carries it.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

from ..protocol.errors import CoveyError

P = ParamSpec("P")
R = TypeVar("R")


class UnscopedSecret(CoveyError):
    """A secret was asked for outside of every profile's scope, in a process that serves several; nothing was looked up.

    A missing credential, as good as refused by the provider: whoever meets it stops and keeps what it has.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} was asked for without a profile, and this process serves several: enter its scope first"
        )
        self.name = name


_scope: Final[contextvars.ContextVar[Mapping[str, str] | None]] = contextvars.ContextVar("secrets", default=None)


class _Process:
    """Whether this process serves several profiles. Set once, at its start."""

    serves_many = False


def serve_many_profiles(on: bool = True) -> None:
    """From now on secrets are to be had inside of scopes alone."""
    _Process.serves_many = on


@contextmanager
def profile_scope(secrets: Mapping[str, str]) -> Iterator[None]:
    """Serve a profile with these secrets while inside; scopes do not see through to what is around them."""
    token = _scope.set(dict(secrets))
    try:
        yield
    finally:
        _scope.reset(token)


def secret(name: str) -> str | None:
    """The secret of that name, None where there is none; raises `UnscopedSecret`."""
    secrets = _scope.get()
    if secrets is not None:
        return secrets.get(name) or None
    if _Process.serves_many:
        raise UnscopedSecret(name)
    return os.environ.get(name) or None


def in_scope(work: Callable[P, R]) -> Callable[P, R]:
    """`work` for an executor's thread, run as if it were here: `loop.run_in_executor(pool, in_scope(work))`."""
    context = contextvars.copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # A copy for each run: one context cannot be entered by two threads at once.
        return context.copy().run(work, *args, **kwargs)

    return run


class ScopedSecrets(Mapping[str, str]):
    """The secrets of whoever is served at the moment, as an environment: for what takes a mapping."""

    def __getitem__(self, name: str) -> str:
        found = secret(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        secrets = _scope.get()
        return iter(os.environ if secrets is None and not _Process.serves_many else secrets or {})

    def __len__(self) -> int:
        return sum(1 for _ in self)
