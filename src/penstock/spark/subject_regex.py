"""Translates subject patterns to regular expressions, for Arrow (RE2) and Spark (Java).

A column of subjects is matched where it is, without a call per row. `penstock.subjects.match` says
what a pattern means; for subjects of messages, which have no empty token, the two agree.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKEN: Final = r"[^.]+"
"""A token of the subject of a stored message."""
LITERAL_TOKEN: Final = r"(?:[^\x00-\x20\x7f.*>][^\x00-\x20\x7f.]*|[*>][^\x00-\x20\x7f.]+)"
"""A token of a subject that every server accepts: without spaces, and not a wildcard alone."""


def regex_of(pattern: str, *, token: str = TOKEN) -> str:
    """Return the expression for the subjects a pattern matches; `*` matches a `token`."""
    tail = rf"{token}(?:\.{token})*"
    parts = {"*": token, ">": tail}
    return r"\.".join(parts.get(one) or re.escape(one) for one in pattern.split("."))


def whole_regex(patterns: Iterable[str], *, token: str = TOKEN) -> str:
    """Return the expression for a whole subject that one of the patterns matches."""
    parts = [regex_of(pattern, token=token) for pattern in patterns]
    return f"^(?:{'|'.join(parts)})$" if parts else r"^\x00$"
