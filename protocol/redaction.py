"""Keys and passwords taken out of any text, before it is logged, kept, shown or summarised. Pure, in linear time.

Two things are looked for: what has the shape of a key wherever it stands, and what stands behind a name that says so
(`api_key=`, `"password": "`, `Authorization: Bearer`, `user:…@host`), in environments, headers, JSON (escaped, too),
Python and URLs. What only sounds like it stays: `tokenizer`, `max_tokens: 4096`, commit ids, paths, `$API_KEY`.

Linear, because every alternative starts at a place that is recognised by the character before it, and eats
(possessively) what it looked at: no text is looked at again from a later start. The decision whether something is a
secret is taken on what was eaten, never by trying other ways to match.
"""

from __future__ import annotations

import re
from typing import Final

LABEL: Final = "[key]"

_ESCAPED: Final = r"(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})"
_START: Final = rf"(?:(?<![A-Za-z0-9])|{_ESCAPED})"
"""Where a word begins: the letter before it may be the end of an escaped line end, or of a space in a URL."""
_SHAPES: Final = "|".join(
    (
        r"(?:sk|rk|pk|csk|fw)[-_][A-Za-z0-9_-]*+",
        r"gh[pousr]_[A-Za-z0-9]*+|github_pat_[A-Za-z0-9_]*+|glpat-[A-Za-z0-9_-]*+",
        r"(?:gsk|hf|npm|r8)_[A-Za-z0-9_]*+|(?:xai|nvapi|pplx|tvly)-[A-Za-z0-9_-]*+",
        r"xox[a-z]-[A-Za-z0-9-]*+",
        r"AIza[A-Za-z0-9_-]*+|ya29\.[A-Za-z0-9_-]*+",
        r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    )
)
_ZAI: Final = r"[0-9a-fA-F]{32}\.[A-Za-z0-9]{16}(?![A-Za-z0-9])"
_JWT: Final = rf"(?:(?<![A-Za-z0-9_-])|{_ESCAPED})eyJ[A-Za-z0-9_-]*+\.[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]*+)?"
_PEM: Final = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----"
    r"(?:\s|\\{1,7}[nr]|(?:Proc-Type|DEK-Info): ?[A-Za-z0-9,-]*+|[A-Za-z0-9+/=])*+"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?"
)
_USERINFO: Final = r"(?<=://)(?P<user>[^\s/:@\"'<>\\?#]*+):(?P<word>[^\s/\"'<>\\?#]*@)"
_SCHEME: Final = r"(?P<scheme>\b(?i:bearer|basic)\s{1,4})(?P<ticket>[A-Za-z0-9._~+/=-]++)"
_SURE: Final = (
    r"api[_-]?keys?|secret[_-]?(?:access[_-]?)?key|access[_-]?key|private[_-]?key|client[_-]?secret"
    r"|(?:access|refresh|auth|bearer|session)[_-]?token"
)
_PERHAPS: Final = r"authorization|credentials?|secret|token|key"
_NAMED: Final = (
    rf"(?P<name>(?i:password|passwd|passphrase|{_START}(?:pwd|{_SURE}|{_PERHAPS})))"
    r"(?P<between>\\{0,7}[\"']?\s{0,3}(?:=>|[:=]|(?<=[\"']),)\s{0,3})"
    r"(?P<opened>[bBrRuU]?\\{0,7}[\"'])?"
    r"(?P<with>(?i:bearer|basic|token)\s{1,4})?"
    r"(?P<value>(?(opened)[^\"'\\\r\n]*+|[^\s\"'\\&,;]*+))"
)
_SECRET: Final = re.compile(
    rf"(?P<pem>{_PEM})|(?P<jwt>{_JWT})|{_NAMED}|{_SCHEME}|{_USERINFO}"
    rf"|{_START}(?:(?P<zai>{_ZAI})|(?P<shape>{_SHAPES}))",
    re.ASCII,
)
# Names are not looked for again in what stood behind one: that could be done as often as the text is long.
_INSIDE: Final = re.compile(
    rf"(?P<jwt>{_JWT})|{_SCHEME}|{_USERINFO}|{_START}(?:(?P<zai>{_ZAI})|(?P<shape>{_SHAPES}))", re.ASCII
)
# Whatever `_SECRET` finds has one of these in it; most lines of a log have none (190 characters: 8 µs instead of 36).
_MARKS: Final = (
    "key", "secret", "token", "credential", "authorization", "passw", "passphrase", "pwd", "bearer", "basic", "://",
    "sk-", "sk_", "rk-", "rk_", "pk-", "pk_", "fw-", "fw_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
    "glpat-", "hf_", "npm_", "r8_", "xai-", "nvapi-", "pplx-", "tvly-", "xox", "aiza", "ya29.", "akia", "asia", "eyj",
)  # fmt: skip
_ZAI_MARK: Final = re.compile(r"[0-9a-fA-F]{32}\.")

