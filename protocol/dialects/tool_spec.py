"""A tool, as it is offered to a model."""

from __future__ import annotations

import msgspec


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is offered to the model. `parameters` is a JSON schema, as JSON."""

    name: str
    description: str
    parameters: msgspec.Raw
