"""The bulk publisher on both servers: stored once and in order, refusals named, losses repaired."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import nats
import pytest

from penstock.bulk.blocking_publisher import BlockingPublisher
from penstock.bulk.bulk_connection import ConnectSettings
from penstock.bulk.bulk_publisher import Publisher
from penstock.bulk.errors import AccessDenied, NotPermitted, ReplyTimeout
from penstock.bulk.login import split_urls
from penstock.bulk.publish_frames import RowError, Values, encode
from support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.js import JetStreamContext

    from support.bulk import Made
    from support.servers import ServerUnderTest, Starter

NO_RESPONDERS = 503
MESSAGE_TOO_LARGE = 10054
STORE_FLAGS = ("-js", "-sd", "store")


def column(values: list[str]) -> Values:
    run = [value.encode() for value in values]
    offsets = [0]
    for value in run:
        offsets.append(offsets[-1] + len(value))
    return Values(len(run), struct.pack(f"={len(offsets)}i", *offsets), b"".join(run))


def dialling(url: str) -> ConnectSettings:
    addresses, credentials = split_urls(url)
    return ConnectSettings(addresses, credentials)


async def stored(jetstream: JetStreamContext, stream: str) -> list[bytes]:
    state = (await jetstream.stream_info(stream)).state
    return [
        (await jetstream.get_msg(stream, seq)).data
        for seq in range(state.first_seq, state.last_seq + 1)
    ]


async def in_thread(work: Callable[[], None]) -> None:
    await asyncio.to_thread(work)


async def test_rows_are_stored_in_their_order(
    server: ServerUnderTest, stream: Made, jetstream: JetStreamContext
) -> None:
    rows = [f"{row}" for row in range(300)]

    def work() -> None:
        with BlockingPublisher(Publisher(dialling(server.url), stream=stream.name)) as publisher:
            subjects = Values.one(f"{stream.name}.a".encode(), 100)
            for start in (0, 100, 200):
                assert publisher.publish(subjects, column(rows[start : start + 100])) == start
            publisher.drain()
            assert publisher.take_refused() == []

    await in_thread(work)
    assert await stored(jetstream, stream.name) == [row.encode() for row in rows]


async def test_known_message_id_is_stored_once_and_counted(
    server: ServerUnderTest, stream: Made, jetstream: JetStreamContext
) -> None:
    def work() -> None:
        made = Publisher(dialling(server.url), stream=stream.name, lists_stored=True)
        with BlockingPublisher(made) as publisher:
            for _ in range(2):
                publisher.publish(
                    Values.one(f"{stream.name}.a".encode(), 3),
                    column(["a", "b", "c"]),
                    ids=column(["1", "2", "3"]),
                )
            publisher.drain()
            assert publisher.duplicates == 3
            found = publisher.take_repeats()
            assert [(one.number, one.seq) for one in found] == [(3, 1), (4, 2), (5, 3)]
            assert publisher.take_repeats() == []
            assert publisher.take_stored() == [(1, 3)]
            assert publisher.take_stored() == []

    await in_thread(work)
    assert len(await stored(jetstream, stream.name)) == 3


async def test_refusal_names_its_row_and_the_others_are_stored(
    server: ServerUnderTest, jetstream: JetStreamContext
) -> None:
    await jetstream.add_stream(name="SMALL", subjects=["small.>"], max_msg_size=10)

    def work() -> None:
        with BlockingPublisher(Publisher(dialling(server.url), stream="SMALL")) as publisher:
            publisher.publish(Values.one(b"small.a", 3), column(["one", "x" * 11, "three"]))
            publisher.drain()
            (refusal,) = publisher.take_refused()
            assert (refusal.number, refusal.err_code) == (1, MESSAGE_TOO_LARGE)

    await in_thread(work)
    assert await stored(jetstream, "SMALL") == [b"one", b"three"]
    await jetstream.delete_stream("SMALL")


async def test_subject_without_stream_is_refused_after_retries(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.bulk.bulk_publisher.PAUSE_SECONDS", 0.001)

    def work() -> None:
        with BlockingPublisher(Publisher(dialling(server.url))) as publisher:
            publisher.publish(Values.one(b"nobody.here", 1), column(["x"]))
            publisher.drain()
            assert [one.code for one in publisher.take_refused()] == [NO_RESPONDERS]

    await in_thread(work)


async def test_subject_of_another_stream_is_refusal(server: ServerUnderTest, stream: Made) -> None:
    def work() -> None:
        with BlockingPublisher(Publisher(dialling(server.url), stream="MEANT")) as publisher:
            publisher.publish(Values.one(f"{stream.name}.a".encode(), 1), column(["x"]))
            publisher.drain()
            (refusal,) = publisher.take_refused()
            assert stream.name in refusal.description

    await in_thread(work)


async def test_oversized_row_is_not_sent(server: ServerUnderTest, stream: Made) -> None:
    def work() -> None:
        with BlockingPublisher(Publisher(dialling(server.url))) as publisher:
            large = column(["x" * (publisher.payload_bytes_max + 1)])
            with pytest.raises(RowError):
                publisher.publish(Values.one(f"{stream.name}.a".encode(), 1), large)

    await in_thread(work)


CUTS = 4


def cut_at_answers(number: int, data: bytes) -> bytes | None:
    """The first connections end where an answer should come: stored, and never heard of."""
    return None if number <= CUTS and b'"seq":' in data else data


async def test_unconfirmed_rows_of_lost_connection_are_stored_once(
    server: ServerUnderTest, stream: Made, jetstream: JetStreamContext
) -> None:
    rows = [f"{row}" for row in range(500)]
    async with Proxy(server.port, cut_at_answers) as proxy:

        def work() -> None:
            way = Publisher(dialling(proxy.url), stream=stream.name)
            with BlockingPublisher(way) as publisher:
                subjects = Values.one(f"{stream.name}.a".encode(), len(rows))
                publisher.publish(subjects, column(rows), ids=column(rows))
                publisher.drain()
                assert publisher.take_refused() == []

        await in_thread(work)
        assert proxy.connections == CUTS + 1
    assert await stored(jetstream, stream.name) == [row.encode() for row in rows]


async def test_silent_connection_is_replaced_and_all_is_sent_again(
    server: ServerUnderTest, stream: Made, jetstream: JetStreamContext
) -> None:
    def swallow(number: int, data: bytes) -> bytes | None:
        return b"" if number == 1 and b'"seq":' in data else data

    async with Proxy(server.port, swallow) as proxy:
        publisher = Publisher(dialling(proxy.url), stream=stream.name, ack_seconds=0.2)
        await publisher.open()
        rows = column(["a", "b"])
        subjects = Values.one(f"{stream.name}.a".encode(), 2)
        await publisher.send(encode(subjects, rows, ids=rows, inbox=publisher.inbox))
        await publisher.drain()
        assert (publisher.duplicates, proxy.connections) == (2, 2)
        found = await publisher.take_repeats()
        assert [(one.seq, one.is_resent) for one in found] == [(1, True), (2, True)]
        await publisher.close()
    assert await stored(jetstream, stream.name) == [b"a", b"b"]


async def test_silence_on_every_connection_is_error(server: ServerUnderTest, stream: Made) -> None:
    def swallow(number: int, data: bytes) -> bytes | None:
        return b"" if b'"seq":' in data else data

    async with Proxy(server.port, swallow) as proxy:
        publisher = Publisher(dialling(proxy.url), ack_seconds=0.1, patience_seconds=0.5)
        await publisher.open()
        subjects = Values.one(f"{stream.name}.a".encode(), 1)
        await publisher.send(encode(subjects, column(["a"]), inbox=publisher.inbox))
        with pytest.raises(ReplyTimeout):
            await publisher.drain()
        await publisher.close()


async def test_restarted_server_receives_remaining_rows(start: Starter) -> None:
    server = start("", *STORE_FLAGS)
    client = await nats.connect(server.url)
    await client.jetstream().add_stream(name="EV", subjects=["ev.>"])
    await client.close()
    rows = [f"{row}" for row in range(50_000)]

    def work() -> None:
        with BlockingPublisher(Publisher(dialling(server.url), stream="EV")) as publisher:
            half = len(rows) // 2
            publisher.publish(
                Values.one(b"ev.a", half), column(rows[:half]), ids=column(rows[:half])
            )
            server.restart()
            publisher.publish(
                Values.one(b"ev.a", half), column(rows[half:]), ids=column(rows[half:])
            )
            publisher.drain()
            assert publisher.take_refused() == []

    await in_thread(work)
    client = await nats.connect(server.url)
    state = (await client.jetstream().stream_info("EV")).state
    assert state.messages == len(rows)
    last = await client.jetstream().get_msg("EV", state.last_seq)
    assert last.data == rows[-1].encode()
    await client.close()


USERS = """
jetstream { store_dir: store }
authorization { users = [
  { user: "few", password: "p",
    permissions: { publish: ["ok.>", "$JS.API.>"], subscribe: "_INBOX.>" } }
] }
"""


async def test_missing_permission_is_reported_without_retry(start: Starter) -> None:
    server = start(USERS)
    url = server.url.replace("//", "//few:p@")

    def work() -> None:
        with BlockingPublisher(Publisher(dialling(url))) as publisher:
            publisher.publish(Values.one(b"forbidden", 1), column(["x"]))
            with pytest.raises(NotPermitted, match="forbidden"):
                publisher.drain()

    await in_thread(work)


async def test_wrong_credentials_are_not_retried(start: Starter) -> None:
    url = start(USERS).url.replace("//", "//few:wrong@")

    def work() -> None:
        with pytest.raises(AccessDenied):
            BlockingPublisher(Publisher(dialling(url))).__enter__()

    await in_thread(work)
