"""Whether a log is recognised by the records that a fold remembers of it."""

from __future__ import annotations

import pytest

from penstock.fold.store.log_witnesses import (
    WITNESSES_MAX,
    LogVerdict,
    Sighting,
    Witness,
    WitnessedRecord,
    after,
    verdict,
)
from penstock.kv.kv_types import KvUpdate, Op

CURSOR = 9
HELD = Witness(8, "k", 500)


def stored(seq: int, key: str = "k", time_us: int = 500) -> WitnessedRecord:
    return WitnessedRecord(seq, key, time_us, b"")


@pytest.mark.parametrize(
    ("at", "newest", "judged"),
    [
        (stored(8), stored(8), LogVerdict.SAME),
        (stored(8, time_us=501), stored(8), LogVerdict.SAME),
        (stored(8, time_us=502), stored(8), LogVerdict.RESET),
        (stored(8, "other"), None, LogVerdict.RESET),
        (None, stored(9), LogVerdict.RESET),
        (None, stored(10), LogVerdict.SAME),
        (None, stored(7), LogVerdict.LOST),
        (None, None, LogVerdict.LOST),
    ],
)
def test_record_is_the_same_replaced_lost_or_of_another_history(
    at: WitnessedRecord | None, newest: WitnessedRecord | None, judged: LogVerdict
) -> None:
    assert verdict([Sighting(HELD, at, newest)], CURSOR) is judged


def test_highest_record_that_is_there_decides() -> None:
    lower = Sighting(Witness(3, "j", 100), stored(3, "j", 999), None)
    assert verdict([lower, Sighting(HELD, stored(8), stored(8))], CURSOR) is LogVerdict.SAME
    assert verdict([lower, Sighting(HELD, None, stored(10))], CURSOR) is LogVerdict.RESET


def test_newest_records_of_the_last_keys_are_kept() -> None:
    updates = [KvUpdate(Op.PUT, f"k{n % 20}", b"", n, n / 1000) for n in range(1, 41)]
    kept = after((), updates)
    assert [one.seq for one in kept] == list(range(41 - WITNESSES_MAX, 41))
    kept = after(kept, [KvUpdate(Op.DELETE, "k0")])
    assert 40 not in [one.seq for one in kept]
