"""Archives of old servers, one by 2.12.1 that was kept: read from any pieces, or refused."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jetstream.archive.archive_v1 import ArchiveReaderV1, read_state
from penstock.jetstream.archive.block_index_v1 import read_index
from penstock.jetstream.archive.stream_archive import (
    ArchiveExtent,
    Created,
    InvalidArchive,
    Item,
    RemovedRange,
    SavedConsumer,
    SavedMessage,
)
from penstock.records.s2_stream import S2Inflater

GOLDEN = Path(__file__).parents[3] / "golden" / "archive-2.12.s2"
TOLD = json.loads(GOLDEN.with_suffix(".json").read_text())


def plain() -> bytes:
    inflater = S2Inflater()
    inflater.feed(GOLDEN.read_bytes())
    parts = []
    while (piece := inflater.next()) is not None:
        parts.append(piece)
    assert inflater.is_between_frames
    return b"".join(parts)


TAR = plain()


def read(data: bytes, cuts: list[int] | None = None) -> tuple[list[Item], bool]:
    reader = ArchiveReaderV1()
    items = []
    ends = sorted({min(cut, len(data)) for cut in cuts or ()})
    for start, stop in pairwise([0, *ends, len(data)]):
        reader.feed(data[start:stop])
        while (item := reader.next()) is not None:
            items.append(item)
    return items, reader.is_whole


def files() -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(TAR)) as tar:
        found = {}
        for member in tar:
            body = tar.extractfile(member)
            assert body is not None
            found[member.name] = body.read()
        return found


def packed(contents: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, body in contents.items():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(body), kind
            tar.addfile(info, io.BytesIO(body))
    return out.getvalue()


@given(st.lists(st.integers(0, len(TAR)), max_size=8))
def test_any_pieces_give_the_same_items(cuts: list[int]) -> None:
    assert read(TAR, cuts) == read(TAR)


def test_kept_archive_has_info_of_its_server() -> None:
    items, is_whole = read(TAR)
    assert is_whole
    assert [item.name for item in items if isinstance(item, Created)] == ["OLD"]
    live = {item.seq: item for item in items if isinstance(item, SavedMessage)}
    [extent] = [item for item in items if isinstance(item, ArchiveExtent)]
    for item in items:
        if isinstance(item, RemovedRange):
            for seq in item.seqs:
                live.pop(seq, None)
    kept = [seq for seq in sorted(live) if seq >= extent.state.first_seq]
    assert kept == [one["seq"] for one in TOLD["messages"]]
    for one in TOLD["messages"]:
        message = live[one["seq"]]
        assert message.subject == one["subject"]
        assert message.payload == base64.b64decode(one.get("data", ""))
        assert message.header == base64.b64decode(one.get("hdrs", ""))
    assert extent.state.last_seq == TOLD["state"]["last_seq"]
    assert extent.state.messages == TOLD["state"]["messages"]


def test_kept_consumers_are_as_far_as_they_were() -> None:
    found = {item.name: item for item in read(TAR)[0] if isinstance(item, SavedConsumer)}
    assert found.keys() == TOLD["consumers"].keys()
    for name, told in TOLD["consumers"].items():
        state = found[name].state
        assert state.delivered_stream == told["delivered"]["stream_seq"]
        assert state.delivered_consumer == told["delivered"]["consumer_seq"]
        assert state.floor_stream == told["ack_floor"]["stream_seq"]
        assert len(state.pending) == told["num_ack_pending"]
        assert len(state.redelivered) == told["num_redelivered"]
        assert found[name].created_ns > 0


def test_truncated_input_is_incomplete() -> None:
    end = len(TAR.rstrip(b"\0"))
    for stop in [*range(0, end, 97), end]:
        assert not read(TAR[:stop])[1]


@given(st.integers(0, len(TAR) - 1), st.integers(1, 255))
def test_changed_byte_is_invalid_archive_or_another_one(at: int, flip: int) -> None:
    data = bytearray(TAR)
    data[at] ^= flip
    try:
        read(bytes(data))
    except InvalidArchive:
        return


@given(st.binary(max_size=300))
def test_any_bytes_of_file_are_read_or_refused(data: bytes) -> None:
    for name in ("meta.inf", "msgs/1.blk", "msgs/index.db", "obs/c/meta.inf", "obs/c/o.dat"):
        contents = {"meta.inf": b'{"name":"S"}', "obs/c/meta.inf": b"{}", name: data}
        try:
            read(packed(contents))
        except InvalidArchive:
            continue


def test_long_names_travel_in_extended_headers() -> None:
    contents = files()
    long = "c" * 150
    state = contents["obs/c/o.dat"]
    items, is_whole = read(
        packed(
            {
                "meta.inf": contents["meta.inf"],
                f"obs/{long}/meta.inf": contents["obs/c/meta.inf"],
                f"obs/{long}/o.dat": state,
            }
        )
    )
    assert is_whole
    assert isinstance(items[-1], SavedConsumer)
    assert items[-1].name == long


def test_without_index_blocks_report_what_was_deleted() -> None:
    contents = files()
    del contents["msgs/index.db"]
    gone = [item.seqs for item in read(packed(contents))[0] if isinstance(item, RemovedRange)]
    assert {115, 116, 125, 127} <= {seq for seqs in gone for seq in seqs}


def test_index_that_cannot_be_read_is_done_without() -> None:
    index = files()["msgs/index.db"]
    assert list(read_index(index))
    for bad in (b"", index[:1], b"\x0c" + index[1:], b"\x0b\x09" + index[2:], index[:20]):
        assert list(read_index(bad)) == []


@pytest.mark.parametrize(
    ("contents", "kind", "why"),
    [
        ({"errors.txt": b"disk on fire"}, tarfile.REGTYPE, "disk on fire"),
        ({"obs/c/o.dat": b"\x16\x02"}, tarfile.REGTYPE, "missing config"),
        ({"link": b""}, tarfile.SYMTYPE, "unexpected content"),
        ({"msgs/1.blk": b"\xff" * 40}, tarfile.REGTYPE, "no sizes"),
        ({"msgs/1.blk": bytes(10)}, tarfile.REGTYPE, "ends before"),
    ],
)
def test_misplaced_files_are_named(contents: dict[str, bytes], kind: bytes, why: str) -> None:
    with pytest.raises(InvalidArchive, match=why):
        read(packed(contents, kind))


def test_archive_without_stream_is_not_whole() -> None:
    assert not read(packed({"meta.sum": b"x"}))[1]
    assert not read(packed({"meta.inf": b'{"name":"S"}', "obs/c/meta.inf": b"{}"}))[1]


def test_states_of_the_first_version_are_read() -> None:
    # floor 3/5, delivered 4/7 counted from the floor, one outstanding, at second 100 + 2
    data = bytes([22, 1, 3, 5, 4, 7, 1, 200, 1, 2, 4, 1, 2, 3])
    state = read_state(data)
    assert (state.delivered_consumer, state.delivered_stream) == (6, 11)
    assert state.pending == {7: (0, 102_000_000_000)}
    assert state.redelivered == {7: 3}
