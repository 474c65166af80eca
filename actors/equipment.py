"""The tools of an agent, made from their names in its spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from ..protocol.errors import UsageError
from ..protocol.messages.fleet import AgentSpec
from ..protocol.settings import Settings
from . import delegation
from .ports import Children
from .tools.base import Tool
from .tools.files import ListFiles, ReadFile, WriteFile
from .tools.terminal import Terminal, scrubbed
from .tools.toolbox import Toolbox

TOOLS: Final = ("read_file", "write_file", "list_files", "terminal", delegation.NAME)
"""Every tool there is."""


def equip(
    spec: AgentSpec,
    *,
    settings: Settings,
    environment: Mapping[str, str],
    children: Children,
    children_at_once: int,
    delegating: Callable[[], AbstractContextManager[None]],
) -> Toolbox:
    """The tools that `spec` names, in its order; raises `UsageError` for a name that is none."""
    workspace = Path(spec.workspace)
    secret = [provider.api_key_env for provider in settings.providers.values() if provider.api_key_env]
    makers: dict[str, Callable[[], Tool]] = {
        "read_file": lambda: ReadFile(workspace),
        "write_file": lambda: WriteFile(workspace),
        "list_files": lambda: ListFiles(workspace),
        "terminal": lambda: Terminal(workspace, environment=scrubbed(environment, secret=secret)),
        delegation.NAME: lambda: delegation.DelegateTask(
            spec,
            children,
            max_depth=settings.fleet.max_spawn_depth,
            delegating=delegating,
            at_once=children_at_once,
        ),
    }
    unknown = [name for name in spec.tools if name not in makers]
    if unknown:
        raise UsageError(f"there is no tool {unknown[0]!r}; valid: {', '.join(TOOLS)}")
    return Toolbox(makers[name]() for name in spec.tools)
