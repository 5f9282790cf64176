"""Open reply subjects of service requests that cross an account's border.

A service sees a reply subject in its own account instead of the requester's; this table maps it
back. An entry ends with the reply (if several are allowed, with an empty one), at its timeout, or
when too many are open: then the oldest is removed. The caller passes the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.share_values import ResponseKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.import_resolver import ResolvedImports

OPEN_MAX: Final = 1_048_576
"""Open replies of one account's services."""
PREFIX: Final = "_R_."


class Awaited:
    """An expected reply. `account` sent the request, and receives the reply on `subject`."""

    __slots__ = ("account", "joined", "since_ns", "subject")

    def __init__(self, account: str, subject: str, joined: ResolvedImports, now_ns: int) -> None:
        self.account: Final = account
        self.subject: Final = subject
        self.joined: Final = joined
        self.since_ns = now_ns

    @property
    def is_single(self) -> bool:
        return self.joined.export.response is ResponseKind.SINGLETON

    @property
    def due_ns(self) -> int:
        return self.since_ns + self.joined.export.threshold_ns


class Replies:
    """The open replies of one account's services."""

    def __init__(self, mark: str, make_token: Callable[[], str]) -> None:
        self._prefix: Final = f"{PREFIX}{mark}."
        self._make_token: Final = make_token
        self._awaited: Final[dict[str, Awaited]] = {}

    @property
    def pattern(self) -> str:
        """Return the pattern that matches all reply subjects."""
        return f"{self._prefix}>"

    def __len__(self) -> int:
        return len(self._awaited)

    def open(self, account: str, subject: str, joined: ResolvedImports, now_ns: int) -> str:
        """Return the reply subject that the service sees instead of the requester's."""
        if len(self._awaited) >= OPEN_MAX:
            del self._awaited[next(iter(self._awaited))]
        reply = f"{self._prefix}{self._make_token()}"
        self._awaited[reply] = Awaited(account, subject, joined, now_ns)
        return reply

    def get(self, reply: str) -> Awaited | None:
        return self._awaited.get(reply)

    def close(self, reply: str) -> None:
        self._awaited.pop(reply, None)

    def answered(self, reply: str, *, is_last: bool, now_ns: int) -> None:
        """Record that a reply was passed on or could not be; `is_last`: expect no further one."""
        awaited = self._awaited.get(reply)
        if awaited is None:
            return
        if is_last or awaited.is_single:
            del self._awaited[reply]
        else:
            awaited.since_ns = now_ns

    def expire(self, now_ns: int) -> int | None:
        """Remove the entries that timed out; return when the next one is due."""
        late = [reply for reply, awaited in self._awaited.items() if awaited.due_ns <= now_ns]
        for reply in late:
            del self._awaited[reply]
        return min((awaited.due_ns for awaited in self._awaited.values()), default=None)
