"""Folds on a disk that fills up: the state says so, reading goes on, and space brings them back."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from penstock.fold import Fold, FoldState
from penstock.fold.follow import supervisor as supervisor_module
from penstock.kv.kv_types import CaughtUp
from support.folds import DURABLE, put
from support.followed_folds import QUICK, folded_up_to, ready, until
from support.patience import PATIENCE_SECONDS
from support.scripts import Gate, Script, ScriptedBucket

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL_DISK = "6m"
ATTEMPTS = 5
"""Refused commits and reopenings that are watched while the disk is full."""
STORES = ("append-log", "sqlite", "lmdb", "rocksdb")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no small file system: not root, or nothing can be mounted")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "PAUSE_SECONDS_FIRST", 0.01)
    monkeypatch.setattr(supervisor_module, "PAUSE_SECONDS_MAX", 0.1)
    monkeypatch.setattr("penstock.fold.follow.watch_loop.RETRY_SECONDS_MAX", 0.01)


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as ballast:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError:
                continue


@pytest.mark.parametrize("name", STORES)
async def test_full_disk_is_reported_until_it_has_space(
    name: str, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind, gate = DURABLE[name], Gate()
    large: list[Any] = [put(f"k{n}", os.urandom(2_000), n) for n in range(2, 52)]
    # A watch that is made again brings what was not stored.
    script = Script([[put("a", b"1", 1), CaughtUp(), gate, *large]])
    script.watches += [[*large, CaughtUp()] for _ in range(10_000)]
    async with Fold.open(
        ScriptedBucket(script),  # type: ignore[arg-type]
        small_disk / "fold",
        backend=kind.store,
        options=kind.options,
        batch=QUICK,
    ) as fold:
        await ready(fold)
        assert fold.is_healthy()
        fill(small_disk / "ballast")
        gate.open()
        await until(lambda: fold.state is FoldState.STORE_FAILING)
        assert not fold.is_healthy()
        assert fold.status().error
        # It stays so while the disk is full, and what was stored is read.
        caplog.clear()
        states = set()

        def has_tried_again() -> bool:
            assert fold.get("a") is not None
            states.add(fold.state)
            return len(caplog.records) >= ATTEMPTS

        await until(has_tried_again)
        assert states == {FoldState.STORE_FAILING}
        (small_disk / "ballast").unlink()
        await folded_up_to(fold, 51)
        await until(lambda: fold.state is FoldState.LIVE)
        assert (fold.count(), fold.status().error) == (51, "")


@pytest.mark.parametrize("name", STORES)
async def test_fold_on_full_disk_closes_and_lets_go(name: str, small_disk: Path) -> None:
    kind, gate = DURABLE[name], Gate()
    large = [put(f"k{n}", os.urandom(2_000), n) for n in range(2, 52)]
    script = Script([[put("a", b"1", 1), CaughtUp(), gate, *large]])
    fold = Fold.open(
        ScriptedBucket(script),  # type: ignore[arg-type]
        small_disk / "fold",
        backend=kind.store,
        options=kind.options,
        batch=QUICK,
    )
    async with asyncio.timeout(PATIENCE_SECONDS), fold:
        await ready(fold)
        fill(small_disk / "ballast")
        gate.open()
        await until(lambda: fold.state is FoldState.STORE_FAILING)
    (small_disk / "ballast").unlink()
    with kind.open(small_disk / "fold") as again:
        assert again.cursor.rank in (1, *range(2, 52))
        assert again.get("a") is not None
