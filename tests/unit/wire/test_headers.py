"""Header blocks: reading single keys, and changing a block without touching the rest of it."""

from __future__ import annotations

import pytest

from penstock.wire import headers

BLOCK = b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id:  x y \r\nA: 2\r\nB:3\r\n\r\n"


def test_first_line_of_key_counts_and_blanks_before_its_value_do_not() -> None:
    assert headers.get(BLOCK, b"A") == b"1"
    assert headers.get(BLOCK, b"Nats-Msg-Id") == b"x y "
    assert headers.get(BLOCK, b"B") == b"3"


@pytest.mark.parametrize("key", [b"a", b"Msg-Id", b"NATS/1.0", b"Nats-Msg", b"1"])
def test_invalid_whole_key_is_not_found(key: bytes) -> None:
    assert headers.get(BLOCK, key) is None
    assert key not in headers.parse(BLOCK)


def test_value_without_line_end_goes_to_the_end_of_block() -> None:
    assert headers.get(b"NATS/1.0\r\nA: open", b"A") == b"open"


def test_empty_block_holds_nothing() -> None:
    assert headers.get(b"", b"A") is None
    assert headers.parse(b"") == {}
    assert headers.without(b"", b"A") == b""


@pytest.mark.parametrize("key", [b"A", b"Nats-Msg-Id", b"B"])
def test_reading_all_keys_agrees_with_reading_one(key: bytes) -> None:
    assert headers.parse(BLOCK)[key] == headers.get(BLOCK, key)


@pytest.mark.parametrize(
    ("block", "left"),
    [
        (b"NATS/1.0 503 No Responders\r\n\r\n", b""),
        (b"NATS/1.0 100\r\nA: 1\r\n\r\n", b"NATS/1.0\r\nA: 1\r\n\r\n"),
        (b"NATS/1.0\r\nA: 1\r\n\r\n", b"NATS/1.0\r\nA: 1\r\n\r\n"),
        (b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\n\r\n"),
        (b"no block at all", b"no block at all"),
    ],
)
def test_status_goes_and_emptied_block_with_it(block: bytes, left: bytes) -> None:
    assert headers.without_status(block) == left


def test_line_is_added_at_the_end_and_makes_block_if_there_is_none() -> None:
    assert headers.added(b"", b"K", b"v") == b"NATS/1.0\r\nK: v\r\n\r\n"
    assert headers.added(b"NATS/1.0\r\nA:1\r\n\r\n", b"K", b"v") == (
        b"NATS/1.0\r\nA:1\r\nK: v\r\n\r\n"
    )


def test_added_value_cannot_start_line_of_its_own() -> None:
    assert headers.added(b"", b"K", b" a\r\nEvil: b\n") == b"NATS/1.0\r\nK: a  Evil: b\r\n\r\n"


def test_value_is_replaced_in_its_place_or_added() -> None:
    assert headers.replaced(BLOCK, b"A", b"long") == BLOCK.replace(b"A: 1", b"A: long")
    assert headers.replaced(BLOCK, b"B", b"") == BLOCK.replace(b"B:3", b"B:")
    assert headers.replaced(b"", b"C", b"v") == b"NATS/1.0\r\nC: v\r\n\r\n"


def test_all_lines_of_key_go() -> None:
    assert headers.without(BLOCK, b"A") == b"NATS/1.0\r\nNats-Msg-Id:  x y \r\nB:3\r\n\r\n"
    assert headers.without(b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n", b"A") == b""
    assert headers.without(BLOCK, b"Nats-Msg") == BLOCK


def test_all_lines_that_start_so_go() -> None:
    block = b"NATS/1.0\r\nNats-X: 1\r\nK: Nats-\r\nNats-Y-Z: 2\r\n\r\n"
    assert headers.without_prefix(block, b"Nats-") == b"NATS/1.0\r\nK: Nats-\r\n\r\n"
