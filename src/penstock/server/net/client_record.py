"""What is known of one client, as a value: taken from a live session, or kept when it ends.

A record holds plain values only. Thousands are kept after their connections have gone, so none
may hold on to a link, a transport or a session; and of a client with very many subscriptions
only the first are kept, with their true number.
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
    """One client. Times are of the wall clock; `stop_ns` 0: it is still there."""

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
    """One moment on both clocks: sessions keep wall times, links monotonic ones."""

    wall_ns: int
    monotonic_ns: int

    @classmethod
    def read(cls) -> Now:
        return cls(time.time_ns(), time.monotonic_ns())

    def as_wall_ns(self, monotonic_ns: int) -> int:
        return self.wall_ns - self.monotonic_ns + monotonic_ns


def last_activity_ns(session: ClientSession, now: Now) -> int:
    """When the client last said something, or was last sent something."""
    link = session.link
    return now.as_wall_ns(max(link.last_activity_ns, link.last_written_ns))


def record_of(session: ClientSession, now: Now, *, reason: str = "") -> ClientRecord:
    """What is known of a session now; with a reason, the record of its end."""
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
