"""Which header blocks ask for a trace."""

from __future__ import annotations

import pytest

from penstock.wire.trace_headers import read_trace

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"


def block(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("NATS/1.0", *lines, "")).encode()


def test_destination_asks_for_trace() -> None:
    request = read_trace(block("K: 1", "Nats-Trace-Dest:  here ", "K: 2", "Empty:", ":x"))
    assert request is not None
    assert (request.dest, request.is_only, request.is_external) == ("here", False, False)
    assert request.headers == {"K": ["1", "2"], "Nats-Trace-Dest": ["here"]}


@pytest.mark.parametrize(
    "lines",
    [
        ("K: v",),
        ("nats-trace-dest: here",),
        ("Nats-Trace-Dest: trace disabled",),
        ("Nats-Trace-Dest:",),
        ("Nats-Trace-Only: true",),
        (f"traceparent: {PARENT}01", "Nats-Trace-Dest: trace disabled"),
    ],
)
def test_other_blocks_ask_for_none(lines: tuple[str, ...]) -> None:
    assert read_trace(block(*lines)) is None


@pytest.mark.parametrize(
    "raw", [b"", b"NATS/1.0", b"odd", b"NATS/1.0 503\r\nNats-Trace-Dest: x\r\n"]
)
def test_file_that_is_no_block_requests_none(raw: bytes) -> None:
    assert read_trace(raw) is None


@pytest.mark.parametrize(
    ("value", "only"),
    [("1", True), ("true", True), ("ON", True), ("TRUE", True), ("yes", False), ("0", False)],
)
def test_only_is_reported_in_few_ways(value: str, only: bool) -> None:
    request = read_trace(block("Nats-Trace-Dest: d", f"Nats-Trace-Only: {value}"))
    assert request is not None
    assert request.is_only == only


@pytest.mark.parametrize(
    ("flags", "sampled"),
    [("01", True), ("03", True), ("00", False), ("81", False), ("+1", True), ("1", False)],
)
@pytest.mark.parametrize("key", ["traceparent", "TraceParent"])
def test_traceparent_asks_if_it_is_sampled(key: str, flags: str, sampled: bool) -> None:
    request = read_trace(block(f"{key}: {PARENT}{flags}", "Nats-Trace-Only: true"))
    assert (request is not None) == sampled
    if request is not None:
        assert request.is_external
        assert not request.is_only
