"""Events that JetStream tells: advisories and metrics, as the reference writes them.

Machines make them without an id, a time or a domain; the edge adds those with `stamp`, and only if
somebody listens. The order of fields, the domain's place included, is the wire's.
"""

from typing import Annotated

from msgspec import Struct, structs

from penstock.api.fields import EMIT, Nanos, Time
from penstock.api.json_codec import encode
from penstock.api.stream_config import StreamState

ADVISORY_TYPE_PREFIX = "io.nats.jetstream.advisory.v1."
METRIC_TYPE_PREFIX = "io.nats.jetstream.metric.v1."


class AdvisoryClient(Struct, frozen=True, kw_only=True):
    """Who asked."""

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
    """What every event begins with; the edge fills in `id` and `timestamp`."""

    type: Annotated[str, EMIT] = ""
    id: Annotated[str, EMIT] = ""
    timestamp: Annotated[Time, EMIT] = 0


def stamp(event: Struct, *, id: str, timestamp_ns: int, domain: str) -> bytes:
    """An event as it is published."""
    return encode(structs.replace(event, id=id, timestamp=timestamp_ns, domain=domain))


class ApiAudit(Event, frozen=True, kw_only=True):
    """A request was answered."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}api_audit"
    server: Annotated[str, EMIT] = ""
    client: Annotated[AdvisoryClient | None, EMIT] = None
    subject: Annotated[str, EMIT] = ""
    request: str = ""
    response: Annotated[str, EMIT] = ""
    domain: str = ""


class ApiLimitReached(Event, frozen=True, kw_only=True):
    """Requests were dropped because too many waited."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}api_limit_reached"
    server: Annotated[str, EMIT] = ""
    domain: str = ""
    dropped: Annotated[int, EMIT] = 0


class StreamAction(Event, frozen=True, kw_only=True):
    """A stream was created, deleted or changed."""

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
    """A consumer pauses, or goes on."""

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
    """A message was delivered as often as allowed."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}max_deliver"
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    stream_seq: Annotated[int, EMIT] = 0
    deliveries: Annotated[int, EMIT] = 0
    domain: str = ""


class MsgNaked(Event, frozen=True, kw_only=True):
    """A message was sent back."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}nak"
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    consumer_seq: Annotated[int, EMIT] = 0
    stream_seq: Annotated[int, EMIT] = 0
    deliveries: Annotated[int, EMIT] = 0
    domain: str = ""


class MsgTerminated(Event, frozen=True, kw_only=True):
    """A message will not be delivered again."""

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
    """A batch was given up."""

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
    """A client is pinned no longer."""

    type: Annotated[str, EMIT] = f"{ADVISORY_TYPE_PREFIX}consumer_group_unpinned"
    account: str = ""
    stream: Annotated[str, EMIT] = ""
    consumer: Annotated[str, EMIT] = ""
    domain: str = ""
    group: Annotated[str, EMIT] = ""
    reason: Annotated[str, EMIT] = ""
