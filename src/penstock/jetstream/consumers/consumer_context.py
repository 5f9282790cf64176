"""What a consumer needs from its stream and server: constant values, and functions to call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.router import Router
    from penstock.store.contract import Store
    from penstock.subjects.trie import SubList

PAYLOAD_BYTES_MAX: Final = 1_048_576
"""The server's default maximum payload, which a rate limit passes in one burst."""


class Outlet(NamedTuple):
    """Where compiled code writes deliveries: the router, and the account's subscriptions."""

    router: Router
    interest: SubList


class ConsumerContext(NamedTuple):
    """The stream, account and server of a consumer."""

    stream_name: str
    store: Store
    """The stream's messages; a consumer only reads them."""
    has_interest: Callable[[str, str | None], bool]
    """Return whether a subject has a subscriber, in the queue group if one is given."""
    nuid: Callable[[], str]
    account: str = "$G"
    account_hash: str = ""
    domain: str = ""
    ack_v2: bool = False
    """Whether ack subjects contain the domain and the account."""
    max_msgs_per_subject: int = -1
    """The stream's setting; it decides how `last_per_subject` starts."""
    by_interest: bool = False
    """Whether the stream keeps messages for its consumers and so needs to know which sequences are
    done."""
    burst_bytes: int = PAYLOAD_BYTES_MAX
    """The largest message that the stream may hold."""
    outlet: Outlet | None = None
    """None: every delivery is an effect."""

    def ack_prefix(self, consumer: str) -> str:
        """Return the ack subjects of a consumer up to the first number."""
        return f"$JS.ACK.{self._scope()}{self.stream_name}.{consumer}."

    def flow_prefix(self, consumer: str) -> str:
        """Return the flow control subjects of a consumer up to the id."""
        return f"$JS.FC.{self._scope()}{self.stream_name}.{consumer}."

    def _scope(self) -> str:
        return f"{self.domain or '_'}.{self.account_hash}." if self.ack_v2 else ""
