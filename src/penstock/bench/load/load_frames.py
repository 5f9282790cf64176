"""Encode what publishers and requesters send, once per run, before the clock starts.

All frames of a batch have the same length (subject numbers are padded), so "the first n frames" is
a byte count. Each payload starts with its index in the batch as a decimal stamp, with which the
scanner verifies that nothing was lost, duplicated or reordered. Nothing is encoded per message.
"""

from collections.abc import Sequence
from dataclasses import dataclass

STAMP_DIGITS = 8  # must match message_scan.pxd
TOKEN_DIGITS = 10  # must match request_load.pyx and request_reply_load.pyx
BATCH_BYTES_TARGET = 512 * 1024
HEADER_BLOCK = b"NATS/1.0\r\nTrace-Id: 0123456789abcdef\r\nOrigin: bench\r\n\r\n"
ID_BLOCK = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n"


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Encoded publishes of equal length, sent repeatedly."""

    data: bytes
    count: int

    @property
    def frame_bytes(self) -> int:
        return len(self.data) // self.count


@dataclass(frozen=True, slots=True)
class Asks:
    """Encoded requests of equal length, each with its reply token at the same offset."""

    data: bytes
    count: int
    token_at: int
    id_at: int = 0
    """Offset of the message id, which counts up with the token; 0 means no id."""

    @property
    def frame_bytes(self) -> int:
        return len(self.data) // self.count


@dataclass(frozen=True, slots=True)
class SubjectPlan:
    """The subjects a run publishes to, and the one pattern that matches them all."""

    base: str
    count: int = 1

    def names(self) -> list[str]:
        if self.count == 1:
            return [self.base]
        width = len(str(self.count - 1))
        return [f"{self.base}.{number:0{width}d}" for number in range(self.count)]

    @property
    def pattern(self) -> str:
        return self.base if self.count == 1 else f"{self.base}.*"


def encode_batch(plan: SubjectPlan, payload_bytes: int, *, headers: bool) -> FrameBatch:
    """Encode publishes round-robin over the plan's subjects, in whole rounds up to the target."""
    names = [name.encode() for name in plan.names()]
    first = encode_publish(names[0], make_payload(0, payload_bytes), headers=headers)
    rounds = max(1, BATCH_BYTES_TARGET // (len(first) * len(names)))
    count = rounds * len(names)
    frames = [
        encode_publish(
            names[place % len(names)], make_payload(place, payload_bytes), headers=headers
        )
        for place in range(count)
    ]
    return FrameBatch(b"".join(frames), count)


def encode_publish(subject: bytes, payload: bytes, *, headers: bool) -> bytes:
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)
    total = len(HEADER_BLOCK) + len(payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (
        subject,
        len(HEADER_BLOCK),
        total,
        HEADER_BLOCK,
        payload,
    )


def make_payload(place: int, size: int) -> bytes:
    """Return `size` bytes that start with the stamp; shorter payloads carry no stamp."""
    if size < STAMP_DIGITS:
        return b"x" * size
    return b"%0*d" % (STAMP_DIGITS, place) + b"x" * (size - STAMP_DIGITS)


def encode_request(subject: str, inbox: str, payload_bytes: int) -> tuple[bytearray, int]:
    """Return a request frame and the offset of its reply token, which the loop increments."""
    head = f"PUB {subject} {inbox}.".encode()
    token = b"0" * TOKEN_DIGITS
    rest = b" %d\r\n%b\r\n" % (payload_bytes, b"x" * payload_bytes)
    return bytearray(head + token + rest), len(head)


def encode_asks(names: Sequence[str], inbox: str, payload_bytes: int) -> Asks:
    """Encode requests to subjects of equal length in turn; each payload has its index as stamp."""
    head = len(f"PUB {names[0]} {inbox}.")
    token = "0" * TOKEN_DIGITS
    first = encode_message(names[0], f"{inbox}.{token}", make_payload(0, payload_bytes))
    # One round if only the subject differs: frame n then requests key n.
    rounds = max(1, BATCH_BYTES_TARGET // (len(first) * len(names))) if payload_bytes else 1
    count = rounds * len(names)
    frames = [
        encode_message(
            names[place % len(names)], f"{inbox}.{token}", make_payload(place, payload_bytes)
        )
        for place in range(count)
    ]
    return Asks(b"".join(frames), count, head)


def encode_publishes_with_ids(names: Sequence[str], inbox: str, payload_bytes: int) -> Asks:
    """Encode as `encode_asks` does, with a message id equal to the token."""
    token = b"0" * TOKEN_DIGITS
    block = ID_BLOCK % token
    sizes = b"%d %d" % (len(block), len(block) + payload_bytes)
    heads = [f"HPUB {name} {inbox}.".encode() for name in names]
    frame_bytes = len(heads[0]) + len(token) + len(sizes) + len(block) + payload_bytes + 5
    count = max(1, BATCH_BYTES_TARGET // (frame_bytes * len(names))) * len(names)
    data = b"".join(
        b"%b%b %b\r\n%b%b\r\n"
        % (heads[place % len(heads)], token, sizes, block, make_payload(place, payload_bytes))
        for place in range(count)
    )
    id_at = len(heads[0]) + len(token) + len(sizes) + 3 + block.index(token)
    return Asks(data, count, len(heads[0]), id_at)


def encode_message(subject: str, reply: str, payload: bytes) -> bytes:
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload)
