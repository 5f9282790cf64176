"""The source readers of one stream: its mirror, or its sources, as configured now.

Creates the readers, runs them when they are due, and closes those that the configuration no longer
names. A source starts only when its position is known. The position comes from the stored messages,
so finding it may need blocks that are not in memory. No IO: the runtime takes the subscriptions to
add and remove from `wires`; all other effects go to the lists of the stream host.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from penstock.api.shortcuts import Shortcut
from penstock.api.stream_config import STREAM_SHORTCUTS
from penstock.base.effects import Fetch
from penstock.jetstream.deadline_queue import DeadlineQueue
from penstock.jetstream.sources.source_reader import Listen, SourceReader
from penstock.jetstream.streams.source_progress import index_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.api.stream_config import StreamSource, StreamSourceInfo
    from penstock.base.message import Inbound
    from penstock.base.slices import Sliced
    from penstock.jetstream.environment import Environment
    from penstock.jetstream.host.stream_host import StreamHost

FEEDS_PER_TICK: Final = 32
"""Source readers that one tick runs before other work is served."""
READERS_PER_SLICE: Final = 128
"""Source readers that are created before other work is served."""


class StreamSources:
    """All source readers of one stream."""

    def __init__(self, host: StreamHost, environment: Environment) -> None:
        self._host = host
        self._environment = environment
        self._mirror: SourceReader | None = None
        self._sources: dict[str, SourceReader] = {}
        self._prepared: dict[str, SourceReader] = {}
        """Readers of sources that `follow` will add."""
        self._unplaced: list[SourceReader] = []
        """Sources whose position is not known yet."""
        self._deadline_queue: DeadlineQueue[SourceReader] = DeadlineQueue()
        self.wires: list[Listen] = []

    def _feeds(self) -> Iterable[SourceReader]:
        return self._sources.values() if self._mirror is None else (self._mirror,)

    @property
    def origins(self) -> frozenset[str]:
        """Return the names of the origin streams, on this server or elsewhere."""
        return frozenset(feed.source.name for feed in self._feeds())

    @property
    def is_caught_up(self) -> bool:
        """Return whether this mirror may serve reads for its origin."""
        return self._mirror is not None and self._mirror.is_caught_up

    # -- the configuration

    def prepare(self, sources: tuple[StreamSource, ...]) -> Sliced[None]:
        """Create the readers of new sources in slices; the next `follow` starts them."""
        for at, source in enumerate(sources, 1):
            name = index_name(source)
            if name not in self._sources:
                self._prepared[name] = self._make(source, is_mirror=False)
            if at % READERS_PER_SLICE == 0:
                yield

    def follow(self, now_ns: int) -> None:
        """Create and close readers to match the stream's current configuration."""
        cfg = self._host.stream.cfg
        if self._mirror is not None and cfg.mirror is None:
            self._drop(self._mirror)
            self._mirror = None
        elif self._mirror is None and cfg.mirror is not None:
            self._mirror = self._make(cfg.mirror, is_mirror=True)
            self._mirror.start(now_ns)
            self._note(self._mirror)
        self._follow_sources({index_name(source): source for source in cfg.sources})
        may_copy = STREAM_SHORTCUTS.allow(cfg, Shortcut.COPY)
        for feed in self._feeds():
            feed.configured(may_copy=may_copy)
        self._place(now_ns)

    def _follow_sources(self, wanted: dict[str, StreamSource]) -> None:
        for name in self._sources.keys() - wanted.keys():
            self._drop(self._sources.pop(name))
        feeds = {}
        named = Counter(source.name for source in self._host.stream.cfg.sources)
        for name, source in wanted.items():
            feed = self._sources.get(name)
            if feed is None:
                feed = self._prepared.get(name) or self._make(source, is_mirror=False)
                self._unplaced.append(feed)
            feed.source = source
            feed.has_siblings = named[source.name] > 1
            feeds[name] = feed
        self._sources = feeds
        self._prepared.clear()

    def _make(self, source: StreamSource, *, is_mirror: bool) -> SourceReader:
        return SourceReader(self._host, source, self._environment, self.wires, is_mirror=is_mirror)

    def _drop(self, feed: SourceReader) -> None:
        self._deadline_queue.forget(feed)
        if feed in self._unplaced:
            self._unplaced.remove(feed)
        feed.close()

    def _place(self, now_ns: int) -> None:
        """Start the waiting sources if their positions can be read; else request the missing
        block."""
        if not self._unplaced:
            return
        cold = self._host.stream.recover(now_ns)
        if cold is not None:
            self._host.send((Fetch(cold),))
            return
        unplaced, self._unplaced = self._unplaced, []
        for feed in unplaced:
            feed.start(now_ns)
            self._deadline_queue.note(feed, feed.due_ns)
        self._host.note(self)

    def close(self) -> None:
        """Close all readers: the stream is deleted."""
        for feed in self._feeds():
            self._deadline_queue.forget(feed)
            feed.close()
        self._mirror, self._sources, self._prepared, self._unplaced = None, {}, {}, []

    # -- turns

    def next_deadline_ns(self) -> int | None:
        return self._deadline_queue.next_ns

    def tick(self, now_ns: int) -> None:
        """Run the readers that are due, at most FEEDS_PER_TICK; the rest stay due now."""
        for feed in self._deadline_queue.due(now_ns, at_most=FEEDS_PER_TICK):
            feed.tick(now_ns)
            self._deadline_queue.note(feed, feed.due_ns)
        self._host.note(self)

    def collect_results(self) -> None:
        """Record what the readers' lanes have stored."""
        for feed in self._feeds():
            feed.collect_results()

    def receive(self, wire: Listen, msg: Inbound, now_ns: int) -> None:
        """Pass a message to the reader of this subscription, unless the reader no longer listens
        there."""
        feed, due_ns = wire.feed, wire.feed.due_ns
        if wire.take is None or not feed.hears(wire.subject):
            return
        wire.take(msg, now_ns)
        if feed.due_ns != due_ns:
            self._note(feed)

    def resume(self, now_ns: int) -> None:
        """Continue after a block of the stream was read."""
        self._place(now_ns)
        for feed in self._feeds():
            feed.resume(now_ns)
            self._note(feed)

    def origin_created(self, name: str, now_ns: int) -> None:
        """A local stream of this name now exists: its readers retry at once."""
        for feed in self._reading(name):
            feed.hurry(now_ns)
            self._note(feed)

    def origin_deleted(self, name: str, now_ns: int) -> None:
        """The local stream of this name was deleted: its readers do not wait for a timeout."""
        for feed in self._reading(name):
            feed.lost(now_ns)
            self._note(feed)

    def _reading(self, name: str) -> list[SourceReader]:
        """Return the readers whose origin is the local stream of this name."""
        return [
            feed
            for feed in self._feeds()
            if feed.source.name == name and feed.source.external is None
        ]

    def _note(self, feed: SourceReader) -> None:
        self._deadline_queue.note(feed, feed.due_ns)
        self._host.note(self)

    # -- info

    def take_wires(self) -> list[Listen]:
        """Return the subscriptions to add and remove since the last call."""
        wires = self.wires[:]
        self.wires.clear()
        return wires

    def mirror_info(self, now_ns: int) -> StreamSourceInfo | None:
        """Return the state of the mirror, or None."""
        return None if self._mirror is None else self._mirror.info(now_ns)

    def source_infos(self, now_ns: int) -> tuple[StreamSourceInfo, ...]:
        """Return the state of each source, in the order of the configuration."""
        return tuple(feed.info(now_ns) for feed in self._sources.values())
