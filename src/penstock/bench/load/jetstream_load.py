"""Run the scenarios that need JetStream: acknowledged publishes, stream reads, key-value.

Every run creates its own stream and deletes it. A read run stores its messages before its clock
starts: it fills a stream with up to FILL_MAX messages and reads it repeatedly, each time through a
new consumer, until the requested number was read. A pass ends when its last ack has been processed.
"""

import contextlib
import json
import secrets
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.bench.bench_error import BenchError
from penstock.bench.load.asset_control import Control, Json, consumer_request, open_control
from penstock.bench.load.load_frames import (
    Asks,
    SubjectPlan,
    encode_asks,
    encode_message,
    encode_publishes_with_ids,
)
from penstock.bench.load.raw_client import Client, open_client
from penstock.bench.load.request_load import get_values, publish_acked
from penstock.bench.load.stream_read_load import read_stream
from penstock.bench.load_result import Load, LoadTiming
from penstock.bench.sample_stats import Latency
from penstock.bench.scenarios import BucketGet, StreamPublish, StreamRead

FILL_MAX = 100_000
FILL_WINDOW = 2000
PULL_BATCH = 500
PULLS_IN_FLIGHT = 2  # times PULL_BATCH: a consumer's default max_ack_pending
PULL_EXPIRES_NS = 60 * 10**9
HEARTBEAT_NS = 5 * 10**9  # these two are what clients request for an ordered consumer
INACTIVE_NS = 300 * 10**9
BUCKET: Json = {
    "max_msgs_per_subject": 1,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
}


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """A stream created for one run, and its subjects."""

    name: str
    plan: SubjectPlan


@dataclass(frozen=True, slots=True)
class Filled:
    """A stream with `messages` messages, whose stamps restart after `cycle` of them."""

    place: LoadTarget
    messages: int
    cycle: int


def run_publish(scenario: StreamPublish, load: Load) -> LoadTiming:
    """Publish to a new stream; every ack must have the next sequence."""
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(open_control(load.endpoint))
        client = stack.enter_context(open_client(load.endpoint))
        place = stack.enter_context(_stream(control, scenario))
        encode = encode_publishes_with_ids if scenario.ids else encode_asks
        asks = encode(place.plan.names(), _inbox(client, load), scenario.payload_bytes)
        samples = _samples(load.messages)
        cpu_before = load.cpu_seconds()
        start_ns, end_ns = _publish(client, asks, scenario.window, samples, load)
        cpu_used = load.cpu_seconds() - cpu_before
        _check_stored(control, place, scenario, load.messages)
    return LoadTiming(
        load.messages,
        load.messages,
        scenario.payload_bytes,
        start_ns,
        end_ns,
        cpu_used,
        Latency.of(samples) if scenario.window == 1 else None,
    )


def run_get(scenario: BucketGet, load: Load) -> LoadTiming:
    """Get the values of a filled bucket, key by key; every value must match its key."""
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(open_control(load.endpoint))
        client = stack.enter_context(open_client(load.endpoint))
        place = stack.enter_context(_stream(control, scenario))
        inbox = _inbox(client, load)
        puts = _publishes(place, inbox, scenario.payload_bytes)
        _publish(client, puts, FILL_WINDOW, _samples(scenario.subjects), load)
        gets = _gets(place, inbox)
        samples = _samples(load.messages)
        cpu_before = load.cpu_seconds()
        start_ns, end_ns = get_values(
            client.fd,
            gets.data,
            gets.frame_bytes,
            gets.token_at,
            scenario.window,
            scenario.payload_bytes,
            samples,
            load.deadline_ns,
        )
        cpu_used = load.cpu_seconds() - cpu_before
    return LoadTiming(
        load.messages,
        load.messages,
        scenario.payload_bytes,
        start_ns,
        end_ns,
        cpu_used,
        Latency.of(samples) if scenario.window == 1 else None,
    )


def run_read(scenario: StreamRead, load: Load) -> LoadTiming:
    """Fill a stream, then read it in as many passes as needed."""
    fill = min(FILL_MAX, load.messages)
    passes = max(1, round(load.messages / fill))
    spent_ns, cpu_used = 0, 0.0
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(open_control(load.endpoint))
        place = stack.enter_context(_stream(control, scenario))
        with open_client(load.endpoint) as filler:
            asks = _publishes(place, _inbox(filler, load), scenario.payload_bytes)
            _publish(filler, asks, FILL_WINDOW, _samples(fill), load)
        filled = Filled(place, fill, asks.count)
        for number in range(passes):
            took_ns, cost = _read_once(scenario, load, control, filled, f"pass-{number}")
            spent_ns += took_ns
            cpu_used += cost
    total = fill * passes
    return LoadTiming(total, total, scenario.payload_bytes, 0, spent_ns, cpu_used)


