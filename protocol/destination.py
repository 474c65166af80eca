"""Who an endpoint is: its host decides, the provider's label only where no host can be read.

Base URLs come from people's configuration and environment, so their spelling is read generously (a missing scheme or
slash, a dot at the end, user info, a port); but the host is taken from the authority alone, so that no path, query or
look-alike name passes for another account.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from ipaddress import ip_address
from typing import Final, Protocol
from urllib.parse import quote, unquote

import msgspec

from .ids import BudgetKey
from .messages.broker import Destination

ZAI: Final = "zai"
"""Name of the provider entry that all Z.AI hosts and paths belong to."""

_ZAI_HOSTS: Final = ("api.z.ai", "bigmodel.cn")
_ZAI_LABELS: Final = frozenset({"zai", "zhipu", "glm", "z-ai", "z.ai"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS: Final = frozenset({80, 443})
_SCHEME: Final = re.compile(r"(?:(https?):/*|([a-z][a-z0-9+.-]*)://|//)", re.IGNORECASE)
_NAME: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_PORT: Final = re.compile(r"[0-9]{0,5}")
_DOMAIN: Final = b"covey credential fingerprint 1\0"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an endpoint is: `host` in lower-case ASCII without a final dot, `port` None for 80 and 443."""

    host: str
    port: int | None
    path: str


class Entry(Protocol):
    """A configured provider, as far as matching goes (`ProviderLimit` is one)."""

    @property
    def provider(self) -> str: ...
    @property
    def base_url(self) -> str: ...


def place_of(base_url: str | None) -> Place | None:
    """Read host, port and path; None where there is no host, or none that could be connected to."""
    _, rest = _split_scheme(base_url or "")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path = re.split(r"[?#]", rest[len(authority) :], maxsplit=1)[0]
    host, port_text = _split_port(authority.rpartition("@")[2])
    name = _host_name(host)
    if name is None or "\\" in authority or not _PORT.fullmatch(port_text):
        return None
    port = int(port_text) if port_text else None
    if port is not None and port > 65535:
        return None
    return Place(host=name, port=None if port in _DEFAULT_PORTS else port, path=path)


def host_of(base_url: str | None) -> str | None:
    """Read the host alone, as `place_of` does."""
    place = place_of(base_url)
    return place.host if place is not None else None


def url_of(base_url: str) -> str:
    """Spell a base URL out, so that a client can call it: with a scheme (https if it names none) and two slashes."""
    scheme, rest = _split_scheme(base_url)
    return f"{scheme or 'https'}://{rest}"


def is_zai(base_url: str | None, label: str | None = None) -> bool:
    """Whether calls go to a Z.AI account. A model's name says nothing: others serve GLM too."""
    host = host_of(base_url)
    if host is None:
        return (label or "").strip().lower() in _ZAI_LABELS
    return any(host == known or host.endswith("." + known) for known in _ZAI_HOSTS)


def fingerprint(api_key: str | None) -> str | None:
    """Name a key without telling it: 12 hex digits; None for no key. Space around the key does not count."""
    key = (api_key or "").strip()
    if not key:
        return None
    return sha256(_DOMAIN + key.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def provider_for(destination: Destination, providers: Iterable[Entry]) -> str | None:
    """Name the entry whose budget a call draws on; None where there is none.

    Every Z.AI endpoint, of either dialect, draws on the entry `zai` (or the first one that is at Z.AI). Any other
    is matched by host and port, whatever the scheme; the path decides only between entries at the same place.
    """
    entries = list(providers)
    if is_zai(destination.base_url, destination.provider):
        return _zai_entry(entries)
    place = place_of(destination.base_url)
    if place is None:
        label = (destination.provider or "").strip().lower()
        return next((entry.provider for entry in entries if entry.provider.lower() == label), None)
    return _entry_at(place, entries)


def budget_key(provider: str, credential: str | None) -> BudgetKey:
    """Name the account: the entry's name (`provider_for`) and the key's fingerprint, `none` without a key."""
    return BudgetKey(f"{quote(provider, safe='')}:{credential or 'none'}")


def provider_of(budget: BudgetKey) -> str:
    """Return the entry's name that `budget_key` put into this one."""
    return unquote(budget.rpartition(":")[0])


def _split_scheme(base_url: str) -> tuple[str | None, str]:
    text = base_url.strip()
    found = _SCHEME.match(text)
    if found is None:
        return None, text
    scheme = found[1] or found[2]
    return (scheme.lower() if scheme else None), text[found.end() :]


def _split_port(authority: str) -> tuple[str, str]:
    if authority.startswith("["):
        host, closing, port = authority.partition("]")
        is_literal = bool(closing) and ":" in host and port[:1] in ("", ":")
        return (host[1:], port[1:]) if is_literal else ("", "")
    if authority.count(":") > 1:
        return authority, ""
    host, _, port = authority.partition(":")
    return host, port


def _host_name(host: str) -> str | None:
    if ":" in host:
        return _ipv6_name(host)
    try:
        # Full-width letters and ideographic dots are names of the same host to a resolver: fold them first.
        name = host if host.isascii() else host[:255].encode("idna").decode("ascii")
    except UnicodeError:
        return None
    name = name.lower().removesuffix(".")
    return name if len(name) <= 253 and _NAME.fullmatch(name) else None


def _ipv6_name(host: str) -> str | None:
    try:
        return str(ip_address(host))
    except ValueError:
        return None


def _zai_entry(entries: list[Entry]) -> str | None:
    if any(entry.provider == ZAI for entry in entries):
        return ZAI
    return next((entry.provider for entry in entries if is_zai(entry.base_url, entry.provider)), None)


def _entry_at(place: Place, entries: list[Entry]) -> str | None:
    here = [(entry, found) for entry in entries if (found := place_of(entry.base_url)) and _is_same(found, place)]
    if not here:
        return None
    # max keeps the first of equals: without a matching path the order of the configuration decides.
    return max(here, key=lambda pair: _shared_path(pair[1].path, place.path))[0].provider


def _is_same(one: Place, other: Place) -> bool:
    return one.port == other.port and (one.host == other.host or {one.host, other.host} <= _LOOPBACK)


def _shared_path(prefix: str, path: str) -> int:
    """How much of `path` the entry's own path covers, in characters; -1 where it leads elsewhere."""
    base = prefix.strip("/")
    return len(base) if f"{path.strip('/')}/".startswith(f"{base}/" if base else "") else -1
