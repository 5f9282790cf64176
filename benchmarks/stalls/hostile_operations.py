"""Operations: long lists in every request that takes one, and waves of deadlines and interest."""

from __future__ import annotations

import contextlib
import datetime
import json
from typing import TYPE_CHECKING

from benchmarks.stalls.operation import (
    API,
    create_consumer,
    create_stream,
    fill,
    operation,
    update_stream,
    wait_until,
)
from benchmarks.stalls.site import publish, requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.stalls.site import Peer, Site

SOME, MOST, MANY = 4_000, 10_000, 100_000
"""MOST is the number of subjects and sources that our server accepts for a stream."""
MS, SECOND = 1_000_000, 1_000_000_000
PIPELINE_BYTES = 128 * 1024
ANSWERED_S = 60.0
QUIET_S = 6.0


def origins(count: int) -> list[dict[str, str]]:
    return [{"name": f"O{i}"} for i in range(count)]


def pipeline(peer: Peer, subject: str, body: dict[str, object] | None = None) -> None:
    """Send as many requests as fit into 128 KiB and wait for the replies."""
    frame = len(publish(subject, json.dumps(body or {}).encode(), f"{peer.inbox}.0000"))
    count = max(1, PIPELINE_BYTES // frame)
    before = peer.replies
    peer.send(requests(peer, subject, [body] * count))
    peer.wait_replies(before + count, ANSWERED_S)


@operation("create a stream with 100,000 sources")
def many_sources(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        yield
        peer.ask(f"{API}STREAM.CREATE.S", {"name": "S", "sources": origins(MANY)})


@operation("update and delete a stream with 4,000 sources")
def update_sources(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", sources=origins(SOME))
        yield
        for count in (SOME - 1, SOME):
            update_stream(peer, "S", sources=origins(count))
        peer.ask(f"{API}STREAM.INFO.S")
        peer.must(f"{API}STREAM.DELETE.S")


@operation("create a stream with 10,000 sources")
def most_sources(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        yield
        peer.ask(f"{API}STREAM.CREATE.S", {"name": "S", "sources": origins(MOST)})


@operation("create a stream with 100,000 transforms of a source")
def many_transforms(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "O", subjects=["o.>"])
        yield
        transforms = [{"src": f"o.{i}", "dest": f"p.{i}"} for i in range(MANY)]
        source = {"name": "O", "subject_transforms": transforms}
        peer.ask(f"{API}STREAM.CREATE.S", {"name": "S", "sources": [source]})


@operation("copy 20,000 messages through 4,000 transforms of a source")
def transformed_copies(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "O", subjects=["o.>"], storage="memory")
        fill(peer, "O", 20_000, lambda i: f"o.{i % SOME}.x")
        yield
        transforms = [
            {"src": f"o.{i}.*", "dest": f"p.{i}.{{{{wildcard(1)}}}}"} for i in range(SOME)
        ]
        source = {"name": "O", "subject_transforms": transforms}
        create_stream(peer, "S", sources=[source], storage="memory")
        wait_until(peer, "S", lambda state: state["messages"] >= 20_000, ANSWERED_S)


@operation("STREAM.INFO and STREAM.LIST with 10,000 subjects in the configuration")
def info_of_subjects(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        peer.must(
            f"{API}STREAM.CREATE.S", {"name": "S", "subjects": [f"s.{i}" for i in range(MOST)]}
        )
        yield
        for _ in range(5):
            peer.ask(f"{API}STREAM.INFO.S")
            peer.ask(f"{API}STREAM.LIST")


@operation("create, update and delete a stream with 10,000 subjects")
def update_subjects(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        subjects = [f"s.{i}" for i in range(MOST)]
        yield
        peer.must(f"{API}STREAM.CREATE.S", {"name": "S", "subjects": subjects})
        peer.ask(f"{API}STREAM.UPDATE.S", {"name": "S", "subjects": [*subjects[1:], "s.x"]})
        peer.ask(f"{API}STREAM.DELETE.S")


@operation("info, change, reset and delete a consumer with 100,000 filters")
def change_filters(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["f.>"])
        fill(peer, "S", 10_000, lambda i: f"f.{i}.a")
        filters = [f"f.{i}.a" for i in range(MANY)]
        create_consumer(peer, "S", "c", ack_policy="explicit", filter_subjects=filters)
        yield
        peer.ask(f"{API}CONSUMER.INFO.S.c")
        peer.ask(f"{API}CONSUMER.LIST.S")
        create_consumer(peer, "S", "c", ack_policy="explicit", filter_subjects=filters[:-1])
        peer.ask(f"{API}CONSUMER.RESET.S.c", {"seq": 1})
        peer.ask(f"{API}CONSUMER.PAUSE.S.c", {"pause_until": "2100-01-01T00:00:00Z"})
        peer.ask(f"{API}CONSUMER.DELETE.S.c")


@operation("200 consumers with wildcard filters over 100,000 subjects")
def wildcard_consumers(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], storage="memory")
        fill(peer, "S", MANY, lambda i: f"s.{i}.{i % 7}")
        yield
        before = peer.replies
        for i in range(200):
            body = {"durable_name": f"c{i}", "ack_policy": "explicit", "filter_subject": "s.*.3"}
            request = {"stream_name": "S", "config": body}
            peer.send(requests(peer, f"{API}CONSUMER.DURABLE.CREATE.S.c{i}", [request]))
        peer.wait_replies(before + 200, ANSWERED_S)


@operation("pulls of 1,000 consumers whose filter matches none of 100,000 messages")
def empty_filters(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], storage="memory")
        fill(peer, "S", MANY, lambda i: f"s.{i}.x")
        for i in range(1_000):
            create_consumer(peer, "S", f"c{i}", ack_policy="none", filter_subject=f"s.*.y{i}")
        yield
        before = peer.replies
        for i in range(1_000):
            peer.send(requests(peer, f"{API}CONSUMER.MSG.NEXT.S.c{i}", [{"no_wait": True}]))
        peer.wait_replies(before + 1_000, ANSWERED_S)


@operation("100,000 deliveries reach their ack wait at once")
def ack_waits(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s"], storage="memory")
        fill(peer, "S", MANY, lambda _: "s")
        create_consumer(
            peer, "S", "c", ack_policy="explicit", max_ack_pending=-1, ack_wait=4 * SECOND
        )
        before = peer.replies
        peer.send(requests(peer, f"{API}CONSUMER.MSG.NEXT.S.c", [{"batch": MANY}]))
        peer.wait_replies(before + MANY)
        yield
        peer.wait_replies(peer.replies + 1, 8.0)


@operation("20,000 waiting pull requests expire at once")
def expiring_pulls(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s"], storage="memory")
        create_consumer(peer, "S", "c", ack_policy="explicit", max_waiting=20_000)
        body = {"batch": 1, "expires": 5 * SECOND, "idle_heartbeat": SECOND}
        before = peer.replies
        peer.send(requests(peer, f"{API}CONSUMER.MSG.NEXT.S.c", [body] * 20_000))
        peer.sync()
        yield
        peer.wait_replies(before + 120_000, 8.0)


@operation("5,000 push consumers to one subject whose subscriber comes and goes")
def flapping(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s"], storage="memory")
        for i in range(5_000):
            create_consumer(peer, "S", f"c{i}", ack_policy="none", deliver_subject="d")
        yield
        for _ in range(20):
            peer.send(b"SUB d 9\r\nPING\r\nUNSUB 9\r\n")
            peer.sync()


@operation("5,000 ephemeral consumers become inactive at once")
def inactive(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s"])
        before = peer.replies
        for _ in range(5_000):
            config = {"ack_policy": "explicit", "inactive_threshold": 10 * SECOND}
            request = {"stream_name": "S", "config": config}
            peer.send(requests(peer, f"{API}CONSUMER.CREATE.S", [request]))
        peer.wait_replies(before + 5_000, ANSWERED_S)
        yield
        wait_until(peer, "S", lambda state: state["consumer_count"] == 0, ANSWERED_S)


@operation("publish 10,000 messages into a stream with 2,000 waiting consumers")
def many_waiting(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s"], storage="memory")
        for i in range(2_000):
            create_consumer(peer, "S", f"c{i}", ack_policy="none")
            peer.send(
                requests(
                    peer, f"{API}CONSUMER.MSG.NEXT.S.c{i}", [{"batch": 10, "expires": 60 * SECOND}]
                )
            )
        peer.sync()
        yield
        fill(peer, "S", 10_000, lambda _: "s")


@operation("delete a stream with 5,000 consumers")
def delete_with_consumers(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s"])
        before = peer.replies
        for i in range(5_000):
            body = {"durable_name": f"c{i}", "ack_policy": "explicit"}
            request = {"stream_name": "S", "config": body}
            peer.send(requests(peer, f"{API}CONSUMER.DURABLE.CREATE.S.c{i}", [request]))
        peer.wait_replies(before + 5_000, ANSWERED_S)
        yield
        peer.must(f"{API}STREAM.DELETE.S")


@operation("300,000 subscriptions of one queue group, 1,000 messages")
def queue_group(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        peer.send(b"".join(b"SUB q g %d\r\n" % i for i in range(10, 300_010)))
        peer.sync()
        yield
        peer.send(publish("q", b"x") * 1_000)
        peer.sync()
        peer.send(b"UNSUB 10\r\nSUB q g 10\r\n" * 1_000)
        peer.sync()


@operation("100,000 message ids leave the duplicate window at once")
def duplicates(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(
            peer, "S", subjects=["s"], storage="memory", duplicate_window=3 * SECOND, max_msgs=1
        )
        reply = f"{peer.inbox}.f".encode()
        yield
        for first in range(0, MANY, 2_000):
            wanted = peer.replies + 2_000
            frames = []
            for i in range(first, first + 2_000):
                header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % i
                frames.append(b"HPUB s %b %d %d\r\n%b\r\n" % (reply, *[len(header)] * 2, header))
            peer.send(b"".join(frames))
            peer.wait_replies(wanted)
        peer.wait_replies(peer.replies + 1, QUIET_S)
        fill(peer, "S", 1, lambda _: "s")


@operation("128 KiB of purges with a filter, 100,000 subjects")
def purges(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], storage="memory")
        fill(peer, "S", MANY, lambda i: f"s.{i}.x")
        yield
        pipeline(peer, f"{API}STREAM.PURGE.S", {"filter": "s.*.y"})


@operation("128 KiB of STREAM.INFO with subjects_filter, 100,000 subjects")
def subject_infos(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], storage="memory")
        fill(peer, "S", MANY, lambda i: f"s.{i}.x")
        yield
        pipeline(peer, f"{API}STREAM.INFO.S", {"subjects_filter": "s.*.y"})


@operation("128 KiB of direct gets of the next or last message of a wildcard")
def wildcard_gets(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], storage="memory", allow_direct=True)
        fill(peer, "S", MANY, lambda i: f"s.{i}.x")
        yield
        pipeline(peer, f"{API}DIRECT.GET.S", {"seq": 1, "next_by_subj": "s.*.y"})
        pipeline(peer, f"{API}STREAM.MSG.GET.S", {"last_by_subj": "s.*.y"})


@operation("direct get of 1,000 subjects that match none of 100,000 messages")
def multi_last(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], storage="memory", allow_direct=True)
        fill(peer, "S", MANY, lambda i: f"s.{i}.x")
        yield
        body = {"multi_last": [f"s.*.y{i}" for i in range(1_000)], "batch": 10}
        before = peer.replies
        peer.send(requests(peer, f"{API}DIRECT.GET.S", [body] * 5))
        peer.wait_replies(before + 5, ANSWERED_S)


@operation("20,000 scheduled messages are due in the same second")
def schedules(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(
            peer, "S", subjects=["s.>", "t.>"], storage="memory", allow_msg_schedules=True
        )
        reply = f"{peer.inbox}.f".encode()
        at = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=15)).isoformat()
        for first in range(0, 20_000, 1_000):
            wanted = peer.replies + 1_000
            frames = []
            for i in range(first, first + 1_000):
                header = (
                    f"NATS/1.0\r\nNats-Schedule: @at {at[:19]}Z\r\n"
                    f"Nats-Schedule-Target: t.{i}\r\n\r\n"
                ).encode()
                size = len(header)
                frames.append(b"HPUB s.%d %b %d %d\r\n%bx\r\n" % (i, reply, size, size + 1, header))
            peer.send(b"".join(frames))
            peer.wait_replies(wanted)
        yield
        wait_until(peer, "S", lambda state: state["last_seq"] >= 40_000, 30.0)


@operation("1,000 messages with headers of 64 KiB, 8,000 lines, into a stream")
def long_headers(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s"], storage="memory", max_msgs=10)
        header = b"NATS/1.0\r\n" + b"a:b\r\n" * 8_000 + b"\r\n"
        frame = b"HPUB s %b.f %d %d\r\n%b\r\n" % (peer.inbox.encode(), *[len(header)] * 2, header)
        yield
        before = peer.replies
        for _ in range(10):
            peer.send(frame * 100)
        peer.wait_replies(before + 1_000)


@operation("1,000 streams that copy one origin, 1,000 messages")
def wide_copies(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "O", subjects=["o"], storage="memory")
        for i in range(1_000):
            create_stream(peer, f"S{i}", sources=[{"name": "O"}], storage="memory")
        yield
        fill(peer, "O", 1_000, lambda _: "o")
        wait_until(peer, "S999", lambda state: state["messages"] >= 1_000, ANSWERED_S)


@operation("a stream interests 2,000 consumers that all ack 1,000 messages")
def wide_interest(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s"], storage="memory", retention="interest")
        for i in range(2_000):
            create_consumer(peer, "S", f"c{i}", ack_policy="explicit")
        fill(peer, "S", 1_000, lambda _: "s")
        yield
        for i in range(0, 2_000, 10):
            create_consumer(peer, "S", f"d{i}", ack_policy="explicit")
            peer.ask(f"{API}CONSUMER.DELETE.S.c{i}")
        peer.must(f"{API}STREAM.PURGE.S")


@operation("monitoring: /metrics, /jsz and /healthz with 2,000 streams")
def pages(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        for i in range(2_000):
            create_stream(peer, f"S{i}", subjects=[f"s.{i}"], storage="memory")
        yield
        for path in (
            "/metrics",
            "/jsz?acc=BUSY&streams=1",
            "/healthz",
            "/accountz?acc=BUSY",
            "/varz",
            "/accstatz",
        ):
            with contextlib.suppress(OSError):
                site.page(path)


@operation("publishes that visit 65,536 branches of the subscriptions each")
def branching(site: Site) -> Iterator[None]:
    levels = 16
    with site.connect() as peer:
        frames = []
        for i in range(1 << levels):
            tokens = ["*" if i >> level & 1 else "a" for level in range(levels)]
            frames.append(b"SUB %b.end %d\r\n" % (".".join(tokens).encode(), i + 10))
        peer.send(b"".join(frames))
        peer.sync()
        prefix = ".".join("a" * levels)
        yield
        peer.send(b"".join(publish(f"{prefix}.x{i}") for i in range(3_000)))
        peer.sync(ANSWERED_S)
