"""What a user may publish and subscribe to, as plain values.

Made by the configuration, compiled by `broker.permissions`. Invariant: a value here has been
checked (every subject is valid), and never changes. No decision is taken in this file.
"""

from __future__ import annotations

from msgspec import Struct

RESPONSE_MSGS_DEFAULT = 1
RESPONSE_EXPIRES_NS_DEFAULT = 120_000_000_000


class SubjectPermission(Struct, frozen=True, kw_only=True):
    """One direction. Deny wins over allow; `allow=None` means everything not denied.

    In the subscribe direction an entry may be `"subject queue"`: it then speaks only of queue
    subscriptions whose queue name matches the second part.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ResponsePermission(Struct, frozen=True, kw_only=True):
    """Leave to publish to the reply subject of a delivered message; -1 lifts either bound."""

    max_msgs: int = RESPONSE_MSGS_DEFAULT
    expires_ns: int = RESPONSE_EXPIRES_NS_DEFAULT


class Permissions(Struct, frozen=True, kw_only=True):
    """Both directions; None means that direction is not restricted by the configuration."""

    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None
    responses: ResponsePermission | None = None
