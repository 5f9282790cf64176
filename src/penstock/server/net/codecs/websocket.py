"""WebSocket, server side: the upgrade, then frames around a NATS byte stream.

A listener creates one `WebSocketAcceptor` (again on reload), which creates one `WebSocketCodec` per
connection. A codec is upgrading, then open. Reading ends first, writing ends with the close frame,
and neither resumes. Frames do not preserve NATS message boundaries in either direction.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.server.net.codecs.contract import READ_ERROR, BytesLike, CodecClosed, CodecError
from penstock.server.net.codecs.upgrade import (
    Upgrade,
    UpgradeReader,
    UpgradeRefused,
    UpgradeRules,
    upgrade_rules,
)
from penstock.server.net.codecs.websocket_frames import (
    BROWSER_FRAME_BYTES_MAX,
    CLOSE,
    MESSAGE_BYTES_MAX,
    CloseStatus,
    FrameDecoder,
    FrameViolation,
    PeerClosed,
    close_payload,
    encode_frame,
    encode_message,
    is_sendable_status,
)

if TYPE_CHECKING:
    from penstock.server.config.options import WebsocketOptions

#: Close reason of the reference (connz) -> status of its close frame.
CLOSE_STATUSES = {
    "Client Closed": CloseStatus.NORMAL,
    "Authentication Timeout": CloseStatus.POLICY_VIOLATION,
    "Authentication Failure": CloseStatus.POLICY_VIOLATION,
    "Authentication Expired": CloseStatus.POLICY_VIOLATION,
    "Credentials Revoked": CloseStatus.POLICY_VIOLATION,
    "Missing Account": CloseStatus.POLICY_VIOLATION,
    "Slow Consumer (Pending Bytes)": CloseStatus.POLICY_VIOLATION,
    "Slow Consumer (Write Deadline)": CloseStatus.POLICY_VIOLATION,
    "Maximum Account Connections Exceeded": CloseStatus.POLICY_VIOLATION,
    "Maximum Connections Exceeded": CloseStatus.POLICY_VIOLATION,
    "Maximum Control Line Exceeded": CloseStatus.POLICY_VIOLATION,
    "Maximum Subscriptions Exceeded": CloseStatus.POLICY_VIOLATION,
    "Maximum Message Payload Exceeded": CloseStatus.TOO_BIG,
    "TLS Handshake Failure": CloseStatus.TLS_HANDSHAKE,
    "Parse Error": CloseStatus.PROTOCOL_ERROR,
    "Protocol Violation": CloseStatus.PROTOCOL_ERROR,
    "Bad Client Protocol Version": CloseStatus.PROTOCOL_ERROR,
    "Server Shutdown": CloseStatus.GOING_AWAY,
    "Stale Connection": CloseStatus.GOING_AWAY,
    "Write Error": CloseStatus.GOING_AWAY,
    "Read Error": CloseStatus.GOING_AWAY,
}


def close_status(reason: str) -> CloseStatus:
    """Return the close status for a connz reason; INTERNAL_ERROR if it has none of its own."""
    return CLOSE_STATUSES.get(reason, CloseStatus.INTERNAL_ERROR)


@dataclass(frozen=True, slots=True)
class WebSocketAcceptor:
    """The settings that all connections of one listener share."""

    rules: UpgradeRules
    message_bytes_max: int = MESSAGE_BYTES_MAX

    def codec(self) -> "WebSocketCodec":
        return WebSocketCodec(self.rules, self.message_bytes_max)


def build_acceptor(options: "WebsocketOptions", *, secure: bool) -> WebSocketAcceptor:
    """Build the acceptor; `secure`: TLS is the lower layer. Raises ValueError for a bad origin."""
    return WebSocketAcceptor(upgrade_rules(options, secure=secure))


class WebSocketCodec:
    """One WebSocket connection; see `contract.TransportCodec` for the calling protocol."""

    __slots__ = (
        "_close_payload",
        "_decoder",
        "_message_bytes_max",
        "_outgoing",
        "_reader",
        "_reading",
        "_upgrade",
        "_writing",
    )

    def __init__(self, rules: UpgradeRules, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._message_bytes_max = message_bytes_max
        self._reader: UpgradeReader | None = UpgradeReader(rules)
        self._decoder: FrameDecoder | None = None
        self._upgrade: Upgrade | None = None
        self._outgoing: list[bytes] = []
        self._close_payload: bytes | None = None
        self._reading = True
        self._writing = False

    @property
    def established(self) -> bool:
        return self._upgrade is not None

    @property
    def pending(self) -> bool:
        return self._reading and self._decoder is not None and self._decoder.pending

    @property
    def upgrade(self) -> Upgrade | None:
        """The accepted request (path, cookies, client address), once established."""
        return self._upgrade

    def limit_message(self, bytes_max: int) -> None:
        self._message_bytes_max = min(bytes_max, MESSAGE_BYTES_MAX)
        if self._decoder is not None:
            self._decoder.limit_message(self._message_bytes_max)

    def receive(self, data: BytesLike) -> bytes:
        if not self._reading:
            return b""
        if self._decoder is None:
            self._shake_hands(data)
            return b""
        out: list[bytes] = []
        try:
            self._decoder.feed(data, out)
        except FrameViolation as violation:
            self._end_reading(close_payload(violation.status, violation.text))
            raise CodecError(violation.text, reason=READ_ERROR, received=b"".join(out)) from None
        except PeerClosed as closed:
            self._end_reading(closed.reply)
            raise CodecClosed(str(closed), received=b"".join(out)) from None
        return out[0] if len(out) == 1 else b"".join(out)

    def encode(self, data: BytesLike) -> bytes:
        upgrade = self._upgrade
        assert upgrade is not None, "nothing can be framed before the upgrade"
        if len(data) == 0 or not self._writing:
            return b""
        frame_bytes_max = BROWSER_FRAME_BYTES_MAX if upgrade.browser else 0
        if upgrade.safari and upgrade.compress:
            # Safari does not accept compressed messages in fragments.
            frame_bytes_max = 0
        return encode_message(data, compress=upgrade.compress, frame_bytes_max=frame_bytes_max)

    def outgoing(self) -> bytes:
        if not self._outgoing:
            return b""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def farewell(self, reason: str) -> bytes:
        """Return a close frame: the reply to the peer's, or one with our reason."""
        self._reading = False
        if not self._writing:
            return self.outgoing()
        self._writing = False
        payload = self._close_payload
        if payload is None:
            status = close_status(reason)
            payload = close_payload(status, reason) if is_sendable_status(status) else b""
        return self.outgoing() + encode_frame(CLOSE, payload)

    def _end_reading(self, payload: bytes) -> None:
        self._reading = False
        self._close_payload = payload

    def _shake_hands(self, data: BytesLike) -> None:
        assert self._reader is not None
        try:
            upgrade = self._reader.feed(data)
        except UpgradeRefused as refused:
            self._reading = False
            self._outgoing.append(refused.response)
            raise CodecError(refused.text, reason=READ_ERROR) from None
        if upgrade is None:
            return
        self._reader = None
        self._upgrade = upgrade
        self._writing = True
        self._outgoing.append(upgrade.response)
        self._decoder = FrameDecoder(
            self._outgoing.append,
            masked=upgrade.masked,
            compressed=upgrade.compress,
            message_bytes_max=self._message_bytes_max,
        )
