"""Kinds of values in config.yaml that say where something is: base URLs, proxies, addresses to listen at."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ..protocol.destination import host_of
from . import network
from .config_kinds import Value, shown


@dataclass(frozen=True, slots=True)
class Url:
    """A base URL: http or https, a host, no secrets, nothing that a path could not be appended to."""

    valid: str = "a URL like https://host/path or http://127.0.0.1:8080/v1"

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, str):
            return f"{shown(value)} is not a URL"
        if not value.isascii() or not value.isprintable() or " " in value or len(value) > 1000:
            return "a URL has at most 1000 printable ASCII characters and no spaces"
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError as error:
            return f"not a URL ({error})"
        if "@" in parts.netloc:
            return "a URL must not carry a user name or password; keys belong into api_key_env's variable"
        if parts.scheme not in ("http", "https"):
            return f"{shown(value)} does not start with http:// or https://"
        if not parts.hostname or host_of(value) is None or port == 0:
            return f"{shown(value)} names no host" if port != 0 else f"{shown(value)} has port 0"
        if "?" in value or "#" in value:
            return "a base URL has no query and no fragment: paths are appended to it"
        return None

    def read(self, text: str) -> Value:
        return text


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where calls go through, or `direct`. Its password, if it wants one, belongs into the environment's variable."""

    valid: str = "direct, or a URL of http, https, socks4, socks5 or socks5h such as http://proxy:3128"

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, str):
            return f"{shown(value)} is not a proxy"
        if value == "direct":
            return None
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError as error:
            return f"not a URL ({error})"
        if "@" in parts.netloc:
            return "no user name or password here; a proxy that wants them is read from HTTPS_PROXY"
        if parts.scheme not in ("http", "https", "socks4", "socks5", "socks5h"):
            return f"{shown(value)} is no proxy that is known"
        if not parts.hostname or port == 0 or not value.isascii() or not value.isprintable() or " " in value:
            return f"{shown(value)} names no host"
        return None

    def read(self, text: str) -> Value:
        return text


@dataclass(frozen=True, slots=True)
class Tcp:
    """Where to listen for other hosts: an address with room for a port of each service."""

    valid: str = network.VALID

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, str):
            return f"{shown(value)} is not an address"
        return network.problem_with(value)

    def read(self, text: str) -> Value:
        return text
