"""`covey bench provider`: the simulated provider as a command.

Light on purpose: the front door imports this module for its help text, the server only when it is started.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from .whole import whole

if TYPE_CHECKING:
    import asyncio

    from .provider_options import ProviderOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    add = parser.add_argument
    add("--limit", type=whole(1), default=2, metavar="N", help="calls in flight at once; more are refused (default 2)")
    add("--port", type=whole(0, 65535), default=0, help="port to listen on; 0 lets the kernel choose (default)")
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    add("--script", metavar="FILE", help="YAML file that says which requests are answered how")
    add("--think-s", type=_seconds, default=0.2, metavar="S", help="seconds before the first byte (default 0.2)")
    add("--chunk-pace-s", type=_seconds, default=0.01, metavar="S", help="seconds between pieces (default 0.01)")
    add("--chunks", type=whole(1), default=4, metavar="N", help="pieces an answer is cut into (default 4)")
    add("--over-code", choices=("1302", "1305"), default="1302", help="code of a refusal over the limit (default 1302)")
    add("--retry-after-s", type=whole(0), metavar="S", help="send Retry-After with such a refusal (default: do not)")
    add("--stop-with-stdin", action="store_true", help="stop when standard input ends")
    add("--json", action="store_true", help="accepted like everywhere; the output is one JSON line in any case")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, then 0; raises `ConfigError` for a bad script, `UsageError` for the address."""
    import asyncio

    from .provider_options import ProviderOptions

    options = ProviderOptions(
        limit=args.limit,
        host=args.host,
        port=args.port,
        script=args.script,
        think_s=args.think_s,
        chunk_pace_s=args.chunk_pace_s,
        chunks=args.chunks,
        over_code=args.over_code,
        retry_after_s=args.retry_after_s,
    )
    asyncio.run(_serve(options, stop_with_stdin=args.stop_with_stdin))
    return 0


async def _serve(options: ProviderOptions, *, stop_with_stdin: bool) -> None:
    import asyncio
    import json
    import signal

    from .provider_server import serve

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    # Before the line is printed: whoever has read it may already send the signal.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if stop_with_stdin:
        _watch_stdin(loop, stopped)
    provider = await serve(options)
    print(json.dumps({"base_url": provider.base_url, "port": provider.port}), flush=True)
    await stopped.wait()
    await provider.stop()


def _watch_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    import os

    def read() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stopped.set()

    loop.add_reader(0, read)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to 3600")
    return value