def _read_once(
    scenario: StreamRead, load: Load, control: Control, filled: Filled, name: str
) -> tuple[int, float]:
    """Read the whole stream through a new consumer; return nanoseconds and server CPU seconds."""
    stream = filled.place.name
    with open_client(load.endpoint) as client:
        opening, request = b"", b""
        if scenario.pushed:
            opening = _ordered_push(client, stream, name, load)
        else:
            request = _pull(client, stream, name, load)
            opening = request * PULLS_IN_FLIGHT
            control.create_consumer(stream, _durable(name, acks=scenario.acks))
        cpu_before = load.cpu_seconds()
        start_ns, end_ns = read_stream(
            client.fd,
            opening,
            filled.messages,
            filled.cycle,
            load.deadline_ns,
            request=request,
            batch=PULL_BATCH,
            acks=scenario.acks,
        )
        if scenario.acks:
            control.await_acks(stream, name, filled.messages)
        cpu_used = load.cpu_seconds() - cpu_before
    control.delete_consumer(stream, name)
    return end_ns - start_ns, cpu_used


def _ordered_push(client: Client, stream: str, name: str, load: Load) -> bytes:
    """Subscribe; return the frame that creates an ordered consumer as clients do."""
    inbox = _inbox(client, load)
    # Servers require a subscription to exactly the subject to which they push.
    client.subscribe(inbox, 2, load.deadline_ns)
    config = {
        "name": name,
        "deliver_policy": "all",
        "ack_policy": "none",
        "max_deliver": 1,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": INACTIVE_NS,
        "deliver_subject": inbox,
        "flow_control": True,
        "idle_heartbeat": HEARTBEAT_NS,
    }
    subject, body = consumer_request(stream, config)
    return encode_message(subject, f"{inbox}.created", json.dumps(body).encode())


def _pull(client: Client, stream: str, name: str, load: Load) -> bytes:
    """Subscribe; return the frame that requests one batch."""
    body = json.dumps({"batch": PULL_BATCH, "expires": PULL_EXPIRES_NS}).encode()
    inbox = _inbox(client, load)
    return encode_message(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", f"{inbox}.pulled", body)


def _durable(name: str, *, acks: bool) -> Json:
    policy = "explicit" if acks else "none"
    return {
        "name": name,
        "durable_name": name,
        "deliver_policy": "all",
        "ack_policy": policy,
    }


@contextlib.contextmanager
def _stream(
    control: Control, scenario: StreamPublish | StreamRead | BucketGet
) -> Iterator[LoadTarget]:
    """Create a stream, or the stream of a new bucket; delete it afterwards."""
    token = secrets.token_hex(3)
    if scenario.bucket:
        place = LoadTarget(f"KV_{token}", SubjectPlan(f"$KV.{token}.key", scenario.subjects))
        subjects, more = [f"$KV.{token}.>"], BUCKET
    else:
        place = LoadTarget(f"BENCH_{token}", SubjectPlan(f"bench.{token}", scenario.subjects))
        subjects, more = [place.plan.pattern], {}
    control.create_stream(place.name, subjects, scenario.storage, **more)
    yield place
    # Not after a failure: the server may be down, and the failure must be reported.
    control.delete_stream(place.name)


def _publishes(place: LoadTarget, inbox: str, payload_bytes: int) -> Asks:
    return encode_asks(place.plan.names(), inbox, payload_bytes)


def _gets(place: LoadTarget, inbox: str) -> Asks:
    api = f"$JS.API.DIRECT.GET.{place.name}"
    return encode_asks([f"{api}.{name}" for name in place.plan.names()], inbox, 0)


def _inbox(client: Client, load: Load) -> str:
    inbox = f"_INBOX.{secrets.token_hex(8)}"
    client.subscribe(f"{inbox}.*", 1, load.deadline_ns)
    return inbox


def _publish(
    client: Client, asks: Asks, window: int, samples: "array[int]", load: Load
) -> tuple[int, int]:
    return publish_acked(
        client.fd,
        asks.data,
        asks.frame_bytes,
        asks.token_at,
        window,
        1,
        samples,
        load.deadline_ns,
        asks.id_at,
    )


def _samples(count: int) -> "array[int]":
    return array("q", bytes(8 * count))


def _check_stored(control: Control, place: LoadTarget, scenario: StreamPublish, count: int) -> None:
    wanted = min(count, scenario.subjects) if scenario.bucket else count
    stored = control.stored(place.name)
    if stored != wanted:
        raise BenchError(f"{wanted} messages should be stored, {stored} are")
