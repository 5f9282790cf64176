"""Acknowledgements as values: the ack subject of a delivery, and the verb that the client sends.

A delivered message carries an ack subject that identifies the delivery; the client publishes a verb
to it. Both come from the client, so parsing never fails: a subject of another form parses as None,
an unknown verb as OTHER, and a NAK with an unreadable delay as a NAK without delay, as in the
reference. The consumer decides what an ack changes.
"""

import enum
import hashlib
import string
from typing import Annotated, Final, NamedTuple

from msgspec import Struct

from penstock.api.fields import Doc, Nanos
from penstock.api.json_codec import decode_one
from penstock.api.refusals import ApiError
from penstock.base.durations import parse_duration

ACK_PREFIX: Final = "$JS.ACK"
V1_TOKENS: Final = 9
"""`$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`"""
V2_TOKENS_MIN: Final = 11
"""The same with `<domain>.<account hash>` after `$JS.ACK`; further tokens may follow."""
UNREADABLE: Final = 2**64 - 1
"""Value for text that is not a number, or is larger than any sequence; no sequence reaches it."""

HASH_CHARACTERS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
HASH_SIZE: Final = 8

_DIGITS_MAX: Final = 20


class AckRef(NamedTuple):
    """The delivery that an ack refers to."""

    stream: str
    consumer: str
    delivered: int
    """How often the message had been delivered."""
    stream_seq: int
    consumer_seq: int
    ts_ns: int
    pending: int
    scope: str = ""
    """`<domain>.<account hash>` of the longer form; "" in the shorter one."""


class Verb(enum.Enum):
    """The client's verb for a message. OTHER changes nothing, but the server replies to it."""

    ACK = "+ACK"
    NAK = "-NAK"
    PROGRESS = "+WPI"
    NEXT = "+NXT"
    TERM = "+TERM"
    OTHER = ""


class Ack(NamedTuple):
    """A verb and its arguments."""

    verb: Verb
    delay_ns: int | None = None
    """For NAK: time to wait before redelivery; None means redeliver now."""
    reason: str = ""
    """For TERM."""
    pull: bytes = b""
    """For NEXT: the body of the pull request."""


PLAIN_ACK: Final = Ack(Verb.ACK)
PROGRESS: Final = Ack(Verb.PROGRESS)
PLAIN_NAK: Final = Ack(Verb.NAK)
OTHER: Final = Ack(Verb.OTHER)

_WHOLE: Final = {b"": PLAIN_ACK, b"+ACK": PLAIN_ACK, b"+OK": PLAIN_ACK, b"+WPI": PROGRESS}


class NakOptions(Struct, frozen=True, kw_only=True):
    """JSON that may follow a NAK."""

    delay: Annotated[Nanos, Doc("Wait so long before the next delivery.")] = 0


def parse_ack_subject(subject: str) -> AckRef | None:
    """Return the delivery that an ack subject of either form names; None for any other subject."""
    tokens = subject.split(".")
    if tokens[:2] != ["$JS", "ACK"]:
        return None
    if len(tokens) == V1_TOKENS:
        return _ref(tokens, 2)
    if len(tokens) >= V2_TOKENS_MIN:
        return _ref(tokens, 4)._replace(scope=f"{tokens[2]}.{tokens[3]}")
    return None


def ack_scope(domain: str, account: str) -> str:
    """Return `<domain>.<account hash>`, the tokens after `$JS.ACK` in the longer form."""
    digest = hashlib.sha256(account.encode()).digest()[:HASH_SIZE]
    spelled = "".join(HASH_CHARACTERS[byte % len(HASH_CHARACTERS)] for byte in digest)
    return f"{domain or '_'}.{spelled}"


def _ref(tokens: list[str], at: int) -> AckRef:
    delivered, stream_seq, consumer_seq, ts_ns, pending = map(_number, tokens[at + 2 : at + 7])
    return AckRef(tokens[at], tokens[at + 1], delivered, stream_seq, consumer_seq, ts_ns, pending)


def _number(digits: str) -> int:
    if len(digits) > _DIGITS_MAX or not (digits.isascii() and digits.isdigit()):
        return UNREADABLE
    return min(int(digits), UNREADABLE)


def parse_ack(payload: bytes) -> Ack:
    """Parse the payload of an ack. Verbs match exactly; only NAK, NEXT and TERM take arguments."""
    whole = _WHOLE.get(payload)
    if whole is not None:
        return whole
    if payload.startswith(b"+NXT"):
        return Ack(Verb.NEXT, pull=payload[4:])
    if payload.startswith(b"-NAK"):
        delay_ns = _delay(payload[4:].strip())
        return PLAIN_NAK if delay_ns is None else Ack(Verb.NAK, delay_ns=delay_ns)
    if payload.startswith(b"+TERM"):
        return Ack(Verb.TERM, reason=payload[5:].strip().decode(errors="replace"))
    return OTHER


def _delay(argument: bytes) -> int | None:
    if not argument:
        return None
    try:
        if argument.startswith(b"{"):
            return decode_one(NakOptions, argument).delay
        return parse_duration(argument.decode())
    except (ValueError, ApiError):
        return None
