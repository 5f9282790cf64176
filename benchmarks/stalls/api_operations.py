"""Operations: requests with long lists, and many requests at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.stalls.operation import API, create_consumer, create_stream, fill, operation
from benchmarks.stalls.site import publish, requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.stalls.site import Peer, Site

SOME, MANY = 4_000, 100_000
PIPELINE_BYTES = 128 * 1024
ANSWERED_S = 8.0
"""How long a pipeline of requests is observed; later replies are ignored."""


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}.{i}.a" for i in range(count)]


def consumer_with_filters(site: Site, count: int) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["f.>"])
        yield
        create_consumer(peer, "S", "c", ack_policy="explicit", filter_subjects=names("f", count))


@operation("create a consumer with 4,000 filters")
def some_filters(site: Site) -> Iterator[None]:
    yield from consumer_with_filters(site, SOME)


@operation("create a consumer with 100,000 filters")
def many_filters(site: Site) -> Iterator[None]:
    yield from consumer_with_filters(site, MANY)


@operation("deliver 20,000 messages through 4,000 wildcard filters")
def filtered_delivery(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["f.>"], storage="memory")
        fill(peer, "S", 20_000, lambda i: f"f.{i % SOME}.x.y")
        yield
        wanted = peer.replies + 20_000
        filters = [f"f.{i}.*.y" for i in range(SOME)]
        config = {"ack_policy": "none", "deliver_subject": f"{peer.inbox}.d"}
        create_consumer(peer, "S", "c", filter_subjects=filters, **config)
        peer.wait_replies(wanted, ANSWERED_S)


@operation("create a stream with 4,000 subjects")
def some_subjects(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        yield
        peer.ask(f"{API}STREAM.CREATE.S", {"name": "S", "subjects": names("s", SOME)})


@operation("create a stream with 100,000 subjects")
def many_subjects(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        yield
        peer.ask(f"{API}STREAM.CREATE.S", {"name": "S", "subjects": names("s", MANY)})


@operation("create a stream beside one with 100,000 subjects")
def many_neighbours(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        peer.ask(f"{API}STREAM.CREATE.S", {"name": "S", "subjects": names("s", MANY)})
        yield
        peer.ask(f"{API}STREAM.CREATE.T", {"name": "T", "subjects": names("t", MANY)})


@operation("create a stream with 4,000 sources")
def some_sources(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        yield
        sources = [{"name": f"O{i}"} for i in range(SOME)]
        peer.ask(f"{API}STREAM.CREATE.S", {"name": "S", "sources": sources})


@operation("create a stream with 4,000 transforms of a source")
def some_transforms(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "O", subjects=["o.>"])
        yield
        transforms = [{"src": f"o.{i}", "dest": f"p.{i}"} for i in range(SOME)]
        source = {"name": "O", "subject_transforms": transforms}
        peer.ask(f"{API}STREAM.CREATE.S", {"name": "S", "sources": [source]})


def pipelined(site: Site, subject: str, streams: int, consumers: int = 0) -> Iterator[None]:
    """Send as many requests as fit into 128 KiB at once."""
    with site.connect() as peer:
        for i in range(streams):
            create_stream(peer, f"S{i}", subjects=[f"s.{i}"], storage="memory")
        for i in range(consumers):
            create_consumer(peer, "S0", f"c{i}", ack_policy="explicit")
        count = PIPELINE_BYTES // len(publish(subject, b"", f"{peer.inbox}.0000"))
        yield
        before = peer.replies
        peer.send(requests(peer, subject, [None] * count))
        peer.wait_replies(before + count, ANSWERED_S)


@operation("128 KiB of STREAM.LIST, 1,000 streams")
def stream_lists(site: Site) -> Iterator[None]:
    yield from pipelined(site, f"{API}STREAM.LIST", 1_000)


@operation("128 KiB of STREAM.NAMES, 1,000 streams")
def stream_names(site: Site) -> Iterator[None]:
    yield from pipelined(site, f"{API}STREAM.NAMES", 1_000)


@operation("128 KiB of STREAM.INFO")
def stream_infos(site: Site) -> Iterator[None]:
    yield from pipelined(site, f"{API}STREAM.INFO.S0", 1)


@operation("128 KiB of CONSUMER.LIST, 1,000 consumers")
def consumer_lists(site: Site) -> Iterator[None]:
    yield from pipelined(site, f"{API}CONSUMER.LIST.S0", 1, 1_000)


@operation("128 KiB of requests whose replies are not read")
def unread_replies(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        for i in range(1_000):
            create_stream(peer, f"S{i}", subjects=[f"s.{i}"], storage="memory")
        request = publish(f"{API}STREAM.LIST", b"", "unread")
        yield
        peer.send(request * (PIPELINE_BYTES // len(request)))
        peer.ask(f"{API}STREAM.INFO.S0")


@operation("create 1,000 file streams at once")
def create_streams(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        yield
        before = peer.replies
        for i in range(1_000):
            body = {"name": f"S{i}", "subjects": [f"s.{i}"]}
            peer.send(requests(peer, f"{API}STREAM.CREATE.S{i}", [body]))
        peer.wait_replies(before + 1_000)


@operation("delete 1,000 file streams at once")
def delete_streams(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        for i in range(1_000):
            create_stream(peer, f"S{i}", subjects=[f"s.{i}"])
        yield
        before = peer.replies
        for i in range(1_000):
            peer.send(requests(peer, f"{API}STREAM.DELETE.S{i}", [None]))
        peer.wait_replies(before + 1_000)


def consumer_wave(peer: Peer, **config: object) -> None:
    """Create or change 2,000 consumers at once."""
    before = peer.replies
    for i in range(2_000):
        body = {"durable_name": f"c{i}", "ack_policy": "explicit", **config}
        request = {"stream_name": "S", "config": body}
        peer.send(requests(peer, f"{API}CONSUMER.DURABLE.CREATE.S.c{i}", [request]))
    peer.wait_replies(before + 2_000)


@operation("create 2,000 durable consumers at once")
def create_consumers(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"])
        yield
        consumer_wave(peer)


@operation("change 2,000 durable consumers at once")
def change_consumers(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"])
        consumer_wave(peer)
        yield
        consumer_wave(peer, description="changed")


@operation("delete 2,000 durable consumers at once")
def delete_consumers(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"])
        consumer_wave(peer)
        yield
        before = peer.replies
        for i in range(2_000):
            peer.send(requests(peer, f"{API}CONSUMER.DELETE.S.c{i}", [None]))
        peer.wait_replies(before + 2_000)


@operation("first deliveries of 2,000 durable consumers")
def first_deliveries(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"])
        fill(peer, "S", 1, lambda _: "s.a")
        consumer_wave(peer)
        yield
        before = peer.replies
        for i in range(2_000):
            peer.send(requests(peer, f"{API}CONSUMER.MSG.NEXT.S.c{i}", [{"batch": 1}]))
        peer.wait_replies(before + 2_000)
        peer.wait_replies(peer.replies + 1, 3.0)  # meanwhile the server writes the consumer states


@operation("50,000 pull requests at once")
def pull_requests(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"])
        create_consumer(peer, "S", "c", ack_policy="explicit")
        data = requests(peer, f"{API}CONSUMER.MSG.NEXT.S.c", [{"no_wait": True}] * 50_000)
        yield
        before = peer.replies
        peer.send(data)
        peer.wait_replies(before + 50_000, ANSWERED_S)


@operation("two streams whose consumers feed each other")
def feeding_streams(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        for one, other in (("A", "B"), ("B", "A")):
            create_stream(peer, one, subjects=[one.lower()], storage="memory", max_msgs=100_000)
            create_consumer(peer, one, "c", ack_policy="none", deliver_subject=other.lower())
        yield
        peer.send(publish("a", b"x") * 1_000)
        peer.wait_replies(peer.replies + 1, 3.0)  # no reply is expected; observe the loop only
