"""Archives: a version is whole or not there, and of two writers of it one has made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.spark.files.archive_storage import LocalStorage, ObjectStorage, storage_for
from penstock.spark.jobs.archive_compaction import small_groups
from penstock.spark.jobs.parquet_table import (
    VERSIONS_KEPT,
    ArchiveError,
    CommitLost,
    DataFile,
    ManifestTable,
)
from support.s3 import S3, s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.spark.files.archive_storage import ArchiveStorage


def data(path: str, first: int, rows: int = 10, size: int = 100, date: str = "d") -> DataFile:
    return DataFile(path, rows, size, first, first + rows - 1, {"date": date})


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as running:
        yield running


@pytest.fixture(params=["directory", "file", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStorage:
    if request.param == "directory":
        return storage_for(str(tmp_path))
    if request.param == "file":
        return storage_for(f"file://{tmp_path}/with%20blank")
    s3 = request.getfixturevalue("s3")
    return storage_for(f"s3://{s3.new_bucket()}/place", s3.options())


@pytest.mark.sockets
def test_object_is_created_once_and_read_back(storage: ArchiveStorage) -> None:
    assert storage.create("a/b", b"1")
    assert not storage.create("a/b", b"2")
    storage.write("a/c", memoryview(b"3"))
    assert (storage.read("a/b"), storage.read("a/c")) == (b"1", b"3")
    assert {(one.path, one.size) for one in storage.listed("a")} == {("a/b", 1), ("a/c", 1)}
    storage.delete("a/b")
    storage.delete("a/b")
    assert [one.path for one in storage.listed("a")] == ["a/c"]
    with pytest.raises(FileNotFoundError):
        storage.read("a/b")


@pytest.mark.sockets
def test_commits_follow_each_other_and_second_writer_loses(storage: ArchiveStorage) -> None:
    table = ManifestTable(storage)
    assert not table.exists()
    empty = table.current()
    first = table.commit(empty, [data("data/1", 1)], stream="S", created_ns=5, cursor=10)
    with pytest.raises(CommitLost):
        table.commit(empty, [data("data/2", 1)], cursor=10)
    assert table.current() == first
    second = table.commit(first, [data("data/3", 11)], ["data/1"], cursor=20)
    assert [file.path for file in second.files] == ["data/3"]
    assert (second.version, second.stream, second.cursor, second.rows) == (2, "S", 20, 10)


def test_old_manifests_go_and_writer_that_slept_loses_anyway(tmp_path: Path) -> None:
    table = ManifestTable(LocalStorage(str(tmp_path)))
    slept = version = table.commit(table.current(), [], cursor=1)
    for cursor in range(2, VERSIONS_KEPT + 6):
        version = table.commit(version, [], cursor=cursor)
    assert len(list((tmp_path / "_penstock").iterdir())) == VERSIONS_KEPT + 1
    with pytest.raises(CommitLost):
        table.commit(slept, [], cursor=99)
    assert table.current() == version


def test_manifest_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    table = ManifestTable(LocalStorage(str(tmp_path)))
    table.storage.create(f"_penstock/{1:020d}.json", b'{"version": "x"}')
    with pytest.raises(ArchiveError, match="manifest 1"):
        table.current()


def test_vacuum_takes_only_what_no_manifest_names_and_is_old(tmp_path: Path) -> None:
    table = ManifestTable(LocalStorage(str(tmp_path)))
    for name in ("data/kept", "data/left"):
        table.storage.write(name, b"x")
    table.commit(table.current(), [data("data/kept", 1)], cursor=10)
    assert table.vacuum() == 0
    assert table.vacuum(grace=-1) == 1
    assert [one.path for one in table.storage.listed("data")] == ["data/kept"]


def test_only_small_neighbours_of_one_partition_are_joined() -> None:
    files = [
        data("a", 1, size=10),
        data("large", 11, size=90),
        data("b", 21, size=30),
        data("c", 31, size=60),
        data("other", 41, size=10, date="e"),
    ]
    files[3] = data("c", 31, size=45)
    groups = small_groups(files, 100)
    assert [[file.path for file in group] for group in groups] == [["a", "b", "c"]]
    assert [[f.path for f in g] for g in small_groups(files, 80)] == [["a", "b"]]


def test_storage_options_do_not_show() -> None:
    assert "hidden" not in repr(ObjectStorage("s3://b", {"secret_access_key": "hidden"}))
