"""Ranges of a stream as the bulk reader gives them, beside what nats-py reads, on both servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.bulk import Batch, BlockingReader, BulkReader, ConnectFailed, Evicted, Refused
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.js import JetStreamContext

    from support.bulk import Made
    from support.servers import ServerUnderTest

Row = tuple[str, int, int, bytes, bytes]


async def rows_of(batches: AsyncIterator[Batch]) -> list[Row]:
    return [row async for batch in batches for row in batch.rows()]


async def fill(stream: Made, count: int) -> None:
    for number in range(count):
        headers = {"Kind": "odd"} if number % 2 else None
        await stream.publish(f"{number % 3}.x", b"%d" % number, headers=headers)


async def read_by_nats_py(jetstream: JetStreamContext, stream: Made, count: int) -> list[Row]:
    subscription = await jetstream.subscribe(f"{stream.name}.>", ordered_consumer=True)
    rows: list[Row] = []
    for _ in range(count):
        got = await subscription.next_msg(timeout=PATIENCE_SECONDS)
        place = got.metadata
        header = b"NATS/1.0\r\nKind: odd\r\n\r\n" if got.headers else b""
        rows.append((got.subject, place.sequence.stream, 0, header, got.data))
    await subscription.unsubscribe()
    return rows


async def test_bulk_reader_reads_what_nats_py_reads(
    stream: Made, jetstream: JetStreamContext, reader: BulkReader
) -> None:
    await fill(stream, 40)
    rows = await rows_of(reader.range(stream.name))
    bare = [(subject, seq, 0, header, payload) for subject, seq, _, header, payload in rows]
    assert bare == await read_by_nats_py(jetstream, stream, 40)


async def test_timestamps_are_those_of_server(
    stream: Made, jetstream: JetStreamContext, reader: BulkReader
) -> None:
    await fill(stream, 3)
    rows = await rows_of(reader.range(stream.name))
    stored = await jetstream.get_msg(stream.name, 2)
    assert stored.time is not None
    assert abs(rows[1][2] / 1e9 - stored.time.timestamp()) < 1e-3


@pytest.mark.parametrize(
    ("start", "stop", "seqs"),
    [
        (None, None, range(1, 11)),
        (4, None, range(4, 11)),
        (None, 4, range(1, 4)),
        (4, 8, range(4, 8)),
        (10, 11, [10]),
        (5, 5, []),
        (11, None, []),
        (3, 999, range(3, 11)),
    ],
)
async def test_range_is_half_open_and_ends_where_stream_ends(
    stream: Made, reader: BulkReader, start: int | None, stop: int | None, seqs: range
) -> None:
    await fill(stream, 10)
    rows = await rows_of(reader.range(stream.name, start=start, stop=stop))
    assert [row[1] for row in rows] == list(seqs)


async def test_empty_stream_is_empty_range(stream: Made, reader: BulkReader) -> None:
    assert await rows_of(reader.range(stream.name)) == []
    assert await rows_of(reader.newest(stream.name)) == []


async def test_filters_choose_subjects(stream: Made, reader: BulkReader) -> None:
    await fill(stream, 9)
    for filters, seqs in (
        ([f"{stream.name}.1.>"], [2, 5, 8]),
        ([f"{stream.name}.0.x", f"{stream.name}.2.*"], [1, 3, 4, 6, 7, 9]),
        ([f"{stream.name}.none"], []),
    ):
        rows = await rows_of(reader.range(stream.name, filters=filters))
        assert [row[1] for row in rows] == seqs


async def test_filtered_range_ends_without_match_near_its_end(
    stream: Made, reader: BulkReader
) -> None:
    await stream.publish("wanted", b"1")
    await fill(stream, 5)
    await stream.publish("wanted", b"2")
    rows = await rows_of(reader.range(stream.name, stop=5, filters=[f"{stream.name}.wanted"]))
    assert [row[1] for row in rows] == [1]


async def test_deleted_records_are_skipped(
    stream: Made, jetstream: JetStreamContext, reader: BulkReader
) -> None:
    await fill(stream, 6)
    for seq in (3, 6):
        await jetstream.delete_msg(stream.name, seq)
    rows = await rows_of(reader.range(stream.name))
    assert [row[1] for row in rows] == [1, 2, 4, 5]


async def test_removed_start_is_error_unless_skipping_is_allowed(
    stream: Made, jetstream: JetStreamContext, reader: BulkReader
) -> None:
    await fill(stream, 6)
    await jetstream.purge_stream(stream.name, seq=4)
    with pytest.raises(Evicted) as gone:
        await rows_of(reader.range(stream.name, start=2))
    assert (gone.value.wanted, gone.value.first_seq) == (2, 4)
    skipped = await rows_of(reader.range(stream.name, start=2, skip_evicted=True))
    whole = await rows_of(reader.range(stream.name))
    assert [row[1] for row in skipped] == [row[1] for row in whole] == [4, 5, 6]


async def test_last_per_subject_is_ordered_by_sequence(stream: Made, reader: BulkReader) -> None:
    await fill(stream, 10)
    rows = await rows_of(reader.newest(stream.name))
    assert [(row[1], row[4]) for row in rows] == [(8, b"7"), (9, b"8"), (10, b"9")]


async def test_headers_only_carries_payload_size(stream: Made, reader: BulkReader) -> None:
    await stream.publish("a", b"12345")
    rows = await rows_of(reader.newest(stream.name, headers_only=True))
    assert rows[0][4] == b""
    assert b"Nats-Msg-Size: 5" in rows[0][3]


async def test_range_larger_than_flow_control_window_is_complete(
    stream: Made, reader: BulkReader
) -> None:
    payload = bytes(200_000)
    for number in range(40):
        await stream.publish("big", b"%03d" % number + payload)
    rows = await rows_of(reader.range(stream.name))
    assert [row[4][:3] for row in rows] == [b"%03d" % number for number in range(40)]


async def test_consumer_is_deleted_after_reading(
    stream: Made, jetstream: JetStreamContext, reader: BulkReader
) -> None:
    await fill(stream, 3)
    await rows_of(reader.range(stream.name))
    batches = reader.range(stream.name)
    async for _ in batches:
        break
    await batches.aclose()
    assert await jetstream.consumers_info(stream.name) == []


async def test_missing_stream_is_refused_by_code(reader: BulkReader) -> None:
    with pytest.raises(Refused) as refusal:
        await rows_of(reader.range("NOSUCH"))
    assert refusal.value.err_code == 10059


async def test_unreachable_server_is_named() -> None:
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1\b"):
        await rows_of(BulkReader.to("nats://u:secret@127.0.0.1:1").range("S"))


async def test_blocking_reader_reads_the_same(
    stream: Made, server: ServerUnderTest, reader: BulkReader
) -> None:
    import asyncio

    await fill(stream, 12)

    def read() -> list[list[Row]]:
        with BlockingReader(BulkReader.to(server.url)) as blocking:
            assert blocking.stream_state(stream.name).last_seq == 12
            left = blocking.range(stream.name)
            next(left)
            whole = [row for batch in blocking.range(stream.name) for row in batch.rows()]
            newest = [row for batch in blocking.newest(stream.name) for row in batch.rows()]
            return [whole, newest]

    whole, newest = await asyncio.to_thread(read)
    assert whole == await rows_of(reader.range(stream.name))
    assert newest == await rows_of(reader.newest(stream.name))
