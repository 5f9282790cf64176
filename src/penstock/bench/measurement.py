"""Run one scenario against one server and report the measurements.

Definitions: *messages* are those published, requested or read; *rate* is messages per second from
the first publish until the last subscriber has the last message, or, without subscribers, until the
PONG after the last message; *CPU per million* is server CPU seconds per million messages,
independent of the number of copies delivered. Every run verifies that each subscriber got exactly
its messages, in order if there is one publisher. Connections are opened before the clock starts.
"""

import secrets
import socket
from array import array
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from functools import partial

from penstock.bench import process_stats
from penstock.bench.bench_error import BenchError
from penstock.bench.load import load_generator
from penstock.bench.load.jetstream_load import run_get, run_publish, run_read
from penstock.bench.load.load_frames import (
    HEADER_BLOCK,
    STAMP_DIGITS,
    FrameBatch,
    SubjectPlan,
    encode_batch,
    encode_request,
)
from penstock.bench.load.raw_client import (
    NANOS,
    Client,
    ServerEndpoint,
    deadline_after,
    open_client,
)
from penstock.bench.load.request_reply_load import exchange
from penstock.bench.load_result import Load, LoadTiming, Result
from penstock.bench.sample_stats import Latency
from penstock.bench.scenarios import (
    BucketGet,
    PubSub,
    RequestReply,
    Scenario,
    StreamPublish,
    StreamRead,
)

RUN_TIMEOUT_S = 60.0
TRIAL_SECONDS_MIN = 0.15  # a shorter trial does not determine the rate well enough
TRIAL_GROWTH_MAX = 16
TRIALS_MAX = 12
MESSAGES_MIN = 200


def run_scenario(
    scenario: Scenario,
    endpoint: ServerEndpoint,
    messages: int,
    pid: int | None = None,
    timeout_s: float = RUN_TIMEOUT_S,
) -> Result:
    """Run once and measure; raise BenchError if anything is lost, late or refused."""
    cpu_seconds = partial(process_stats.cpu_seconds, pid) if pid is not None else float
    timing = run_load(scenario, Load(endpoint, messages, cpu_seconds, deadline_after(timeout_s)))
    return Result(
        scenario=scenario.name,
        messages=timing.messages,
        deliveries=timing.deliveries,
        payload_bytes=timing.payload_bytes,
        seconds=(timing.end_ns - timing.start_ns) / NANOS,
        cpu_seconds=timing.cpu_seconds if pid is not None else None,
        rss_peak_bytes=process_stats.rss_peak_bytes(pid) if pid is not None else None,
        latency=timing.latency,
    )


def run_load(scenario: Scenario, load: Load) -> LoadTiming:
    """Run once; raise BenchError if anything is lost, late or refused."""
    match scenario:
        case PubSub():
            return _run_pubsub(scenario, load)
        case RequestReply():
            return _run_requests(scenario, load)
        case StreamPublish():
            return run_publish(scenario, load)
        case StreamRead():
            return run_read(scenario, load)
        case BucketGet():
            return run_get(scenario, load)


