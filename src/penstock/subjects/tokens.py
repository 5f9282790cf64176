"""Subjects cut into tokens: validity and wildcard tests.

A subject is a row of non-empty tokens joined by dots. `*` and `>` are wildcards only when they
are a whole token, and `>` only as the last one; `f*o` and `a>` are ordinary tokens. Validity here
is what the protocol enforces on SUB and, for pedantic clients, on PUB. Nothing in this module
compares two subjects: that is `match.py`.
"""

from typing import Final

SEPARATOR: Final = "."
ANY_TOKEN: Final = "*"
ANY_TAIL: Final = ">"
WILDCARDS: Final = frozenset((ANY_TOKEN, ANY_TAIL))
FORBIDDEN: Final = frozenset(" \t\n\r\f")


def tokenise(subject: str) -> list[str]:
    """Cut a subject at its dots; empty tokens are kept, so the cut can be undone."""
    return subject.split(SEPARATOR)


def token_at(subject: str, position: int) -> str:
    """The token at a position counted from 1, or "" when there is none."""
    tokens = tokenise(subject)
    return tokens[position - 1] if 1 <= position <= len(tokens) else ""


def has_wildcard(subject: str) -> bool:
    """Whether some whole token is a wildcard."""
    return not WILDCARDS.isdisjoint(tokenise(subject))


def is_valid_subject(subject: str) -> bool:
    """Whether a subscription may name this subject: literal or with well-placed wildcards."""
    if not FORBIDDEN.isdisjoint(subject):
        return False
    tokens = tokenise(subject)
    return "" not in tokens and ANY_TAIL not in tokens[:-1]


def is_valid_literal(subject: str) -> bool:
    """Whether a message may carry this subject: valid and without wildcard tokens."""
    return is_valid_subject(subject) and not has_wildcard(subject)
