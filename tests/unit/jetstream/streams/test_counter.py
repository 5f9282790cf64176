"""Counters: increments in, totals stored."""

from __future__ import annotations

import pytest

from penstock.api import refusals
from penstock.api.stream_config import StreamSource
from penstock.base.message import Inbound
from penstock.jetstream.streams.entries import Publish
from penstock.jetstream.streams.source_progress import Progress
from support.stream_run import NEW_YEAR, Run, ack


def counting(**fields: object) -> Run:
    return Run(allow_msg_counter=True, **fields)


def incr(value: str) -> dict[str, str]:
    return {"Nats-Incr": value}


def test_increments_add_up_for_each_subject() -> None:
    run = counting()
    assert run.publish("s.a", header=incr("1")) == ack(1, ',"val":"1"')
    assert run.publish("s.a", header=incr("+12")) == ack(2, ',"val":"13"')
    assert run.publish("s.b", header=incr("-5")) == ack(3, ',"val":"-5"')
    assert run.publish("s.a", header=incr("0")) == ack(4, ',"val":"13"')
    assert [record.payload for record in run.messages().values()] == [
        b'{"val":"1"}',
        b'{"val":"13"}',
        b'{"val":"-5"}',
        b'{"val":"13"}',
    ]
    assert run.messages()[2].header == b"NATS/1.0\r\nNats-Incr: +12\r\n\r\n"


def test_totals_have_no_bounds() -> None:
    run = counting()
    run.publish("s.a", header=incr("9" * 40))
    assert run.publish("s.a", header=incr("1")) == ack(2, f',"val":"1{"0" * 40}"')


def test_total_that_would_be_too_long_is_refused_and_old_one_stays() -> None:
    run = counting()
    most = "9" * 4000
    assert run.publish("s.a", header=incr(most)) == ack(1, f',"val":"{most}"')
    assert run.refusal("s.a", b"", incr("1")) == refusals.MESSAGE_INCR_INVALID
    assert run.publish("s.a", header=incr("-1")) == ack(2, f',"val":"{"9" * 3999}8"')


@pytest.mark.parametrize(
    ("payload", "header", "fault"),
    [
        (b"", None, refusals.MESSAGE_INCR_MISSING),
        (b"", {"Nats-Incr": ""}, refusals.MESSAGE_INCR_MISSING),
        (b"x", {"Nats-Incr": "1"}, refusals.MESSAGE_INCR_PAYLOAD),
        (b"", {"Nats-Incr": "1.5"}, refusals.MESSAGE_INCR_INVALID),
        (b"", {"Nats-Incr": "1_0"}, refusals.MESSAGE_INCR_INVALID),
        (b"", {"Nats-Incr": "+"}, refusals.MESSAGE_INCR_INVALID),
        (b"", {"Nats-Incr": "9" * 4001}, refusals.MESSAGE_INCR_INVALID),
        (b"", {"Nats-Incr": "1", "Nats-Rollup": "sub"}, refusals.MESSAGE_INCR_INVALID),
        (
            b"",
            {"Nats-Incr": "1", "Nats-Expected-Last-Sequence": "0"},
            refusals.MESSAGE_INCR_INVALID,
        ),
    ],
)
def test_counter_takes_increments_and_nothing_beside(
    payload: bytes, header: dict[str, str] | None, fault: refusals.ApiError
) -> None:
    assert counting().refusal("s.a", payload, header) == fault


def test_increments_go_to_counters_only() -> None:
    assert Run().refusal("s.a", b"", incr("1")) == refusals.MESSAGE_INCR_DISABLED


def test_body_that_is_no_total_breaks_counter() -> None:
    run = counting()
    run.store.append("s.a", b"", b"surprise", NEW_YEAR)
    run.open()
    assert run.refusal("s.a", b"", incr("1")) == refusals.MESSAGE_COUNTER_BROKEN


def test_total_may_not_make_message_too_large() -> None:
    run = counting(max_msg_size=37)
    run.publish("s.a", header=incr("9"))
    assert run.refusal("s.a", b"", incr("1")) == refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM


# -- copies from other counters


def copied(run: Run, origin: Progress, seq: int, total: int) -> Publish:
    header = b"NATS/1.0\r\nNats-Incr: 77\r\n\r\n"
    msg = Inbound("o.a", "", header, b'{"val":"%d"}' % total)
    planned = run.stream.plan_copy(msg, seq, origin, NEW_YEAR)
    assert isinstance(planned, Publish)
    run.apply(planned)
    return planned


def test_copied_total_counts_by_how_far_it_has_come() -> None:
    sources = (StreamSource(name="A"), StreamSource(name="B"))
    run = counting(sources=sources)
    one, two = map(Progress, sources)
    for origin, seq, total in [(one, 1, 5), (two, 1, 100), (one, 3, 12), (one, 4, 12)]:
        copied(run, origin, seq, total)
    totals = [record.payload for record in run.messages().values()]
    assert totals == [b'{"val":"5"}', b'{"val":"105"}', b'{"val":"112"}', b'{"val":"112"}']
    assert run.messages()[3].header == (
        b"NATS/1.0\r\nNats-Incr: 7\r\nNats-Stream-Source: A 3 > > o.a\r\n"
        b'Nats-Counter-Sources: {"A":{"o.a":"12"},"B":{"o.a":"100"}}\r\n\r\n'
    )
