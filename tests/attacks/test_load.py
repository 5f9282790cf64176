"""Clients that are let in and ask for too much: bounded memory, and others are served."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from support.peers import several
from support.victims import MIB, Victim

if TYPE_CHECKING:
    from collections.abc import Callable

PENDING = 8 * MIB
BOUNDED = f"max_pending: {PENDING}\n"
WORD = (1 << 64) - 1
SUBSCRIPTIONS = 200_000


def test_one_client_adds_and_removes_very_many_subscriptions(unguarded: Victim) -> None:
    with unguarded.client() as greedy, unguarded.client() as other:
        for start in range(0, SUBSCRIPTIONS, 20_000):
            numbers = range(start, start + 20_000)
            greedy.send("".join(f"SUB load.{n}.> {n}\r\n" for n in numbers))
        greedy.fence()
        other.send(f"PUB load.{SUBSCRIPTIONS - 1}.x 0\r\n\r\nPUB load.{SUBSCRIPTIONS}.x 0\r\n\r\n")
        other.fence()
        assert [one.sid for one in greedy.deliveries()] == [str(SUBSCRIPTIONS - 1)]
        greedy.leave()
        other.send("PUB load.1.x 0\r\n\r\n")
        assert other.deliveries() == []


def colliding_sids(count: int) -> list[bytes]:
    """Names that all hash to zero in the server's hash when its seed is zero."""
    step, fold, last = 0x9E3779B97F4A7C15, 0xA0761D6478BD642F, 0x8EBC6AF09C88C6E3
    for number in itertools.count():
        prefix = b"%016d" % number
        low, high = (int.from_bytes(prefix[at : at + 8], "little") for at in (0, 8))
        product = (low ^ fold) * (high ^ (32 * step & WORD))
        state = (product & WORD) ^ (product >> 64)
        ending = (state ^ last).to_bytes(8, "little")
        if not set(ending) & set(b" \t\r\n"):
            return [prefix + b"%08d" % at + ending for at in range(count)]
    raise AssertionError("unreachable")


def test_colliding_sids_cost_no_more_than_others(unguarded: Victim) -> None:
    """With a hash that its peers could foresee this takes minutes; the fence has a deadline."""
    with unguarded.client() as peer:
        peer.send(b"".join(b"SUB sids %b\r\n" % sid for sid in colliding_sids(200_000)))
        assert peer.fence() == []


def test_fan_out_to_own_subscriptions_keeps_memory_bound(
    attack: Callable[..., Victim],
) -> None:
    victim = attack(BOUNDED)
    with victim.client() as reader, victim.client() as publisher:
        reader.send("".join(f"SUB loud {n}\r\n" for n in range(5000)))
        reader.fence()
        before = victim.resident()
        publisher.send(b"PUB loud 0\r\n\r\n" * 10_000)
        publisher.fence()
        publisher.send(b"PUB loud 1000000\r\n" + b"x" * 1_000_000 + b"\r\n")
        publisher.fence()
        assert victim.peak() - before < 6 * PENDING


def test_stalled_readers_keep_memory_bound(
    attack: Callable[..., Victim],
) -> None:
    victim = attack(BOUNDED)
    readers = 4
    with victim.client() as publisher:
        files = victim.open_files()
        with several(readers, victim.client) as stuck:
            for peer in stuck:
                peer.send("SUB stuck 1\r\n")
                peer.fence()
            before = victim.resident()
            message = b"PUB stuck 65536\r\n" + b"x" * 65_536 + b"\r\n"
            for _ in range(500):
                publisher.send(message)
            publisher.fence()
            assert victim.peak() - before < readers * 2 * PENDING
            victim.wait_for_files(files)


def test_inboxes_used_once_fill_no_cache(unguarded: Victim) -> None:
    with unguarded.client() as peer:
        peer.send("SUB _INBOX.> 1\r\n")
        peer.send("UNSUB 1 100\r\n")
        peer.fence()
        peer.send(b"".join(b"PUB _INBOX.%d 0\r\n\r\n" % n for n in range(1000)))
        peer.fence()
        before = unguarded.resident()
        for start in range(0, 200_000, 20_000):
            numbers = range(start, start + 20_000)
            peer.send(b"".join(b"PUB _INBOX.%d.%d 0\r\n\r\n" % (n, n) for n in numbers))
            peer.fence()
        assert unguarded.resident() - before < 8 * MIB
