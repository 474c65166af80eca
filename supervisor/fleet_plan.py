"""The processes of a fleet: ledger and broker first, then the workers."""

from __future__ import annotations

from ..protocol.settings import Settings
from .spec import ChildSpec, Plan, TreeSpec, plan


def fleet_plan(settings: Settings) -> Plan:
    """What a root with these settings keeps alive."""
    workers = tuple(
        ChildSpec(name=f"worker-{number}", role="worker", rank=2, shutdown_s=8.0)
        for number in range(1, settings.fleet.workers + 1)
    )
    services = (
        ChildSpec(name="ledger", role="ledger", rank=1, shutdown_s=10.0),
        ChildSpec(name="broker", role="broker", rank=1, shutdown_s=5.0),
    )
    return plan(TreeSpec(children=services + workers))
