"""Planning over entries in flight gives what planning after they are applied gives.

Two streams live the same random life. One applies every entry at once; the other keeps some in
flight, and applies one only when it has too many or when a plan must wait for it. Replies, entries
and messages must be equal.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.refusals import ApiError
from penstock.api.request_bodies import PurgeRequest
from penstock.api.stream_config import Discard
from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.jetstream.streams.entries import Answer, NotApplied, NotLoaded
from penstock.jetstream.streams.entry_codec import decode_entry, encode_entry
from penstock.jetstream.streams.replicated_stream import ReplicatedStream
from penstock.jetstream.streams.retention import limits_of
from penstock.store.memstore import MemStore
from support.messages import stored_in
from support.stream_run import NEW_YEAR, SECOND, Run, block, config

if TYPE_CHECKING:
    from penstock.jetstream.streams.entries import Entry

LIVES = 800
IDS = ("a", "b", "c")
Fields = dict[str, str]
FIELDS: dict[str, tuple[Any, ...]] = {
    "max_msgs": (2, 3, 6),
    "max_bytes": (-1, 200),
    "max_msgs_per_subject": (-1, 1, 2),
    "max_age": (0, 5 * SECOND),
    "discard": tuple(Discard),
    "discard_new_per_subject": (False, True),
    "subject_delete_marker_ttl": (0, 2 * SECOND),
    "duplicate_window": (0, 3 * SECOND, 120 * SECOND),
}
"""Values of a configuration; each life has some of these fields."""
ALLOWED: dict[str, str] = {
    "rollup": "allow_rollup_hdrs",
    "ttl": "allow_msg_ttl",
    "counter": "allow_msg_counter",
    "batch": "allow_atomic",
    "fast": "allow_batched",
    "schedule": "allow_msg_schedules",
}
"""What a kind of message needs."""
KINDS = ("id", "expect last of subject", "expect last", "expect id", *ALLOWED)


def header_of(kind: str, random: Random) -> Fields:
    """The header of a message of this kind; its numbers are often wrong."""
    number = str(random.randrange(10))
    found = {
        "id": {"Nats-Msg-Id": random.choice(IDS)},
        "expect last of subject": {"Nats-Expected-Last-Subject-Sequence": number},
        "expect last": {"Nats-Expected-Last-Sequence": number},
        "expect id": {"Nats-Expected-Last-Msg-Id": random.choice(IDS)},
        "rollup": {"Nats-Rollup": random.choice(("sub", "all"))},
        "ttl": {"Nats-TTL": random.choice(("1s", "5s"))},
        "counter": {"Nats-Incr": random.choice(("1", "-2"))},
        "batch": {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": random.choice("123")},
        "schedule": {"Nats-Schedule": "@every 2s", "Nats-Schedule-Target": "s.t"},
    }.get(kind, {})
    if kind == "expect last of subject" and random.random() < 0.3:
        found["Nats-Expected-Last-Subject-Sequence-Subject"] = random.choice(("s.a", "s.*"))
    if kind == "batch" and random.random() < 0.3:
        found["Nats-Batch-Commit"] = "1"
    if kind == "batch" and random.random() < 0.2:
        found["Nats-Msg-Id"] = random.choice(IDS)
    return found


class Life:
    """A random life of few kinds of messages, so that they meet."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        kinds = random.sample(KINDS, random.randrange(4))
        names = random.sample(sorted(FIELDS), random.randrange(4))
        self.fields = {name: random.choice(FIELDS[name]) for name in names}
        self.fields |= {ALLOWED[kind]: random.random() < 0.9 for kind in kinds if kind in ALLOWED}
        subjects = random.choice((["s.a"], ["s.a", "s.b"], ["s.a", "s.b", "s.t"]))
        self.steps: list[tuple[Any, ...] | PurgeRequest | int] = []
        has_requests = random.random() < 0.4
        number = 0
        for _ in range(random.randrange(1, 40)):
            if has_requests and random.random() < 0.15:
                self.steps.append(self._request(random))
                continue
            kind = random.choice((*kinds, ""))
            reply = "r"
            if kind == "fast":
                number = random.choice((1, number + 1, number + 1, number + 2))
                op = random.choice((0 if number == 1 else 1, 0 if number == 1 else 1, 2, 4))
                reply = f"r.b.2.ok.{number}.{op}.$FI"
            payload = b"" if "counter" in kinds else random.choice((b"", b"x" * 40))
            seconds = random.choice((0, 0, 0, 0, 0, 1, 4))
            header = header_of(kind, random)
            self.steps.append((random.choice(subjects), header, payload, reply, seconds))

    def _request(self, random: Random) -> PurgeRequest | int:
        return random.choice(
            (
                PurgeRequest(seq=random.randrange(12)),
                PurgeRequest(filter="s.a", keep=random.randrange(3)),
                random.randrange(1, 12),
            )
        )


