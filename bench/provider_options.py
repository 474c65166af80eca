"""How the simulated provider is to behave, apart from what a script says."""

from __future__ import annotations

import msgspec


class ProviderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `covey bench provider`; the defaults are the command's."""

    limit: int = 2
    """Calls in flight at once; more are refused."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 lets the kernel choose."""
    script: str | None = None
    """Path of a script file."""
    think_s: float = 0.2
    chunk_pace_s: float = 0.01
    chunks: int = 4
    over_code: str = "1302"
    """What a call over the limit is told: 1302 or 1305."""
    retry_after_s: int | None = None
    """Sent with it as `Retry-After`; left out when None, as Z.AI does."""

    def arguments(self) -> list[str]:
        """The command line that means these options."""
        given = {
            "--limit": self.limit,
            "--host": self.host,
            "--port": self.port,
            "--script": self.script,
            "--think-s": self.think_s,
            "--chunk-pace-s": self.chunk_pace_s,
            "--chunks": self.chunks,
            "--over-code": self.over_code,
            "--retry-after-s": self.retry_after_s,
        }
        # One word each: a value that begins with a dash stays a value.
        return [f"{name}={value}" for name, value in given.items() if value is not None]
