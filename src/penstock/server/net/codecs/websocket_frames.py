"""WebSocket frames (RFC 6455) and their compression (RFC 7692): decoding and encoding.

`FrameDecoder` turns received frames into a byte stream. Payload is passed on as it arrives, never
buffered as a whole frame or message, so memory does not depend on the lengths a peer claims. Only
headers and control frames (131 bytes at most) are held until complete. Compressed payload is
inflated in portions: at most RECEIVE_BYTES_MAX per call, and per message what `limit_message`
allows. One call also decodes a bounded number of frames (FEED_WORK_MAX); the rest stays pending.

The `websockets` package has a frame parser, but it runs a generator step per field and creates an
object per frame: five times the cost of the loop here. We use its compiled unmasking.
"""

import enum
import struct
import zlib
from collections.abc import Callable

from penstock.server.net.codecs.contract import RECEIVE_BYTES_MAX, BytesLike

try:
    from websockets.speedups import apply_mask
except ImportError:  # wheels without the compiled part
    from websockets.utils import apply_mask

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FINAL, COMPRESSED, RESERVED, OPCODE = 0x80, 0x40, 0x30, 0x0F
MASKED, LENGTH = 0x80, 0x7F
LENGTH_16, LENGTH_64 = 126, 127
KEY_BYTES = 4

CONTROL_BYTES_MAX = 125
#: Inflated size limit of one message, whatever max_payload is: the reference's maximum.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
#: Work limit of one `feed`; a whole plain frame counts as 1.
FEED_WORK_MAX = 4096
#: Work of a frame that is decoded field by field, and of a step of inflating.
FRAME_WORK = 4
INFLATE_WORK = 16
#: Smaller payloads are sent uncompressed: deflating them costs more than it saves.
COMPRESS_BYTES_MIN = 64
#: Largest frame sent to a browser.
BROWSER_FRAME_BYTES_MAX = 4096
#: Completes the flushed block that a sender leaves open, then the stream, so that inflate ends.
DEFLATE_TAIL = b"\x00\x00\xff\xff\x01\x00\x00\xff\xff"
SYNC_MARK_BYTES = 4

APPLICATION_STATUSES = range(3000, 5000)
PROTOCOL_STATUSES = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})

BINARY_FINAL = FINAL | BINARY


