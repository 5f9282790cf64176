"""One trace: how many events it keeps, and when it is sent."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.server.system.message_trace import TRACE_EVENTS_MAX, MessageTrace, disabled
from penstock.wire.trace_headers import read_trace

BLOCK = b"NATS/1.0\r\nNats-Trace-Dest: d\r\n\r\n"


class Plane:
    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []

    def post(self, _interest: object, dest: str, payload: bytes, *_: object) -> None:
        assert dest == "d"
        self.posted.append(json.loads(payload))


@pytest.fixture
def io_loop() -> Plane:
    return Plane()


@pytest.fixture
def trace(io_loop: Plane) -> MessageTrace:
    system = SimpleNamespace(identity=lambda: {"id": "N"})
    service = SimpleNamespace(io_loop=io_loop, system=system, system_account="$SYS")
    account = SimpleNamespace(name="A", interest=None)
    session: Any = SimpleNamespace(
        service=service, account=account, cid=7, options=SimpleNamespace(name="")
    )
    request = read_trace(BLOCK)
    assert request is not None
    return MessageTrace(session, "d", request, "x", 5)


def test_trace_is_sent_when_its_last_receiver_has_run(io_loop: Plane, trace: MessageTrace) -> None:
    trace.hold()
    trace.hold()
    trace.release()
    trace.release()
    assert io_loop.posted == []
    trace.release()
    assert [event["type"] for event in io_loop.posted[0]["events"]] == ["in"]


def test_receiver_that_fails_does_not_hold_trace(io_loop: Plane, trace: MessageTrace) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("of a receiver")

    trace.hold()
    with pytest.raises(RuntimeError, match="of a receiver"):
        trace.hop(fail, fail, None, "x", "", BLOCK, b"", None)
    trace.release()
    assert len(io_loop.posted) == 1


def test_trace_keeps_bounded_number_of_events(io_loop: Plane, trace: MessageTrace) -> None:
    for number in range(2 * TRACE_EVENTS_MAX):
        trace.mapped(str(number))
    trace.release()
    assert len(io_loop.posted[0]["events"]) == TRACE_EVENTS_MAX


def test_disabled_header_names_no_subject() -> None:
    assert disabled(b"NATS/1.0\r\nNats-Trace-Dest: d\r\nK: v\r\n\r\n") == (
        b"NATS/1.0\r\nK: v\r\nNats-Trace-Dest: trace disabled\r\n\r\n"
    )
    assert read_trace(disabled(BLOCK)) is None
