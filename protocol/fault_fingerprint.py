"""A short name for an error nobody knows: the same for the same words with other numbers, ids or addresses. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Final

MAX_WORDS: Final = 60
"""What stands behind them is detail, if it is not an echo of the request."""

_ADDRESS: Final = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://\S+", re.ASCII | re.IGNORECASE)
_QUOTED: Final = re.compile(r"(?<!\w)(['\"`])[^'\"`\n]{0,200}\1(?!\w)")
_LONG: Final = re.compile(r"[A-Za-z0-9_+/=-]{24,}", re.ASCII)
_WORD: Final = re.compile(r"[^\W\d_]+|<\w>")


def fingerprint_of(text: str) -> str:
    """Name the words of `text`: twelve hexadecimal digits, the same in every process."""
    for pattern, blank in ((_ADDRESS, "<u>"), (_QUOTED, "<q>"), (_LONG, "<n>")):
        text = pattern.sub(blank, text)
    text = " ".join("<n>" if any(map(str.isdigit, word)) else word for word in text.split())
    words = _WORD.findall(text.lower())[:MAX_WORDS]
    return hashlib.blake2b(" ".join(words).encode("utf-8", "replace"), digest_size=6).hexdigest()
