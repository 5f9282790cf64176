"""WebSocket, server side: the upgrade, then frames around a NATS byte stream.

`WebSocketAcceptor` is made once per listener (and again on reload) and makes one `WebSocketCodec`
per connection. A codec is upgrading, open, or over, and goes only forward; after it is over it
gives nothing and says nothing. Frames keep no message boundaries of NATS, in either direction.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.server.codecs.contract import (
    BytesLike,
    CloseStatus,
    CodecClosed,
    CodecEnd,
    CodecError,
)
from penstock.server.codecs.frames import (
    BROWSER_FRAME_BYTES_MAX,
    CLOSE,
    MESSAGE_BYTES_MAX,
    FrameDecoder,
    FrameViolation,
    PeerClosed,
    close_payload,
    encode_frame,
    encode_message,
    is_sendable_status,
)
from penstock.server.codecs.upgrade import (
    Upgrade,
    UpgradeReader,
    UpgradeRefused,
    UpgradeRules,
    upgrade_rules,
)

if TYPE_CHECKING:
    from penstock.server.options import WebsocketOptions

#: Why the reference says a connection ended (connz) -> status of its close frame.
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
    """The close status for a connz reason; what has none of its own is an internal error."""
    return CLOSE_STATUSES.get(reason, CloseStatus.INTERNAL_ERROR)


@dataclass(frozen=True, slots=True)
class WebSocketAcceptor:
    """What the connections of one listener share."""

    rules: UpgradeRules
    message_bytes_max: int = MESSAGE_BYTES_MAX

    def codec(self) -> "WebSocketCodec":
        return WebSocketCodec(self.rules, self.message_bytes_max)


def build_acceptor(options: "WebsocketOptions", *, secure: bool) -> WebSocketAcceptor:
    """`secure` tells whether TLS lies below. Raises ValueError for an unreadable origin."""
    return WebSocketAcceptor(upgrade_rules(options, secure=secure))


class WebSocketCodec:
    """One WebSocket connection; see `contract.Codec` for how it is driven."""

    __slots__ = (
        "_decoder",
        "_message_bytes_max",
        "_outgoing",
        "_over",
        "_reader",
        "_upgrade",
    )

    def __init__(self, rules: UpgradeRules, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._message_bytes_max = message_bytes_max
        self._reader: UpgradeReader | None = UpgradeReader(rules)
        self._decoder: FrameDecoder | None = None
        self._upgrade: Upgrade | None = None
        self._outgoing: list[bytes] = []
        self._over = False

    @property
    def established(self) -> bool:
        return self._upgrade is not None

    @property
    def pending(self) -> bool:
        return not self._over and self._decoder is not None and self._decoder.pending

    @property
    def upgrade(self) -> Upgrade | None:
        """The accepted request (path, cookies, client address), once established."""
        return self._upgrade

    def receive(self, data: BytesLike) -> bytes:
        if self._over:
            return b""
        if self._decoder is None:
            self._shake_hands(data)
            return b""
        out: list[bytes] = []
        try:
            self._decoder.feed(data, out)
        except FrameViolation as violation:
            payload = close_payload(violation.status, violation.text)
            end = CodecError(violation.text, status=violation.status)
            raise self._ended(end, out, payload) from None
        except PeerClosed as closed:
            end_of_peer = CodecClosed(str(closed), status=CloseStatus.NORMAL)
            raise self._ended(end_of_peer, out, closed.reply) from None
        return out[0] if len(out) == 1 else b"".join(out)

    def encode(self, data: BytesLike) -> bytes:
        upgrade = self._upgrade
        assert upgrade is not None, "nothing can be framed before the upgrade"
        if len(data) == 0:
            return b""
        frame_bytes_max = BROWSER_FRAME_BYTES_MAX if upgrade.browser else 0
        if upgrade.safari and upgrade.compress:
            # Safari does not take compressed messages in fragments.
            frame_bytes_max = 0
        return encode_message(data, compress=upgrade.compress, frame_bytes_max=frame_bytes_max)

    def outgoing(self) -> bytes:
        if not self._outgoing:
            return b""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def farewell(self, status: CloseStatus, text: str = "") -> bytes:
        """A close frame; nothing before the upgrade or after the end."""
        if self._over or self._upgrade is None:
            return self.outgoing()
        self._over = True
        payload = close_payload(status, text) if is_sendable_status(status) else b""
        return self.outgoing() + encode_frame(CLOSE, payload)

    def _shake_hands(self, data: BytesLike) -> None:
        assert self._reader is not None
        try:
            upgrade = self._reader.feed(data)
        except UpgradeRefused as refused:
            self._over = True
            raise CodecError(
                refused.text, status=CloseStatus.PROTOCOL_ERROR, farewell=refused.response
            ) from None
        if upgrade is None:
            return
        self._reader = None
        self._upgrade = upgrade
        self._outgoing.append(upgrade.response)
        self._decoder = FrameDecoder(
            self._outgoing.append,
            masked=upgrade.masked,
            compressed=upgrade.compress,
            message_bytes_max=self._message_bytes_max,
        )

    def _ended(self, end: CodecEnd, out: list[bytes], close: bytes) -> CodecEnd:
        self._over = True
        end.received = b"".join(out)
        end.farewell = self.outgoing() + encode_frame(CLOSE, close)
        return end
