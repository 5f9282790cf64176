"""How far sources were copied is known after a restart, even if no copy is left to say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.stream_config import StreamSource
from penstock.base.message import Inbound
from penstock.jetstream.sources.source_positions import FILE_NAME, Positions
from penstock.jetstream.streams.entries import Publish
from penstock.jetstream.streams.source_progress import Progress, SourceRef
from penstock.jetstream.streams.stream import Stream
from penstock.store.io.disk import RealDisk
from penstock.store.memstore import MemStore
from support.stream_run import SECOND, Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCES = (StreamSource(name="A"), StreamSource(name="B"))
INCARNATION = 7


class CountingStore(MemStore):
    """Counts how often it is looked through."""

    looks = 0

    def load_last(self, subject: str, **options: Any) -> Any:
        self.looks += 1
        return super().load_last(subject, **options)


class Kept(Run):
    """A stream with sources whose positions are in a file."""

    def __init__(self, disk: RealDisk) -> None:
        self.disk = disk
        super().__init__(sources=SOURCES)
        self.store = CountingStore()
        self.open()

    def open(self) -> None:
        self.positions = Positions(self.disk, INCARNATION)
        self.stream = Stream(self.cfg, self.store, created_ns=1)
        self.positions.load_into(self.stream)
        assert self.stream.recover(self.now_ns) is None
        self.positions.trim_to(self.stream)

    def copy(self, source: StreamSource, seq: int) -> None:
        msg = Inbound("s.a", "", b"", b"")
        planned = self.stream.plan_copy(msg, seq, Progress(source), self.now_ns)
        assert isinstance(planned, Publish)
        self.apply(planned)

    def commit(self) -> bool:
        """Whether something was written down."""
        work = self.positions.pending_sync(self.stream)
        if work is not None:
            work.run()
            self.positions.synced(work, None)
        return work is not None

    def seqs_of_sources(self) -> list[int]:
        refs = [self.stream.source_ref(Progress(each).index_name) for each in SOURCES]
        return [0 if ref is None else ref.seq for ref in refs]

    def restart(self) -> None:
        self.positions.close()
        self.open()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    run = Kept(RealDisk.at(str(tmp_path), create=True))
    yield run
    run.positions.close()
    run.disk.close()


def test_sources_without_stored_copies_are_known(kept: Kept) -> None:
    kept.copy(SOURCES[0], 3)
    kept.copy(SOURCES[1], 8)
    kept.positions.keep_now(kept.stream)
    kept.store.purge()
    kept.restart()
    assert kept.seqs_of_sources() == [3, 8]


def test_later_messages_are_found_without_other_reads(
    kept: Kept,
) -> None:
    for seq in range(1, 40):
        kept.copy(SOURCES[0], seq)
    assert kept.commit()
    kept.copy(SOURCES[0], 50)
    kept.store.looks = 0
    kept.restart()
    assert kept.seqs_of_sources() == [50, 0]
    assert kept.store.looks <= 2


def test_it_is_written_now_and_then(kept: Kept) -> None:
    assert not kept.commit()
    written = []
    for seq in range(1, 13):
        kept.copy(SOURCES[0], seq)
        written.append(kept.commit())
        kept.now_ns += SECOND
    assert [n for n, was in enumerate(written) if was] == [0, 5, 10]


def test_file_that_speaks_of_lost_messages_is_replaced(kept: Kept) -> None:
    for seq in (1, 2, 3):
        kept.copy(SOURCES[0], seq)
    kept.positions.keep_now(kept.stream)
    kept.store.truncate(1)
    kept.restart()
    assert kept.seqs_of_sources() == [1, 0]
    for seq in (11, 12, 13):
        kept.copy(SOURCES[1], seq)
    kept.restart()
    assert kept.seqs_of_sources() == [1, 13]


def test_file_that_speaks_of_stream_without_copies_is_replaced(kept: Kept) -> None:
    kept.copy(SOURCES[0], 5)
    kept.positions.keep_now(kept.stream)
    kept.store.truncate(0)
    kept.restart()
    kept.copy(SOURCES[1], 9)
    kept.restart()
    assert kept.seqs_of_sources() == [0, 9]


@pytest.mark.parametrize("damage", [b"", b"x" * 20_000])
def test_damaged_file_is_none(kept: Kept, tmp_path: Path, damage: bytes) -> None:
    kept.copy(SOURCES[0], 5)
    kept.positions.keep_now(kept.stream)
    kept.positions.close()
    (tmp_path / FILE_NAME).write_bytes(damage)
    kept.open()
    assert kept.seqs_of_sources() == [5, 0]
    kept.copy(SOURCES[0], 6)
    kept.positions.keep_now(kept.stream)
    kept.store.purge()
    kept.restart()
    assert kept.stream.source_ref("A > >") == SourceRef("A", "A > >", 6, "")


def test_stream_without_copies_has_no_file(kept: Kept, tmp_path: Path) -> None:
    kept.publish("s.a")
    assert not kept.commit()
    kept.positions.keep_now(kept.stream)
    assert not (tmp_path / FILE_NAME).exists()
