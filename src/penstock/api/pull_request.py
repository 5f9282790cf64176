"""Pull requests as values, and the status lines with which a consumer refuses one.

A body is empty, a number, or a JSON object; any other body requests one message, as in the
reference. Only an object can set priorities, so `formal` records whether the body was one. The
checks here need only the request and the configuration; the consumer checks what depends on its
messages and its waiting requests.
"""

import re
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec

from penstock.api.consumer_config import ConsumerConfig, PriorityPolicy
from penstock.api.fields import Doc, Int64, Nanos
from penstock.api.json_codec import decode_one
from penstock.api.refusals import ApiError
from penstock.base.durations import format_duration
from penstock.base.json_depth import check_nesting

PRIORITY_MAX: Final = 9

_INT64_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,20}")
_INVALID: Final = "invalid JSON: "
#: The codec decodes larger values again and reports them in the reference's words.
_FITS: Final = msgspec.Meta(ge=-_INT64_MAX, le=_INT64_MAX)


class PullBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pull request written as JSON."""

    #: The reference decodes into an anonymous struct, which its error texts show.
    wire_name: ClassVar[str] = ""

    expires: Annotated[Nanos, Doc("How long to wait for messages; 0: for ever."), _FITS] = 0
    batch: Annotated[int, Doc("How many messages; below 1: one."), _FITS] = 0
    max_bytes: Annotated[int, Doc("How many bytes at most; 0: no limit."), _FITS] = 0
    no_wait: Annotated[bool, Doc("End when nothing is there.")] = False
    idle_heartbeat: Annotated[Nanos, Doc("Sign of life after so long idle."), _FITS] = 0
    group: Annotated[str, Doc("Priority group.")] = ""
    min_pending: Annotated[Int64, Doc("Overflow: serve only with so many pending."), _FITS] = 0
    min_ack_pending: Annotated[Int64, Doc("Overflow: serve only with so many unacked."), _FITS] = 0
    id: Annotated[str, Doc("Pinned client: the pin it was given.")] = ""
    priority: Annotated[int, Doc("Prioritized: 0 is served first, 9 last."), _FITS] = 0


class PullRequest(NamedTuple):
    """What a client requests from a consumer. `batch` is as sent: 0 or less means one message."""

    batch: int = 1
    expires: int = 0
    max_bytes: int = 0
    no_wait: bool = False
    idle_heartbeat: int = 0
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    id: str = ""
    priority: int = 0
    formal: bool = False
    """Whether the body was JSON, and so could have named a group."""


ONE_MESSAGE: Final = PullRequest()

_FAST: Final = msgspec.json.Decoder(PullBody)


def parse_pull(body: bytes) -> PullRequest | str:
    """Parse a body; return the reason as text if it is a bad request."""
    body = body.strip()
    if not body:
        return ONE_MESSAGE
    if body[0] == ord("{"):
        return _parse_object(body)
    if _NUMBER.fullmatch(body) and abs(int(body)) <= _INT64_MAX:
        return PullRequest(int(body))
    return ONE_MESSAGE


def _read(body: bytes) -> PullBody:
    try:
        check_nesting(body)
        return _FAST.decode(body)
    except ValueError:
        # The strict decoder also rejects unusual but valid bodies: keys in capitals, nulls, unknown
        # fields, text that is not UTF-8.
        return decode_one(PullBody, body)


def _parse_object(body: bytes) -> PullRequest | str:
    try:
        read = _read(body)
    except ApiError as refused:
        return refused.description.removeprefix(_INVALID)
    if read.idle_heartbeat > 0 and read.idle_heartbeat * 2 > read.expires:
        return "heartbeat value too large"
    return PullRequest(
        read.batch,
        read.expires,
        read.max_bytes,
        read.no_wait,
        read.idle_heartbeat,
        read.group,
        read.min_pending,
        read.min_ack_pending,
        read.id,
        read.priority,
        formal=True,
    )


def bad_request(reason: str) -> str:
    """Return the status line for a request that `parse_pull` rejected."""
    return f"400 Bad Request - {reason}"


def refuse_pull(pull: PullRequest, cfg: ConsumerConfig) -> str | None:
    """Return the status line with which a consumer of this configuration refuses, or None."""
    if 0 < cfg.max_batch < pull.batch:
        return f"409 Exceeded MaxRequestBatch of {cfg.max_batch}"
    if 0 < cfg.max_expires < pull.expires:
        return f"409 Exceeded MaxRequestExpires of {format_duration(cfg.max_expires)}"
    if 0 < cfg.max_bytes < pull.max_bytes:
        return f"409 Exceeded MaxRequestMaxBytes of {cfg.max_bytes}"
    return _refuse_priority(pull, cfg) if pull.formal else None


def _refuse_priority(pull: PullRequest, cfg: ConsumerConfig) -> str | None:
    policy = cfg.priority_policy
    if (pull.min_pending or pull.min_ack_pending) and policy is not PriorityPolicy.OVERFLOW:
        return bad_request("Not a Overflow Priority consumer")
    if pull.id and policy is not PriorityPolicy.PINNED_CLIENT:
        return bad_request("Not a Pinned Client Priority consumer")
    if not 0 <= pull.priority <= PRIORITY_MAX:
        return bad_request("Priority must be between 0 and 9")
    if policy is PriorityPolicy.NONE:
        return None
    if not pull.group:
        return bad_request("Priority Group missing")
    return None if pull.group in cfg.priority_groups else bad_request("Invalid Priority Group")
