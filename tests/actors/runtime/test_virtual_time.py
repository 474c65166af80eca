"""The virtual clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from covey.actors.runtime import virtual_time
from covey.actors.runtime.virtual_time import run_virtual


def test_a_day_passes_at_once_and_in_order() -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def wait(hours: int) -> None:
            await asyncio.sleep(hours * 3_600)
            order.append(f"{hours} h")

        await asyncio.gather(wait(24), wait(1), wait(7))
        assert asyncio.get_running_loop().time() == pytest.approx(24 * 3_600)
        return order

    began = time.monotonic()
    assert run_virtual(main()) == ["1 h", "7 h", "24 h"]
    assert time.monotonic() - began < 5


def test_a_program_that_waits_for_nobody_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "STUCK_AFTER_S", 0.01)

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing is left to run"):
        run_virtual(main())
