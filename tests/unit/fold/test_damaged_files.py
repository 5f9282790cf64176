"""Every flipped bit and every cut of a fold's files: reported, or repaired by following the bucket.

`make test` tries a sample. With `PENSTOCK_FAULT_TIMES`, which `make faults` sets, every place.
"""

from __future__ import annotations

import logging
import os
import random
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

from penstock.fold import AppendLogSnapshot, FoldStoreError, SnapshotMeta, SqliteSnapshot
from penstock.fold.store import pgss
from penstock.fold.store.append_log import META_SUFFIX, TORN_SUFFIX
from penstock.fold.store.log_witnesses import Witness
from penstock.fold.store.value_record import decode_record
from support.folds import at, contents, model, put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

KEYS = 1_000
BATCH = 100
SAMPLE = 1_500
IS_WHOLE = int(os.environ.get("PENSTOCK_FAULT_TIMES", "0")) > 0
UPDATES = [put(f"k.{n:04}", b"value %d" % n, n) for n in range(1, KEYS + 1)]
WHOLE = model(UPDATES)
META = SnapshotMeta("KV_b@1+x", ("",), True, 4, None, (Witness(3, "k", 7),), "", "keys-only")


def written() -> bytes:
    """A log of 1,000 keys, in batches with a cursor each."""
    batches = [UPDATES[start : start + BATCH] for start in range(0, KEYS, BATCH)]
    return pgss.HEADER + b"".join(
        pgss.encode_batch(batch, at(batch[-1].revision)) for batch in batches
    )


def places(count: int) -> Iterator[int]:
    if IS_WHOLE or count <= SAMPLE:
        yield from range(count)
    else:
        yield from sorted(random.Random(15).sample(range(count), SAMPLE))


def flipped(data: bytes, place: int) -> bytes:
    damaged = bytearray(data)
    damaged[place // 8] ^= 1 << place % 8
    return bytes(damaged)


def judged(data: bytes) -> str:
    """What becomes of a damaged log. AssertionError if it is wrong and believed.

    Without an error everything up to the cursor is there as it was written: following the bucket
    from that cursor brings what is missing.
    """
    try:
        said = pgss.replay(data)
    except FoldStoreError:
        return "refused"
    entries = {key: decode_record(key, record) for key, record in said.entries.items()}
    assert entries.items() <= WHOLE.items()
    assert entries.keys() >= {update.key for update in UPDATES[: said.cursor.rank]}
    if said.torn_bytes:
        return "torn"
    return "same" if len(entries) == KEYS and said.cursor == at(KEYS) else "shorter"


def test_no_flipped_bit_of_log_is_believed() -> None:
    data = written()
    seen = Counter(judged(flipped(data, place)) for place in places(8 * len(data)))
    print(f"flips {dict(seen)}")
    assert seen.keys() <= {"refused", "torn"}
    assert seen["torn"] <= 8 * len(pgss.cursor_record(at(KEYS))), "only the last record may be"


def test_every_cut_of_log_leaves_what_its_cursor_reports() -> None:
    data = written()
    seen = Counter(judged(data[:size]) for size in places(len(data)))
    print(f"cuts {dict(seen)}")
    assert seen["same"] == 0


def test_log_that_is_opened_in_spite_of_damage_is_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of the damaged file is lost: it may have the last copy of a value."""
    data = written()
    last = len(data) - len(pgss.cursor_record(at(KEYS)))
    damaged = [flipped(data, place) for place in range(8 * last, 8 * len(data))]
    damaged += [data[:size] for size in range(last - 60, len(data))]
    path = tmp_path / "fold"
    for one in damaged:
        path.write_bytes(one)
        aside = path.with_name(path.name + TORN_SUFFIX)
        aside.unlink(missing_ok=True)
        verdict = judged(one)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            try:
                AppendLogSnapshot.open(path).close()
            except FoldStoreError:
                assert path.read_bytes() == one
                continue
        if verdict == "torn":
            assert aside.read_bytes() == one
            assert "torn or damaged" in caplog.text


def test_no_damage_to_metadata_of_log_is_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "fold"
    with AppendLogSnapshot.open(path) as store:
        store.apply(UPDATES[:3], at(3), meta=META)
    beside = path.with_name(path.name + META_SUFFIX)
    data = beside.read_bytes()
    damaged = [flipped(data, place) for place in places(8 * len(data))]
    damaged += [data[:size] for size in places(len(data))]
    for one in damaged:
        beside.write_bytes(one)
        caplog.clear()
        with caplog.at_level(logging.WARNING), AppendLogSnapshot.open(path) as store:
            assert contents(store) == model(UPDATES[:3])
            is_reported = store.meta.seen_evicting and "is not known" in caplog.text
            assert store.meta == META or is_reported


def test_no_damage_to_metadata_in_sqlite_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "fold"
    with SqliteSnapshot.open(path) as store:
        store.apply(UPDATES[:3], at(3), meta=META)
    with sqlite3.connect(path) as database:
        (data,) = database.execute("SELECT v FROM meta WHERE k = 'origin'").fetchone()
    data = data.encode() if isinstance(data, str) else data
    sample = list(places(8 * len(data)))
    damaged = [flipped(data, place) for place in (sample if IS_WHOLE else sample[::10])]
    damaged += [data[:size] for size in range(1, len(data), 1 if IS_WHOLE else 10)]
    for one in damaged:
        database = sqlite3.connect(path)
        with database:
            database.execute("UPDATE meta SET v = ? WHERE k = 'origin'", (one,))
        database.close()
        try:
            with SqliteSnapshot.open(path) as store:
                assert store.meta == META
        except FoldStoreError:
            continue
