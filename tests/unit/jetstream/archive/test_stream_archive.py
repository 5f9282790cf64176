"""Archives: what is written is read, from any pieces; what is cut or broken is never whole."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.consumer_config import AckPolicy, ConsumerConfig
from penstock.api.stream_config import StreamState
from penstock.jetstream.archive import stream_archive
from penstock.jetstream.archive.stream_archive import (
    ArchiveExtent,
    InvalidArchive,
    Item,
    SavedConsumer,
    SavedMessage,
    StreamArchiveReader,
    rebuilt_state,
)

if TYPE_CHECKING:
    from penstock.jetstream.consumers.state.consumer_state import ConsumerState

NOW_NS = 1_700_000_000_123_456_789
STATE = StreamState(messages=2, bytes=99, first_seq=3, last_seq=9, consumer_count=1)
MESSAGES = [
    SavedMessage(3, NOW_NS, "a.b", b"NATS/1.0\r\nA: 1\r\n\r\n", b"x" * 300),
    SavedMessage(9, -5, "caf\udcff", b"", b""),
]


def consumer_state() -> ConsumerState:
    return rebuilt_state((7, 8), (2, 3), {4: (3, 40), 8: (7, 80)}, {4: 2, 1: 5})


def written(last_seq: int = 9) -> bytes:
    config = ConsumerConfig(name="c", durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    parts = [
        stream_archive.MAGIC,
        stream_archive.state_entry(STATE, NOW_NS),
        stream_archive.consumer_entry("c", config, consumer_state(), last_seq, NOW_NS),
        *(stream_archive.message_entry(*message) for message in MESSAGES),
        stream_archive.END,
    ]
    return b"".join(parts)


def read(data: bytes, cuts: list[int] | None = None) -> tuple[list[Item], bool]:
    reader = StreamArchiveReader(message_bytes_max=1000)
    items = []
    ends = sorted({min(cut, len(data)) for cut in cuts or ()})
    for start, stop in pairwise([0, *ends, len(data)]):
        reader.feed(data[start:stop])
        while (item := reader.next()) is not None:
            items.append(item)
    return items, reader.is_whole


@given(st.lists(st.integers(0, 1000), max_size=6))
def test_any_pieces_give_the_same_items(cuts: list[int]) -> None:
    items, is_whole = read(written(), cuts)
    assert is_whole
    extent, consumer, *messages = items
    assert isinstance(extent, ArchiveExtent)
    assert extent.state == STATE
    assert isinstance(consumer, SavedConsumer)
    assert (consumer.name, consumer.config.durable_name) == ("c", "c")
    assert consumer.state == consumer_state()
    assert messages == MESSAGES


def test_truncated_input_is_incomplete() -> None:
    data = written()
    for stop in range(len(data)):
        assert not read(data[:stop])[1]


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_changed_byte_is_invalid_archive_or_another_one(at: int, flip: int) -> None:
    data = bytearray(written())
    data[at % len(data)] ^= flip
    try:
        read(bytes(data))
    except InvalidArchive:
        return


@given(st.binary(max_size=200))
def test_any_bytes_are_archive_or_refused(data: bytes) -> None:
    for start in (
        b"",
        stream_archive.MAGIC,
        stream_archive.MAGIC + stream_archive.state_entry(STATE, 0),
    ):
        try:
            read(start + data)
        except InvalidArchive:
            continue


def test_consumer_is_bound_to_messages_of_archive() -> None:
    _, consumer, *_ = read(written(last_seq=6))[0]
    assert isinstance(consumer, SavedConsumer)
    assert (consumer.state.delivered_stream, consumer.state.floor_stream) == (6, 3)
    assert sorted(consumer.state.pending) == [4]


def test_too_large_message_is_refused_before_it_is_kept() -> None:
    reader = StreamArchiveReader(message_bytes_max=1000)
    head = stream_archive.MAGIC + stream_archive.state_entry(StreamState(), 0)
    reader.feed(head + stream_archive.entry(b"a", 0, 1, b"", bytes(1001))[:20])
    assert isinstance(reader.next(), ArchiveExtent)
    with pytest.raises(InvalidArchive, match="maximum payload"):
        reader.next()


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (StreamState(consumer_count=-1), "consumer count"),
        (StreamState(first_seq=9, last_seq=3), "sequence range"),
        (StreamState(first_seq=0, last_seq=3), "sequence range"),
        (StreamState(messages=4, first_seq=1, last_seq=3), "message count"),
        (StreamState(messages=1), "message count"),
    ],
)
def test_numbers_that_no_stream_has_are_refused(state: StreamState, why: str) -> None:
    with pytest.raises(InvalidArchive, match=why):
        read(stream_archive.MAGIC + stream_archive.state_entry(state, 0))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"NATSARC2", "not an archive"),
        (
            stream_archive.MAGIC + stream_archive.entry(b"meta.inf", 0, 0, b"", b"{}"),
            "state.json first",
        ),
        (
            stream_archive.MAGIC + stream_archive.entry(b"state.json", 0, 0, b"", b"[]"),
            "error in state.json",
        ),
        (
            stream_archive.MAGIC + stream_archive.state_entry(STATE, 0) + stream_archive.END,
            "expected consumer",
        ),
        (
            stream_archive.MAGIC
            + stream_archive.state_entry(STATE, 0)
            + stream_archive.entry(b"consumers/c", 0, 0, b"", b"{}"),
            "failed to decode consumer",
        ),
        (
            stream_archive.MAGIC
            + stream_archive.state_entry(StreamState(), 0)
            + stream_archive.entry(b"a", 0, 0, b"", b"x"),
            "without sequence",
        ),
        (stream_archive.MAGIC + b"\xff" * 60, "no numbers"),
    ],
)
def test_misplaced_files_are_named(data: bytes, why: str) -> None:
    with pytest.raises(InvalidArchive, match=why):
        read(data)


def test_state_out_of_order_is_put_right_or_refused() -> None:
    state = rebuilt_state((5, 5), (3, 3), {2: (2, 0), 4: (4, 0), 9: (9, 0)}, {4: 1, 2: 0})
    assert (list(state.pending), state.redelivered) == ([4], {4: 1})
    state.ack(4)
    assert (state.floor_consumer, state.floor_stream) == (5, 5)
    for bad in ({-1: (1, 0)}, {1 << 63: (1, 0)}, {4: (-1, 0)}, {4: (1, 1 << 63)}):
        with pytest.raises(ValueError, match="out of range"):
            rebuilt_state((5, 5), (3, 3), bad, {})
