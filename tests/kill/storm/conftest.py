"""Fleets under fire: a broker that may be killed as often as a test likes, and nothing left at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Tests are imported by path (importlib mode): their folder is on nobody's path but ours.
sys.path.append(str(Path(__file__).parent))

from under_fire import MakeFleet, under_fire


@pytest.fixture
def make_fleet() -> Iterator[MakeFleet]:
    """Bring up fleets with a provider each; the arguments are those of `under_fire`."""
    with ExitStack() as stack:
        yield lambda **how: stack.enter_context(under_fire(**how))
