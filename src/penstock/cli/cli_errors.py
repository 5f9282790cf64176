"""Errors of the command line: one line each, which begins with `penstock:` and names the command.

A command succeeds or raises a `Failure`; `describe_error` translates errors of the client library
into the same form. Exit codes are 1 for a failure, 2 for a wrong command line, 130 when
interrupted. No text shows a secret: callers remove passwords from addresses before they build a
message.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.api.refusals import ApiError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
NEAR_ENOUGH: Final = 0.5
"""How similar two words must be (0 to 1) for one to be suggested for the other."""

LIBRARY_MISSING: Final = "this command needs the NATS client library: pip install nats-py"
SPARK_MISSING: Final = "this command needs Spark: pip install 'penstock[spark]'"
_MISSING: Final = {"nats": LIBRARY_MISSING, "pyspark": SPARK_MISSING}


class Failure(Exception):
    """Why a command failed, in one line."""

    exit_code = EXIT_FAILED


class Misuse(Failure):
    """The command line is invalid."""

    exit_code = EXIT_USAGE


class RequestRefused(Failure):
    """A server refused an API request."""

    def __init__(self, error: ApiError) -> None:
        self.code = error.code
        self.err_code = error.err_code
        self.description = error.description or "refused without a reason"
        number = f"error {self.err_code}" if self.err_code else f"code {self.code}"
        super().__init__(f"{self.description} ({number})")


def error_line(name: str, text: str) -> str:
    """Return the line for an error of the command `penstock NAME`."""
    word = name.removeprefix("penstock").strip()
    return f"penstock: {word}: {text}" if word else f"penstock: {text}"


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """Return a message about an unknown word, with the nearest known one."""
    from difflib import get_close_matches

    text = f'there is no {kind} "{word}"'
    for near in get_close_matches(word, list(known), 1, NEAR_ENOUGH):
        return f'{text}; did you mean "{near}"?'
    return text


def describe_error(error: BaseException) -> str | None:
    """Return the line for an error of a library or the system; None if it is a bug of ours."""
    if isinstance(error, Failure):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return _MISSING.get((error.name or "").partition(".")[0])
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}"
    if isinstance(error, UnicodeError):
        return "that is not text"
    if "penstock.kv.errors" in sys.modules:
        from penstock.kv.errors import KvError

        if isinstance(error, KvError):
            return str(error)
    return _describe_library_error(error) if "nats" in sys.modules else None


def _describe_library_error(error: BaseException) -> str | None:
    from nats import errors

    if isinstance(error, errors.NoRespondersError):
        return "no responders on that subject"
    if isinstance(error, errors.BadSubjectError):
        return "that is not a valid subject"
    if isinstance(error, errors.MaxPayloadError):
        return "the message is larger than the server takes"
    return str(error).removeprefix("nats: ") if isinstance(error, errors.Error) else None
