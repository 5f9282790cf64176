"""Configuration and reported state of a stream; each field is declared once.

Field names are those of the JSON API, and the order of declaration is the order on the wire.
Defaults, reference pages and update rules are derived from these declarations. Values only:
`stream_defaults.normalise` fills in what depends on the server, and `stream_rules` decides whether
a configuration is allowed. Durations are nanoseconds; times are nanoseconds since 1970. The items
of long lists have `gc=False`: they cannot be part of a cycle, so the collector need not scan them.
"""

from enum import StrEnum, nonmember
from typing import Annotated, ClassVar, Final, Self

from msgspec import Struct

from penstock.api.fields import EMIT, FIXED, SINCE, Doc, Int32, Int64, Nanos, Time, UInt64
from penstock.api.refusals import ApiError
from penstock.api.shortcuts import ALLOWS, ENFORCED, STORING, Shortcut, ShortcutRules, forbids


class Retention(StrEnum):
    """What removes a message."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORKQUEUE = "workqueue"


class Discard(StrEnum):
    """Which messages are dropped when a limit is reached: the oldest or the newest."""

    OLD = "old"
    NEW = "new"


class Storage(StrEnum):
    """Where messages are stored."""

    FILE = "file"
    MEMORY = "memory"


class Compression(StrEnum):
    """Compression of blocks on disk."""

    NONE = "none"
    S2 = "s2"

    #: Error text for any other value; the other enums share one text.
    unknown = nonmember("unknown compression algorithm")


class PersistMode(StrEnum):
    """Whether a publish is acknowledged after its bytes are durable, or before."""

    DEFAULT = "default"
    ASYNC = "async"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls("default") if value == "" else None


class SubjectTransform(Struct, frozen=True, kw_only=True, gc=False):
    """Maps subjects that match `src` to `dest`."""

    wire_name: ClassVar[str] = "server.SubjectTransformConfig"

    src: Annotated[str, Doc("A subject, with wildcards if wanted."), EMIT] = ""
    dest: Annotated[
        str, Doc("The new subject; `{{wildcard(1)}}` and other functions insert tokens."), EMIT
    ] = ""


class Republish(Struct, frozen=True, kw_only=True):
    """Publishes stored messages again under another subject."""

    wire_name: ClassVar[str] = "server.RePublish"

    src: Annotated[str, Doc("Which subjects; empty: all.")] = ""
    dest: Annotated[str, Doc("The new subject, as in a transform."), EMIT] = ""
    headers_only: Annotated[bool, Doc("Omit payloads; a header has their size.")] = False


class Placement(Struct, frozen=True, kw_only=True):
    """Which servers of a cluster may hold a replica."""

    cluster: Annotated[str, Doc("Name of the cluster.")] = ""
    tags: Annotated[tuple[str, ...], Doc("Tags such a server must have; `!tag`: must not.")] = ()
    preferred: Annotated[str, Doc("Server that should lead; only when stepping down.")] = ""


class External(Struct, frozen=True, kw_only=True, gc=False):
    """How to reach a stream of another account or domain."""

    wire_name: ClassVar[str] = "server.ExternalStream"

    api: Annotated[str, Doc("Prefix of the API subjects there, instead of `$JS.API`."), EMIT] = ""
    deliver: Annotated[str, Doc("Prefix of the subjects on which it delivers here."), EMIT] = ""


class SourceConsumer(Struct, frozen=True, kw_only=True, gc=False):
    """A consumer that exists at the origin, created in advance to read from it."""

    wire_name: ClassVar[str] = "server.StreamConsumerSource"

    name: Annotated[str, Doc("Its name.")] = ""
    deliver_subject: Annotated[str, Doc("Its deliver subject.")] = ""


class StreamSource(Struct, frozen=True, kw_only=True, gc=False):
    """A stream from which another one copies."""

    name: Annotated[str, Doc("The origin."), EMIT] = ""
    opt_start_seq: Annotated[UInt64, Doc("Sequence to start at.")] = 0
    opt_start_time: Annotated[Time | None, Doc("Time to start at.")] = None
    filter_subject: Annotated[str, Doc("Copy only messages whose subject matches.")] = ""
    subject_transforms: Annotated[
        tuple[SubjectTransform, ...],
        Doc("Copy only matching messages, under transformed subjects."),
    ] = ()
    external: Annotated[External | None, Doc("Where the origin is, if elsewhere.")] = None
    consumer: Annotated[
        SourceConsumer | None, Doc("An existing consumer to read with."), SINCE(4)
    ] = None


class ConsumerLimits(Struct, frozen=True, kw_only=True):
    """Defaults and upper limits for the consumers of a stream."""

    wire_name: ClassVar[str] = "server.StreamConsumerLimits"

    inactive_threshold: Annotated[
        Nanos, Doc("Time without use after which a consumer is deleted.")
    ] = 0
    max_ack_pending: Annotated[int, Doc("Delivered messages without an ack.")] = 0


class StreamConfig(Struct, frozen=True, kw_only=True):
    """What a stream stores, for how long, and where."""

    name: Annotated[str, Doc("Unique in the account."), EMIT, FIXED, ALLOWS] = ""
    description: Annotated[str, Doc("A text for people; at most 4096 bytes."), ALLOWS] = ""
    subjects: Annotated[
        tuple[str, ...], Doc("Subjects that it stores; its name by default."), ALLOWS
    ] = ()
    retention: Annotated[
        Retention,
        Doc("What removes a message."),
        EMIT,
        forbids(STORING | Shortcut.PLAN, Retention.INTEREST),
    ] = Retention.LIMITS
    max_consumers: Annotated[int, Doc("Maximum consumers."), EMIT, ALLOWS] = 0
    max_msgs: Annotated[Int64, Doc("Maximum messages."), EMIT, ENFORCED] = 0
    max_bytes: Annotated[Int64, Doc("Maximum bytes."), EMIT, ENFORCED] = 0
    max_age: Annotated[
        Nanos, Doc("Age at which messages are removed; 0: never."), EMIT, forbids(Shortcut.TIMELESS)
    ] = 0
    max_msgs_per_subject: Annotated[
        Int64, Doc("Maximum messages of one subject."), EMIT, ENFORCED
    ] = 0
    max_msg_size: Annotated[
        Int32, Doc("Maximum bytes of one message, headers included."), ENFORCED
    ] = 0
    discard: Annotated[
        Discard,
        Doc("At a limit: remove the oldest messages, or reject new ones."),
        EMIT,
        forbids(Shortcut.STAGE | Shortcut.PLAN, Discard.NEW),
    ] = Discard.OLD
    storage: Annotated[Storage, Doc("File or memory."), EMIT, FIXED, ALLOWS] = Storage.FILE
    num_replicas: Annotated[int, Doc("Replicas in the cluster."), EMIT, ALLOWS] = 0
    no_ack: Annotated[bool, Doc("Publishes are not acknowledged."), ENFORCED] = False
    duplicate_window: Annotated[
        Nanos, Doc("Time for which a `Nats-Msg-Id` is remembered; 2 minutes by default."), ENFORCED
    ] = 0
    placement: Annotated[Placement | None, Doc("Which servers may store it."), ALLOWS] = None
    mirror: Annotated[
        StreamSource | None,
        Doc("The stream that it mirrors."),
        forbids(Shortcut.LANE | Shortcut.STAGE),
    ] = None
    sources: Annotated[tuple[StreamSource, ...], Doc("Streams that it copies from."), ALLOWS] = ()
    compression: Annotated[Compression, Doc("Compression of blocks on disk."), EMIT, ALLOWS] = (
        Compression.NONE
    )
    first_seq: Annotated[
        UInt64, Doc("Sequence of the first message; at creation only."), ALLOWS
    ] = 0
    subject_transform: Annotated[
        SubjectTransform | None,
        Doc("Applied to the subject of each message before it is stored."),
        forbids(STORING | Shortcut.PLAN),
    ] = None
    republish: Annotated[
        Republish | None,
        Doc("Stored messages are published again."),
        forbids(STORING | Shortcut.APPLY),
    ] = None
    allow_direct: Annotated[bool, Doc("Single messages may be read directly."), EMIT, ALLOWS] = (
        False
    )
    mirror_direct: Annotated[
        bool, Doc("The mirror also serves direct reads of its origin."), EMIT, ALLOWS
    ] = False
    discard_new_per_subject: Annotated[
        bool,
        Doc("With discard new: a full subject rejects messages, too."),
        forbids(STORING | Shortcut.PLAN),
    ] = False
    sealed: Annotated[
        bool,
        Doc("No message can be added or removed; cannot be undone."),
        EMIT,
        forbids(STORING | Shortcut.PLAN),
    ] = False
    deny_delete: Annotated[
        bool, Doc("Messages cannot be deleted; cannot be undone."), EMIT, ALLOWS
    ] = False
    deny_purge: Annotated[bool, Doc("It cannot be purged; cannot be undone."), EMIT, ALLOWS] = False
    allow_rollup_hdrs: Annotated[
        bool, Doc("A message may replace earlier ones (`Nats-Rollup`)."), EMIT, ALLOWS
    ] = False
    consumer_limits: Annotated[
        ConsumerLimits, Doc("Limits and defaults of its consumers."), EMIT, ALLOWS
    ] = ConsumerLimits()
    allow_msg_ttl: Annotated[
        bool,
        Doc("Messages may have a time to live; cannot be undone."),
        EMIT,
        SINCE(1),
        forbids(Shortcut.TIMELESS),
    ] = False
    subject_delete_marker_ttl: Annotated[
        Nanos,
        Doc("Time to live of the marker that replaces a subject's last expired message."),
        SINCE(1),
        ALLOWS,
    ] = 0
    allow_msg_counter: Annotated[
        bool,
        Doc("Messages increment counters."),
        FIXED,
        SINCE(2),
        forbids(STORING | Shortcut.PLAN),
    ] = False
    allow_atomic: Annotated[
        bool, Doc("Publishers may store batches atomically."), SINCE(2), forbids(Shortcut.TIMELESS)
    ] = False
    allow_msg_schedules: Annotated[
        bool,
        Doc("Messages may be schedules; cannot be undone."),
        SINCE(2),
        forbids(STORING | Shortcut.APPLY | Shortcut.TIMELESS),
    ] = False
    persist_mode: Annotated[
        PersistMode, Doc("When a publish is acknowledged."), FIXED, SINCE(2), ALLOWS
    ] = PersistMode.DEFAULT
    allow_batched: Annotated[
        bool,
        Doc("Publishers may send batches with few acknowledgements."),
        SINCE(4),
        forbids(Shortcut.TIMELESS),
    ] = False
    metadata: Annotated[
        dict[str, str], Doc("For applications; keys that begin with `_nats.` are reserved."), ALLOWS
    ] = {}


STREAM_SHORTCUTS: Final = ShortcutRules(StreamConfig)


class LostData(Struct, frozen=True, kw_only=True):
    """Messages whose bytes are damaged."""

    wire_name: ClassVar[str] = "server.LostStreamData"

    msgs: Annotated[tuple[UInt64, ...], Doc("Their sequences."), EMIT] = ()
    bytes: Annotated[UInt64, Doc("Their size."), EMIT] = 0


class StreamState(Struct, frozen=True, kw_only=True):
    """Content of a stream."""

    messages: Annotated[UInt64, Doc("Messages."), EMIT] = 0
    bytes: Annotated[UInt64, Doc("Their size."), EMIT] = 0
    first_seq: Annotated[UInt64, Doc("Sequence of the first."), EMIT] = 0
    first_ts: Annotated[Time, Doc("Its time."), EMIT] = 0
    last_seq: Annotated[UInt64, Doc("The last assigned sequence."), EMIT] = 0
    last_ts: Annotated[Time, Doc("Its time."), EMIT] = 0
    num_subjects: Annotated[int, Doc("Subjects.")] = 0
    subjects: Annotated[dict[str, UInt64], Doc("Messages of each subject, if requested.")] = {}
    num_deleted: Annotated[int, Doc("Sequences missing between first and last.")] = 0
    deleted: Annotated[tuple[UInt64, ...], Doc("Those sequences, if requested.")] = ()
    lost: Annotated[LostData | None, Doc("What is damaged.")] = None
    consumer_count: Annotated[int, Doc("Consumers."), EMIT] = 0


class PeerInfo(Struct, frozen=True, kw_only=True):
    """Another server that holds a replica."""

    name: Annotated[str, Doc("Name of the server."), EMIT] = ""
    current: Annotated[bool, Doc("It has everything."), EMIT] = False
    offline: Annotated[bool, Doc("It has not sent anything recently.")] = False
    active: Annotated[Nanos, Doc("Time since it last sent something."), EMIT] = 0
    lag: Annotated[UInt64, Doc("Operations that it has not applied yet.")] = 0
    peer: Annotated[str, Doc("Its id."), EMIT] = ""
    pending: Annotated[bool, Doc("It is joining or leaving.")] = False


class ClusterInfo(Struct, frozen=True, kw_only=True):
    """The servers that hold a stream or consumer."""

    name: Annotated[str, Doc("Name of the cluster.")] = ""
    raft_group: Annotated[str, Doc("Its group.")] = ""
    leader: Annotated[str, Doc("Name of the server that leads.")] = ""
    leader_since: Annotated[Time | None, Doc("Since when.")] = None
    system_account: Annotated[bool, Doc("Replication uses the system account.")] = False
    traffic_account: Annotated[str, Doc("The account that replication uses.")] = ""
    replicas: Annotated[tuple[PeerInfo, ...], Doc("The other servers.")] = ()


class StreamSourceInfo(Struct, frozen=True, kw_only=True):
    """Progress of a mirror or source."""

    name: Annotated[str, Doc("The origin."), EMIT] = ""
    external: Annotated[External | None, Doc("How to reach the origin, if elsewhere.")] = None
    lag: Annotated[UInt64, Doc("Messages not copied yet."), EMIT] = 0
    seq: Annotated[UInt64, Doc("Sequence copied last."), SINCE(5)] = 0
    active: Annotated[Nanos, Doc("Time since the origin last sent something; -1: never."), EMIT] = 0
    error: Annotated[ApiError | None, Doc("The last error.")] = None
    filter_subject: Annotated[str, Doc("As configured.")] = ""
    subject_transforms: Annotated[tuple[SubjectTransform, ...], Doc("As configured.")] = ()


class StreamAlternate(Struct, frozen=True, kw_only=True):
    """A mirror that clients can read instead."""

    name: Annotated[str, Doc("Its name."), EMIT] = ""
    domain: Annotated[str, Doc("Its domain.")] = ""
    cluster: Annotated[str, Doc("Its cluster."), EMIT] = ""


class PenstockInfo(Struct, frozen=True, kw_only=True):
    """What only a Penstock server reports about a stream, to a client that requests it."""

    incarnation: Annotated[
        str, Doc("Identifies the stream; a restored or recreated stream has another."), EMIT
    ] = ""
    loss_floor: Annotated[
        UInt64,
        Doc("The highest sequence removed while it was the newest of its subject; 0: none."),
        EMIT,
    ] = 0
    losses: Annotated[
        UInt64,
        Doc(
            "How many were removed while they were the newest of their subject, by request or "
            "while an older one stayed; never falls."
        ),
        EMIT,
    ] = 0


class StreamInfo(Struct, frozen=True, kw_only=True):
    """Configuration and state of a stream."""

    config: Annotated[StreamConfig, Doc("Its configuration."), EMIT] = StreamConfig()
    created: Annotated[Time, Doc("When it was created."), EMIT] = 0
    state: Annotated[StreamState, Doc("Its totals."), EMIT] = StreamState()
    domain: Annotated[str, Doc("The domain of the server.")] = ""
    cluster: Annotated[ClusterInfo | None, Doc("Its leader and replicas.")] = None
    mirror: Annotated[StreamSourceInfo | None, Doc("Progress of the mirror.")] = None
    sources: Annotated[tuple[StreamSourceInfo, ...], Doc("Progress of each source.")] = ()
    alternates: Annotated[
        tuple[StreamAlternate, ...], Doc("Mirrors that can be read instead.")
    ] = ()
    ts: Annotated[Time, Doc("Time of this reply."), EMIT] = 0
    penstock: Annotated[PenstockInfo | None, Doc("Identity and losses, if requested.")] = None
