"""Operations: requests whose work grows with the number of stored messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.stalls.operation import (
    API,
    FILL_WINDOW,
    create_consumer,
    create_stream,
    fill,
    operation,
    update_stream,
    wait_until,
)
from benchmarks.stalls.site import encode, publish, requests

from penstock.bench.bench_error import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.stalls.site import Peer, Site

MESSAGES = 500_000
DONE_S = 30.0
TTL_S = 90.0
"""Time limit for storing 500,000 messages with a TTL."""


def distinct(i: int) -> str:
    return f"s.{i % 100}.{i}"


def thousand(i: int) -> str:
    return f"s.{i % 1000}"


def filled(site: Site, subject: Callable[[int], str], **config: object) -> Peer:
    peer = site.connect()
    create_stream(peer, "S", subjects=["s.>"], **config)
    fill(peer, "S", MESSAGES, subject)
    return peer


def one_request(
    site: Site, subject: Callable[[int], str], request: str, body: dict[str, object]
) -> Iterator[None]:
    with filled(site, subject) as peer:
        yield
        peer.must(f"{API}{request}", body)


@operation("purge 250,000 of 500,000 subjects by a filter")
def purge_filter(site: Site) -> Iterator[None]:
    with filled(site, lambda i: f"s.{i % 2}.{i}") as peer:
        yield
        peer.must(f"{API}STREAM.PURGE.S", {"filter": "s.1.*"})


@operation("purge 500,000 messages by a filter, keep 10 of each subject")
def purge_keep_each(site: Site) -> Iterator[None]:
    yield from one_request(site, thousand, "STREAM.PURGE.S", {"filter": "s.>", "keep": 10})


@operation("purge 500,000 messages, keep 10")
def purge_keep(site: Site) -> Iterator[None]:
    yield from one_request(site, thousand, "STREAM.PURGE.S", {"keep": 10})


@operation("purge up to a sequence, 500,000 messages")
def purge_sequence(site: Site) -> Iterator[None]:
    yield from one_request(site, distinct, "STREAM.PURGE.S", {"seq": MESSAGES - 10})


@operation("purge 500,000 messages")
def purge_all(site: Site) -> Iterator[None]:
    yield from one_request(site, distinct, "STREAM.PURGE.S", {})


@operation("STREAM.INFO with 500,000 subjects")
def info_subjects(site: Site) -> Iterator[None]:
    yield from one_request(site, distinct, "STREAM.INFO.S", {"subjects_filter": ">"})


@operation("STREAM.INFO with 100,000 deleted messages")
def info_deleted(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], max_msgs_per_subject=1)
        # A later message replaces every second one: single gaps, as far apart as possible.
        fill(peer, "S", 300_000, lambda i: f"s.{i}" if i < 200_000 else f"s.{2 * (i - 200_000)}")
        yield
        peer.must(f"{API}STREAM.INFO.S", {"deleted_details": True})


@operation("lower max_msgs from 500,000 to 1")
def lower_messages(site: Site) -> Iterator[None]:
    with filled(site, distinct) as peer:
        yield
        update_stream(peer, "S", subjects=["s.>"], max_msgs=1)
        wait_until(peer, "S", lambda state: state["messages"] <= 1, DONE_S)


@operation("lower max_msgs_per_subject to 1, 500,000 messages")
def lower_per_subject(site: Site) -> Iterator[None]:
    with filled(site, thousand) as peer:
        yield
        update_stream(peer, "S", subjects=["s.>"], max_msgs_per_subject=1)
        wait_until(peer, "S", lambda state: state["messages"] <= 1_000, DONE_S)


@operation("500,000 messages expire at once")
def expire(site: Site) -> Iterator[None]:
    with filled(site, distinct) as peer:
        yield
        update_stream(
            peer, "S", subjects=["s.>"], max_age=100_000_000, duplicate_window=100_000_000
        )
        wait_until(peer, "S", lambda state: state["messages"] == 0, DONE_S)


def fill_timed(peer: Peer, first_end: float) -> None:
    """Store messages whose TTLs all end in the same second, whatever time storing them takes."""
    reply, end = f"{peer.inbox}.f".encode(), int(first_end)
    for first in range(0, MESSAGES, FILL_WINDOW):
        seconds = max(1, round(end - time.time()))
        header = b"NATS/1.0\r\nNats-TTL: %d\r\n\r\n" % seconds
        wanted = peer.replies + FILL_WINDOW
        peer.send(
            b"".join(
                b"HPUB %b %b %d %d\r\n%bx\r\n"
                % (distinct(i).encode(), reply, len(header), len(header) + 1, header)
                for i in range(first, first + FILL_WINDOW)
            )
        )
        if not peer.wait_replies(wanted, DONE_S):
            raise BenchError("the stream was not filled in time")


def timed_wave(site: Site, **config: object) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], allow_msg_ttl=True, **config)
        fill_timed(peer, time.time() + TTL_S)
        yield
        wait_until(peer, "S", lambda state: state.get("num_deleted", 0) > 0, 2 * TTL_S)
        wait_until(peer, "S", lambda state: state["messages"] == 0, DONE_S)


@operation("500,000 TTLs end in the same second")
def timed(site: Site) -> Iterator[None]:
    yield from timed_wave(site)


@operation("one message rolls up 500,000")
def roll_up(site: Site) -> Iterator[None]:
    with filled(site, distinct, allow_rollup_hdrs=True) as peer:
        header = b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n"
        frame = b"HPUB s.1.1 %b.r %d %d\r\n%bx\r\n" % (
            peer.inbox.encode(),
            len(header),
            len(header) + 1,
            header,
        )
        yield
        peer.send(frame)
        peer.wait_replies(peer.replies + 1)


@operation("delete a stream of 500,000 messages")
def delete_stream(site: Site) -> Iterator[None]:
    with filled(site, distinct) as peer:
        yield
        peer.must(f"{API}STREAM.DELETE.S")


@operation("consumer of the last message of 500,000 subjects")
def last_per_subject(site: Site) -> Iterator[None]:
    with filled(site, distinct) as peer:
        yield
        create_consumer(
            peer,
            "S",
            "c",
            ack_policy="none",
            deliver_policy="last_per_subject",
            filter_subject="s.>",
        )


@operation("consumer with a filter that matches half of 500,000 subjects")
def filtered_consumer(site: Site) -> Iterator[None]:
    with filled(site, lambda i: f"s.{i % 2}.{i}") as peer:
        yield
        for i in range(5):
            create_consumer(peer, "S", f"c{i}", ack_policy="none", filter_subject="s.1.*")


@operation("delete the consumer that 500,000 messages wait for")
def delete_interest(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], retention="interest")
        create_consumer(peer, "S", "c", ack_policy="explicit")
        fill(peer, "S", MESSAGES, distinct)
        yield
        peer.must(f"{API}CONSUMER.DELETE.S.c")
        wait_until(peer, "S", lambda state: state["messages"] == 0, DONE_S)


@operation("one ack for 200,000 pending messages of a work queue")
def ack_all(site: Site) -> Iterator[None]:
    count = 200_000
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], retention="workqueue")
        create_consumer(peer, "S", "c", ack_policy="all", max_ack_pending=-1)
        fill(peer, "S", count, distinct)
        before = peer.replies
        body = {"batch": count, "expires": 60_000_000_000}
        peer.send(publish(f"{API}CONSUMER.MSG.NEXT.S.c", encode(body), f"{peer.inbox}.d"))
        peer.wait_replies(before + count)
        yield
        peer.send(publish(f"$JS.ACK.S.c.1.{count}.{count}.1.0", b"+ACK", f"{peer.inbox}.a"))
        wait_until(peer, "S", lambda state: state["messages"] == 0, DONE_S)


@operation("direct get of the last message of 100,000 subjects")
def direct_get(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"], allow_direct=True)
        fill(peer, "S", 100_000, distinct)
        yield
        body = {"multi_last": ["s.>"], "batch": 100_000}
        before = peer.replies
        peer.send(requests(peer, "$JS.API.DIRECT.GET.S", [body] * 10))
        peer.wait_replies(before + 10, DONE_S)


@operation("read 500,000 messages through an ordered push consumer")
def push(site: Site) -> Iterator[None]:
    with filled(site, distinct) as peer:
        yield
        before = peer.replies
        create_consumer(peer, "S", "c", ack_policy="none", deliver_subject=f"{peer.inbox}.d")
        peer.wait_replies(before + MESSAGES)


@operation("publish 500,000 messages into a stream")
def store(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["s.>"])
        yield
        fill(peer, "S", MESSAGES, distinct)


@operation("snapshot of 500,000 messages")
def snapshot(site: Site) -> Iterator[None]:
    with filled(site, distinct) as peer:
        yield
        deliver = f"{peer.inbox}.chunk"
        peer.must(f"{API}STREAM.SNAPSHOT.S", {"deliver_subject": deliver, "chunk_size": 65536})
        peer.wait_replies(peer.replies + 20, 5.0)
