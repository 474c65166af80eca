"""Which dialect a provider's setting means."""

from __future__ import annotations

from typing import Final

from ..settings import Dialect
from .anthropic import AnthropicMessages
from .base import WireDialect
from .chat import ChatCompletions
from .responses import Responses

_DIALECTS: Final[dict[Dialect, WireDialect]] = {
    Dialect.CHAT: ChatCompletions(),
    Dialect.ANTHROPIC: AnthropicMessages(),
    Dialect.RESPONSES: Responses(),
}


def wire_dialect(name: Dialect) -> WireDialect:
    """Return the rules of the dialect a provider is configured with."""
    return _DIALECTS[name]
