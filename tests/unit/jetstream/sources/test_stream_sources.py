"""What feeds a stream follows its configuration, and what is known of its origins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.api.stream_config import External, SourceConsumer, StreamSource
from penstock.jetstream.sources.stream_sources import FEEDS_PER_TICK
from penstock.store.contract import Cold, MessageRecord, Missing
from penstock.store.memstore import MemStore
from support.copies import CONSUMER, DELIVER, MIRROR, ORIGIN, SOURCE, Copy, connected
from support.stream_run import SECOND

if TYPE_CHECKING:
    from penstock.jetstream.consumers.consumer import Consumer

OTHER = StreamSource(name="P")
DELETION = f"$JS.API.CONSUMER.DELETE.O.{CONSUMER}"


def test_promoted_mirror_lets_go_of_its_origin() -> None:
    copy = connected(**MIRROR)
    copy.deliver(1, 1)
    copy.update()
    assert copy.wires == {}
    assert copy.requests[-1].subject == DELETION
    assert copy.stream_sources.mirror_info(copy.now_ns) is None
    copy.pass_time(300)
    assert copy.num_asked == 1


def test_sources_come_and_go_with_configuration() -> None:
    copy = connected(**SOURCE)
    copy.deliver(1, 1)
    copy.update(sources=(OTHER, ORIGIN))
    assert copy.requests[-1].subject == "$JS.API.CONSUMER.CREATE.P"
    assert DELIVER in copy.wires
    assert [each.name for each in copy.stream_sources.source_infos(copy.now_ns)] == ["P", "O"]
    copy.update(sources=(OTHER,))
    assert DELIVER not in copy.wires
    assert copy.requests[-1].subject == DELETION
    assert copy.stream_sources.origins == {"P"}


def test_source_that_comes_back_continues_where_it_was() -> None:
    copy = connected(**SOURCE)
    copy.deliver(4, 1)
    copy.update()
    copy.update(**SOURCE)
    assert copy.asked["opt_start_seq"] == 5


def test_deleted_stream_reads_nothing_more() -> None:
    copy = connected(sources=(ORIGIN, OTHER))
    copy.stream_sources.close()
    copy.pass_time(300)
    assert copy.wires == {}


def test_given_consumer_is_read_and_left_in_place() -> None:
    given = SourceConsumer(name="C", deliver_subject="given")
    copy = Copy(sources=(StreamSource(name="O", consumer=given),))
    copy.answer(config={"ack_policy": "flow_control"})
    assert list(copy.wires) == ["given"]
    copy.update()
    assert copy.num_asked == len(copy.requests) == 1


def test_given_consumer_must_acknowledge_by_flow_control() -> None:
    given = StreamSource(name="O", consumer=SourceConsumer(name="C", deliver_subject="given"))
    for fields, err_code in (({**MIRROR, "mirror": given}, 10214), ({"sources": (given,)}, 10217)):
        copy = Copy(**fields)
        copy.answer()
        now_ns = copy.now_ns
        infos = (copy.stream_sources.mirror_info(now_ns), *copy.stream_sources.source_infos(now_ns))
        assert [info.error.err_code for info in infos if info and info.error] == [err_code]


def test_given_consumer_that_is_not_there_is_asked_for_soon() -> None:
    given = SourceConsumer(name="C", deliver_subject="given")
    copy = Copy(sources=(StreamSource(name="O", consumer=given),))
    copy.pass_time(5 + 10 + 1)
    assert copy.num_asked == 2


# -- origins of this server


def test_origin_that_comes_is_asked_at_once() -> None:
    copy = Copy(**SOURCE)
    copy.refuse()
    copy.stream_sources.origin_created("P", copy.now_ns)
    copy.pass_time(0)
    assert copy.num_asked == 1
    copy.stream_sources.origin_created("O", copy.now_ns)
    copy.pass_time(0)
    assert copy.num_asked == 2
    copy.stream_sources.origin_created("O", copy.now_ns)
    copy.pass_time(0)
    assert copy.num_asked == 2


def test_origin_that_leaves_is_asked_for_soon_and_its_consumer_forgotten() -> None:
    copy = connected(**SOURCE)
    copy.stream_sources.origin_deleted("O", copy.now_ns)
    copy.pass_time(0)
    assert copy.wires == {}
    copy.pass_time(2.2)
    assert copy.num_asked == 2
    copy.update()
    assert DELETION not in [each.subject for each in copy.requests]


def test_origins_elsewhere_do_not_come_and_go_here() -> None:
    external = External(api="$JS.hub.API")
    copy = connected(sources=(StreamSource(name="O", external=external),))
    copy.stream_sources.origin_deleted("O", copy.now_ns)
    assert DELIVER in copy.wires


# -- what is not in memory


class SleepyStore(MemStore):
    """The newest message of a subject is in memory only after it was fetched."""

    asleep = False

    def load_last(
        self, subject: str, *, at_or_before: int | None = None, unsynced: bool = False
    ) -> MessageRecord | Missing | Cold:
        if self.asleep:
            return Cold(7)
        return super().load_last(subject, at_or_before=at_or_before, unsynced=unsynced)


def total(copy: Copy) -> bytes:
    return list(copy.messages.values())[-1].payload


@pytest.fixture
def counter() -> tuple[Copy, SleepyStore]:
    store = SleepyStore()
    return connected(store=store, allow_msg_counter=True, **SOURCE), store


def test_publishes_waiting_for_block_are_taken_in_order(counter: tuple[Copy, SleepyStore]) -> None:
    copy, store = counter
    for seq in range(1, 5):
        store.asleep = seq > 1
        copy.deliver(seq, seq, b'{"val":"%d"}' % (10 * seq), header={"Nats-Incr": "10"})
    copy.ask_flow("fc")
    assert (total(copy), copy.fetches, copy.answers) == (b'{"val":"10"}', 1, [])
    copy.host.fetched(copy.now_ns)
    assert total(copy) == b'{"val":"10"}'
    store.asleep = False
    copy.host.fetched(copy.now_ns)
    copy.pass_time(0)
    assert (copy.notes, total(copy)) == ([1, 2, 3, 4], b'{"val":"40"}')
    assert [each.subject for each in copy.answers] == ["fc"]


def test_sources_begin_when_it_is_known_where_they_stand() -> None:
    store = SleepyStore()
    copy = connected(store=store, **SOURCE)
    copy.deliver(4, 1)
    copy.update()
    copy.cfg = copy.host.stream.cfg
    copy.open()
    store.asleep = True
    copy.update(**SOURCE)
    assert (copy.requests, copy.fetches) == ([], 1)
    store.asleep = False
    copy.host.fetched(copy.now_ns)
    copy.pass_time(0)
    assert copy.asked["opt_start_seq"] == 5


def test_activity_is_time_since_last_message_of_origin() -> None:
    copy = connected(**MIRROR)
    copy.pass_time(4)
    info = copy.stream_sources.mirror_info(copy.now_ns)
    assert info is not None
    assert info.active == 4 * SECOND


def test_very_many_sources_ask_their_origins_some_at_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = connected(**SOURCE)
    tick, asked = copy.host.tick, []

    def counted(now_ns: int) -> list[Consumer]:
        before = len(copy.host._now)
        abandoned = tick(now_ns)
        asked.append(len(copy.host._now) - before)
        return abandoned

    monkeypatch.setattr(copy.host, "tick", counted)
    copy.update(sources=tuple(StreamSource(name=f"N{number}") for number in range(100)))
    copy.pass_time(0)
    assert sum(asked) == 100
    assert max(asked) <= FEEDS_PER_TICK
