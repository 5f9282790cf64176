"""Advisories and metrics that JetStream publishes, in the reference's format.

State machines create events without id, time or domain. The server adds these with `stamp`, and
only if there is a subscriber. The order of fields, including the position of `domain`, is the order
on the wire.
"""

from typing import Annotated

from msgspec import Struct, structs

from penstock.api.fields import EMIT, Nanos, Time
from penstock.api.json_codec import encode
from penstock.api.stream_config import StreamState

ADVISORY_TYPE_PREFIX = "io.nats.jetstream.advisory.v1."
METRIC_TYPE_PREFIX = "io.nats.jetstream.metric.v1."


class AdvisoryClient(Struct, frozen=True, kw_only=True):
    """The client that sent a request."""

    start: Time | None = None
    host: str = ""
    id: int = 0
    acc: str = ""
    svc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: Nanos = 0
    server: str = ""
    cluster: str = ""
    alts: tuple[str, ...] = ()
    stop: Time | None = None
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: tuple[str, ...] = ()
    kind: str = ""
    client_type: str = ""
    client_id: str = ""


class Event(Struct, frozen=True, kw_only=True):
    """Fields common to all events; the server fills in `id` and `timestamp`."""

    type: Annotated[str, EMIT] = ""
    id: Annotated[str, EMIT] = ""
    timestamp: Annotated[Time, EMIT] = 0


def stamp(event: Struct, *, id: str, timestamp_ns: int, domain: str) -> bytes:
    """Encode an event for publishing, with its id, time and domain."""
    return encode(structs.replace(event, id=id, timestamp=timestamp_ns, domain=domain))


class ApiAudit(Event, frozen=True, kw_only=True):
    """The server replied to an API request."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}api_audit"
    server: Annotated[str, EMIT] = ""
    client: Annotated[AdvisoryClient | None, EMIT] = None
    subject: Annotated[str, EMIT] = ""
    request: str = ""
    response: Annotated[str, EMIT] = ""
    domain: str = ""


class ApiLimitReached(Event, frozen=True, kw_only=True):
    """The server dropped API requests because too many were queued."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}api_limit_reached"
    server: Annotated[str, EMIT] = ""
    domain: str = ""
    dropped: Annotated[int, EMIT] = 0


class StreamAction(Event, frozen=True, kw_only=True):
    """A stream was created, deleted or updated."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}stream_action"
    stream: Annotated[str, EMIT] = ""
    action: Annotated[str, EMIT] = ""
    domain: str = ""


class ConsumerActionAdvisory(Event, frozen=True, kw_only=True):
    """A consumer was created or deleted."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}consumer_action"
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    action: Annotated[str, EMIT] = ""
    domain: str = ""


class ConsumerPause(Event, frozen=True, kw_only=True):
    """A consumer was paused or resumed."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}consumer_pause"
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    paused: Annotated[bool, EMIT] = False
    pause_until: Annotated[Time, EMIT] = 0
    domain: str = ""


class ConsumerAck(Event, frozen=True, kw_only=True):
    """A sampled acknowledgement."""

    type: Annotated[str, EMIT] = f"{METRIC_TYPE_PREFIX}consumer_ack"
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    consumer_seq: Annotated[int, EMIT] = 0
    stream_seq: Annotated[int, EMIT] = 0
    ack_time: Annotated[Nanos, EMIT] = 0
    deliveries: Annotated[int, EMIT] = 0
    domain: str = ""


class MaxDeliveries(Event, frozen=True, kw_only=True):
    """A message reached its maximum number of deliveries."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}max_deliver"
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    stream_seq: Annotated[int, EMIT] = 0
    deliveries: Annotated[int, EMIT] = 0
    domain: str = ""


class MsgNaked(Event, frozen=True, kw_only=True):
    """A client rejected a message with NAK."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}nak"
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    consumer_seq: Annotated[int, EMIT] = 0
    stream_seq: Annotated[int, EMIT] = 0
    deliveries: Annotated[int, EMIT] = 0
    domain: str = ""


class MsgTerminated(Event, frozen=True, kw_only=True):
    """A client terminated a message: it will not be redelivered."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}terminated"
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    consumer_seq: Annotated[int, EMIT] = 0
    stream_seq: Annotated[int, EMIT] = 0
    deliveries: Annotated[int, EMIT] = 0
    reason: str = ""
    domain: str = ""


class SnapshotCreate(Event, frozen=True, kw_only=True):
    """A snapshot began."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}snapshot_create"
    stream: Annotated[str, EMIT] = ""
    state: Annotated[StreamState, EMIT] = StreamState()
    client: Annotated[AdvisoryClient | None, EMIT] = None
    domain: str = ""


class SnapshotComplete(Event, frozen=True, kw_only=True):
    """A snapshot ended."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}snapshot_complete"
    stream: Annotated[str, EMIT] = ""
    start: Annotated[Time, EMIT] = 0
    end: Annotated[Time, EMIT] = 0
    client: Annotated[AdvisoryClient | None, EMIT] = None
    domain: str = ""
    error: str = ""


class RestoreCreate(Event, frozen=True, kw_only=True):
    """A restore began."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}restore_create"
    stream: Annotated[str, EMIT] = ""
    client: Annotated[AdvisoryClient | None, EMIT] = None
    domain: str = ""


class RestoreComplete(Event, frozen=True, kw_only=True):
    """A restore ended."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}restore_complete"
    stream: Annotated[str, EMIT] = ""
    start: Annotated[Time, EMIT] = 0
    end: Annotated[Time, EMIT] = 0
    bytes: Annotated[int, EMIT] = 0
    client: Annotated[AdvisoryClient | None, EMIT] = None
    domain: str = ""


class BatchAbandoned(Event, frozen=True, kw_only=True):
    """A batch was abandoned."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}stream_batch_abandoned"
    account: str = ""
    stream: Annotated[str, EMIT] = ""
    domain: str = ""
    batch: Annotated[str, EMIT] = ""
    reason: Annotated[str, EMIT] = ""


class GroupPinned(Event, frozen=True, kw_only=True):
    """A client was pinned."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}consumer_group_pinned"
    account: str = ""
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    domain: str = ""
    group: Annotated[str, EMIT] = ""
    pinned_id: Annotated[str, EMIT] = ""


class GroupUnpinned(Event, frozen=True, kw_only=True):
    """A client was unpinned."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}consumer_group_unpinned"
    account: str = ""
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    domain: str = ""
    group: Annotated[str, EMIT] = ""
    reason: Annotated[str, EMIT] = ""
