"""Buckets, scopes and stores by the names people give them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from penstock.fold import AppendLogSnapshot, Scope, SqliteSnapshot
from penstock.fold.artifact.atomic_dir import STAGE_PREFIX, STAGE_SECONDS_MIN
from penstock.fold.follow.open_target import (
    backend_of,
    is_there,
    open_store,
    origin_of,
    scope_of,
    split_bucket_url,
)
from penstock.fold.follow.store_worker import Worker
from penstock.kv.kv_connection import NatsConfig

if TYPE_CHECKING:
    from pathlib import Path


def test_url_ends_in_name_of_bucket() -> None:
    assert split_bucket_url("nats://u:p@h:4222/b") == ("nats://u:p@h:4222", "b")
    for url in ("nats://h:4222", "nats://h:4222/", "nats://h/a/b"):
        with pytest.raises(ValueError, match="ends in its name"):
            split_bucket_url(url)


def test_url_and_configuration_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="both"):
        origin_of("nats://h/b", NatsConfig.of())
    assert origin_of("b", NatsConfig.of("nats://h")).name == "b"


def test_scopes_are_prefixes_or_several() -> None:
    assert scope_of("") == Scope.all()
    assert scope_of(["b.", "a.", "a.c."]) == Scope(("a.", "b."))
    assert scope_of(Scope.prefix("a.")) == Scope.prefix("a.")
    with pytest.raises(ValueError, match="dot"):
        scope_of("a")
    with pytest.raises(ValueError, match="needs a prefix"):
        scope_of([])


def test_backends_have_names() -> None:
    assert backend_of("log") is AppendLogSnapshot
    assert backend_of(SqliteSnapshot) is SqliteSnapshot
    with pytest.raises(ValueError, match="none of"):
        backend_of("fjall")


def test_empty_directory_is_no_store(tmp_path: Path) -> None:
    assert not is_there(SqliteSnapshot, tmp_path)
    assert not is_there(SqliteSnapshot, tmp_path / "fold")
    (tmp_path / "fold").write_bytes(b"")
    assert is_there(SqliteSnapshot, tmp_path)
    assert is_there(SqliteSnapshot, tmp_path / "fold")


async def test_remains_of_killed_bootstrap_are_removed_at_next_open(tmp_path: Path) -> None:
    left, fresh = (tmp_path / f"{STAGE_PREFIX}{word}" for word in ("left", "fresh"))
    for stage in (left, fresh):
        (stage / "artifact").mkdir(parents=True)
    long_ago = time.time() - 2 * STAGE_SECONDS_MIN
    os.utime(left, (long_ago, long_ago))
    worker = Worker()
    try:
        store = await open_store(SqliteSnapshot, tmp_path / "fold", {}, None, Scope.all(), worker)
        await worker.run(store.close)
    finally:
        worker.close()
    assert not left.exists()
    assert fresh.exists()  # another process may use it
