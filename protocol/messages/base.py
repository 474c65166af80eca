"""The base of everything that travels between processes."""

from __future__ import annotations

import msgspec


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """A frozen, tagged struct. Unknown fields are ignored, so that messages can gain fields.

    It holds no circles, so the garbage collector need not look at it: with thousands under way it did little else.
    """


class Done(Wire, frozen=True, kw_only=True, tag="done"):
    """The request was carried out, or had been already."""


class Failed(Wire, frozen=True, kw_only=True, tag="failed"):
    """The request was not carried out; `kind` names the error class, `message` says whose move it is."""

    kind: str
    message: str
