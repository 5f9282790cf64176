"""Fill in the defaults of a consumer's configuration: `normalise`.

The steps run in the reference's order. The order is observable, because a pedantic request is
refused at the first value that would be corrected. Pure functions: the result is a new
configuration, and normalising it again changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from penstock.api.consumer_config import AckPolicy, ConsumerConfig, PriorityPolicy
from penstock.api.refusals import PEDANTIC, ApiError
from penstock.base.units import SECOND_NS

if TYPE_CHECKING:
    from penstock.api.stream_config import StreamConfig

ACK_WAIT_NS: Final = 30 * SECOND_NS
MAX_WAITING: Final = 512
MAX_ACK_PENDING: Final = 1000
PRIORITY_TIMEOUT_NS: Final = 120 * SECOND_NS
SOURCE_HEARTBEAT_NS: Final = SECOND_NS
"""Heartbeat of every consumer that feeds a stream or uses the flow control ack policy."""
UNLIMITED: Final = -1


class ConsumerCaps(NamedTuple):
    """Limits that the server and the account set for a consumer; 0 or less means no limit."""

    server_max_ack_pending: int = 0
    server_max_batch: int = 0
    account_max_ack_pending: int = 0
    account_max_consumers: int = 0
    server_max_consumers: int = 0
    """Applies if neither the stream nor the account has a limit."""


class _Floor(NamedTuple):
    """Lower bound of a field: a lower value is raised, or refused with `words` if pedantic."""

    field: str
    least: int
    words: str


_FLOORS: Final = (
    _Floor("max_deliver", UNLIMITED, "max_deliver must be set to -1"),
    _Floor("max_waiting", 0, "max_waiting must not be negative"),
    _Floor("max_ack_pending", UNLIMITED, "max_ack_pending must be set to -1"),
    _Floor("max_batch", 0, "max_batch must not be negative"),
    _Floor("max_expires", 0, "max_expires must not be negative"),
    _Floor("max_bytes", 0, "max_bytes must not be negative"),
    _Floor("idle_heartbeat", 0, "idle_heartbeat must not be negative"),
    _Floor("inactive_threshold", 0, "inactive_threshold must not be negative"),
    _Floor("priority_timeout", 0, "priority_timeout must not be negative"),
)


def normalise(
    cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps, *, pedantic: bool = False
) -> ConsumerConfig | ApiError:
    """Return the configuration with defaults; if pedantic, refuse values that need correction."""
    for step in (_raised, _timed, _limited):
        result = step(cfg, stream, caps, pedantic)
        if isinstance(result, ApiError):
            return result
        cfg = result
    return cfg


def _raised(
    cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps, pedantic: bool
) -> ConsumerConfig | ApiError:
    low = [floor for floor in _FLOORS if getattr(cfg, floor.field) < floor.least]
    if low and pedantic:
        return PEDANTIC(err=low[0].words)
    return structs.replace(cfg, **{floor.field: floor.least for floor in low})


def _timed(
    cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps, pedantic: bool
) -> ConsumerConfig | ApiError:
    """Fill in counts and waits that depend only on the configuration."""
    ack_wait = cfg.ack_wait
    if ack_wait == 0 and cfg.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL):
        ack_wait = ACK_WAIT_NS
    if cfg.backoff:
        if pedantic and ack_wait != cfg.backoff[0]:
            return PEDANTIC(err="first backoff value has to equal batch AckWait")
        ack_wait = cfg.backoff[0]
    return structs.replace(
        cfg,
        max_deliver=cfg.max_deliver or UNLIMITED,
        max_waiting=cfg.max_waiting or (0 if cfg.is_push else MAX_WAITING),
        ack_wait=ack_wait,
    )


def _limited(
    cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps, pedantic: bool
) -> ConsumerConfig | ApiError:
    """Fill in limits of the stream, the account and the server."""
    limits = stream.consumer_limits
    if pedantic:
        left_open = _left_open(cfg, stream, caps)
        if left_open:
            return PEDANTIC(err=left_open)
    max_batch = cfg.max_batch
    if not cfg.is_push and max_batch == 0:
        max_batch = max(caps.server_max_batch, 0)
    timeout = cfg.priority_timeout
    if timeout == 0 and cfg.priority_policy is PriorityPolicy.PINNED_CLIENT:
        timeout = PRIORITY_TIMEOUT_NS
    by_flow = cfg.ack_policy is AckPolicy.FLOW_CONTROL and not pedantic
    return structs.replace(
        cfg,
        max_ack_pending=cfg.max_ack_pending
        or limits.max_ack_pending
        or _max_ack_pending(cfg, caps),
        inactive_threshold=cfg.inactive_threshold or limits.inactive_threshold,
        max_batch=max_batch,
        priority_timeout=timeout,
        flow_control=cfg.flow_control or by_flow,
        idle_heartbeat=SOURCE_HEARTBEAT_NS if by_flow else cfg.idle_heartbeat,
    )


def _left_open(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> str:
    limits = stream.consumer_limits
    if cfg.max_ack_pending == 0 and limits.max_ack_pending > 0:
        return "max_ack_pending must be set if it's configured in stream limits"
    if cfg.inactive_threshold == 0 and limits.inactive_threshold > 0:
        return "inactive_threshold must be set if it's configured in stream limits"
    if not cfg.is_push and cfg.max_batch == 0 and caps.server_max_batch > 0:
        return "max_request_batch must be set if it's JetStream limits are set"
    return ""


def _max_ack_pending(cfg: ConsumerConfig, caps: ConsumerCaps) -> int:
    if cfg.ack_policy is AckPolicy.NONE:
        return 0
    bounds = (caps.server_max_ack_pending, caps.account_max_ack_pending)
    return min([MAX_ACK_PENDING, *(bound for bound in bounds if bound > 0)])
