"""Small runs of every kind of scenario against the reference server."""

import os
import time
from array import array

import pytest

from penstock.bench.bench_error import BenchError
from penstock.bench.load.load_frames import encode_request
from penstock.bench.load.raw_client import deadline_after, open_client
from penstock.bench.load.request_reply_load import exchange
from penstock.bench.measurement import fitting_count, run_scenario
from penstock.bench.process_stats import cpu_seconds, rss_bytes
from penstock.bench.scenarios import PubSub, RequestReply
from penstock.bench.server_process import RunningServer, ServerCommand, running

pytestmark = pytest.mark.sockets

MESSAGES = 3000
PID_NEVER_USED = 2**22 + 1  # above the kernel's largest

SHAPES = [
    PubSub("publish", 16),
    PubSub("empty payload", 0, subscribers=1),
    PubSub("stamped", 16, subscribers=1),
    PubSub("headers", 128, subscribers=1, headers=True),
    PubSub("large", 200_000, subscribers=1),
    PubSub("many subjects", 16, subscribers=2, subjects=500),
    PubSub("many to many", 64, publishers=3, subscribers=2),
    PubSub("queue", 64, publishers=2, subscribers=3, queue=True),
]


@pytest.mark.parametrize("scenario", SHAPES, ids=lambda scenario: scenario.name)
def test_every_published_message_arrives_as_often_as_declared(
    server: RunningServer, scenario: PubSub
) -> None:
    messages = 60 if scenario.payload_bytes > 100_000 else MESSAGES
    result = run_scenario(scenario, server.endpoint, messages, server.pid)
    assert result.messages == messages
    assert result.deliveries == messages * scenario.copies
    assert result.seconds > 0
    assert result.rss_peak_bytes is not None


@pytest.mark.parametrize("clients", [1, 5])
def test_every_request_is_answered_and_timed(server: RunningServer, clients: int) -> None:
    scenario = RequestReply("ask", 128, clients)
    result = run_scenario(scenario, server.endpoint, 200, server.pid)
    assert result.latency is not None
    latency = result.latency
    assert 0 < latency.p50_ns <= latency.p90_ns <= latency.p99_ns <= latency.max_ns
    assert result.cpu_per_million is not None


def test_large_requests_are_echoed_whole(server: RunningServer) -> None:
    result = run_scenario(RequestReply("ask", 60_000, 8), server.endpoint, 40)
    assert result.messages == 40
    assert result.cpu_seconds is None


def test_every_request_has_reply_subject_of_its_own(server: RunningServer) -> None:
    frame, token_at = encode_request("bench.ask", "_INBOX.y", 0)
    deadline_ns = deadline_after(10)
    with (
        open_client(server.endpoint) as asking,
        open_client(server.endpoint) as answering,
        open_client(server.endpoint) as watching,
    ):
        asking.subscribe("_INBOX.y.*", 1, deadline_ns)
        answering.subscribe("bench.ask", 1, deadline_ns)
        watching.subscribe("_INBOX.y.*", 1, deadline_ns)
        exchange([(asking.fd, frame)], answering.fd, token_at, array("q", [0] * 120), deadline_ns)
        watching.sock.sendall(b"PING\r\n")
        heard = b""
        while b"PONG\r\n" not in heard:
            heard += watching.sock.recv(65536)
    tokens = [int(line.split()[1].rpartition(b".")[2]) for line in heard.split(b"\r\n\r\n")[:-1]]
    assert tokens == list(range(120))


def test_request_without_responders_fails_at_once(server: RunningServer) -> None:
    frame, token_at = encode_request("bench.nobody", "_INBOX.x", 4)
    with open_client(server.endpoint) as asking, open_client(server.endpoint) as deaf:
        asking.subscribe("_INBOX.x.*", 1, deadline_after(10))
        with pytest.raises(BenchError, match="no responder"):
            exchange([(asking.fd, frame)], deaf.fd, token_at, array("q", [0]), deadline_after(10))


def test_cpu_seconds_follow_process_clock() -> None:
    before = time.process_time()
    measured = cpu_seconds(os.getpid())
    assert before <= measured <= time.process_time()


def test_process_that_was_removed_cannot_be_measured() -> None:
    with pytest.raises(BenchError, match="process"):
        rss_bytes(PID_NEVER_USED)


def test_fitting_count_is_found_by_trials(server: RunningServer) -> None:
    assert fitting_count(PubSub("tiny", 16), server.endpoint, 0.01) >= 200


def test_message_too_large_for_server_fails_with_its_words(server: RunningServer) -> None:
    with pytest.raises(BenchError, match="Maximum Payload Violation"):
        run_scenario(PubSub("huge", 2_000_000), server.endpoint, 3)


def test_run_that_cannot_finish_ends_at_its_deadline(server: RunningServer) -> None:
    with pytest.raises(BenchError, match="in time"):
        run_scenario(PubSub("late", 16, subscribers=1), server.endpoint, 50_000_000, timeout_s=0.2)


def test_client_stands_between_lines_after_every_flush(server: RunningServer) -> None:
    with open_client(server.endpoint) as client:
        for _ in range(3):
            client.flush(deadline_after(10))
            assert client.scanner.between_lines


def test_server_that_does_not_start_shows_its_log(reference: ServerCommand) -> None:
    broken = ServerCommand("broken", (*reference.argv, "-c", "/nowhere/at/all.conf"))
    with pytest.raises(BenchError, match=r"all\.conf"), running(broken):
        pass
