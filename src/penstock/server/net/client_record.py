"""ClientRecord: a snapshot of one client, taken from a live session or kept after it ends.

A record holds plain values only. The server keeps thousands of records of closed connections, so
a record must not reference a link, a transport or a session. The record of a closed client keeps
the first CLOSED_SUBSCRIPTIONS_KEPT subscriptions and the true total. Callers: /connz and events.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.server.net.codecs.transport_facts import tls_of

if TYPE_CHECKING:
    from penstock.server.auth.login_values import Claimed
    from penstock.server.net.client_session import ClientSession

CLOSED_SUBSCRIPTIONS_KEPT: Final = 256

#: sid, subject, queue or None, messages delivered, maximum or 0
SubscriptionFacts = tuple[str, str, str | None, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord:
    """One client. Times are wall-clock nanoseconds; `stop_ns` 0: still connected."""

    cid: int
    kind: str
    ip: str
    port: int
    start_ns: int
    last_activity_ns: int
    rtt_ns: int
    pending_bytes: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    stalls: int
    num_subscriptions: int
    name: str
    lang: str
    version: str
    user: str
    account: str
    name_tag: str
    claimed: Claimed | None = None
    tls_version: str = ""
    tls_cipher_suite: str = ""
    stop_ns: int = 0
    reason: str = ""
    subscriptions: tuple[SubscriptionFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class Now:
    """One moment on both clocks: sessions keep wall-clock times, links monotonic ones."""

    wall_ns: int
    monotonic_ns: int

    @classmethod
    def read(cls) -> Now:
        return cls(time.time_ns(), time.monotonic_ns())

    def as_wall_ns(self, monotonic_ns: int) -> int:
        return self.wall_ns - self.monotonic_ns + monotonic_ns


def last_activity_ns(session: ClientSession, now: Now) -> int:
    """Return when the client last sent or was last sent something, as wall-clock time."""
    link = session.link
    return now.as_wall_ns(max(link.last_activity_ns, link.last_written_ns))


def record_of(session: ClientSession, now: Now, *, reason: str = "") -> ClientRecord:
    """Return the record of a session; with a reason, the record of its end."""
    link, options = session.link, session.options
    tls = tls_of(link.codec)
    kept: list[SubscriptionFacts] = []
    if reason:
        kept, _ = link.subscription_page(0, CLOSED_SUBSCRIPTIONS_KEPT)
    return ClientRecord(
        cid=session.cid,
        kind=session.kind,
        ip=session.ip,
        port=session.port,
        start_ns=session.start_ns,
        last_activity_ns=last_activity_ns(session, now),
        rtt_ns=session.rtt_ns,
        pending_bytes=link.pending_bytes,
        in_msgs=link.in_msgs,
        out_msgs=link.out_msgs,
        in_bytes=link.in_bytes,
        out_bytes=link.out_bytes,
        stalls=link.stalls,
        num_subscriptions=link.subscriptions,
        name=options.name,
        lang=options.lang,
        version=options.version,
        user=session.user,
        account=session.account.name,
        name_tag=session.account.name_tag,
        claimed=session.claimed,
        tls_version="" if tls is None else tls.version,
        tls_cipher_suite="" if tls is None else tls.cipher_suite,
        stop_ns=now.wall_ns if reason else 0,
        reason=reason,
        subscriptions=tuple(kept),
    )
