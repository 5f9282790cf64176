"""A very large number of subscriptions: time and memory to add them, delivery, time to remove.

Subscriptions are spread over a few connections; nine of ten are literal, one has a wildcard. A
sample of subjects, each of which matches exactly one subscription, verifies that matching works
while all exist and that nothing is delivered after they are removed.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from penstock.bench import process_stats
from penstock.bench.bench_error import BenchError
from penstock.bench.load.load_generator import monotonic_ns
from penstock.bench.load.raw_client import Client, ServerEndpoint, deadline_after, open_client
from penstock.bench.probes.figures import Figure, difference, per

CONNECTIONS = 4
SAMPLE_MAX = 10_000
WILDCARD_EVERY = 10
SUBJECTS_PER_BRANCH = 1000
CHUNK_LINES = 20_000
TIMEOUT_S = 300.0


def probe_subscriptions(endpoint: ServerEndpoint, pid: int | None, count: int) -> list[Figure]:
    """Add `count` subscriptions, use a sample of them, remove them all."""
    deadline_ns = deadline_after(TIMEOUT_S)
    with ExitStack() as stack:
        clients = [stack.enter_context(open_client(endpoint)) for _ in range(CONNECTIONS)]
        publisher = stack.enter_context(open_client(endpoint))
        rss_before = process_stats.rss_bytes(pid) if pid is not None else None
        added_s = _send_lines(clients, count, b"SUB %b %d\r\n", deadline_ns)
        rss_full = process_stats.rss_bytes(pid) if pid is not None else None
        sample = range(0, count, max(1, count // SAMPLE_MAX))
        delivered = _deliver_sample(publisher, clients, sample, deadline_ns)
        if delivered != len(sample):
            raise BenchError(f"{delivered} of {len(sample)} sample messages were delivered")
        removed_s = _send_lines(clients, count, b"UNSUB %d\r\n", deadline_ns)
        late = _deliver_sample(publisher, clients, sample, deadline_ns)
        rss_empty = process_stats.rss_bytes(pid) if pid is not None else None
    return [
        Figure("subscriptions", count),
        Figure("time to add them", added_s, "s"),
        Figure("added per second", count / added_s, "/s"),
        Figure(
            "server memory per subscription", per(difference(rss_full, rss_before), count), "bytes"
        ),
        Figure("sample messages delivered", delivered),
        Figure("time to remove them", removed_s, "s"),
        Figure("sample messages delivered after removal", late),
        Figure("server memory kept after removal", difference(rss_empty, rss_before), "bytes"),
    ]


def pattern(number: int) -> bytes:
    """Return the subject of subscription `number`."""
    return _subject(number, b"*" if _is_wildcard(number) else b"leaf")


def subject_for(number: int) -> bytes:
    """Return a subject that matches subscription `number` and no other."""
    return _subject(number, b"any" if _is_wildcard(number) else b"leaf")


def _subject(number: int, last: bytes) -> bytes:
    branch, twig = divmod(number, SUBJECTS_PER_BRANCH)
    return b"bench.%d.%d.%b" % (branch, twig, last)


def _is_wildcard(number: int) -> bool:
    return number % WILDCARD_EVERY == WILDCARD_EVERY - 1


def _send_lines(clients: Sequence[Client], count: int, line: bytes, deadline_ns: int) -> float:
    """Send one line per subscription; return the seconds the server took, without encoding."""
    spent_ns = 0
    for turn, start in enumerate(range(0, count, CHUNK_LINES)):
        numbers = range(start, min(start + CHUNK_LINES, count))
        data = b"".join(_lines(numbers, line))
        began_ns = monotonic_ns()
        clients[turn % len(clients)].send(data, deadline_ns)
        spent_ns += monotonic_ns() - began_ns
    return spent_ns / 1e9


def _lines(numbers: range, line: bytes) -> Iterator[bytes]:
    if line.startswith(b"UNSUB"):
        return (line % (number + 1) for number in numbers)
    return (line % (pattern(number), number + 1) for number in numbers)


def _deliver_sample(
    publisher: Client, clients: Sequence[Client], sample: range, deadline_ns: int
) -> int:
    """Publish once to every sampled subscription and count the deliveries."""
    before = sum(client.scanner.messages for client in clients)
    frames = b"".join(b"PUB %b 2\r\nok\r\n" % subject_for(number) for number in sample)
    publisher.send(frames, deadline_ns)
    for client in clients:
        client.flush(deadline_ns)
    return sum(client.scanner.messages for client in clients) - before
