"""What a user may publish and subscribe to, as plain values.

The configuration creates them; `broker.permissions` compiles them. Invariant: every value has been
checked (every subject is valid) and never changes. This module makes no decisions.
"""

from __future__ import annotations

from msgspec import Struct

RESPONSE_MSGS_DEFAULT = 1
RESPONSE_EXPIRES_NS_DEFAULT = 120_000_000_000


class SubjectPermission(Struct, frozen=True, kw_only=True):
    """One direction. Deny wins over allow; `allow=None` means everything not denied.

    In the subscribe direction an entry may be `"subject queue"`: it then applies only to queue
    subscriptions whose queue name matches the second part.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ResponsePermission(Struct, frozen=True, kw_only=True):
    """Permission to publish to the reply subject of a received message; -1 removes either limit."""

    max_msgs: int = RESPONSE_MSGS_DEFAULT
    expires_ns: int = RESPONSE_EXPIRES_NS_DEFAULT


class Permissions(Struct, frozen=True, kw_only=True):
    """Both directions; None means that the configuration does not restrict that direction."""

    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None
    responses: ResponsePermission | None = None
