"""The seam between the data plane, which owns sockets, and transports that are not plain TCP.

A codec turns transport bytes into NATS protocol bytes and back for one connection. It opens no
socket, reads no clock and holds no timer: deadlines (handshake, write) belong to the caller.
Neither direction keeps message boundaries: what comes out is a piece of the NATS byte stream.

How the caller drives it:

    on readable:   data = codec.receive(chunk)
                   send(codec.outgoing())                     # handshake, pongs: may be b""
                   parse(data)
                   while codec.pending: parse(codec.receive(b""))
    on flush:      if codec.established: send(codec.encode(everything queued))
    on CodecEnd:   parse(end.received); send(end.farewell); close the socket
    on our close:  send(codec.encode(rest)); send(codec.farewell(status, reason)); close

Order matters on the wire: bytes from `outgoing`, `encode` and `farewell` are sent in the order in
which the calls returned them.
"""

import enum
from typing import Protocol, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview

#: What one `receive` gives out at most (give or take one frame) when the transport compresses:
#: a chunk can stand for a thousand times its size, and only this much of it is in memory at once.
RECEIVE_BYTES_MAX = 1024 * 1024


class CloseStatus(enum.IntEnum):
    """Why a connection ends, in the numbers of RFC 6455; TLS knows only "it ends"."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NO_STATUS = 1005
    INVALID_DATA = 1007
    POLICY_VIOLATION = 1008
    TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    TLS_HANDSHAKE = 1015


class CodecEnd(Exception):
    """The transport is over: nothing more can be received or encoded.

    `text` is one short line for the log. `received` holds NATS bytes that arrived in the same
    chunk before the end; they count and must be parsed. `farewell` holds transport bytes still
    owed to the peer (an HTTP refusal, a close frame, a TLS alert), with everything `outgoing`
    would have returned; send it, then close.
    """

    def __init__(
        self,
        text: str,
        *,
        status: CloseStatus,
        received: bytes = b"",
        farewell: bytes = b"",
    ) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.received = received
        self.farewell = farewell


class CodecClosed(CodecEnd):
    """The peer ended the transport in the orderly way (close frame, close_notify)."""


class CodecError(CodecEnd):
    """The peer broke the rules of the transport, or failed its handshake.

    `status` is TLS_HANDSHAKE when TLS could not be agreed on, else what a close frame would say.
    """


class Codec(Protocol):
    """Transport bytes <-> NATS protocol bytes of one connection; no IO, no clock."""

    @property
    def established(self) -> bool:
        """Whether the handshake is done; `encode` may be called only then."""
        ...

    @property
    def pending(self) -> bool:
        """Whether `receive(b"")` would give more NATS bytes out of what was already handed in.

        The caller drains before it hands in the next chunk; that is what bounds memory.
        """
        ...

    def receive(self, data: BytesLike) -> bytes:
        """Takes transport bytes, any split of them, and gives the NATS bytes they complete.

        Gives b"" while shaking hands. Raises CodecEnd (CodecClosed or CodecError) when the
        transport is over, at most once.
        """
        ...

    def encode(self, data: BytesLike) -> bytes:
        """NATS bytes as transport bytes; one call per flush, not per message."""
        ...

    def outgoing(self) -> bytes:
        """Transport bytes the codec itself wants sent (handshake, pongs), handed out once."""
        ...

    def farewell(self, status: CloseStatus, text: str = "") -> bytes:
        """Transport bytes that end the conversation from our side: close frame, close_notify.

        Also before `established`, and after a CodecEnd; then it may be b"".
        """
        ...
