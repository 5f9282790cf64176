"""Declarations of load patterns, and the standard suite.

A scenario declares the publishers, subscribers and messages, not how it is run; `measurement.py`
and `load/jetstream_load.py` have one runner per scenario type. To add a type of load, add a frozen
dataclass here, to the `Scenario` union and to the choice of runners in `measurement.py`.
`first_trial` is a message count that takes any server a short time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import ClassVar, Literal

MANY_SUBJECTS = 10_000
WINDOW = 1000  # unacknowledged publishes of an asynchronous publisher
GET_WINDOW = 100
KEYS = 1000  # of a bucket

Storage = Literal["file", "memory"]


@dataclass(frozen=True, slots=True)
class PubSub:
    """Publishers at full speed, and subscribers that each receive everything.

    With `queue` the subscribers form one queue group and share the messages instead. More than
    one subject: published round-robin, received through a wildcard.
    """

    first_trial: ClassVar[int] = 20_000
    name: str
    payload_bytes: int
    publishers: int = 1
    subscribers: int = 0
    subjects: int = 1
    queue: bool = False
    headers: bool = False

    @property
    def title(self) -> str:
        return " · ".join([self._shape(), size_text(self.payload_bytes), *self._traits()])

    @property
    def copies(self) -> int:
        """Return how often each published message is delivered."""
        return min(1, self.subscribers) if self.queue else self.subscribers

    def _shape(self) -> str:
        if self.subscribers == 0:
            return "publish only"
        return f"{self.publishers} → {self.subscribers}"

    def _traits(self) -> Iterable[str]:
        if self.subjects > 1:
            yield f"{self.subjects // 1000} k subjects"
        if self.headers:
            yield "headers"
        if self.queue:
            yield "queue group"


@dataclass(frozen=True, slots=True)
class RequestReply:
    """Clients with one request in flight each, and one responder that echoes the payload."""

    first_trial: ClassVar[int] = 300
    name: str
    payload_bytes: int
    clients: int = 1

    @property
    def title(self) -> str:
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        return f"request/reply · {size_text(self.payload_bytes)} · {clients}"


class Durability(Enum):
    """When a server syncs what it stores: the setting of both servers, and the words in a title."""

    SHIPPED = ("", "as shipped")
    ALWAYS = ("sync_interval: always", "both sync always")
    LAZY = ('sync_interval: "2m"', "both sync lazily")

    def __init__(self, setting: str, words: str) -> None:
        self.setting = setting  # a line of the server's jetstream section
        self.words = words


@dataclass(frozen=True, slots=True)
class StreamPublish:
    """One publisher that waits for acks, with up to `window` of them pending.

    A bucket is the stream of a key-value bucket without history: every put replaces a value. With
    `ids` every message has its own id, which the server remembers.
    """

    first_trial: ClassVar[int] = 500
    name: str
    payload_bytes: int = 128
    storage: Storage = "file"
    window: int = WINDOW
    subjects: int = 1
    durability: Durability = Durability.SHIPPED
    bucket: bool = False
    ids: bool = False

    @property
    def title(self) -> str:
        parts = ["put" if self.bucket else f"publish · {self.storage}"]
        parts += [size_text(self.payload_bytes), window_text(self.window)]
        if self.subjects > 1 and not self.bucket:
            parts.append(f"{self.subjects // 1000} k subjects")
        if self.ids:
            parts.append("message ids")
        if self.storage == "file":
            parts.append(self.durability.words)
        return " · ".join(parts)


@dataclass(frozen=True, slots=True)
class StreamRead:
    """One reader of a filled file stream: pushed with flow control, or pulled in batches."""

    first_trial: ClassVar[int] = 20_000
    durability: ClassVar[Durability] = Durability.SHIPPED
    storage: ClassVar[Storage] = "file"
    subjects: ClassVar[int] = 1
    bucket: ClassVar[bool] = False
    name: str
    payload_bytes: int = 128
    pushed: bool = False
    acks: bool = False

    @property
    def title(self) -> str:
        way = "ordered push" if self.pushed else "durable pull"
        acks = "every message acked" if self.acks else "no acks"
        return f"{way} · {size_text(self.payload_bytes)} · {acks}"


@dataclass(frozen=True, slots=True)
class BucketGet:
    """One client that gets values of a bucket, key by key."""

    first_trial: ClassVar[int] = 500
    durability: ClassVar[Durability] = Durability.SHIPPED
    storage: ClassVar[Storage] = "file"
    subjects: ClassVar[int] = KEYS
    bucket: ClassVar[bool] = True
    name: str
    payload_bytes: int = 128
    window: int = 1

    @property
    def title(self) -> str:
        return f"get · {size_text(self.payload_bytes)} · {window_text(self.window)}"


CoreScenario = PubSub | RequestReply
JetStreamScenario = StreamPublish | StreamRead | BucketGet
Scenario = CoreScenario | JetStreamScenario


def jetstream_setting(scenario: Scenario) -> str | None:
    """Return the line for the jetstream section of both servers; None without JetStream."""
    if isinstance(scenario, PubSub | RequestReply):
        return None
    return scenario.durability.setting


def fits_any_server(scenario: Scenario) -> bool:
    """Return False if the scenario needs servers configured in a certain way."""
    return not jetstream_setting(scenario)


def each_durability(scenario: StreamPublish) -> tuple[StreamPublish, ...]:
    """Return the scenario as shipped, then with both servers configured alike in two ways."""
    others = (Durability.ALWAYS, Durability.LAZY)
    return (
        scenario,
        *(
            replace(scenario, name=f"{scenario.name}-{one.name.lower()}", durability=one)
            for one in others
        ),
    )


CORE: tuple[Scenario, ...] = (
    PubSub("publish-16B", 16),
    PubSub("publish-128B", 128),
    PubSub("publish-1KiB", 1024),
    PubSub("publish-128B-10k-subjects", 128, subjects=MANY_SUBJECTS),
    PubSub("publish-128B-headers", 128, headers=True),
    PubSub("1-1-16B", 16, subscribers=1),
    PubSub("1-1-128B", 128, subscribers=1),
    PubSub("1-1-1KiB", 1024, subscribers=1),
    PubSub("1-1-128B-headers", 128, subscribers=1, headers=True),
    PubSub("1-1-128B-10k-subjects", 128, subscribers=1, subjects=MANY_SUBJECTS),
    PubSub("1-4-16B", 16, subscribers=4),
    PubSub("1-4-128B", 128, subscribers=4),
    PubSub("1-4-1KiB", 1024, subscribers=4),
    PubSub("1-4-128B-queue", 128, subscribers=4, queue=True),
    PubSub("4-4-128B", 128, publishers=4, subscribers=4),
    RequestReply("request-1", 128, clients=1),
    RequestReply("request-16", 128, clients=16),
)

JETSTREAM: tuple[Scenario, ...] = (
    StreamPublish("js-publish-sync-memory", storage="memory", window=1),
    *each_durability(StreamPublish("js-publish-sync-file", window=1)),
    StreamPublish("js-publish-memory-128B", storage="memory"),
    *each_durability(StreamPublish("js-publish-file-128B")),
    *each_durability(StreamPublish("js-publish-file-1KiB", 1024)),
    *each_durability(StreamPublish("js-publish-file-128B-10k-subjects", subjects=MANY_SUBJECTS)),
    *each_durability(StreamPublish("js-publish-file-128B-ids", ids=True)),
    StreamRead("js-push-128B", pushed=True),
    StreamRead("js-push-1KiB", 1024, pushed=True),
    StreamRead("js-pull-128B-acked", acks=True),
    StreamRead("js-pull-128B"),
    *each_durability(StreamPublish("kv-put-sync", window=1, subjects=KEYS, bucket=True)),
    *each_durability(StreamPublish("kv-put", subjects=KEYS, bucket=True)),
    BucketGet("kv-get-sync"),
    BucketGet("kv-get", window=GET_WINDOW),
)

STANDARD = (*CORE, *JETSTREAM)

QUICK = ("publish-128B", "1-1-128B", "1-4-128B", "request-1", "request-16")
JETSTREAM_QUICK = (
    "js-publish-sync-file",
    "js-publish-file-128B",
    "js-publish-file-128B-always",
    "js-publish-file-128B-lazy",
    "js-push-128B",
    "js-pull-128B-acked",
    "kv-put",
    "kv-get",
)


def size_text(count: int) -> str:
    return f"{count // 1024} KiB" if count and count % 1024 == 0 else f"{count} B"


def window_text(window: int) -> str:
    return "one at a time" if window == 1 else f"window {window}"


def select(patterns: Sequence[str]) -> list[Scenario]:
    """Return the scenarios whose name matches any of the glob patterns, in suite order."""
    return [
        scenario
        for scenario in STANDARD
        if any(fnmatchcase(scenario.name, pattern) for pattern in patterns)
    ]
