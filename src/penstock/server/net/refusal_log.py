"""Texts of refused publishes and subscriptions, and their rate-limited log.

The texts are the reference's, which logs every refusal. Here an account writes at most
`VIOLATION_LINES_PER_S` lines and `VIOLATION_BYTES_PER_S` bytes per second, one client at most
1/`CLIENT_PART` of that, followed by one line with the number of suppressed lines. One thread serves
all clients, and a log line costs more than the refused message. The share per client keeps one
client from hiding the refusals of others. Sessions call this; nothing here may raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.text import go_quoted
from penstock.server.server_log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

VIOLATION_LINES_PER_S: Final = 500
VIOLATION_BYTES_PER_S: Final = 1_048_576
CLIENT_PART: Final = 4
"""One client may use 1/CLIENT_PART of the lines and bytes of its account."""
WINDOW_S: Final = 1.0


class Violation(NamedTuple):
    """`err_text` is the text of -ERR, `logged` the end of the log line."""

    err_text: str
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
    """Return the texts for a subscription that a reload forbids; `logged` lacks the user."""
    using = "" if queue is None else f" using queue {go_quoted(queue)}"
    what = f"{go_quoted(subject)}{using} (sid {go_quoted(sid)})"
    return Violation(f"Permissions Violation for Subscription to {what}", f"Removed sub {what}")


class _Share:
    """The lines and bytes that an account or a client has used in a window."""

    __slots__ = ("bytes", "left_out", "lines")

    def __init__(self) -> None:
        self.lines = self.bytes = self.left_out = 0

    def has_room(self, size: int, part: int) -> bool:
        """Return whether another line fits into 1/`part` of the limits."""
        return (
            self.lines * part < VIOLATION_LINES_PER_S
            and (self.bytes + size) * part <= VIOLATION_BYTES_PER_S
        )

    def add(self, size: int) -> None:
        self.lines += 1
        self.bytes += size


class ViolationLog:
    """Writes the refusal lines of one server, within the limits of each account and client."""

    def __init__(self, arm: Callable[[float, Callable[[], object]], object]) -> None:
        """`arm(seconds, call)` schedules `call`; used while the window holds lines."""
        self._arm: Final = arm
        self._accounts: dict[str, _Share] = {}
        self._clients: dict[object, _Share] = {}

    def write(self, client: Hashable, account: str, text: str) -> None:
        if not self._accounts:
            self._arm(WINDOW_S, self._end_window)
        whole = self._accounts.setdefault(account, _Share())
        own = self._clients.setdefault(client, _Share())
        size = len(text)
        if not (whole.has_room(size, 1) and own.has_room(size, CLIENT_PART)):
            whole.left_out += 1
            return
        whole.add(size)
        own.add(size)
        log.error("%s - %s", client, text)

    def _end_window(self) -> None:
        for account, share in self._accounts.items():
            if share.left_out:
                log.error(
                    "Account %s: %d more violations within a second are not logged one by one",
                    go_quoted(account),
                    share.left_out,
                )
        self._accounts.clear()
        self._clients.clear()
