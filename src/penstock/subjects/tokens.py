"""Subject tokens: validity and wildcard checks.

A subject is a sequence of non-empty tokens joined by dots. `*` and `>` are wildcards only as a
whole token, and `>` only as the last one; `f*o` and `a>` are normal tokens. Validity is what the
protocol enforces on SUB and, for pedantic clients, on PUB. `match.py` compares subjects.
"""

from typing import Final

SEPARATOR: Final = "."
ANY_TOKEN: Final = "*"
ANY_TAIL: Final = ">"
WILDCARDS: Final = frozenset((ANY_TOKEN, ANY_TAIL))
FORBIDDEN: Final = frozenset(" \t\n\r\f")


def tokenise(subject: str) -> list[str]:
    """Split a subject at its dots; empty tokens are kept, so joining restores the subject."""
    return subject.split(SEPARATOR)


def token_at(subject: str, position: int) -> str:
    """Return the token at a position counted from 1, or "" if there is none."""
    tokens = tokenise(subject)
    return tokens[position - 1] if 1 <= position <= len(tokens) else ""


def has_wildcard(subject: str) -> bool:
    """Return whether a whole token is a wildcard."""
    return not WILDCARDS.isdisjoint(tokenise(subject))


def is_valid_subject(subject: str) -> bool:
    """Return whether a subscription may use this subject: literal or with valid wildcards."""
    if not FORBIDDEN.isdisjoint(subject):
        return False
    tokens = tokenise(subject)
    return "" not in tokens and ANY_TAIL not in tokens[:-1]


def is_valid_literal(subject: str) -> bool:
    """Return whether a message may have this subject: valid and without wildcard tokens."""
    return is_valid_subject(subject) and not has_wildcard(subject)
