"""StackedCodec: one codec over another, used for WebSocket frames inside TLS records (wss).

The lower codec exchanges bytes with the network, the upper one produces NATS bytes. The stack is
established when both codecs are. Output of either codec, including the last bytes before the close,
leaves through the lower one.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.server.net.codecs.contract import BytesLike, CodecEnd, TransportCodec

if TYPE_CHECKING:
    from penstock.server.net.codecs.tls_codec import TlsAcceptor, TlsCodec
    from penstock.server.net.codecs.websocket import WebSocketAcceptor, WebSocketCodec


Lower = TypeVar("Lower", bound=TransportCodec)
Upper = TypeVar("Upper", bound=TransportCodec)


@dataclass(frozen=True, slots=True)
class SecureWebSocketAcceptor:
    """The settings that all connections of one wss listener share."""

    tls: "TlsAcceptor"
    websocket: "WebSocketAcceptor"

    def codec(self) -> "StackedCodec[TlsCodec, WebSocketCodec]":
        return StackedCodec(self.tls.codec(), self.websocket.codec())


class StackedCodec(Generic[Lower, Upper]):
    """`upper` inside `lower`; see `contract.TransportCodec` for the calling protocol."""

    __slots__ = ("_lower_end", "lower", "upper")

    def __init__(self, lower: Lower, upper: Upper) -> None:
        self.lower = lower
        self.upper = upper
        self._lower_end: CodecEnd | None = None

    @property
    def established(self) -> bool:
        return self.lower.established and self.upper.established

    @property
    def pending(self) -> bool:
        return self.upper.pending or self.lower.pending

    def limit_message(self, bytes_max: int) -> None:
        self.lower.limit_message(bytes_max)
        self.upper.limit_message(bytes_max)

    def receive(self, data: BytesLike) -> bytes:
        out = self._lift(self._receive_lower(data))
        if self._lower_end is not None and not self.upper.pending:
            # Raised only now: bytes before the end must be processed, in several portions.
            end, self._lower_end = self._lower_end, None
            end.received = out
            raise end
        return out

    def encode(self, data: BytesLike) -> bytes:
        return self.lower.encode(self.upper.encode(data))

    def outgoing(self) -> bytes:
        below, above = self.lower.outgoing(), self.upper.outgoing()
        return below + self.lower.encode(above) if above else below

    def farewell(self, reason: str) -> bytes:
        below, above = self.lower.outgoing(), self.upper.farewell(reason)
        encoded = self.lower.encode(above) if above else b""
        return below + encoded + self.lower.farewell(reason)

    def _receive_lower(self, data: BytesLike) -> bytes:
        try:
            return self.lower.receive(data)
        except CodecEnd as end:
            self._lower_end = end
            return end.received

    def _lift(self, middle: bytes) -> bytes:
        if not middle and not self.upper.pending:
            return b""
        try:
            return self.upper.receive(middle)
        except CodecEnd:
            # The upper codec's end replaces the lower one's.
            self._lower_end = None
            raise
