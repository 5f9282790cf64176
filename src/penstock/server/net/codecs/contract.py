"""The seam between the data plane, which owns sockets, and transports that are not plain TCP.

A codec turns transport bytes into NATS protocol bytes and back for one connection. It opens no
socket, reads no clock and holds no timer: deadlines (handshake, write) belong to the caller.
Neither direction keeps message boundaries: what comes out is a piece of the NATS byte stream.

How the caller drives it:

    on readable:   parse(codec.receive(chunk))
                   while codec.pending: parse(codec.receive(b""))
    on CodecEnd:   parse(end.received), then close as below with end.reason
    on flush:      send(codec.outgoing())                       # handshake, pongs: often b""
                   if codec.established: send(codec.encode(everything queued))
    on close:      flush, send(codec.farewell(reason)), close the socket

Bytes are sent in the order in which the calls returned them. What the codec itself has to say is
bounded by what the peer sent, so it counts against the peer's pending bytes like any reply.
"""

from typing import Protocol, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview

#: What one `receive` gives out at most, beyond the size of the chunk, when the transport
#: compresses: a chunk can stand for a thousand times its size. Other clients are served in between.
RECEIVE_BYTES_MAX = 128 * 1024

# Why connections end, in the words of connz.
CLIENT_CLOSED = "Client Closed"
READ_ERROR = "Read Error"
TLS_HANDSHAKE_FAILURE = "TLS Handshake Failure"


class CodecEnd(Exception):
    """Nothing more can be received.

    `text` is one short line for the log, `reason` the word for connz and for `farewell`.
    `received` holds NATS bytes that arrived in the same chunk before the end; they count and must
    be parsed. What is owed to the peer (an HTTP refusal, a TLS alert, the answer to its close)
    comes out of `outgoing` and `farewell` as ever, after the replies still queued.
    """

    def __init__(self, text: str, *, reason: str, received: bytes = b"") -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason
        self.received = received


class CodecClosed(CodecEnd):
    """The peer ended the transport in the orderly way (close frame, close_notify)."""

    def __init__(self, text: str, *, received: bytes = b"") -> None:
        super().__init__(text, reason=CLIENT_CLOSED, received=received)


class CodecError(CodecEnd):
    """The peer broke the rules of the transport, or failed its handshake: worth a log entry."""


class TransportCodec(Protocol):
    """Transport bytes <-> NATS protocol bytes of one connection; no IO, no clock."""

    @property
    def established(self) -> bool:
        """Whether the handshake is done; `encode` may be called only then."""
        ...

    @property
    def pending(self) -> bool:
        """Whether `receive(b"")` would go on with what was already handed in.

        The caller drains before it hands in the next chunk; that is what bounds memory.
        """
        ...

    def limit_message(self, bytes_max: int) -> None:
        """Sets what one compressed message may inflate to, from the next message on."""
        ...

    def receive(self, data: BytesLike) -> bytes:
        """Takes transport bytes, any split of them, and gives the NATS bytes they complete.

        Gives b"" while shaking hands. Raises CodecEnd (CodecClosed or CodecError) when the
        transport is over, at most once; gives b"" ever after.
        """
        ...

    def encode(self, data: BytesLike) -> bytes:
        """NATS bytes as transport bytes; one call per flush, not per message.

        After a CodecEnd it still works as far as the transport allows, else gives b"".
        """
        ...

    def outgoing(self) -> bytes:
        """Transport bytes the codec itself wants sent (handshake, pongs), handed out once."""
        ...

    def farewell(self, reason: str) -> bytes:
        """The last transport bytes: everything still owed, then close frame or close_notify.

        `reason` is connz's word for why the connection ends. May be called at any time; nothing
        can be encoded afterwards, and a second call gives b"".
        """
        ...
