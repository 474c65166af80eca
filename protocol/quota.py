"""Z.AI's quota endpoint: where it is, and what its answer says about the windows of an account's plan.

Nobody documented it, and it changed three times within a year (counts came and went, `CREDIT_LIMIT` took the place of
`TOKENS_LIMIT`): so nothing in an answer is relied on. What is unknown is shown in the provider's own words and blocks
nothing, what is missing is None, and no answer raises. Windows are independent of each other: an account whose five
hours stand at 0 % is refused everything while its week stands at 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from .destination import is_zai, place_of, url_of
from .messages.broker import QuotaWindow

QUOTA_PATH: Final = "/api/monitor/usage/quota/limit"

MOST_WINDOWS: Final = 32
"""More of an answer is not read: three are usual."""

_BLOCKING: Final = frozenset({"TOKENS_LIMIT", "TOKEN_LIMIT", "CREDITS_LIMIT", "CREDIT_LIMIT"})
_UNITS: Final[dict[int, tuple[str, str]]] = {3: ("h", "h"), 5: ("month", "months"), 6: ("week", "weeks")}
_AUTH_CODES: Final = frozenset({401, 403, *range(1000, 1005)})
_LINE_CHARS: Final = 240
_SECONDS_END: Final = 100_000_000_000
"""Unix times below this are seconds: as milliseconds they would lie before March 1973."""

_decoder: Final = msgspec.json.Decoder()


class QuotaUnread(msgspec.Struct, frozen=True, kw_only=True):
    """The quota is not known, and why."""

    problem: str
    is_key_refused: bool = False
    """The endpoint does not take the key, in the way it was shown."""


def reads_quota(base_url: str | None, label: str | None = None) -> bool:
    """Whether calls to `base_url` have a quota endpoint beside them that is known to be one."""
    return is_zai(base_url, label) and quota_url(base_url) is not None


def quota_url(base_url: str | None) -> str | None:
    """Spell the quota endpoint on the host of `base_url`, the only one that may be shown its key; None without one."""
    place = place_of(base_url)
    if base_url is None or place is None:
        return None
    scheme = url_of(base_url).partition("://")[0]
    host = f"[{place.host}]" if ":" in place.host else place.host
    port = f":{place.port}" if place.port is not None else ""
    return f"{scheme}://{host}{port}{QUOTA_PATH}"


def read_windows(body: bytes, *, status: int = 200) -> tuple[QuotaWindow, ...] | QuotaUnread:
    """Read an answer of the endpoint. Seen so far: a list, under `limits`, `data` or `data.limits`, or bare."""
    try:
        answer = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return QuotaUnread(problem=_refusal(status, None, "the answer is no JSON"), is_key_refused=status in (401, 403))
    entries = _entries(answer)
    if not 200 <= status < 300 or _is_refusal(answer) or entries is None:
        code, text = _told(answer)
        problem = _refusal(status, code, text or "the answer has no list of limits")
        return QuotaUnread(problem=problem, is_key_refused=status in (401, 403) or code in _AUTH_CODES)
    return tuple(_window(entry) for entry in entries[:MOST_WINDOWS] if isinstance(entry, dict))


def is_key_refused(found: tuple[QuotaWindow, ...] | QuotaUnread) -> bool:
    """Whether another key might be told more."""
    return isinstance(found, QuotaUnread) and found.is_key_refused


def full_windows(windows: Iterable[QuotaWindow]) -> tuple[QuotaWindow, ...]:
    """Those that refuse every call: one is enough, whatever the others say."""
    return tuple(one for one in windows if one.blocks and one.used_percent is not None and one.used_percent >= 100)


# --- the envelope ----------------------------------------------------------------------------------------------------


def _entries(answer: object) -> list[object] | None:
    """The list, at most two envelopes deep."""
    for _ in range(2):
        if isinstance(answer, dict):
            answer = answer["limits"] if isinstance(answer.get("limits"), list) else answer.get("data")
    return answer if isinstance(answer, list) else None


def _is_refusal(answer: object) -> bool:
    """Whether the envelope says so: it does with HTTP 200, too."""
    if not isinstance(answer, dict):
        return False
    code = _number(answer.get("code"))
    return answer.get("success") is False or "error" in answer or (code is not None and code not in (0, 200))


def _told(answer: object) -> tuple[int | None, str | None]:
    """Code and text of a refusal, as far as there are some."""
    if not isinstance(answer, dict):
        return None, None
    told = answer["error"] if isinstance(answer.get("error"), dict) else answer
    code = _number(told.get("code"))
    text = next((told[name] for name in ("msg", "message") if isinstance(told.get(name), str)), None)
    return int(code) if code is not None and code != 200 else None, _line(text) if text else None


def _refusal(status: int, code: int | None, text: str) -> str:
    facts = [f"HTTP {status}"] if status != 200 else []
    facts += [f"code {code}"] if code is not None and code != status else []
    return f"{', '.join(facts)}: {text}" if facts else text


# --- one window ------------------------------------------------------------------------------------------------------


def _window(entry: dict[object, object]) -> QuotaWindow:
    told = entry.get("type")
    kind = _line(told) if isinstance(told, str) else ""
    return QuotaWindow(
        name=f"{kind or 'unnamed'}{_length(_number(entry.get('unit')), _number(entry.get('number')))}",
        used_percent=_used(entry),
        resets_at_ms=_moment(_number(entry.get("nextResetTime"))),
        blocks=kind.upper() in _BLOCKING,
    )


def _length(unit: float | None, number: float | None) -> str:
    if unit is None and number is None:
        return ""
    words = _UNITS.get(int(unit)) if unit is not None else None
    if words is None or number is None:
        return f" {_plain(number)} × unit {_plain(unit)}"
    return f" {_plain(number)} {words[0] if number == 1 else words[1]}"


def _used(entry: dict[object, object]) -> float | None:
    """Percent used; where only counts are told, from those."""
    percent = _number(entry.get("percentage"))
    if percent is not None:
        return max(0.0, percent)
    used, left, whole = (_number(entry.get(name)) for name in ("currentValue", "remaining", "usage"))
    if whole is None and used is not None and left is not None:
        whole = used + left
    if whole is None or whole <= 0:
        return None
    if used is None and left is not None:
        used = whole - left
    return None if used is None else max(0.0, 100.0 * used / whole)


def _moment(value: float | None) -> int | None:
    """Unix milliseconds; None for what is no time."""
    if value is None or not 1 <= value < _SECONDS_END * 1000:
        return None
    return int(value * 1000 if value < _SECONDS_END else value)


def _number(value: object) -> float | None:
    """A finite number, also one in quotes. A truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    # Beyond 2 to the 53rd nothing here is meant, and sums stay finite.
    return number if math.isfinite(number) and abs(number) < 2**53 else None


def _plain(number: float | None) -> str:
    return "?" if number is None else f"{number:g}"


def _line(text: str) -> str:
    """One short printable line of what a stranger wrote."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(shown.split())[:_LINE_CHARS]