def fitting_count(scenario: Scenario, endpoint: ServerEndpoint, seconds: float) -> int:
    """Return how many messages keep this server busy for about `seconds`, by growing trials."""
    count = scenario.first_trial
    for _ in range(TRIALS_MAX):
        trial = run_scenario(scenario, endpoint, count)
        wanted = int(trial.rate * seconds)
        if trial.seconds >= min(TRIAL_SECONDS_MIN, seconds):
            break
        count = max(count * 2, min(count * TRIAL_GROWTH_MAX, wanted // 2))
    return max(MESSAGES_MIN, wanted)


def _run_pubsub(scenario: PubSub, load: Load) -> LoadTiming:
    plan = SubjectPlan(f"bench.{secrets.token_hex(2)}", scenario.subjects)
    batch = encode_batch(plan, scenario.payload_bytes, headers=scenario.headers)
    share = max(1, load.messages // scenario.publishers)
    messages = share * scenario.publishers
    with ExitStack() as stack:
        receivers = _open_many(stack, load.endpoint, scenario.subscribers)
        publishers = _open_many(stack, load.endpoint, scenario.publishers)
        for receiver in receivers:
            queue = "group" if scenario.queue else ""
            receiver.subscribe(plan.pattern, 1, load.deadline_ns, queue)
            receiver.scanner.expect_stamps(_stamp_cycle(scenario, batch))
        tallies = _tallies(scenario, messages)
        cpu_before = load.cpu_seconds()
        start_ns, end_ns = _race(publishers, receivers, tallies, batch, share, load.deadline_ns)
        cpu_used = load.cpu_seconds() - cpu_before
        check_exact(receivers, messages * scenario.copies, load.deadline_ns)
    size = scenario.payload_bytes + (len(HEADER_BLOCK) if scenario.headers else 0)
    return LoadTiming(messages, messages * scenario.copies, size, start_ns, end_ns, cpu_used)


def _stamp_cycle(scenario: PubSub, batch: FrameBatch) -> int:
    ordered = scenario.publishers == 1 and not scenario.queue
    return batch.count if ordered and scenario.payload_bytes >= STAMP_DIGITS else 0


def _tallies(scenario: PubSub, messages: int) -> list[load_generator.Tally]:
    if scenario.queue:
        return [load_generator.Tally(messages)] * scenario.subscribers
    return [load_generator.Tally(messages) for _ in range(scenario.subscribers)]


def _race(
    publishers: Sequence[Client],
    receivers: Sequence[Client],
    tallies: Sequence[load_generator.Tally],
    batch: FrameBatch,
    share: int,
    deadline_ns: int,
) -> tuple[int, int]:
    """Run all clients, each in a thread; return the first start and the last end."""
    total_bytes = share * batch.frame_bytes
    with ThreadPoolExecutor(len(publishers) + len(receivers)) as pool:
        taken = [
            pool.submit(load_generator.collect, client.fd, client.scanner, tally, deadline_ns)
            for client, tally in zip(receivers, tallies, strict=True)
        ]
        sent = [
            pool.submit(
                load_generator.publish,
                client.fd,
                client.scanner,
                batch.data,
                total_bytes,
                deadline_ns,
            )
            for client in publishers
        ]
        _await_all([*taken, *sent], [*publishers, *receivers])
    start_ns = min(start for start, _ in (future.result() for future in sent))
    end_ns = max(end for _, end in (future.result() for future in taken or sent))
    return start_ns, end_ns


def _await_all(futures: Sequence[Future[tuple[int, int]]], clients: Sequence[Client]) -> None:
    """Wait for all; if one fails, or on Ctrl-C, shut down the sockets so that the others end."""
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    except BaseException:
        for client in clients:
            with suppress(OSError):
                client.sock.shutdown(socket.SHUT_RDWR)
        raise


def check_exact(receivers: Sequence[Client], deliveries: int, deadline_ns: int) -> None:
    """Fail unless the receivers saw exactly `deliveries` messages, in order."""
    for receiver in receivers:
        receiver.flush(deadline_ns)
    seen = sum(receiver.scanner.messages for receiver in receivers)
    misordered = sum(receiver.scanner.misordered for receiver in receivers)
    if seen != deliveries:
        raise BenchError(f"{deliveries} deliveries expected, {seen} counted")
    if misordered:
        raise BenchError(f"{misordered} of {deliveries} deliveries were out of order")


def _run_requests(scenario: RequestReply, load: Load) -> LoadTiming:
    subject = f"bench.{secrets.token_hex(2)}"
    samples = array("q", bytes(8 * load.messages))
    with ExitStack() as stack:
        responder = open_client(load.endpoint)
        stack.enter_context(responder)
        responder.subscribe(subject, 1, load.deadline_ns)
        clients = _open_many(stack, load.endpoint, scenario.clients)
        requests = []
        token_at = 0
        for client in clients:
            inbox = f"_INBOX.{secrets.token_hex(8)}"
            client.subscribe(f"{inbox}.*", 1, load.deadline_ns)
            frame, token_at = encode_request(subject, inbox, scenario.payload_bytes)
            requests.append((client.fd, frame))
        cpu_before = load.cpu_seconds()
        start_ns, end_ns = exchange(requests, responder.fd, token_at, samples, load.deadline_ns)
        cpu_used = load.cpu_seconds() - cpu_before
    return LoadTiming(
        load.messages,
        2 * load.messages,
        scenario.payload_bytes,
        start_ns,
        end_ns,
        cpu_used,
        Latency.of(samples),
    )


def _open_many(stack: ExitStack, endpoint: ServerEndpoint, count: int) -> list[Client]:
    return [stack.enter_context(open_client(endpoint)) for _ in range(count)]
