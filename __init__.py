"""covey keeps fleets of LLM agents alive.

    from covey import Fleet

`Fleet.connect()` (blocking) and `Fleet.aconnect()` (asyncio) join the fleet that runs on this machine, or start one.
Names are imported when they are first used: `import covey` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .protocol.version import VERSION as __version__

if TYPE_CHECKING:
    from . import errors
    from .protocol.messages.broker import Priority
    from .protocol.messages.fleet import AgentResult, Status
    from .protocol.usage import Usage
    from .supervisor.client import AsyncFleet
    from .supervisor.fleet import Fleet
    from .supervisor.refusals import local_refusal
    from .supervisor.transport import AsyncFleetTransport, FleetTransport

__all__ = [
    "AgentResult",
    "AsyncFleet",
    "AsyncFleetTransport",
    "Fleet",
    "FleetTransport",
    "Priority",
    "Status",
    "Usage",
    "__version__",
    "errors",
    "local_refusal",
]

_HOMES = {
    "AgentResult": ".protocol.messages.fleet",
    "AsyncFleet": ".supervisor.client",
    "AsyncFleetTransport": ".supervisor.transport",
    "Fleet": ".supervisor.fleet",
    "FleetTransport": ".supervisor.transport",
    "Priority": ".protocol.messages.broker",
    "Status": ".protocol.messages.fleet",
    "Usage": ".protocol.usage",
    "local_refusal": ".supervisor.refusals",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module(".errors", __name__)
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
