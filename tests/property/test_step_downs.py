"""A leader that loses its office at random loses no acknowledged message, and acks none twice.

Entries are applied late, and dropped when the leader steps down. What was acknowledged is stored
under its sequence; and the decided entries, as bytes, rebuild the same stream on an empty store.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from penstock.api.request_bodies import PurgeRequest
from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.jetstream.host.stream_host import StreamHost
from penstock.jetstream.streams.entry_codec import decode_entry
from penstock.jetstream.streams.replicated_stream import ReplicatedStream
from penstock.jetstream.streams.retention import limits_of
from penstock.jetstream.streams.stream import Stream
from penstock.store.filestore import FileStore
from penstock.store.format.compression import BlockCompression
from penstock.store.format.encryption import ServerKey
from penstock.store.memstore import MemStore
from penstock.testing.sim_disk import SimDisk
from support.hosts import committed, turned
from support.messages import stored_in
from support.replicators import DelayedReplicator
from support.stream_run import NEW_YEAR, SECOND, block, config

if TYPE_CHECKING:
    from penstock.store.contract import Store

SEEDS = 60
STEPS = 150
CONFIGS = (
    {},
    {"max_msgs": 5},
    {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True},
    {"max_age": 3 * SECOND, "allow_msg_ttl": True, "subject_delete_marker_ttl": SECOND},
    {"allow_msg_counter": True},
)


class Life:
    """A host, its clients, and a replicator that drops what it likes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cfg = config(**CONFIGS[seed % len(CONFIGS)])
        self.store = MemStore(limits_of(self.cfg))
        stream = ReplicatedStream(self.cfg, self.store, created_ns=NEW_YEAR)
        self.host = StreamHost(stream, None, replicate=DelayedReplicator)
        replicator = self.host.proposals._replicator
        assert isinstance(replicator, DelayedReplicator)
        self.replicator = replicator
        self.now_ns = NEW_YEAR
        self.sent = 0
        self.acked: dict[int, bytes] = {}
        self.stored: dict[int, bytes] = {}
        """Everything that was ever stored, by sequence."""

    def step(self) -> None:
        kind = self.random.choice(("publish",) * 8 + ("apply",) * 8 + ("time", "purge", "office"))
        getattr(self, kind)()
        for effect in (*turned(self.host, self.now_ns), *committed(self.host)):
            if isinstance(effect, Send) and effect.payload:
                self.hear(effect.subject, json.loads(effect.payload))
        for seq, record in stored_in(self.store).items():
            assert self.stored.setdefault(seq, record.payload) == record.payload

    def hear(self, reply: str, said: dict[str, int]) -> None:
        if "error" in said or "duplicate" in said or not reply.isdigit():
            return
        assert said["seq"] not in self.acked, "one sequence, acknowledged twice"
        self.acked[said["seq"]] = reply.encode()
        if not self.cfg.allow_msg_counter and said["seq"] in self.stored:
            assert self.stored[said["seq"]] == reply.encode()

    def publish(self) -> None:
        self.sent += 1
        random, fields = self.random, {}
        if random.random() < 0.3:
            fields["Nats-Msg-Id"] = str(random.randrange(5))
        if random.random() < 0.2:
            fields["Nats-Expected-Last-Subject-Sequence"] = str(self.store.last_seq)
        if self.cfg.allow_rollup_hdrs and random.random() < 0.1:
            fields["Nats-Rollup"] = random.choice(("sub", "all"))
        if self.cfg.allow_msg_ttl and random.random() < 0.3:
            fields["Nats-TTL"] = "1s"
        payload = str(self.sent).encode()
        if self.cfg.allow_msg_counter:
            fields["Nats-Incr"], payload = "1", b""
        subject = random.choice(("s.a", "s.b"))
        self.host.publish(Inbound(subject, str(self.sent), block(fields), payload), self.now_ns)

    def apply(self) -> None:
        if len(self.replicator):
            self.replicator.apply_next(self.now_ns)
        if self.host.chores.are_left:
            self.host.chores.go_on(self.now_ns)

    def time(self) -> None:
        self.now_ns += self.random.choice((0, SECOND, 4 * SECOND))
        self.host.tick(self.now_ns)

    def purge(self) -> None:
        request = PurgeRequest(
            filter=self.random.choice(("", "s.a")), keep=self.random.randrange(3)
        )
        entry = self.host.stream.plan_purge(request, self.now_ns)
        self.host.propose(entry)  # type: ignore[arg-type]

    def office(self) -> None:
        self.replicator.step_down(self.now_ns)
        if self.random.random() < 0.5:
            self.publish()  # no server leads the stream
        self.replicator.lead(self.now_ns)

    def end(self) -> None:
        self.replicator.apply_all(self.now_ns)
        self.step()


def replica_stores(life: Life) -> list[Store]:
    limits, noise = limits_of(life.cfg), Random(1).randbytes
    files = [
        FileStore.open(SimDisk(), limits=limits, incarnation=7, noise=noise, **more)
        for more in ({}, {"compression": BlockCompression.ZSTD}, {"key": ServerKey("secret")})
    ]
    return [MemStore(limits), *files]


@pytest.mark.parametrize("first_seed", range(0, SEEDS, SEEDS // 4))
def test_step_downs_lose_nothing_and_entries_rebuild_the_stream(first_seed: int) -> None:
    acked = 0
    for seed in range(first_seed, first_seed + SEEDS // 4):
        life = Life(seed)
        for _ in range(STEPS):
            life.step()
        life.end()
        acked += len(life.acked)
        for seq, payload in life.acked.items():
            if not life.cfg.allow_msg_counter and seq in life.stored:
                assert life.stored[seq] == payload
        for store in replica_stores(life):
            replica = Stream(life.cfg, store, created_ns=NEW_YEAR)
            for data in life.replicator.decided:
                replica.apply(decode_entry(data))
            if (work := store.pending_sync()) is not None:
                work.run()
                store.synced(work)
            assert stored_in(store) == stored_in(life.store)
            ours = replace(replica.state(), bytes=0)  # each kind of store counts its own bytes
            assert ours == replace(life.host.stream.state(), bytes=0)
    assert acked > 100, "most lives must have acks"
