"""Decides what a user may publish, subscribe to and receive.

`compile_permissions` turns the configured values into a `CompiledPermissions`, which all
connections of a user share and which never changes. Deny wins over allow in both directions. A
wildcard subscription broader than a deny entry is accepted, and its denied messages are held back
one by one: the caller checks `needs_delivery_filter` once and `delivery_denied` per message. Only
the permission to reply to a request has state: each connection owns its `ResponseGrants`.

The compiled `ClientLink` checks publishes itself, from the tuples `pub_allow` and `pub_deny`; the
methods here define the behaviour. Nothing here reads a clock: times are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.permission_values import SubjectPermission
from penstock.subjects.match import collides, is_subset, match_literal
from penstock.subjects.tokens import ANY_TAIL, has_wildcard, tokenise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.broker.permission_values import Permissions, ResponsePermission

REPLY_GRANTS_MAX: Final = 4096
UNLIMITED: Final = -1

_UNRESTRICTED = SubjectPermission()


class QueueEntry(NamedTuple):
    """A subscribe entry written "subject queue": it applies to queue subscriptions only."""

    subject: str
    queue: str


class PatternSet:
    """Patterns that may match a subject; literal ones cost one look-up however many there are."""

    __slots__ = ("_literals", "_wildcards", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._literals = frozenset(p for p in self.patterns if not has_wildcard(p))
        self._wildcards = tuple(p for p in self.patterns if has_wildcard(p))

    def finds(self, subject: str) -> bool:
        """Whether a pattern matches, with the tokens of `subject` read literally."""
        return subject in self._literals or any(match_literal(subject, p) for p in self._wildcards)

    def contains(self, subject: str) -> bool:
        """Whether one pattern covers everything the subscription `subject` could receive."""
        return subject in self._literals or any(_covers(subject, p) for p in self._wildcards)

    def overlaps(self, subject: str) -> bool:
        """Whether a literal subject exists that both `subject` and a pattern match."""
        return any(collides(subject, p) for p in self.patterns)


@dataclass(frozen=True, slots=True)
class CompiledPermissions:
    """The decisions for one user. `pub_allow=None` allows all, `()` allows nothing."""

    pub_allow: tuple[str, ...] | None
    pub_deny: tuple[str, ...]
    sub_allow: tuple[str, ...] | None
    sub_deny: tuple[str, ...]
    sub_allow_queues: tuple[QueueEntry, ...]
    sub_deny_queues: tuple[QueueEntry, ...]
    responses: ResponsePermission | None
    _pub_allow: PatternSet | None = field(repr=False, compare=False)
    _pub_deny: PatternSet = field(repr=False, compare=False)
    _sub_allow: PatternSet | None = field(repr=False, compare=False)
    _sub_deny: PatternSet = field(repr=False, compare=False)

    def without_publish(self, subject: str) -> CompiledPermissions:
        """Return the same permissions, with publishing to a subject denied."""
        deny = (*self.pub_deny, subject)
        return replace(self, pub_deny=deny, _pub_deny=PatternSet(deny))

    def may_publish(self, subject: str) -> bool:
        """Whether the lists allow a publish; `ResponseGrants` decides on replies."""
        if self._pub_allow is not None and not self._pub_allow.finds(subject):
            return False
        return not self._pub_deny.finds(subject)

    def may_subscribe(self, subject: str, queue: str | None = None) -> bool:
        """Whether a subscription is accepted: inside the allow list, outside the deny list."""
        return self._allowed(subject, queue) and not self.delivery_denied(subject, queue)

    def needs_delivery_filter(self, subject: str, queue: str | None = None) -> bool:
        """Whether a message denied to an accepted subscription could match it."""
        if not has_wildcard(subject):
            return False
        return self._sub_deny.overlaps(subject) or any(
            collides(subject, entry.subject) and _queue_matches(queue, entry.queue)
            for entry in self.sub_deny_queues
        )

    def delivery_denied(self, subject: str, queue: str | None = None) -> bool:
        """Whether a message must not reach a subscription of this user (with this queue)."""
        return self._sub_deny.finds(subject) or any(
            match_literal(subject, entry.subject) and _queue_matches(queue, entry.queue)
            for entry in self.sub_deny_queues
        )

    def _allowed(self, subject: str, queue: str | None) -> bool:
        if self._sub_allow is None:
            return True
        # A queue entry narrows: where one matches, queue subscriptions need a matching queue
        # name even if a plain entry allows the subject.
        about = [e for e in self.sub_allow_queues if match_literal(subject, e.subject)]
        if queue is None or not about:
            return self._sub_allow.contains(subject)
        naming = [entry for entry in about if _queue_matches(queue, entry.queue)]
        if not naming:
            return False
        return self._sub_allow.contains(subject) or any(_covers(subject, e.subject) for e in naming)


def compile_permissions(permissions: Permissions) -> CompiledPermissions:
    """Prepare the configured lists for decisions. An empty allow list restricts nothing."""
    publish = permissions.publish or _UNRESTRICTED
    subscribe = permissions.subscribe or _UNRESTRICTED
    pub_allow = publish.allow or None
    if pub_allow is None and permissions.responses is not None:
        # A user with response permission and no allow list may publish replies only.
        pub_allow = ()
    sub_allow, sub_allow_queues = _split_queues(subscribe.allow or ())
    sub_deny, sub_deny_queues = _split_queues(subscribe.deny)
    restricted = bool(subscribe.allow)
    return CompiledPermissions(
        pub_allow=pub_allow,
        pub_deny=publish.deny,
        sub_allow=sub_allow if restricted else None,
        sub_deny=sub_deny,
        sub_allow_queues=sub_allow_queues,
        sub_deny_queues=sub_deny_queues,
        responses=permissions.responses,
        _pub_allow=None if pub_allow is None else PatternSet(pub_allow),
        _pub_deny=PatternSet(publish.deny),
        _sub_allow=PatternSet(sub_allow) if restricted else None,
        _sub_deny=PatternSet(sub_deny),
    )


class ResponseGrants:
    """The reply subjects one connection may publish to, each a limited number of times and time.

    Bounded by `REPLY_GRANTS_MAX`: beyond it, used-up grants are removed first, then the oldest.
    """

    __slots__ = ("_granted", "_limits")

    def __init__(self, limits: ResponsePermission) -> None:
        self._limits = limits
        self._granted: dict[str, _Grant] = {}

    def __len__(self) -> int:
        return len(self._granted)

    def grant(self, reply: str, now_ns: int) -> None:
        """Record a message delivered with this reply subject.

        As in the reference, a second request with the same reply subject does not renew a valid
        grant: it uses up one of its replies.
        """
        if self.take(reply, now_ns):
            return
        self._granted[reply] = _Grant(now_ns)
        if len(self._granted) > REPLY_GRANTS_MAX:
            self._prune(now_ns)

    def take(self, subject: str, now_ns: int) -> bool:
        """Use one reply of a grant; return whether there was one left."""
        grant = self._granted.get(subject)
        if grant is None:
            return False
        grant.used += 1
        if self._spent(grant, now_ns, allowance=self._limits.max_msgs):
            del self._granted[subject]
            return False
        return True

    def _spent(self, grant: _Grant, now_ns: int, allowance: int) -> bool:
        if allowance >= 0 and grant.used > allowance:
            return True
        expires_ns = self._limits.expires_ns
        return expires_ns > 0 and now_ns - grant.since_ns > expires_ns

    def _prune(self, now_ns: int) -> None:
        # `take` counts a use before it compares, so a grant is used up when it reaches the limit.
        limit = self._limits.max_msgs
        allowance = limit - 1 if limit > 0 else UNLIMITED
        self._granted = {
            reply: grant
            for reply, grant in self._granted.items()
            if not self._spent(grant, now_ns, allowance)
        }
        # Grants are never renewed in place, so the order of the dict is the order of age.
        while len(self._granted) > REPLY_GRANTS_MAX:
            del self._granted[next(iter(self._granted))]


@dataclass(slots=True)
class _Grant:
    since_ns: int
    used: int = 0


def _covers(subject: str, pattern: str) -> bool:
    """Whether a subscription stays inside a pattern.

    Matched as a literal, the subscription `a.>` would match `a.*` and then receive `a.b.c`; a tail
    wildcard is only inside another tail wildcard.
    """
    if not match_literal(subject, pattern):
        return False
    return tokenise(subject)[-1] != ANY_TAIL or tokenise(pattern)[-1] == ANY_TAIL


def _queue_matches(queue: str | None, entry: str) -> bool:
    if queue is None:
        return False
    # Queue names may contain wildcards, too, so equality comes first.
    return queue == entry or (has_wildcard(entry) and is_subset(queue, entry))


def _split_queues(entries: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[QueueEntry, ...]]:
    plain: list[str] = []
    queues: list[QueueEntry] = []
    for entry in entries:
        subject, *rest = entry.split()
        if rest:
            queues.append(QueueEntry(subject, rest[0]))
        else:
            plain.append(subject)
    return tuple(plain), tuple(queues)
