"""How one agent of a command ended: for people, for programs, and as an exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...protocol.messages.fleet import AgentState
from .output import print_json
from .swarm import CAP_REACHED

if TYPE_CHECKING:
    from ...protocol.messages.fleet import AgentResult


def show_end(result: AgentResult, *, as_json: bool, **before: str) -> int:
    """Print it; `before` goes first into the JSON. 0 if the agent is done, 3 if it met a cap, else 1."""
    ok = result.outcome is AgentState.DONE
    if as_json:
        print_json(
            {
                **before,
                "agent": result.agent,
                "session": result.session,
                "outcome": result.outcome.value,
                "text": result.text,
                "error": result.error,
                "turns": result.turns,
                "calls": result.calls,
                "prompt_tokens": result.prompt_tokens,
                "completion_tokens": result.completion_tokens,
            }
        )
    elif ok:
        print(result.text)
    else:
        print(f"covey: the agent {result.outcome.value}: {result.error}", file=sys.stderr)
    return 0 if ok else CAP_REACHED if result.outcome is AgentState.CAP_REACHED else 1
