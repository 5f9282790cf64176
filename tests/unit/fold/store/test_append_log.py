"""The append log on its file: tears, failures of the disk, compaction, its one writer."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from penstock.fold import (
    AppendLogSnapshot,
    SnapshotMeta,
    SnapshotWriter,
    StoreIOError,
    StorePoisoned,
    load,
    read,
)
from penstock.fold.store import pgss
from penstock.kv.kv_types import WatchCursor
from support.folds import at, contents, delete, model, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BATCH = [put("a", b"1", 1), put("b", b"2", 2)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fold.snap"


def refuse(*_: object) -> None:
    raise OSError(errno.EIO, "the disk said no")


def only_what_fits(room: int) -> Callable[[int, memoryview], int]:
    """A disk with so much room left: the last write that fits is a short one."""
    write, left = os.write, room

    def limited(fd: int, data: memoryview) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "no space")
        done = write(fd, data[:left])
        left -= done
        return done

    return limited


# -- opening


@pytest.mark.parametrize("size", range(6))
def test_file_torn_while_it_was_made_is_made_again(path: Path, size: int) -> None:
    path.write_bytes(pgss.HEADER[:size])
    with AppendLogSnapshot.open(path) as store:
        store.apply(BATCH, at(2))
    with AppendLogSnapshot.open(path) as store:
        assert contents(store) == model(BATCH)


def test_records_appended_after_torn_tail_are_read(path: Path) -> None:
    with AppendLogSnapshot.open(path) as store:
        store.apply(BATCH, at(2))
    whole = path.read_bytes()
    for size in range(len(pgss.HEADER), len(whole)):
        path.write_bytes(whole[:size])
        with AppendLogSnapshot.open(path) as store:
            assert store.cursor == WatchCursor.NONE
            store.apply([put("c", b"3", 3)], at(3))
        with AppendLogSnapshot.open(path) as store:
            assert store.get("c") is not None
            assert store.cursor == at(3)


def test_torn_tail_is_reported_and_old_file_kept_aside(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with AppendLogSnapshot.open(path) as store:
        store.apply(BATCH, at(2))
        store.apply([put("c", b"3", 3)], at(3))
    torn = path.read_bytes()[:-20]
    path.write_bytes(torn)
    with AppendLogSnapshot.open(path) as store:
        assert store.cursor == at(2)
    aside = path.with_name("fold.snap.torn")
    assert aside.read_bytes() == torn
    assert f"resumes at cursor 2; the old file is kept as {aside}" in caplog.text


def test_whole_log_is_compacted_without_copy_aside(path: Path) -> None:
    with AppendLogSnapshot.open(path) as store:
        store.apply(BATCH, at(2))
        store.apply([delete("a", 3)], at(3))
    AppendLogSnapshot.open(path).close()
    assert not path.with_name("fold.snap.torn").exists()


def test_log_that_was_emptied_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with AppendLogSnapshot.open(path) as store:
        store.apply(BATCH, at(2), meta=SnapshotMeta("KV_x@1", ("",), False))
    path.write_bytes(b"")
    with AppendLogSnapshot.open(path) as store:
        assert not store.cursor
    assert "its contents were cut off" in caplog.text


def test_log_in_which_every_record_counts_is_left_alone(path: Path) -> None:
    with AppendLogSnapshot.open(path) as store:
        store.apply(BATCH, at(2))
    before = path.stat()
    AppendLogSnapshot.open(path).close()
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_same_state_is_the_same_bytes_whatever_led_to_it(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with AppendLogSnapshot.open(one) as store:
        store.apply([put("b", b"2", 2), put("x", b"", 3), put("a", b"1", 1)], at(3))
        store.apply([delete("x", 4)], at(4))
        store.compact()
    with AppendLogSnapshot.open(other) as store:
        store.apply([put("a", b"0", 0)], at(1))
        store.apply(BATCH, at(4))
        store.compact()
    assert one.read_bytes() == other.read_bytes()


def test_one_file_has_one_writer(path: Path) -> None:
    with AppendLogSnapshot.open(path) as store:
        with pytest.raises(StoreIOError, match="another writer"):
            AppendLogSnapshot.open(path)
        store.compact()
        with pytest.raises(StoreIOError, match="another writer"):
            AppendLogSnapshot.open(path)
        assert read(path) is None
    AppendLogSnapshot.open(path).close()


# -- a disk that fails


def test_batch_that_did_not_fit_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with AppendLogSnapshot.open(path) as store:
        store.apply(BATCH, at(2))
        size = path.stat().st_size
        for room in (0, 1, 7, 60):
            with monkeypatch.context() as patched:
                patched.setattr(os, "write", only_what_fits(room))
                with pytest.raises(StoreIOError, match="no space"):
                    store.apply([put("c", b"3" * 100, 3)], at(3))
            assert path.stat().st_size == size
            assert store.cursor == at(2)
            assert store.get("c") is None
        store.apply([put("c", b"3", 3)], at(3))
    with AppendLogSnapshot.open(path) as store:
        assert contents(store) == model([*BATCH, put("c", b"3", 3)])


def test_nothing_is_written_after_bytes_that_cannot_be_truncated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = AppendLogSnapshot.open(path)
    store.apply(BATCH, at(2))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", only_what_fits(7))
        patched.setattr(os, "ftruncate", refuse)
        with pytest.raises(StoreIOError):
            store.apply([put("c", b"3", 3)], at(3))
    with pytest.raises(StorePoisoned):
        store.apply([put("c", b"3", 3)], at(3))
    assert contents(store) == model(BATCH)
    store.close()
    with AppendLogSnapshot.open(path) as store:
        assert contents(store) == model(BATCH)
        assert store.cursor == at(2)


def test_sync_that_failed_is_not_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with AppendLogSnapshot.open(path, sync=True) as store:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse)
            with pytest.raises(StoreIOError, match="sync"):
                store.apply(BATCH, at(2))
        with pytest.raises(StorePoisoned):
            store.apply(BATCH, at(2))


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_compaction_that_fails_costs_nothing_but_room(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with AppendLogSnapshot.open(path, compact_threshold=10) as store:
        with monkeypatch.context() as patched:
            patched.setattr(os, call, refuse)
            store.apply(BATCH, at(2))
            store.apply([put("a", b"3", 3)], at(3))
        assert contents(store) == model([*BATCH, put("a", b"3", 3)])
        assert sorted(one.name for one in path.parent.iterdir()) == [path.name]
    with AppendLogSnapshot.open(path) as store:
        assert contents(store) == model([*BATCH, put("a", b"3", 3)])
        assert store.cursor == at(3)


def test_compaction_ends_writing_if_its_position_is_not_durable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = AppendLogSnapshot.open(path)
    store.apply(BATCH, at(2))
    with monkeypatch.context() as patched:
        patched.setattr("penstock.fold.store.log_file.sync_directory", refused_directory)
        with pytest.raises(StoreIOError):
            store.compact()
    with pytest.raises(StorePoisoned):
        store.apply(BATCH, at(2))
    store.close()
    with AppendLogSnapshot.open(path) as store:
        assert contents(store) == model(BATCH)


def refused_directory(directory: Path) -> None:
    raise StoreIOError("the disk said no", path=directory)


# -- compaction


def test_log_is_rewritten_once_mostly_redundant(path: Path) -> None:
    with AppendLogSnapshot.open(path, compact_threshold=1000) as store:
        sizes = []
        for revision in range(1, 200):
            store.apply([put("a", b"v" * 50, revision)], at(revision))
            sizes.append(path.stat().st_size)
        assert max(sizes) < 1300
        assert min(sizes[20:]) < 150
        assert contents(store) == model([put("a", b"v" * 50, 199)])


def test_log_that_only_grows_is_not_rewritten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compactions = []
    real = AppendLogSnapshot.compact
    monkeypatch.setattr(
        AppendLogSnapshot, "compact", lambda self: (compactions.append(1), real(self))[1]
    )
    with AppendLogSnapshot.open(path, compact_threshold=100) as store:
        for revision in range(1000):
            store.apply([put(f"k.{revision}", b"v" * 20, revision)], at(revision))
    assert len(compactions) < 3


def test_new_log_is_durable_before_it_takes_place_of_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data, then name, then the directory: in any other order a power cut could lose both logs."""
    calls: list[str] = []
    for name in ("fsync", "rename", "close"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *given, name=name, real=real: (calls.append(name), real(*given))[1]
        )
    with AppendLogSnapshot.open(path) as store:
        store.apply(BATCH, at(2))
        calls.clear()
        store.compact()
    assert [name for name in calls if name != "close"] == ["fsync", "rename", "fsync"]


