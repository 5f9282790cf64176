"""Naive model of the permission decisions: the rules as sentences, over a world of few literals.

Every "is inside" is a subset of sets of literals, every "can meet" a non-empty intersection. Only
subjects over the alphabet of `models.subjects` may be asked about.
"""

from models.subjects import matched, matches
from penstock.broker.permission_values import Permissions


def may_publish(permissions: Permissions, subject: str) -> bool:
    """Deny wins; then the allow list decides, and without one only leave to respond closes."""
    publish = permissions.publish
    allow = publish.allow if publish else None
    deny = publish.deny if publish else ()
    if any(matches(subject, pattern) for pattern in deny):
        return False
    if allow:
        return any(matches(subject, pattern) for pattern in allow)
    return permissions.responses is None


def may_subscribe(permissions: Permissions, subject: str, queue: str | None) -> bool:
    """Inside one allow entry and, read as if it were a literal, not found among the denied."""
    subscribe = permissions.subscribe
    if subscribe is None:
        return True
    if _denied(subscribe.deny, subject, queue):
        return False
    if not subscribe.allow:
        return True
    pairs = [_split(entry) for entry in subscribe.allow]
    about_queue = [name for pattern, name in pairs if name and matches(subject, pattern)]
    named = queue is None or any(queue_inside(queue, name) for name in about_queue)
    if about_queue and not named:
        return False
    return inside_one(subscribe.allow, subject, queue)


def inside_one(allow: tuple[str, ...], subject: str, queue: str | None) -> bool:
    """Whether one entry that speaks of this subscription allows all it could receive."""
    return any(
        matched(subject) <= matched(pattern)
        for pattern, name in map(_split, allow)
        if name is None or (queue is not None and queue_inside(queue, name))
    )


def receives(permissions: Permissions, subject: str, queue: str | None) -> frozenset[str]:
    """The literals an accepted subscription is given."""
    deny = permissions.subscribe.deny if permissions.subscribe else ()
    return frozenset(literal for literal in matched(subject) if not _denied(deny, literal, queue))


def queue_inside(queue: str, entry: str | None) -> bool:
    """Whether a queue name is meant by the queue part of an entry."""
    return entry is not None and (queue == entry or matched(queue) <= matched(entry))


def _denied(deny: tuple[str, ...], subject: str, queue: str | None) -> bool:
    for pattern, name in map(_split, deny):
        if not matches(subject, pattern):
            continue
        if name is None or (queue is not None and queue_inside(queue, name)):
            return True
    return False


def _split(entry: str) -> tuple[str, str | None]:
    subject, _, queue = entry.partition(" ")
    return subject, queue or None
