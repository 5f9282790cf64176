"""Refused publishes and subscriptions: what the client is told, and what the log says.

Both texts are the reference's. The reference logs every refusal; here the log takes at most
`VIOLATION_LINES_PER_S` lines and `VIOLATION_BYTES_PER_S` bytes of them in a second and then one
line with the number left out, because one thread serves all clients and a line costs more than the
refused message itself. Sessions call this; nothing here may raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.text import go_quoted
from penstock.server.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable

VIOLATION_LINES_PER_S: Final = 500
VIOLATION_BYTES_PER_S: Final = 1_048_576
WINDOW_S: Final = 1.0


class Violation(NamedTuple):
    """`told` is the text of -ERR, `logged` the end of the log line."""

    told: str
    logged: str


def publish_violation(subject: str) -> Violation:
    quoted = go_quoted(subject)
    return Violation(
        f"Permissions Violation for Publish to {quoted}",
        f"Publish Violation - Subject {quoted}",
    )


def reply_violation(reply: str) -> Violation:
    quoted = go_quoted(reply)
    return Violation(
        f"Permissions Violation for Publish with Reply of {quoted}",
        f"Publish Violation - Reply {quoted}",
    )


def subscription_violation(subject: str, queue: str | None, sid: str) -> Violation:
    quoted = go_quoted(subject)
    if queue is None:
        return Violation(
            f"Permissions Violation for Subscription to {quoted}",
            f"Subscription Violation - Subject {quoted}, SID {sid}",
        )
    return Violation(
        f"Permissions Violation for Subscription to {quoted} using queue {go_quoted(queue)}",
        f"Subscription Violation - Subject {quoted}, Queue: {go_quoted(queue)}, SID {sid}",
    )


def tokens_violation(subject: str, sid: str) -> Violation:
    quoted = go_quoted(subject)
    return Violation(
        f"Permissions Violation for Subscription to {quoted}, too many tokens",
        f"Subscription Violation Too Many Tokens - Subject {quoted}, SID {sid}",
    )


def removed_subscription(subject: str, queue: str | None, sid: str) -> Violation:
    """A reload took the permission for a subscription that exists; `logged` lacks the user."""
    using = "" if queue is None else f" using queue {go_quoted(queue)}"
    what = f"{go_quoted(subject)}{using} (sid {go_quoted(sid)})"
    return Violation(f"Permissions Violation for Subscription to {what}", f"Removed sub {what}")


class ViolationLog:
    """Writes the lines of one server, within the bounds."""

    def __init__(self, arm: Callable[[float, Callable[[], object]], object]) -> None:
        """`arm(seconds, call)` calls later; used while the window holds lines."""
        self._arm: Final = arm
        self._lines = 0
        self._bytes = 0
        self._left_out = 0

    def write(self, client: object, text: str) -> None:
        if self._lines == 0:
            self._arm(WINDOW_S, self._end_window)
        self._lines += 1
        self._bytes += len(text)
        if self._lines > VIOLATION_LINES_PER_S or self._bytes > VIOLATION_BYTES_PER_S:
            self._left_out += 1
            return
        log.error("%s - %s", client, text)

    def _end_window(self) -> None:
        if self._left_out:
            log.error(
                "%d more violations within a second are not logged one by one", self._left_out
            )
        self._lines = self._bytes = self._left_out = 0
