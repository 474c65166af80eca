"""What somebody typed into a search, as an expression of FTS5. Pure; no text whatever makes a wrong expression."""

from __future__ import annotations

import re
from typing import Final

MAX_CHARS: Final = 2048
MAX_TERMS: Final = 32

_TERM: Final = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')


def expression(text: str) -> str | None:
    """Return the expression for all words, "phrases" and beginnings* of `text`; None if it holds no word."""
    terms: list[str] = []
    for quoted, quoted_star, word in _TERM.findall(_clean(text[:MAX_CHARS])):
        is_beginning = bool(quoted_star) or word.endswith("*")
        term = quoted or word.rstrip("*")
        # Without a letter or digit it is nothing to the tokenizer, and nothing is found by nothing.
        if any(char.isalnum() for char in term):
            terms.append(f'"{term}"' + ("*" if is_beginning else ""))
    return " ".join(terms[:MAX_TERMS]) or None


def _clean(text: str) -> str:
    # What is no character cannot be bound, and SQLite reads an expression up to a NUL.
    return " ".join(text.encode(errors="replace").decode().split("\0"))