# -- beside the log


def test_origin_is_durable_before_cursor_it_speaks_of(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = SnapshotMeta("KV_b 2026")
    with AppendLogSnapshot.open(path) as store:
        with monkeypatch.context() as patched:
            patched.setattr(
                os, "write", only_what_fits(450)
            )  # the sidecar fits, the batch does not
            with pytest.raises(StoreIOError):
                store.apply([put("a", b"v" * 600, 1)], at(1), meta=origin)
        assert store.meta == origin
    with AppendLogSnapshot.open(path) as store:
        assert store.meta == origin
        assert store.cursor == WatchCursor.NONE


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"identity": 7}', b"\xff"])
def test_unreadable_sidecar_is_ignored(path: Path, text: bytes) -> None:
    with AppendLogSnapshot.open(path) as store:
        store.apply(BATCH, at(2))
    path.with_name("fold.snap.meta.json").write_bytes(text)
    with AppendLogSnapshot.open(path) as store:
        assert store.meta == SnapshotMeta(seen_evicting=True)


def test_memo_in_log_is_remembered_and_kept(path: Path) -> None:
    path.write_bytes(pgss.HEADER + pgss.cursor_record(at(7), evicting=True))
    for revision in (8, 9):
        with AppendLogSnapshot.open(path) as store:
            assert store.meta.seen_evicting
            store.apply([put("a", b"1", revision)], at(revision))
            store.compact()
    assert pgss.replay(path.read_bytes()).evicting


