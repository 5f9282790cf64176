"""Accounts: isolated subject spaces, and the compiled permissions of their users.

An account owns the subscriptions of its clients. Messages do not pass between accounts, except by
imports (`account_imports`). Each user's permission patterns become tries once, so that links can
check them for every message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.subjects.trie import SubList, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.broker.permissions import CompiledPermissions
    from penstock.server.config.options import AccountConnectionLimits, Options

GLOBAL_ACCOUNT: Final = "$G"
SYSTEM_ACCOUNT: Final = "$SYS"
LIMIT_LOG_NS: Final = 2_000_000_000
"""Interval between two log lines about one account's subscription limit, as in the reference."""
GUARDS_MAX: Final = 4096
"""Cached guards: configured users are few, but users that come with claims may be many.
"""


@dataclass(slots=True)
class Account:
    """One subject space. `connections` counts the clients that are bound to it now."""

    name: str
    interest: SubList
    limits: AccountConnectionLimits | None = None
    connections: int = 0
    claimed_name: str = ""
    trace_dest: str = ""
    """Destination of traces that `traceparent` requests; empty: no such traces."""
    trace_sampling: int = 100
    limit_logged_ns: int | None = None
    """When the log last reported that a client reached its subscription limit."""

    @property
    def name_tag(self) -> str:
        """The display name: the name in the account's claims, if there are claims."""
        return self.claimed_name or self.name

    @property
    def is_full(self) -> bool:
        return self.is_beyond(self.connections + 1)

    def may_log_limit(self, now_ns: int) -> bool:
        """Return whether LIMIT_LOG_NS have passed since the last line; if so, restart the time."""
        if self.limit_logged_ns is not None and now_ns - self.limit_logged_ns < LIMIT_LOG_NS:
            return False
        self.limit_logged_ns = now_ns
        return True

    def is_beyond(self, connections: int) -> bool:
        """Return whether this number of connections exceeds the limit."""
        limits = self.limits
        return limits is not None and 0 <= limits.max_connections < connections


@dataclass(slots=True)
class Accounts:
    """All accounts of a server. They are created from the options and never removed."""

    make_interest: Callable[[], SubList]
    by_name: dict[str, Account] = field(default_factory=dict)

    def configure(self, options: Options) -> None:
        """Create the accounts that the options name; accounts no longer named stay, unused."""
        self._ensure(GLOBAL_ACCOUNT)
        self._ensure(options.system_account or SYSTEM_ACCOUNT)
        for configured in options.accounts:
            account = self._ensure(configured.name)
            account.limits = configured.limits
            account.trace_dest = configured.trace_dest
            account.trace_sampling = configured.trace_sampling

    def _ensure(self, name: str) -> Account:
        if name not in self.by_name:
            self.by_name[name] = Account(name, self.make_interest())
        return self.by_name[name]

    def __getitem__(self, name: str) -> Account:
        return self.by_name[name]

    def __iter__(self) -> Iterator[Account]:
        return iter(self.by_name.values())


@dataclass(frozen=True, slots=True)
class Guards:
    """A user's permissions as links check them; None means no check."""

    permissions: CompiledPermissions
    pub_allow: SubList | None
    pub_deny: SubList | None
    deliver_deny: SubList | None
    guards_subscribe: bool
    may_respond: bool


class GuardTable:
    """Guards by user, compiled once. The server replaces the table when the users change."""

    def __init__(self) -> None:
        self._guards: dict[int, Guards] = {}

    def __getitem__(self, permissions: CompiledPermissions) -> Guards:
        # Guards hold the permissions, so an id is never reused while it is a key here.
        guards = self._guards.get(id(permissions))
        if guards is None:
            if len(self._guards) >= GUARDS_MAX:
                self._guards.clear()  # clients hold references to their own
            guards = self._guards[id(permissions)] = _compile_guards(permissions)
        return guards


def _compile_guards(permissions: CompiledPermissions) -> Guards:
    denied = (*permissions.sub_deny, *(entry.subject for entry in permissions.sub_deny_queues))
    restricted = bool(denied) or permissions.sub_allow is not None
    return Guards(
        permissions=permissions,
        pub_allow=None if permissions.pub_allow is None else _patterns(permissions.pub_allow),
        pub_deny=_patterns(permissions.pub_deny) if permissions.pub_deny else None,
        deliver_deny=_patterns(denied) if denied else None,
        guards_subscribe=restricted,
        may_respond=permissions.responses is not None,
    )


def _patterns(subjects: Iterable[str]) -> SubList:
    patterns = SubList(cache=False)
    for subject in subjects:
        patterns.insert(Subscription(subject))
    return patterns
