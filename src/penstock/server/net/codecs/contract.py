"""TransportCodec: the interface between the IoLoop, which owns sockets, and non-TCP transports.

A codec turns transport bytes into NATS protocol bytes and back for one connection. It opens no
socket, reads no clock and holds no timer: the caller keeps the deadlines (handshake, write).
Neither direction keeps message boundaries: the output is a piece of the NATS byte stream.

How the caller drives it:

    on readable:   parse(codec.receive(chunk))
                   while codec.pending: parse(codec.receive(b""))
    on CodecEnd:   parse(end.received), then close as below with end.reason
    on flush:      send(codec.outgoing())                       # handshake, pongs: often b""
                   if codec.established: send(codec.encode(everything queued))
    on close:      flush, send(codec.farewell(reason)), close the socket

The caller sends bytes in the order in which the calls returned them. A codec's own output is
bounded by what the peer sent, so it counts against the peer's pending bytes like any reply.
"""

from typing import Protocol, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview

#: The most that one `receive` returns beyond the size of the chunk when the transport compresses:
#: a chunk can inflate to a thousand times its size. Other clients are served between the calls.
RECEIVE_BYTES_MAX = 128 * 1024

# Close reasons, spelled as in connz.
CLIENT_CLOSED = "Client Closed"
READ_ERROR = "Read Error"
TLS_HANDSHAKE_FAILURE = "TLS Handshake Failure"


class CodecEnd(Exception):
    """Nothing more can be received.

    `text` is one short line for the log; `reason` is the close reason for connz and `farewell`.
    `received` holds NATS bytes that arrived in the same chunk before the end; the caller must
    parse them. Output still owed to the peer (an HTTP refusal, a TLS alert, the reply to its
    close) comes from `outgoing` and `farewell` as usual, after the replies still queued.
    """

    def __init__(self, text: str, *, reason: str, received: bytes = b"") -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason
        self.received = received


class CodecClosed(CodecEnd):
    """The peer closed the transport properly (close frame, close_notify)."""

    def __init__(self, text: str, *, received: bytes = b"") -> None:
        super().__init__(text, reason=CLIENT_CLOSED, received=received)


class CodecError(CodecEnd):
    """The peer violated the transport protocol or failed its handshake; the caller logs it."""


class TransportCodec(Protocol):
    """Transport bytes <-> NATS protocol bytes of one connection; no IO, no clock."""

    @property
    def established(self) -> bool:
        """Return whether the handshake is complete; `encode` may be called only then."""
        ...

    @property
    def pending(self) -> bool:
        """Return whether `receive(b"")` would continue with bytes already passed in.

        The caller drains before it passes the next chunk; this bounds memory.
        """
        ...

    def limit_message(self, bytes_max: int) -> None:
        """Set how large one message may inflate, from the next message on."""
        ...

    def receive(self, data: BytesLike) -> bytes:
        """Take transport bytes, split anywhere, and return the NATS bytes that they complete.

        Returns b"" during the handshake. Raises CodecEnd (CodecClosed or CodecError) at most
        once, when the transport is over; returns b"" after that.
        """
        ...

    def encode(self, data: BytesLike) -> bytes:
        """Return NATS bytes as transport bytes; one call per flush, not per message.

        After a CodecEnd it still works as far as the transport allows, else returns b"".
        """
        ...

    def outgoing(self) -> bytes:
        """Return the codec's own output (handshake, pongs); each byte is returned once."""
        ...

    def farewell(self, reason: str) -> bytes:
        """Return the last transport bytes: everything still owed, then close frame or close_notify.

        `reason` is the close reason as in connz. May be called at any time; nothing can be encoded
        afterwards, and a second call returns b"".
        """
        ...
