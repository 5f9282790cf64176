"""Configuration and reported state of a consumer; each field is declared once.

Field names are those of the JSON API, and the order of declaration is the order on the wire.
Defaults, reference pages and update rules are derived from these declarations. Values only:
`consumer_defaults.normalise` fills in what depends on the server or the stream, and
`consumer_rules` decides whether a configuration is allowed. Durations are nanoseconds; times are
nanoseconds since 1970.
"""

import enum
from typing import Annotated, Final

from msgspec import Struct

from penstock.api.fields import EMIT, FIXED, SINCE, Doc, Nanos, Time, UInt64
from penstock.api.shortcuts import ALLOWS, ENFORCED, Shortcut, ShortcutRules, forbids
from penstock.api.stream_config import ClusterInfo

NANOS_MAX: Final = 2**63 - 1
"""The longest duration that clients can parse."""


class DeliverPolicy(enum.StrEnum):
    """Where in the stream a consumer starts."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"

    @classmethod
    def _missing_(cls, value: object) -> "DeliverPolicy | None":
        # Old clients send "undefined" for the default.
        return cls.ALL if value == "undefined" else None


class AckPolicy(enum.StrEnum):
    """Which acknowledgements a consumer requires."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(enum.StrEnum):
    """How fast stored messages are delivered."""

    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(enum.StrEnum):
    """Which of several waiting pull requests is served."""

    misread = enum.nonmember("unknown priority policy")

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"


class ConsumerAction(enum.StrEnum):
    """Whether a request may create a consumer, update one, or both."""

    misread = enum.nonmember("unknown consumer action")

    CREATE_OR_UPDATE = ""
    UPDATE = "update"
    CREATE = "create"


class ConsumerConfig(Struct, frozen=True, kw_only=True):
    """What a consumer delivers, where, and how often."""

    durable_name: Annotated[
        str, Doc("Name of a consumer that outlives its clients."), FIXED, ALLOWS
    ] = ""
    name: Annotated[
        str, Doc("Unique in the stream; equal to `durable_name` if both."), FIXED, ALLOWS
    ] = ""
    description: Annotated[str, Doc("A text for people; at most 4096 bytes."), ALLOWS] = ""
    deliver_policy: Annotated[
        DeliverPolicy, Doc("Where in the stream delivery starts."), EMIT, FIXED, ENFORCED
    ] = DeliverPolicy.ALL
    opt_start_seq: Annotated[UInt64, Doc("Start of `by_start_sequence`."), FIXED, ENFORCED] = 0
    opt_start_time: Annotated[Time | None, Doc("Start of `by_start_time`."), FIXED, ENFORCED] = None
    ack_policy: Annotated[
        AckPolicy, Doc("Which acknowledgement a message needs."), EMIT, FIXED, ENFORCED
    ] = AckPolicy.NONE
    ack_wait: Annotated[
        Nanos,
        Doc("Time after which an unacknowledged message is redelivered; 30 seconds by default."),
        ENFORCED,
    ] = 0
    max_deliver: Annotated[
        int, Doc("Maximum deliveries of one message; -1 by default: no limit."), ENFORCED
    ] = 0
    backoff: Annotated[
        tuple[Nanos, ...], Doc("Time before each redelivery, instead of `ack_wait`."), ENFORCED
    ] = ()
    filter_subject: Annotated[
        str, Doc("Deliver only messages whose subject matches."), ENFORCED
    ] = ""
    filter_subjects: Annotated[
        tuple[str, ...],
        Doc("Deliver only messages whose subject matches one of these; they must not overlap."),
        ENFORCED,
    ] = ()
    replay_policy: Annotated[
        ReplayPolicy,
        Doc("Deliver at once, or with the original gaps between messages."),
        EMIT,
        FIXED,
        ENFORCED,
    ] = ReplayPolicy.INSTANT
    rate_limit_bps: Annotated[
        UInt64, Doc("Maximum bits per second; push only."), forbids(Shortcut.RUN)
    ] = 0
    sample_freq: Annotated[
        str, Doc('Percentage of acks that are sampled, such as "50%".'), forbids(Shortcut.ACK)
    ] = ""
    max_waiting: Annotated[
        int, Doc("Maximum waiting pull requests; 512 by default."), FIXED, ENFORCED
    ] = 0
    max_ack_pending: Annotated[
        int,
        Doc("Maximum delivered messages without an ack; 1000 by default, -1: no limit."),
        ENFORCED,
    ] = 0
    flow_control: Annotated[
        bool, Doc("Wait for the subscriber's flow control replies; push only."), FIXED, ENFORCED
    ] = False
    headers_only: Annotated[bool, Doc("Omit payloads; a header has their size."), ENFORCED] = False
    max_batch: Annotated[int, Doc("Maximum messages of one pull request."), ENFORCED] = 0
    max_expires: Annotated[Nanos, Doc("Maximum time that one pull request waits."), ENFORCED] = 0
    max_bytes: Annotated[int, Doc("Maximum bytes of one pull request."), ENFORCED] = 0
    deliver_subject: Annotated[
        str, Doc("Subject to push messages to; empty: a pull consumer."), ENFORCED
    ] = ""
    deliver_group: Annotated[str, Doc("Queue group of the push subscribers."), ENFORCED] = ""
    idle_heartbeat: Annotated[
        Nanos,
        Doc("Time without messages after which a heartbeat is sent; push only."),
        FIXED,
        ENFORCED,
    ] = 0
    inactive_threshold: Annotated[
        Nanos,
        Doc("Time without use after which it is deleted; 5 seconds by default if not durable."),
        ENFORCED,
    ] = 0
    num_replicas: Annotated[
        int, Doc("Replicas in the cluster; 0: as many as the stream."), EMIT, ALLOWS
    ] = 0
    mem_storage: Annotated[bool, Doc("Store the state in memory only."), FIXED, ALLOWS] = False
    direct: Annotated[bool, Doc("Internal: feeds a mirror or source."), FIXED, ALLOWS] = False
    sourcing: Annotated[bool, Doc("Internal: feeds a mirror or source."), FIXED, ALLOWS] = False
    metadata: Annotated[
        dict[str, str], Doc("For applications; keys that begin with `_nats.` are reserved."), ALLOWS
    ] = {}
    pause_until: Annotated[
        Time | None,
        Doc("Nothing is delivered before this time; CONSUMER.PAUSE changes it."),
        SINCE(1),
        ENFORCED,
    ] = None
    priority_groups: Annotated[
        tuple[str, ...], Doc("Groups that pull requests may name."), SINCE(1), ALLOWS
    ] = ()
    priority_policy: Annotated[
        PriorityPolicy,
        Doc("Which waiting pull request is served."),
        SINCE(1),
        forbids(Shortcut.REQUEST),
    ] = PriorityPolicy.NONE
    priority_timeout: Annotated[
        Nanos,
        Doc("Time without a request after which a client loses its pin; 2 minutes by default."),
        SINCE(1),
        ALLOWS,
    ] = 0

    @property
    def is_push(self) -> bool:
        """Return whether the server pushes messages to a deliver subject, without pull requests."""
        return bool(self.deliver_subject)

    @property
    def filters(self) -> tuple[str, ...]:
        """Return the filter subjects from both fields; () matches every subject."""
        return (
            (*self.filter_subjects, self.filter_subject)
            if self.filter_subject
            else (self.filter_subjects)
        )


