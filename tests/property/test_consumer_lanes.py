"""Two lanes, one meaning: a consumer with its compiled lane and one without, through any script.

Both get the same stream and the same words. After every step they have sent the same messages in
the same order, byte for byte, and know the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.ack_protocol import parse_ack_subject
from penstock.api.consumer_config import AckPolicy, DeliverPolicy, PriorityPolicy
from penstock.base.effects import Deliver, Send
from penstock.jetstream.consumers import delivery, push_delivery
from support.consumer_stage import MS, SECOND, T0, Stage, pull_config, push_config
from support.lanes import LaneStage, PlainStage

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig

SUBJECTS = ("a", "b", "c.d", "c.e", "c.e.f")
HEADERS = (b"", b"", b"NATS/1.0\r\nK: v\r\n\r\n")
NONE = AckPolicy.NONE
LASTS = DeliverPolicy.LAST_PER_SUBJECT
GROUPED = {"priority_policy": PriorityPolicy.OVERFLOW, "priority_groups": ("g",)}
BEATING = {"flow_control": True, "idle_heartbeat": SECOND}

CONFIGS: dict[str, ConsumerConfig] = {
    "pull": pull_config(),
    "pull, few at a time": pull_config(max_ack_pending=3),
    "pull, no acks": pull_config(ack_policy=NONE),
    "pull, acks for all": pull_config(ack_policy=AckPolicy.ALL),
    "pull, one subject": pull_config(filter_subject="c.e"),
    "pull, a pattern": pull_config(filter_subject="c.>", ack_policy=NONE),
    "pull, patterns": pull_config(filter_subjects=("a", "c.*"), backoff=(SECOND, 3 * SECOND)),
    "pull, nothing matches": pull_config(filter_subject="nope.>"),
    "pull, given up soon": pull_config(max_deliver=2),
    "pull, lasts": pull_config(deliver_policy=LASTS, filter_subjects=("a", "c.>")),
    "pull, lasts, few at a time": pull_config(deliver_policy=LASTS, max_ack_pending=2),
    "pull, headers only": pull_config(headers_only=True),
    "pull, groups": pull_config(**GROUPED),
    "push": push_config(),
    "push, no acks": push_config(ack_policy=NONE),
    "push, lasts": push_config(ack_policy=NONE, deliver_policy=LASTS, **BEATING),
    "push, lasts, headers only": push_config(
        ack_policy=NONE, deliver_policy=LASTS, headers_only=True, filter_subject="c.>", **BEATING
    ),
    "push, flow control": push_config(ack_policy=NONE, **BEATING),
    "push, acked by flow control": push_config(
        ack_policy=AckPolicy.FLOW_CONTROL, max_ack_pending=4, ack_wait=0, **BEATING
    ),
    "push, one subject": push_config(filter_subject="a", max_ack_pending=2),
}

numbers = st.integers(0, 99)
steps = st.one_of(
    st.tuples(st.just("publish"), numbers),
    st.tuples(st.just("publish_some"), numbers),
    st.tuples(st.just("pull"), numbers),
    st.tuples(st.just("pull"), numbers),
    st.tuples(st.just("ack"), numbers),
    st.tuples(st.just("ack"), numbers),
    st.tuples(st.just("ack_some"), numbers),
    st.tuples(st.just("ack_some"), numbers),
    st.tuples(st.just("refuse"), numbers),
    st.tuples(st.just("answer"), numbers),
    st.tuples(st.just("wait"), st.integers(1, 40)),
    st.tuples(st.just("deafen"), numbers),
    st.tuples(st.just("remove"), numbers),
    st.tuples(st.just("purge"), numbers),
    st.tuples(st.just("filter"), numbers),
    st.tuples(st.just("retain"), numbers),
)

BODIES = (
    '{"batch":1}', '{"batch":7,"expires":5000000000}', '{"batch":3,"no_wait":true}', "",
    '{"batch":2,"max_bytes":90}', '{"batch":20,"expires":9000000000,"idle_heartbeat":1000000000}',
    '{"batch":0}', '{"batch":4,"group":"g","min_pending":2}',
    '{"batch":6,"max_bytes":700,"expires":5000000000}', '{"batch":4,"max_bytes":100000}',
)  # fmt: skip


class Pair:
    """The same consumer twice."""

    def __init__(self, cfg: ConsumerConfig, *, by_interest: bool) -> None:
        before = [SUBJECTS[n % 5] for n in range(9)]
        self.plain = PlainStage(cfg, before=before, by_interest=by_interest)
        self.lane = LaneStage(cfg, before=before, by_interest=by_interest)
        self.deliveries: list[Deliver] = []
        self.asked = ""
        self.acked_spans: dict[bool, list[int]] = {}
        self.compare()

    def do(self, verb: str, number: int) -> None:
        for stage in (self.plain, self.lane):
            getattr(self, verb)(stage, number)
        self.compare()

    # -- steps

    def publish(self, stage: Stage, number: int) -> None:
        stage.publish(SUBJECTS[number % 5], b"x" * (number % 7), HEADERS[number % 3])

    def publish_some(self, stage: Stage, number: int) -> None:
        """As a lane of the stream does, which does not name the messages."""
        for n in range(number % 6):
            stage.store.append(SUBJECTS[(number + n) % 5], b"", b"y" * n, stage.now_ns)
        stage.consumer.stored_some()
        stage.take(stage.consumer.wake(stage.now_ns))

    def pull(self, stage: Stage, number: int) -> None:
        if stage.consumer.cfg.is_push:
            return
        stage.pull(BODIES[number % len(BODIES)], reply=("r1", "r2", "r3")[number % 3])

    def ack(self, stage: Stage, number: int) -> None:
        self._answer_one(stage, number, (b"+ACK", b"", b"+WPI", b"+TERM")[number % 4])

    def ack_some(self, stage: Stage, number: int) -> None:
        """Several, in an order that may be any; one where each would let the next message go, as
        the floor of either lane is right then, but not the same."""
        chosen = self.deliveries[number % 7 :: 1 + number % 3]
        if stage.consumer._delivery.is_stalled:
            chosen = chosen[:1]
        assert isinstance(stage, LaneStage | PlainStage)
        stage.ack_many(chosen[::-1] if number % 5 == 0 else chosen)
        self.acked_spans[stage is self.lane] = seqs_of(stage.acked_spans)

    def refuse(self, stage: Stage, number: int) -> None:
        self._answer_one(stage, number, (b"-NAK", b"-NAK 2s")[number % 2])

    def _answer_one(self, stage: Stage, number: int, payload: bytes) -> None:
        if self.deliveries and stage.consumer.cfg.ack_policy is not NONE:
            stage.ack(self.deliveries[number % len(self.deliveries)], payload)

    def answer(self, stage: Stage, number: int) -> None:
        """To flow control."""
        state = stage.log.state
        header = b"NATS/1.0\r\nNats-Last-Stream: %d\r\nNats-Last-Consumer: %d\r\n\r\n" % (
            state.delivered_stream,
            state.delivered_consumer,
        )
        stage.take(stage.consumer.flow_reply(self.asked, header, stage.now_ns))

    def wait(self, stage: Stage, number: int) -> None:
        stage.pass_time(number * 250 * MS)

    def deafen(self, stage: Stage, number: int) -> None:
        stage.deaf ^= {("in", "r1", "r2")[number % 3]}
        stage.take(stage.consumer.interest_changed(stage.now_ns))

    def remove(self, stage: Stage, number: int) -> None:
        seq = number % (stage.store.last_seq + 1)
        removed = stage.store.remove(seq)
        if removed is not None:
            stage.take(stage.consumer.removed(removed.seqs, stage.now_ns))

    def purge(self, stage: Stage, number: int) -> None:
        if number < 20:
            stage.purge(before_seq=number % (stage.store.last_seq + 2))

    def retain(self, stage: Stage, number: int) -> None:
        """The stream begins to keep messages for its consumers, or ceases to."""
        stage.consumer.retention_changed(by_interest=number % 2 == 0)

    def filter(self, stage: Stage, number: int) -> None:
        """Filters change now and then."""
        cfg = stage.consumer.cfg
        if number >= 10 or not cfg.filter_subject:
            return
        changed = type(cfg)(
            **{
                **{name: getattr(cfg, name) for name in cfg.__struct_fields__},
                "filter_subject": ("a", "c.*", "c.e", ">")[number % 4],
            }
        )
        stage.take(stage.consumer.update(changed, stage.now_ns))

    # -- laws

    def compare(self) -> None:
        plain, lane = self.plain, self.lane
        sent = plain.sent
        assert lane.sent == sent
        plain.sent, lane.sent = [], []
        assert lane.log.state == plain.log.state
        now_ns = plain.now_ns
        assert lane.consumer.info(now_ns) == plain.consumer.info(now_ns)
        assert due(lane) == due(plain)
        assert self.acked_spans.get(True) == self.acked_spans.get(False)
        assert seqs_of(lane.consumer.take_acked()) == seqs_of(plain.consumer.take_acked())
        self.deliveries += [one for one in sent if isinstance(one, Deliver)]
        for one in sent:
            if isinstance(one, Send) and one.reply.startswith("$JS.FC."):
                self.asked = one.reply
        for one in self.deliveries[-1:]:
            assert parse_ack_subject(one.reply) is not None


def due(stage: Stage) -> int | None:
    """When something is delivered again."""
    return stage.consumer._outstanding.next_deadline_ns()


def seqs_of(ranges: tuple[tuple[int, int], ...]) -> list[int]:
    return [seq for first, last in ranges for seq in range(first, last + 1)]


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "PUMP_BYTES_MAX", 250)
        patch.setattr(push_delivery, "WINDOW_BYTES_MIN", 300)
        patch.setattr(push_delivery, "WINDOW_BYTES_MAX", 1200)
        yield


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("by_interest", [False, True])
@settings(max_examples=40)
@given(script=st.lists(steps, max_size=40))
def test_both_lanes_send_and_know_the_same(
    kind: str, by_interest: bool, script: list[tuple[str, int]]
) -> None:
    pair = Pair(CONFIGS[kind], by_interest=by_interest)
    for verb, number in script:
        pair.do(verb, number)


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind.startswith("pu")])
def test_ordinary_messages_take_compiled_lane(kind: str) -> None:
    stage = LaneStage(CONFIGS[kind])
    for number in range(20):
        stage.publish(SUBJECTS[number % 5])
        if not stage.consumer.cfg.is_push:
            stage.pull('{"batch":3}')
    ordinary = not {"nothing", "groups"} & set(kind.split())
    assert (stage.ran > 0) == ordinary


def test_requests_are_served_in_turns_across_runs() -> None:
    stage = LaneStage(CONFIGS["pull, no acks"])
    for reply, batch in (("r1", 2), ("r2", 5), ("r3", 3)):
        stage.pull(str(batch), reply=reply)
    for _ in range(4):
        for _ in range(3):
            stage.store.append("a", b"", b"", T0)
        stage.consumer.stored_some()
        stage.take(stage.consumer.wake(T0))
    got = [one.to for one in stage.sent if isinstance(one, Deliver)]
    assert got == ["r1", "r2", "r3", "r1", "r2", "r3", "r2", "r3", "r2", "r2"]


def test_requests_that_count_bytes_go_through_lane_up_to_their_last_bytes() -> None:
    stage = LaneStage(CONFIGS["pull, no acks"], before=["a"] * 30)
    stage.pull('{"batch":30,"max_bytes":1000}', reply="r1")
    stage.publish("a")
    got = [one for one in stage.sent if isinstance(one, Deliver)]
    size = sum(len(one.subject) + len(one.reply) for one in got)
    told = [one for one in stage.sent if isinstance(one, Send)]
    assert 1000 - 50 < size <= 1000
    assert f"Nats-Pending-Bytes: {1000 - size}\r\n".encode() in told[-1].header
    assert b"409 Message Size Exceeds MaxBytes" in told[-1].header
