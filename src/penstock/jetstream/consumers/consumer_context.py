"""What a consumer needs of the world it is in: values that stay, and questions it may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.router import Router
    from penstock.store.contract import Store
    from penstock.subjects.trie import SubList

PAYLOAD_BYTES_MAX: Final = 1_048_576
"""The server's default for the largest message, which a rate limit lets through in one go."""


class Outlet(NamedTuple):
    """Where compiled code puts deliveries: the router, and who listens in the account."""

    router: Router
    interest: SubList


class ConsumerContext(NamedTuple):
    """Where a consumer lives."""

    stream_name: str
    store: Store
    """The stream's messages; a consumer only reads."""
    has_interest: Callable[[str, str | None], bool]
    """Whether somebody listens on a subject, in a queue group if one is named."""
    nuid: Callable[[], str]
    account: str = "$G"
    account_hash: str = ""
    domain: str = ""
    ack_v2: bool = False
    """Whether ack subjects name the domain and the account."""
    max_msgs_per_subject: int = -1
    """The stream's; it decides what the last message of each subject is."""
    by_interest: bool = False
    """Whether the stream keeps messages for its consumers, so that it wants to know of each
    that is settled."""
    burst_bytes: int = PAYLOAD_BYTES_MAX
    """The largest message the stream may hold."""
    outlet: Outlet | None = None
    """None: every delivery is an effect."""

    def ack_prefix(self, consumer: str) -> str:
        """Ack subjects of a consumer up to the first number."""
        return f"$JS.ACK.{self._scope()}{self.stream_name}.{consumer}."

    def flow_prefix(self, consumer: str) -> str:
        """Subjects of a consumer's flow control up to the id."""
        return f"$JS.FC.{self._scope()}{self.stream_name}.{consumer}."

    def _scope(self) -> str:
        return f"{self.domain or '_'}.{self.account_hash}." if self.ack_v2 else ""
