"""A gateway: a program of its own that makes provider calls under the fleet's limits, with the client library alone.

The demo runs several. Each of its children talks to the model until it answers without asking for a tool. What happens
is printed, one JSON object a line; the last line says how many children reached their answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import httpx

from ..protocol.messages.broker import Priority
from ..protocol.version import VERSION
from ..supervisor.client import AsyncFleet
from ..supervisor.fleet import Fleet

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": what,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for name, what in (("list_files", "Names in a folder"), ("read_file", "A file's text"))
]
MAX_TURNS = 20


class Child:
    """One conversation."""

    def __init__(self, fleet: AsyncFleet, client: httpx.AsyncClient, args: argparse.Namespace, number: int) -> None:
        self._fleet = fleet
        self._client = client
        self._args = args
        self._name = f"{args.name}.{number}"
        self._turn = 0
        self._tokens = 0
        goal = f"{self._name}: look around and say what you see"
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": goal}]

    async def run(self) -> bool:
        """Whether the model gave an answer."""
        for self._turn in range(1, MAX_TURNS + 1):
            try:
                message = await self._call()
            except Exception as error:  # noqa: BLE001 - the child's boundary: its end is told, the others go on
                self._say("failed", error=f"{type(error).__name__}: {error}")
                return False
            self._messages.append(message)
            if not message.get("tool_calls"):
                self._say("done")
                return True
            self._say("tool")
            for call in message["tool_calls"]:
                result = self._tool(call["function"]["name"], call["function"]["arguments"])
                self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        self._say("failed", error=f"no answer after {MAX_TURNS} turns")
        return False

    async def _call(self) -> dict[str, Any]:
        """One provider call, held to its last byte inside a slot."""
        self._say("waiting")
        async with self._fleet.slot(
            self._args.base_url, model=self._args.model, session=self._name, priority=Priority.SUBAGENT
        ) as slot:
            self._say("calling")
            body = {
                "model": self._args.model,
                "messages": self._messages,
                "tools": TOOLS,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            headers = {"X-Client-Request-Id": slot.call, "User-Agent": f"covey/{VERSION}"}
            url = f"{self._args.base_url}/chat/completions"
            async with self._client.stream("POST", url, json=body, headers=headers) as response:
                if response.status_code != 200:
                    raise RuntimeError(f"HTTP {response.status_code}: {(await response.aread())[:200]!r}")
                message, usage, answer = await _read(response)
            slot.record_usage(usage, model=answer.get("model"), response_id=answer.get("id"))
            if usage is not None:
                self._tokens += usage["prompt_tokens"] + usage["completion_tokens"]
            return message

    def _tool(self, name: str, arguments: str) -> str:
        folder = Path(self._args.workspace)
        path = (folder / str(json.loads(arguments).get("path", "."))).resolve()
        if not path.is_relative_to(folder):
            return "outside of the workspace"
        with contextlib.suppress(OSError):
            if name == "list_files":
                return "\n".join(sorted(entry.name for entry in path.iterdir()))
            return path.read_text(encoding="utf-8", errors="replace")[:2000]
        return f"{name}: no such thing"

    def _say(self, state: str, **more: object) -> None:
        fact = {"child": self._name, "state": state, "turn": self._turn, "tokens": self._tokens, **more}
        print(json.dumps(fact), flush=True)


async def _read(response: httpx.Response) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """Put a stream of chunks together: the message, the usage report if there is one, and the last chunk."""
    text, calls, usage, chunk = "", dict[int, dict[str, Any]](), None, dict[str, Any]()
    finished = False
    async for line in response.aiter_lines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        chunk = json.loads(line.removeprefix("data: "))
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", []):
            delta = choice["delta"]
            text += delta.get("content") or ""
            for part in delta.get("tool_calls") or []:
                call = calls.setdefault(
                    part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                )
                call["id"] = part.get("id") or call["id"]
                call["function"]["name"] += part["function"].get("name") or ""
                call["function"]["arguments"] += part["function"].get("arguments") or ""
            finished = finished or choice.get("finish_reason") is not None
    if not finished:
        raise RuntimeError("the stream ended before the answer did")
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return message, usage, chunk


async def _main(args: argparse.Namespace) -> int:
    async with (
        Fleet.aconnect(args.home, start=False, name=args.name) as fleet,
        httpx.AsyncClient(timeout=60.0, trust_env=False) as client,
    ):
        children = [Child(fleet, client, args, number) for number in range(1, args.children + 1)]
        ok = sum(await asyncio.gather(*(child.run() for child in children)))
        await fleet.records.flush()
    print(json.dumps({"ok": ok}), flush=True)
    return 0 if ok == args.children else 1


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="gateway", description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--children", type=int, required=True)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--workspace", required=True)
    return asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