_SURE_NAME: Final = re.compile(rf"password|passwd|passphrase|pwd|{_SURE}", re.IGNORECASE)
_VARIABLE: Final = re.compile(
    r"[$%<{\[(]|\.{3}|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$|[A-Za-z_][A-Za-z_]*(?:\.[A-Za-z_]+)+$|[A-Za-z_][\w.]*[(\[]"
)
_MASKED: Final = re.compile(r"[*xX.•_-]*")
_WORDS: Final = frozenset(
    {
        "none", "null", "true", "false", "nil", "undefined", "str", "string", "bytes", "int", "bool", "any",
        "optional", "required", "missing", "invalid", "wrong", "expired", "empty", "unset", "set", "is", "was",
        "not", "the", "a", "an", "and", "or", "of", "for", "in", "to", "password", "passwd", "token", "secret",
        "key", "api_key", "value",
    }
)  # fmt: skip
"""What stands behind such a name in code and in sentences."""
_PATH: Final = re.compile(r"(?:~|\.{0,2})/|[A-Za-z]:[\\/]|\w+://|[\w.-]{1,24}(?:/[\w.-]{1,24})+$")
_IDENTIFIER: Final = re.compile(r"[0-9a-f]{7,64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_LEAST_SHAPE: Final = 20
_LEAST_SECRET: Final = 12
_LEAST_TYPED: Final = 4
_LEAST_DIGITS: Final = 3


def redact(text: str) -> str:
    """Return `text` with `[key]` in place of every key and password; what is around them stays as it is.

    A second time it changes nothing.
    """
    lower = text.lower()
    if not any(mark in lower for mark in _MARKS) and _ZAI_MARK.search(text) is None:
        return text
    return _SECRET.sub(_without, text)


def _without(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "pem" | "zai":
            return LABEL
        case "jwt":
            return LABEL if len(found[0]) >= _LEAST_SHAPE else found[0]
        case "shape":
            return LABEL if _is_key(found[0]) else found[0]
        case "ticket":
            is_key = _is_mixed(found["ticket"]) or len(found["ticket"]) >= _LEAST_SHAPE
            return found["scheme"] + LABEL if is_key else found[0]
        case "word":
            return found[0] if found["word"] in ("@", f"{LABEL}@") else f"{found['user']}:{LABEL}@"
        case _:
            return found[0][: found.start("value") - found.start()] + _value(found)


def _value(found: re.Match[str]) -> str:
    """What stands behind a name, without its secrets: it may be one, or a sentence that has one in it."""
    if _is_secret(found):
        return LABEL
    value: str = found["value"]
    rest = _INSIDE.sub(_without, value)
    return rest if rest == value or " " in value else LABEL


def _is_key(run: str) -> bool:
    """Whether a run of letters that begins like a key is one: style sheets have classes `sk-…`."""
    return run.startswith(("AKIA", "ASIA")) or (len(run) >= _LEAST_SHAPE and _is_mixed(run))


def _is_mixed(run: str) -> bool:
    return sum(map(str.isdigit, run)) >= _LEAST_DIGITS or (
        any(map(str.isdigit, run)) and any(map(str.isupper, run)) and any(map(str.islower, run))
    )


def _is_secret(found: re.Match[str]) -> bool:
    value: str = found["value"]
    if not value or _VARIABLE.match(value) or value.lower().strip(".,:;!?)]}>") in _WORDS:
        return False
    if _MASKED.fullmatch(value):
        return False
    if _SURE_NAME.fullmatch(found["name"]) or found["with"]:
        return _is_given(found, value)
    return _is_opaque(value, is_key=found["name"].lower() == "key")


def _is_given(found: re.Match[str], value: str) -> bool:
    """Whether a value behind a name that leaves no doubt is one, and not the next word of a sentence."""
    if "," in found["between"]:  # a pair of Python's; but names stand side by side in many lists
        return _is_mixed(value) or len(value) >= _LEAST_SHAPE
    if found["opened"] or "=" in found["between"]:
        return " " not in value or found["name"].lower().startswith("pass")
    if len(value) < _LEAST_TYPED:
        return False
    end = found.string[found.end() : found.end() + 1]
    return any(map(str.isdigit, value)) or len(value) >= _LEAST_SHAPE or end in ("", "\n", "\r", "\\")


def _is_opaque(value: str, *, is_key: bool) -> bool:
    """Whether a value behind a name that may mean anything looks like nothing but a secret."""
    if len(value) < _LEAST_SECRET or " " in value or _PATH.match(value):
        return False
    if is_key and _IDENTIFIER.fullmatch(value):
        return False
    return _is_mixed(value) and any(map(str.isalpha, value))