# -- the log alone


def test_reading_changes_nothing_and_loading_cleans_up(path: Path) -> None:
    assert read(path) is None
    assert load(path) is None
    with SnapshotWriter.open(path) as writer:
        assert read(path) is None
        for update in (*BATCH, delete("a", 3)):
            writer.write_update(update)
        assert not writer.checkpoint(at(3))
    whole = path.read_bytes()
    path.write_bytes(whole + b"torn")
    said = read(path)
    assert said is not None
    assert path.read_bytes() == whole + b"torn"
    assert (said.cursor, said.entries) == (at(3), model([*BATCH, delete("a", 3)]))
    assert said.stale_keys(["c"]) == ["b"]
    assert load(path) == said
    assert len(path.read_bytes()) < len(whole)


def test_updates_wait_for_their_checkpoint(path: Path) -> None:
    with SnapshotWriter.open(path, compact_threshold=60) as writer:
        writer.write_update(BATCH[0])
        assert read(path) is None
        assert not writer.checkpoint(at(1))
        writer.write_update(put("a", b"newer", 2))
        writer.flush()
        said = read(path)
        assert said is not None
        assert said.cursor == at(1)
        assert said.entries == model([put("a", b"newer", 2)])
        assert writer.checkpoint(at(2))
        writer.compact()
        assert not writer.checkpoint(at(3))
    said = read(path)
    assert said is not None
    assert (said.cursor, said.entries) == (at(3), model([put("a", b"newer", 2)]))