class CloseStatus(enum.IntEnum):
    """Why a WebSocket ends, as far as this server sends or detects it."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NO_STATUS = 1005
    INVALID_DATA = 1007
    POLICY_VIOLATION = 1008
    TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    TLS_HANDSHAKE = 1015


class FrameViolation(Exception):
    """The peer violated the framing rules; `status` and the text go into our close frame."""

    def __init__(self, text: str, status: CloseStatus = CloseStatus.PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class PeerClosed(Exception):
    """The peer sent a close frame; `reply` is the payload of our close frame."""

    def __init__(self, status: CloseStatus | int, reply: bytes) -> None:
        super().__init__(f"close frame with status {int(status)}")
        self.reply = reply


class FrameDecoder:
    """Decodes the frames of one peer. Handles control frames; passes pongs to `reply`."""

    __slots__ = (
        "_compressible",
        "_final",
        "_held",
        "_in_message",
        "_inflater",
        "_key",
        "_left",
        "_masked",
        "_message_bytes_max",
        "_more",
        "_reply",
    )

    def __init__(
        self,
        reply: Callable[[bytes], None],
        *,
        masked: bool = True,
        compressed: bool = False,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._reply = reply
        self._masked = masked
        self._compressible = compressed
        self._message_bytes_max = message_bytes_max
        self._held = b""
        self._more = False
        self._left = 0
        self._key = b""
        self._final = True
        self._in_message = False
        self._inflater: FrameInflater | None = None

    @property
    def pending(self) -> bool:
        """Return whether `feed(b"")` would continue with bytes already passed in."""
        return self._more or (self._inflater is not None and self._inflater.busy)

    def limit_message(self, bytes_max: int) -> None:
        self._message_bytes_max = bytes_max

    def feed(self, data: BytesLike, out: list[bytes]) -> None:
        """Append the payload of the frames to `out`. Raises FrameViolation, PeerClosed."""
        data = self._held + data if self._held else bytes(data)
        self._held = b""
        self._more = False
        room, work = RECEIVE_BYTES_MAX, FEED_WORK_MAX
        pos, end = 0, len(data)
        while True:
            if work <= 0:
                self._more = True
                break
            if self._inflater is not None and self._inflater.busy:
                work -= INFLATE_WORK
                room -= self._inflate(room, out)
                if self.pending:
                    break
            elif pos >= end:
                break
            elif self._left:
                pos = self._payload(data, pos, end, out)
            else:
                if not self._in_message and self._masked:
                    whole = len(out)
                    pos = unmask_whole_frames(data, pos, end, out, work)
                    work -= len(out) - whole
                work -= FRAME_WORK
                start = pos
                pos = self._frame_start(data, pos, end)
                if pos == start:
                    break
        self._held = data[pos:]

    def _inflate(self, room: int, out: list[bytes]) -> int:
        inflater = self._inflater
        assert inflater is not None
        part = inflater.drain(room)
        if part:
            out.append(part)
        if inflater.complete:
            self._inflater = None
        return len(part)

    def _payload(self, data: bytes, pos: int, end: int, out: list[bytes]) -> int:
        stop = min(end, pos + self._left)
        part = data[pos:stop]
        if self._key:
            part = apply_mask(part, self._key)
            turn = (stop - pos) % KEY_BYTES
            self._key = self._key[turn:] + self._key[:turn]
        self._left -= stop - pos
        if self._inflater is None:
            out.append(part)
        else:
            self._inflater.push(part)
        if not self._left:
            self._frame_done()
        return stop

    def _frame_done(self) -> None:
        if not self._final:
            return
        self._in_message = False
        if self._inflater is not None:
            self._inflater.finish()

    def _frame_start(self, data: bytes, pos: int, end: int) -> int:
        """Parse a frame header or a whole control frame; return `pos` if it is incomplete."""
        if end - pos < 2:
            return pos
        first, second = data[pos], data[pos + 1]
        self._check_first_bytes(first, second)
        length, body = _length(data, pos, end)
        if second & MASKED:
            body += KEY_BYTES
        if body > end:
            return pos
        key = data[body - KEY_BYTES : body] if second & MASKED else b""
        opcode = first & OPCODE
        if opcode >= CLOSE:
            return self._control(opcode, data, body, body + length, key) or pos
        if opcode != CONTINUATION:
            self._in_message = True
            if first & COMPRESSED:
                self._inflater = FrameInflater(self._message_bytes_max)
        self._final = bool(first & FINAL)
        self._left, self._key = length, key
        if not length:
            self._frame_done()
        return body

    def _check_first_bytes(self, first: int, second: int) -> None:
        opcode = first & OPCODE
        if first & RESERVED:
            raise FrameViolation("RSV2 and RSV3 must be clear")
        if self._masked and not second & MASKED:
            raise FrameViolation("mask bit missing")
        if opcode in (CLOSE, PING, PONG):
            _check_control(first, second)
        elif opcode in (TEXT, BINARY):
            if self._in_message:
                raise FrameViolation(
                    "new message started before final frame for previous message was received"
                )
            if first & COMPRESSED and not self._compressible:
                raise FrameViolation(
                    "compressed frame received without negotiated permessage-deflate"
                )
        elif opcode != CONTINUATION:
            raise FrameViolation(f"unknown opcode {opcode}")
        elif not self._in_message or first & COMPRESSED:
            raise FrameViolation("invalid continuation frame")

    def _control(self, opcode: int, data: bytes, start: int, stop: int, key: bytes) -> int:
        """Return where the next frame begins, or 0 if this one is incomplete."""
        if stop > len(data):
            return 0
        payload = apply_mask(data[start:stop], key) if key else data[start:stop]
        if opcode == CLOSE:
            raise _closed(payload)
        if opcode == PING:
            self._reply(encode_frame(PONG, payload))
        return stop


class FrameInflater:
    """Inflates one compressed message in portions; raises FrameViolation for invalid data."""

    __slots__ = ("_bytes_max", "_engine", "_finishing", "_queue")

    def __init__(self, bytes_max: int) -> None:
        self._engine = zlib.decompressobj(-zlib.MAX_WBITS)
        self._bytes_max = bytes_max
        self._queue: list[bytes] = []
        self._finishing = False

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    @property
    def complete(self) -> bool:
        return self._finishing and not self._queue

    def push(self, data: bytes) -> None:
        self._queue.append(data)

    def finish(self) -> None:
        self._queue.append(DEFLATE_TAIL)
        self._finishing = True

    def drain(self, room: int) -> bytes:
        """Return at most `room` bytes; if `busy` afterwards, there may be more."""
        parts: list[bytes] = []
        while self._queue and room > 0:
            part = self._step(room)
            room -= len(part)
            parts.append(part)
        if self.complete and not self._engine.eof:
            raise FrameViolation("corrupt compressed message", CloseStatus.INVALID_DATA)
        return b"".join(parts)

    def _step(self, room: int) -> bytes:
        if self._engine.eof:
            # As in the reference, data after the last block is ignored.
            self._queue.clear()
            return b""
        try:
            part = self._engine.decompress(self._queue[0], room)
        except zlib.error:
            text = "corrupt compressed message"
            raise FrameViolation(text, CloseStatus.INVALID_DATA) from None
        # A full portion may leave output inside zlib even when it has consumed all input.
        if len(part) == room:
            self._queue[0] = self._engine.unconsumed_tail
        else:
            self._queue.pop(0)
        self._bytes_max -= len(part)
        if self._bytes_max < 0:
            raise FrameViolation("compressed message too big", CloseStatus.TOO_BIG)
        return part


def unmask_whole_frames(data: bytes, pos: int, end: int, out: list[bytes], frames_max: int) -> int:
    """Decode the run of simple frames at `pos`: whole, masked, binary, plain, final, < 64 KiB.

    Clients that send one frame per publish send only such frames, so this is the hot loop.
    """
    stop = len(out) + frames_max
    while pos + 8 <= end and data[pos] == BINARY_FINAL and len(out) < stop:
        length = data[pos + 1] - MASKED
        key = pos + 2
        if length == LENGTH_16:
            length = data[pos + 2] << 8 | data[pos + 3]
            key = pos + 4
        body = key + KEY_BYTES
        if length < 0 or data[pos + 1] == MASKED | LENGTH_64 or body + length > end:
            break
        pos = body + length
        out.append(apply_mask(data[body:pos], data[key:body]))
    return pos


def encode_frame(opcode: int, payload: BytesLike, *, flags: int = FINAL) -> bytes:
    """Return one unmasked frame, as servers send them."""
    length = len(payload)
    if length < LENGTH_16:
        head = bytes((flags | opcode, length))
    elif length < 1 << 16:
        head = struct.pack("!BBH", flags | opcode, LENGTH_16, length)
    else:
        head = struct.pack("!BBQ", flags | opcode, LENGTH_64, length)
    return b"".join((head, payload))


def encode_message(data: BytesLike, *, compress: bool, frame_bytes_max: int) -> bytes:
    """Return binary frames that carry `data`; `frame_bytes_max` 0: one frame."""
    if compress and len(data) >= COMPRESS_BYTES_MIN:
        deflated = _deflate(data)
        if len(deflated) < len(data):
            return _fragments(deflated, frame_bytes_max)
    if not frame_bytes_max or len(data) <= frame_bytes_max:
        return encode_frame(BINARY, data)
    return b"".join(
        encode_frame(BINARY, data[at : at + frame_bytes_max])
        for at in range(0, len(data), frame_bytes_max)
    )


def close_payload(status: int, text: str) -> bytes:
    """Return status and reason, the reason truncated to fit a control frame."""
    reason = text.encode()
    if len(reason) > CONTROL_BYTES_MAX - 2:
        reason = reason[: CONTROL_BYTES_MAX - 5].decode(errors="ignore").encode() + b"..."
    return struct.pack("!H", status) + reason


def is_sendable_status(status: int) -> bool:
    """Return whether a close frame may carry this status; some are reserved for APIs."""
    return status in PROTOCOL_STATUSES or status in APPLICATION_STATUSES


def _deflate(data: BytesLike) -> bytes:
    engine = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = engine.compress(data) + engine.flush(zlib.Z_SYNC_FLUSH)
    return deflated[:-SYNC_MARK_BYTES]


def _fragments(deflated: bytes, frame_bytes_max: int) -> bytes:
    """Return one compressed message: a single frame, or fragments, the first marked compressed."""
    if not frame_bytes_max or len(deflated) <= frame_bytes_max:
        return encode_frame(BINARY, deflated, flags=FINAL | COMPRESSED)
    frames = []
    for at in range(0, len(deflated), frame_bytes_max):
        last = at + frame_bytes_max >= len(deflated)
        flags = (FINAL if last else 0) | (COMPRESSED if at == 0 else 0)
        opcode = BINARY if at == 0 else CONTINUATION
        frames.append(encode_frame(opcode, deflated[at : at + frame_bytes_max], flags=flags))
    return b"".join(frames)


def _length(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Return the payload length and the offset after the length field; past `end`: incomplete."""
    short = data[pos + 1] & LENGTH
    if short < LENGTH_16:
        return short, pos + 2
    body = pos + (4 if short == LENGTH_16 else 10)
    if body > end:
        return 0, end + 1
    length = int.from_bytes(data[pos + 2 : body], "big")
    if length >> 63:
        raise FrameViolation("invalid 64-bit payload length")
    return length, body


def _check_control(first: int, second: int) -> None:
    if second & LENGTH > CONTROL_BYTES_MAX:
        raise FrameViolation(
            f"control frame length bigger than maximum allowed of {CONTROL_BYTES_MAX} bytes"
        )
    if not first & FINAL:
        raise FrameViolation("control frame does not have final bit set")
    if first & COMPRESSED:
        raise FrameViolation("control frame must not be compressed")


def _closed(payload: bytes) -> Exception:
    if not payload:
        return PeerClosed(CloseStatus.NO_STATUS, b"")
    if len(payload) == 1:
        return FrameViolation("close frame payload cannot be 1 byte")
    status = int.from_bytes(payload[:2], "big")
    if not is_sendable_status(status):
        return FrameViolation(f"invalid close status code {status}")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        text = "invalid utf8 body in close frame"
        return PeerClosed(CloseStatus.INVALID_DATA, close_payload(CloseStatus.INVALID_DATA, text))
    return PeerClosed(status, payload)
