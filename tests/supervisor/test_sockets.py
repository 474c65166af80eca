"""ZeroMQ's context as every process of the fleet makes it."""

from __future__ import annotations

import subprocess
import sys

import zmq

from covey.supervisor.sockets import make_context

UNTOUCHED = """
import ctypes
from typing import Generic, TypeVar
from covey.supervisor.sockets import make_context

class Untouched(Generic[TypeVar("Kind")]):
    pass

def as_it_lies_in_memory():
    # Past the header, whose reference count anybody may change.
    return ctypes.string_at(id(Untouched) + object.__basicsize__, type.__basicsize__ - object.__basicsize__)

# Looked up once, it is in the interpreter's cache, which a write to a base would void.
assert not hasattr(Untouched(), "anything")
before = as_it_lies_in_memory()
with make_context():
    assert as_it_lies_in_memory() == before
"""


def test_a_socket_that_nobody_told_otherwise_waits_for_nobody_when_it_is_closed() -> None:
    with make_context() as context, context.socket(zmq.DEALER) as socket:
        assert socket.linger == 0


def test_making_the_first_context_of_a_process_writes_to_no_class_of_others() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", UNTOUCHED], capture_output=True, text=True, timeout=30)

    assert done.returncode == 0, done.stderr