class Later:
    """A stream that applies its entries later."""

    def __init__(self, in_flight_max: int, **fields: Any) -> None:
        self.cfg = config(**fields)
        self.store = MemStore(limits_of(self.cfg))
        self.stream = ReplicatedStream(self.cfg, self.store, created_ns=1)
        assert self.stream.recover(NEW_YEAR) is None
        self._in_flight: deque[bytes] = deque()
        self._max = in_flight_max
        self.entries: list[Entry] = []
        self.replies: list[bytes] = []
        self._answers: deque[tuple[int, list[bytes]]] = deque()
        self.waits = 0
        self._applied = 0

    def publish(self, msg: Inbound, now_ns: int) -> None:
        while isinstance(planned := self.stream.plan(msg, now_ns), NotApplied):
            self.waits += 1
            self.apply_next()
        assert not isinstance(planned, NotLoaded)
        if isinstance(planned, Answer):
            said = [each.payload for each in planned.effects if isinstance(each, Send)]
            self._answers.append((len(self.entries), said))
            self._release()
            return
        self.propose(planned)

    def propose(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.stream.proposed(entry)
        self._in_flight.append(encode_entry(entry))
        while len(self._in_flight) > self._max:
            self.apply_next()

    def apply_next(self) -> None:
        applied = self.stream.apply(decode_entry(self._in_flight.popleft()), is_own=True)
        self._applied += 1
        self.replies += [each.payload for each in applied.effects]
        self._release()

    def _release(self) -> None:
        """Reply what was decided over entries that are applied now."""
        while self._answers and self._answers[0][0] <= self._applied:
            self.replies += self._answers.popleft()[1]

    def request(self, request: PurgeRequest | int, now_ns: int) -> None:
        if isinstance(request, PurgeRequest):
            planned = self.stream.plan_purge(request, now_ns)
        else:
            while isinstance(found := self.stream.plan_remove(request, now_ns), NotApplied):
                self.apply_next()
            assert not isinstance(found, NotLoaded)
            planned = found
        if not isinstance(planned, ApiError):
            self.propose(planned)

    def tick(self, now_ns: int) -> None:
        self.apply_all()
        for entry in self.stream.tick(now_ns).entries:
            self.propose(entry)

    def apply_all(self) -> None:
        while self._in_flight:
            self.apply_next()


def request(run: Run, request: PurgeRequest | int) -> None:
    plan = run.stream.plan_purge if isinstance(request, PurgeRequest) else run.stream.plan_remove
    planned = plan(request, run.now_ns)  # type: ignore[arg-type]
    if not isinstance(planned, ApiError):
        run.apply(planned)  # type: ignore[arg-type]


@pytest.mark.parametrize("in_flight_max", [1, 3, 40])
@pytest.mark.parametrize("first_seed", range(0, LIVES, LIVES // 4))
def test_planning_over_entries_in_flight_equals_planning_after_them(
    first_seed: int, in_flight_max: int
) -> None:
    for seed in range(first_seed, first_seed + LIVES // 4):
        assert_equal(Life(seed), in_flight_max)


def assert_equal(life: Life, in_flight_max: int) -> None:
    at_once, later = Run(**life.fields), Later(in_flight_max, **life.fields)
    for step in life.steps:
        if not isinstance(step, tuple):
            request(at_once, step)
            later.request(step, at_once.now_ns)
            continue
        subject, header, payload, reply, seconds = step
        at_once.publish(subject, payload, header, reply=reply)
        later.publish(Inbound(subject, reply, block(header), payload), at_once.now_ns)
        if seconds:
            at_once.tick(seconds)
            later.tick(at_once.now_ns)
    later.apply_all()
    assert later.entries == at_once.entries
    said = [each.payload for each in at_once.effects if isinstance(each, Send)]
    assert later.replies == said
    assert stored_in(later.store) == at_once.messages()
    assert later.stream.state() == at_once.stream.state()


def test_plain_messages_ids_and_expectations_do_not_wait() -> None:
    later = Later(100)
    for number in range(50):
        expected = {"Nats-Expected-Last-Subject-Sequence": str(number)}
        msg_id = {"Nats-Msg-Id": str(number)}
        later.publish(Inbound("s.a", "r", block(expected | msg_id), b""), NEW_YEAR)
        later.publish(Inbound("s.a", "r", block(msg_id), b"again"), NEW_YEAR)
    assert later.waits == 0
    assert later.store.last_seq == 0
    later.apply_all()
    assert later.store.last_seq == 50
    assert sum(b"duplicate" in each for each in later.replies) == 50


def test_expectation_waits_for_rollup() -> None:
    later = Later(100, allow_rollup_hdrs=True)
    later.publish(Inbound("s.a", "r", block({"Nats-Rollup": "all"}), b""), NEW_YEAR)
    later.publish(Inbound("s.b", "r", b"", b""), NEW_YEAR)
    assert later.waits == 0
    header = block({"Nats-Expected-Last-Subject-Sequence": "2"})
    later.publish(Inbound("s.b", "r", header, b""), NEW_YEAR)
    assert later.waits == 1
