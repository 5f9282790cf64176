"""What is measured: declarations of load patterns and the standard suite.

A scenario says who publishes what to whom and nothing about how it is run; `measure.py` has one
runner per scenario type. A new kind of load (JetStream, say) joins by adding a frozen dataclass
here, to the `Scenario` union and to the runner table there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

MANY_SUBJECTS = 10_000


@dataclass(frozen=True, slots=True)
class PubSub:
    """Publishers at full speed, and subscribers that each receive everything.

    With `queue` the subscribers form one queue group and share the messages instead. More than
    one subject: published round-robin, received through a wildcard.
    """

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
        """How often each published message is delivered."""
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

    name: str
    payload_bytes: int
    clients: int = 1

    @property
    def title(self) -> str:
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        return f"request/reply · {size_text(self.payload_bytes)} · {clients}"


Scenario = PubSub | RequestReply

STANDARD: tuple[Scenario, ...] = (
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

QUICK = ("publish-128B", "1-1-128B", "1-4-128B", "request-1", "request-16")


def size_text(count: int) -> str:
    return f"{count // 1024} KiB" if count and count % 1024 == 0 else f"{count} B"


def select(patterns: Sequence[str]) -> list[Scenario]:
    """The standard scenarios whose name matches any of the glob patterns, in suite order."""
    return [
        scenario
        for scenario in STANDARD
        if any(fnmatchcase(scenario.name, pattern) for pattern in patterns)
    ]
