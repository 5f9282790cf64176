"""The subscriptions of mirrors and sources in one account.

Source readers request subscriptions; this module creates them and passes on the messages. A mirror
that has caught up also serves direct gets for its origin, so it is registered here under the
origin's name. Makes no other decisions. `AccountRuntime` calls `follow` and `drop` as streams come
and go; the stream driver calls `tune`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.rules.source_rules import copies_of
from penstock.base.message import Inbound
from penstock.broker.router import LaneListener
from penstock.jetstream.sources.stream_sources import StreamSources
from penstock.subjects.trie import Subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.api.stream_config import StreamConfig
    from penstock.base.slices import Sliced
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.jetstream.sources.source_reader import Listen
    from penstock.server.jetstream.account_runtime import AccountRuntime
    from penstock.server.net.client_link import ClientLink
    from penstock.server.system.account_imports import Shadow


class WireListener(LaneListener):
    """Passes the messages of one subscription to its source reader."""

    def __init__(
        self,
        account: AccountRuntime,
        wire: Listen,
        stream_sources: StreamSources,
        host: StreamHost,
    ) -> None:
        self._account = account
        self._wire = wire
        self._stream_sources = stream_sources
        self._host = host

    def received(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        """Take a message that the source lane left."""
        msg = Inbound(subject, reply, header, payload)
        self._stream_sources.receive(self._wire, msg, self._account.runtime.now_ns())
        self._account.mark(self._host)

    def lane_changed(self) -> None:
        """Schedule a run of the stream that copies."""
        self._account.mark(self._host)


class SourceSubscriptions:
    """The mirrors and sources of one account."""

    def __init__(self, account: AccountRuntime) -> None:
        self._account = account
        self._interest = account.interest
        self._subscriptions: dict[str, Subscription] = {}
        self._shadows: dict[str, Shadow] = {}
        """One per subscription: origins may be in other accounts."""
        self._copies: dict[str, list[StreamHost]] = {}
        """The streams that copy from an origin, by the origin's name."""
        self._turn = 0

    def prepare(self, host: StreamHost, cfg: StreamConfig) -> Sliced[None]:
        """Create the source readers of a configuration that `follow` will register, in slices."""
        if host.stream_sources is None and copies_of(cfg):
            host.attach_sources(StreamSources(host, self._account.assets.environment))
        if host.stream_sources is not None:
            yield from host.stream_sources.prepare(cfg.sources)

    def follow(self, host: StreamHost) -> None:
        """Register a new stream, or one with a new configuration."""
        now_ns = self._account.runtime.now_ns()
        self._forget(host)
        if host.stream_sources is None and copies_of(host.stream.cfg):
            host.attach_sources(StreamSources(host, self._account.assets.environment))
        if host.stream_sources is not None:
            host.stream_sources.follow(now_ns)
            for name in host.stream_sources.origins:
                self._copies.setdefault(name, []).append(host)
        for copy, stream_sources in self._copies_of(host):
            stream_sources.origin_created(host.name, now_ns)
            self._account.mark(copy)

    def drop(self, host: StreamHost) -> None:
        """Unregister a deleted stream."""
        self._forget(host)
        if host.stream_sources is not None:
            host.stream_sources.close()
            self.tune(host.stream_sources.take_wires(), host)
            host.attach_sources(None)
        for copy, stream_sources in self._copies_of(host):
            stream_sources.origin_deleted(host.name, self._account.runtime.now_ns())
            self._account.mark(copy)

    def _copies_of(self, host: StreamHost) -> list[tuple[StreamHost, StreamSources]]:
        copies = self._copies.get(host.name, ())
        return [(copy, copy.stream_sources) for copy in copies if copy.stream_sources is not None]

    def _forget(self, host: StreamHost) -> None:
        for name in () if host.stream_sources is None else host.stream_sources.origins:
            copies = self._copies.get(name, [])
            if host in copies:
                copies.remove(host)
            if not copies:
                self._copies.pop(name, None)

    def tune(self, wires: Sequence[Listen], host: StreamHost) -> None:
        """Create and remove subscriptions as the source readers requested."""
        for wire in wires:
            self._hang_up(wire.subject)
            if wire.take is not None and host.stream_sources is not None:
                self._subscriptions[wire.subject] = self._listen(wire, host.stream_sources, host)

    def _listen(
        self, wire: Listen, stream_sources: StreamSources, host: StreamHost
    ) -> Subscription:
        listener = WireListener(self._account, wire, stream_sources, host)
        lane = wire.feed.make_lane(wire.subject, listener)
        subscription = Subscription(wire.subject, value=lane or listener.received)
        self._interest.insert(subscription, call=True, lane=lane is not None)
        account_imports = self._account.runtime.service.account_imports
        self._shadows[wire.subject] = account_imports.shadow(
            self._account.name, wire.subject, None, listener.received
        )
        return subscription

    def _hang_up(self, subject: str) -> None:
        old = self._subscriptions.pop(subject, None)
        if old is not None:
            self._interest.remove(old)
            self._account.runtime.service.account_imports.drop(self._shadows.pop(subject))

    def reader_of(self, name: str) -> StreamHost | None:
        """Return the stream that serves a direct get: the named one, or in rotation a mirror."""
        host = self._account.assets.hosts.get(name)
        able = [] if host is None or not host.stream.cfg.allow_direct else [host]
        able += [copy for copy in self._copies.get(name, ()) if _stands_in(copy)]
        if len(able) > 1:
            self._turn += 1
        return able[self._turn % len(able)] if able else None

    def may_stand_in(self, name: str) -> bool:
        """Whether a mirror may serve direct gets for this stream, now or once it has caught up."""
        return any(copy.stream.cfg.mirror_direct for copy in self._copies.get(name, ()))


def _stands_in(copy: StreamHost) -> bool:
    stream_sources = copy.stream_sources
    return (
        copy.stream.cfg.mirror_direct and stream_sources is not None and stream_sources.is_caught_up
    )