CONSUMER_SHORTCUTS: Final = ShortcutRules(ConsumerConfig)


class SequenceInfo(Struct, frozen=True, kw_only=True):
    """A position as consumer sequence and stream sequence."""

    consumer_seq: Annotated[UInt64, Doc("Deliveries so far."), EMIT] = 0
    stream_seq: Annotated[UInt64, Doc("Sequence in the stream."), EMIT] = 0
    last_active: Annotated[Time | None, Doc("When it last moved.")] = None


class PriorityGroupState(Struct, frozen=True, kw_only=True):
    """The client pinned in a priority group."""

    group: Annotated[str, Doc("Name of the group."), EMIT]
    pinned_client_id: Annotated[str, Doc("Id of the pinned client; empty if none is.")] = ""
    pinned_ts: Annotated[Time, Doc("Since when."), EMIT] = 0


class ConsumerInfo(Struct, frozen=True, kw_only=True):
    """Configuration and state of a consumer."""

    stream_name: Annotated[str, Doc("The stream it reads."), EMIT]
    name: Annotated[str, Doc("Its name."), EMIT]
    created: Annotated[Time, Doc("When it was created."), EMIT]
    config: Annotated[ConsumerConfig | None, Doc("Its configuration.")] = None
    delivered: Annotated[SequenceInfo, Doc("The last delivery."), EMIT] = SequenceInfo()
    ack_floor: Annotated[SequenceInfo, Doc("Every message up to here is acknowledged."), EMIT] = (
        SequenceInfo()
    )
    num_ack_pending: Annotated[int, Doc("Delivered and not acknowledged."), EMIT] = 0
    num_redelivered: Annotated[int, Doc("Messages delivered more than once."), EMIT] = 0
    num_waiting: Annotated[int, Doc("Pull requests waiting."), EMIT] = 0
    num_pending: Annotated[UInt64, Doc("Messages not delivered yet."), EMIT] = 0
    cluster: Annotated[ClusterInfo | None, Doc("Its leader and replicas.")] = None
    push_bound: Annotated[bool, Doc("The deliver subject has a subscriber.")] = False
    paused: Annotated[bool, Doc("It delivers nothing now.")] = False
    pause_remaining: Annotated[Nanos, Doc("Remaining time of the pause.")] = 0
    ts: Annotated[Time, Doc("Time of this reply."), EMIT] = 0
    priority_groups: Annotated[
        tuple[PriorityGroupState, ...], Doc("The pinned client of each group.")
    ] = ()


class CreateConsumerRequest(Struct, frozen=True, kw_only=True):
    """The body of a request that creates or updates a consumer."""

    stream_name: Annotated[str, Doc("The stream, as in the subject."), EMIT] = ""
    config: Annotated[ConsumerConfig, Doc("What is wanted."), EMIT] = ConsumerConfig()
    action: Annotated[ConsumerAction, Doc("Create only, update only, or either."), EMIT] = (
        ConsumerAction.CREATE_OR_UPDATE
    )
    pedantic: Annotated[bool, Doc("Refuse what would otherwise be corrected.")] = False


def pause_remaining(until_ns: int | None, now_ns: int) -> int:
    """Return the remaining time of a pause, at most NANOS_MAX; 0 if it is over."""
    return max(0, min((until_ns or 0) - now_ns, NANOS_MAX))
