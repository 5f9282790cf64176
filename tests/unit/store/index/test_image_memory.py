"""Images of blocks grow without losing a byte: small, large, and beyond a full block."""

from __future__ import annotations

import pytest

from penstock.store.index.block_images import drop_image, take_unwritten, warm_blocks
from penstock.store.index.message_log import Cold, MessageLog

MIB = 1 << 20


@pytest.mark.parametrize("block_bytes", [512, 100_000, 3 * MIB, 8 * MIB])
def test_appended_records_are_read_back(block_bytes: int) -> None:
    log = MessageLog(incarnation=7, block_bytes=block_bytes, durable=True)
    sizes = [100, 70_000, 1000, MIB, 5 * MIB, 17, *[4000] * 600, 20 * MIB, 3]
    for seq, size in enumerate(sizes, 1):
        assert log.append("s", b"", bytes([seq % 251]) * size, seq) == seq
        log.note_mark(*log.end(), seq)
    for seq, size in enumerate(sizes, 1):
        assert log.load(seq).payload == bytes([seq % 251]) * size


def test_mark_fits_after_full_block() -> None:
    log = MessageLog(incarnation=7, block_bytes=2 * MIB, durable=True)
    log.append("s", b"", b"a" * (MIB + 1), 1)
    while log.end()[0] == 1 and log.end()[1] < 2 * MIB - 4096:
        log.append("s", b"", b"b" * 3000, log.last_seq + 1)
    for _ in range(200):
        log.note_mark(*log.end(), log.last_seq)
    assert log.end()[0] == 1
    assert log.load(1).payload == b"a" * (MIB + 1)
    assert log.load(log.last_seq).payload == b"b" * 3000


def test_memory_that_block_has_let_go_of_holds_the_next_one() -> None:
    log = MessageLog(incarnation=7, block_bytes=2 * MIB, durable=True)
    for seq in range(1, 6001):
        log.append("s", b"", b"%d" % seq * 200, seq)
        take_unwritten(log)
        for number, _ in warm_blocks(log):
            drop_image(log, number)
    first = log.last_seq
    while log.load(first) is not None and not isinstance(log.load(first), Cold):
        assert log.load(first).payload == b"%d" % first * 200
        first -= 1
    assert 1 < first < log.last_seq
