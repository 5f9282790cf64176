"""A subscriber that stops reading next to a healthy one: measure the effect on both.

The same 1 → 1 load runs twice, the second time with a stalled subscriber on the same subject. A
server should keep its memory within the pending limit of that one connection, disconnect it, and
serve the healthy subscriber as before.
"""

import socket
import time

from penstock.bench import process_stats
from penstock.bench.bench_error import BenchError
from penstock.bench.load.raw_client import Client, ServerEndpoint, deadline_after, open_client
from penstock.bench.measurement import run_scenario
from penstock.bench.probes.figures import Figure, difference
from penstock.bench.scenarios import PubSub

PAYLOAD_BYTES = 1024
PENDING_LIMIT_BYTES = 64 * 1024 * 1024  # a server's default max_pending
MESSAGES = 3_000_000  # much longer than it takes to reach the pending limit
WARM_UP_MESSAGES = 50_000
STALLED_RECEIVE_BYTES = 64 * 1024
DRAIN_TIMEOUT_S = 30.0
READ_BYTES = 256 * 1024
LOAD = PubSub("stalled-subscriber", PAYLOAD_BYTES, subscribers=1)


def probe_stalled(endpoint: ServerEndpoint, pid: int | None) -> list[Figure]:
    """Measure rate and memory without and with the stalled subscriber, and its fate."""
    run_scenario(LOAD, endpoint, WARM_UP_MESSAGES)
    alone = run_scenario(LOAD, endpoint, MESSAGES, pid)
    with open_client(endpoint) as stalled:
        stalled.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STALLED_RECEIVE_BYTES)
        stalled.subscribe("bench.>", 1, deadline_after(DRAIN_TIMEOUT_S))
        beside = run_scenario(LOAD, endpoint, MESSAGES, pid)
        cut_off = _drain(stalled)
        received = stalled.scanner.messages
    rss_after = process_stats.rss_bytes(pid) if pid is not None else None
    return [
        Figure("healthy rate alone", alone.rate, "/s"),
        Figure("healthy rate beside a stalled subscriber", beside.rate, "/s"),
        Figure("rate kept", beside.rate / alone.rate, "×"),
        Figure("peak memory alone", alone.rss_peak_bytes, "bytes"),
        Figure("peak memory beside a stalled subscriber", beside.rss_peak_bytes, "bytes"),
        Figure("growth", difference(beside.rss_peak_bytes, alone.rss_peak_bytes), "bytes"),
        Figure("pending limit of a connection, by default", PENDING_LIMIT_BYTES, "bytes"),
        Figure("published meanwhile", MESSAGES * PAYLOAD_BYTES, "bytes"),
        Figure("stalled subscriber was cut off", cut_off),
        Figure("messages it had been sent", received),
        Figure("memory afterwards", rss_after, "bytes"),
    ]


def _drain(stalled: Client) -> bool:
    """Read what was sent; return True if the connection ended, False if the server replies."""
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    stalled.sock.settimeout(1.0)
    wanted = stalled.scanner.pongs + 1
    try:
        stalled.sock.sendall(b"PING\r\n")
        while stalled.scanner.pongs < wanted:
            data = stalled.sock.recv(READ_BYTES)
            if not data or not stalled.scanner.feed(data):
                return True
            if time.monotonic() > deadline:
                raise BenchError("the stalled subscriber neither caught up nor was cut off")
    except TimeoutError:
        raise BenchError("the stalled subscriber was left without answer") from None
    except OSError:
        return True
    return False
