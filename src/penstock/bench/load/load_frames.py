"""Encodes what publishers and requesters send, once per run, before the clock starts.

All frames of a batch have the same length (subject numbers are padded), so "the first n frames"
is a byte count. Each payload starts with its place in the batch as a decimal stamp, which lets
the scanner prove that nothing was lost, doubled or reordered. Nothing is encoded per message.
"""

from collections.abc import Sequence
from dataclasses import dataclass

STAMP_DIGITS = 8  # agrees with scan.pxd
TOKEN_DIGITS = 10  # agrees with exchange.pyx
BATCH_BYTES_TARGET = 512 * 1024
HEADER_BLOCK = b"NATS/1.0\r\nTrace-Id: 0123456789abcdef\r\nOrigin: bench\r\n\r\n"
ID_BLOCK = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n"


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Equally long encoded publishes, sent over and over."""

    data: bytes
    count: int

    @property
    def frame_bytes(self) -> int:
        return len(self.data) // self.count


@dataclass(frozen=True, slots=True)
class Asks:
    """Equally long encoded requests, each with its reply token at the same offset."""

    data: bytes
    count: int
    token_at: int
    id_at: int = 0
    """Where the message id is that counts up with the token; 0: there is none."""

    @property
    def frame_bytes(self) -> int:
        return len(self.data) // self.count


@dataclass(frozen=True, slots=True)
class SubjectPlan:
    """The subjects a run publishes on, and the one pattern that covers them all."""

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
    """Round-robin over the plan's subjects, in as many whole rounds as fill the target size."""
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
    """`size` bytes that start with the stamp; payloads too short for one carry none."""
    if size < STAMP_DIGITS:
        return b"x" * size
    return b"%0*d" % (STAMP_DIGITS, place) + b"x" * (size - STAMP_DIGITS)


def encode_request(subject: str, inbox: str, payload_bytes: int) -> tuple[bytearray, int]:
    """A request frame and the offset of its reply token, which the request loop counts up."""
    head = f"PUB {subject} {inbox}.".encode()
    token = b"0" * TOKEN_DIGITS
    rest = b" %d\r\n%b\r\n" % (payload_bytes, b"x" * payload_bytes)
    return bytearray(head + token + rest), len(head)


def encode_asks(names: Sequence[str], inbox: str, payload_bytes: int) -> Asks:
    """Requests to the equally long subjects in turn; stamped, each payload with its place."""
    head = len(f"PUB {names[0]} {inbox}.")
    token = "0" * TOKEN_DIGITS
    first = encode_message(names[0], f"{inbox}.{token}", make_payload(0, payload_bytes))
    # One round when nothing but the subject differs: frame n then asks for key n.
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
    """As `encode_asks`, but each message has an id: the token again."""
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
