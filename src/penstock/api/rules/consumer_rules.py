"""Rules for consumer configurations, checked in order; the first refusal wins.

The order is part of compatibility: for a configuration with two faults, the reference reports the
first. A rule is a function of the normalised configuration, the stream and the limits; it returns a
refusal of the catalogue or None. `consumer_requests` checks which fields an update may change, and
the other consumers of the stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.api.asset_names import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    byte_length,
    is_valid_name,
    metadata_bytes,
)
from penstock.api.consumer_config import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy
from penstock.api.rules.consumer_defaults import SOURCE_HEARTBEAT_NS, UNLIMITED
from penstock.api.stream_config import Retention
from penstock.base.durations import format_duration
from penstock.base.sequences import SEQ_MAX
from penstock.base.slices import finish
from penstock.subjects.match import is_subset
from penstock.subjects.pattern_set import ITEMS_PER_SLICE, PatternList
from penstock.subjects.tokens import has_wildcard, is_valid_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.refusals import ApiError
    from penstock.api.rules.consumer_defaults import ConsumerCaps
    from penstock.api.stream_config import StreamConfig
    from penstock.base.slices import Sliced

    Rule = Callable[
        [ConsumerConfig, StreamConfig, ConsumerCaps], ApiError | Sliced[ApiError | None] | None
    ]

HEARTBEAT_NS_MIN: Final = 100_000_000
EXPIRES_NS_MIN: Final = 1_000_000

_GROUP: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_SAMPLE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
FILTERS_MAX: Final = 100_000
"""Filters of a consumer; the reference has no such limit."""
_INT64_MAX: Final = 2**63 - 1
_START_WORDS: Final = {
    DeliverPolicy.ALL: ("all", "sequence"),
    DeliverPolicy.LAST: ("last", "sequence"),
    DeliverPolicy.LAST_PER_SUBJECT: ("last per subject", "sequence"),
    DeliverPolicy.NEW: ("new", "sequence"),
    DeliverPolicy.BY_START_SEQUENCE: ("by start sequence", ""),
    DeliverPolicy.BY_START_TIME: ("by start time", "start sequence"),
}


def check_consumer(
    cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps
) -> ApiError | None:
    """Return the first refusal of a normalised configuration on this stream, or None."""
    return finish(check_consumer_sliced(cfg, stream, caps))


def check_consumer_sliced(
    cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps
) -> Sliced[ApiError | None]:
    """Do the work of `check_consumer` in slices; a configuration may hold very long lists."""
    for rule in CONSUMER_RULES:
        refused = rule(cfg, stream, caps)
        if isinstance(refused, Generator):
            refused = yield from refused
        if refused is not None:
            return refused
    return None


def check_group(name: str) -> ApiError | None:
    """Return the refusal of a priority group name in a request, or None; needs no consumer."""
    if not name:
        return refusals.INVALID_JSON(err="consumer group not specified")
    return None if _GROUP.fullmatch(name) else refusals.CONSUMER_INVALID_GROUP_NAME


def sampled_percent(sample_freq: str) -> int:
    """Return the percentage of acks that are sampled; 0 if the text is not a number."""
    digits = sample_freq.removesuffix("%")
    is_number = _SAMPLE.fullmatch(digits) and len(digits) <= len(str(_INT64_MAX))
    return max(0, int(digits)) if is_number else 0


def _names(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    for kind, name in (("", cfg.name), ("durable ", cfg.durable_name)):
        if name and not is_valid_name(name):
            words = f"consumer {kind}name can not contain '.', '*', '>', '\\', '/'"
            return refusals.STREAM_INVALID_CONFIG(err=words)
    return None


def _replicas(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if cfg.num_replicas > stream.num_replicas:
        return refusals.CONSUMER_REPLICAS_EXCEEDS_STREAM
    if cfg.num_replicas < 0:
        return refusals.REPLICAS_COUNT_CANNOT_BE_NEGATIVE
    by_interest = stream.retention is not Retention.LIMITS
    if by_interest and cfg.num_replicas not in (0, stream.num_replicas):
        return refusals.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM
    return None


def _waits(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if any(wait < 0 for wait in cfg.backoff):
        return refusals.CONSUMER_BACK_OFF_NEGATIVE
    return refusals.CONSUMER_ACK_WAIT_NEGATIVE if cfg.ack_wait < 0 else None


def _ack_by_flow(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if cfg.ack_policy is not AckPolicy.FLOW_CONTROL:
        return None
    if not cfg.is_push:
        return refusals.CONSUMER_ACK_FC_REQUIRES_PUSH
    if not cfg.flow_control:
        return refusals.CONSUMER_ACK_FC_REQUIRES_FC
    if cfg.idle_heartbeat != SOURCE_HEARTBEAT_NS:
        words = "flow control ack policy heartbeat needs to be 1s"
        return refusals.STREAM_INVALID_CONFIG(err=words)
    if cfg.max_ack_pending <= 0:
        return refusals.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING
    if cfg.ack_wait or cfg.backoff:
        return refusals.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT
    return refusals.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER if cfg.max_deliver > 0 else None


def _backoff(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if cfg.backoff and cfg.max_deliver != UNLIMITED and len(cfg.backoff) > cfg.max_deliver:
        return refusals.CONSUMER_MAX_DELIVER_BACKOFF
    return None


def _description(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if byte_length(cfg.description) > DESCRIPTION_BYTES_MAX:
        return refusals.CONSUMER_DESCRIPTION_TOO_LONG(max=DESCRIPTION_BYTES_MAX)
    return None


def _push(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> Sliced[ApiError | None]:
    if not cfg.is_push:
        return None
    if has_wildcard(cfg.deliver_subject):
        return refusals.CONSUMER_DELIVER_TO_WILDCARDS
    if not is_valid_subject(cfg.deliver_subject):
        return refusals.CONSUMER_INVALID_DELIVER_SUBJECT
    for at, captured in enumerate(stream.subjects, 1):
        if is_subset(cfg.deliver_subject, captured):
            return refusals.CONSUMER_DELIVER_CYCLE
        if at % ITEMS_PER_SLICE == 0:
            yield
    if cfg.max_waiting != 0:
        return refusals.CONSUMER_PUSH_MAX_WAITING
    if cfg.max_ack_pending > 0 and cfg.ack_policy is AckPolicy.NONE:
        return refusals.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED
    if 0 < cfg.idle_heartbeat < HEARTBEAT_NS_MIN:
        return refusals.CONSUMER_SMALL_HEARTBEAT
    return None


def _pull(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if cfg.is_push:
        return None
    if cfg.ack_policy is AckPolicy.NONE and stream.retention is Retention.WORKQUEUE:
        return refusals.CONSUMER_PULL_REQUIRES_ACK
    if cfg.rate_limit_bps > 0:
        return refusals.CONSUMER_PULL_WITH_RATE_LIMIT
    if cfg.idle_heartbeat > 0:
        return refusals.CONSUMER_HB_REQUIRES_PUSH
    if cfg.flow_control:
        return refusals.CONSUMER_FC_REQUIRES_PUSH
    if cfg.max_expires != 0 and cfg.max_expires < EXPIRES_NS_MIN:
        return refusals.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL
    if 0 < caps.server_max_batch < cfg.max_batch:
        return refusals.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED(limit=caps.server_max_batch)
    return None


def _limits(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    of_stream = stream.consumer_limits
    for limit in (
        caps.server_max_ack_pending,
        caps.account_max_ack_pending,
        of_stream.max_ack_pending,
    ):
        if 0 < limit < cfg.max_ack_pending:
            return refusals.CONSUMER_MAX_PENDING_ACK_EXCESS(limit=limit)
    if 0 < of_stream.inactive_threshold < cfg.inactive_threshold:
        limit_text = format_duration(of_stream.inactive_threshold)
        return refusals.CONSUMER_INACTIVE_THRESHOLD_EXCESS(limit=limit_text)
    return None


def _direct(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if not cfg.direct:
        return None
    if not cfg.is_push:
        return refusals.CONSUMER_DIRECT_REQUIRES_PUSH
    return refusals.CONSUMER_DIRECT_REQUIRES_EPHEMERAL if cfg.durable_name else None


def _filters(
    cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps
) -> Sliced[ApiError | None]:
    if cfg.filter_subject and cfg.filter_subjects:
        return refusals.CONSUMER_DUPLICATE_FILTER_SUBJECTS
    if "" in cfg.filter_subjects:
        return refusals.CONSUMER_EMPTY_FILTER
    if len(cfg.filter_subjects) > FILTERS_MAX:
        return refusals.CONSUMER_INVALID_POLICY(
            err=f"too many filter subjects, maximum allowed is {FILTERS_MAX}"
        )
    filters = PatternList(cfg.filters)
    yield from filters.fill()
    for at, subject in enumerate(cfg.filters):
        if not is_valid_subject(subject):
            return refusals.STREAM_INVALID_CONFIG(err="invalid subject")
        if (yield from filters.is_covered(at)):
            return refusals.CONSUMER_OVERLAPPING_SUBJECT_FILTERS
        if (at + 1) % ITEMS_PER_SLICE == 0:
            yield
    return None


def _start(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    policy = cfg.deliver_policy
    words, sequence_words = _START_WORDS[policy]
    if policy is DeliverPolicy.BY_START_SEQUENCE and cfg.opt_start_seq == 0:
        return _not_set(words, "start sequence")
    if policy is DeliverPolicy.BY_START_TIME and cfg.opt_start_time is None:
        return _not_set(words, "start time")
    if cfg.opt_start_seq > SEQ_MAX:
        return refusals.CONSUMER_INVALID_POLICY(
            err=f"optional start sequence is too large, maximum allowed is {SEQ_MAX}"
        )
    if policy is not DeliverPolicy.BY_START_SEQUENCE and cfg.opt_start_seq != 0:
        return _also_set(words, sequence_words)
    if policy is not DeliverPolicy.BY_START_TIME and cfg.opt_start_time is not None:
        return _also_set(words, "time")
    if policy is DeliverPolicy.LAST_PER_SUBJECT and not cfg.filters:
        return _not_set(words, "filter subject")
    return None


def _not_set(policy: str, what: str) -> ApiError:
    words = f"consumer delivery policy is deliver {policy}, but optional {what} is not set"
    return refusals.CONSUMER_INVALID_POLICY(err=words)


def _also_set(policy: str, what: str) -> ApiError:
    words = f"consumer delivery policy is deliver {policy}, but optional start {what} is also set"
    return refusals.CONSUMER_INVALID_POLICY(err=words)


def _sampling(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if not cfg.sample_freq:
        return None
    share = cfg.sample_freq.removesuffix("%")
    if not _SAMPLE.fullmatch(share):
        fault = "invalid syntax"
    elif len(share) > len(str(_INT64_MAX)) + 1 or abs(int(share)) > _INT64_MAX:
        fault = "value out of range"
    elif int(share) < 0:
        return refusals.CONSUMER_INVALID_SAMPLING(err="<nil>")
    else:
        return None
    quoted = json.dumps(share, ensure_ascii=False)
    return refusals.CONSUMER_INVALID_SAMPLING(err=f"strconv.Atoi: parsing {quoted}: {fault}")


def _flow(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if cfg.flow_control and cfg.idle_heartbeat == 0:
        return refusals.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS
    return None


def _same_name(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if cfg.durable_name and cfg.name and cfg.durable_name != cfg.name:
        return refusals.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH
    return None


def _metadata(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if metadata_bytes(cfg.metadata) > METADATA_BYTES_MAX:
        return refusals.CONSUMER_METADATA_LENGTH(limit=f"{METADATA_BYTES_MAX // 1024}KB")
    return None


def _priorities(cfg: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> ApiError | None:
    if cfg.priority_policy is PriorityPolicy.NONE:
        if cfg.priority_groups:
            return refusals.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE
        without = refusals.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE
        return without if cfg.priority_timeout > 0 else None
    if cfg.is_push:
        return refusals.CONSUMER_PUSH_WITH_PRIORITY_GROUP
    if not cfg.priority_groups:
        return refusals.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP
    for group in cfg.priority_groups:
        if not group:
            return refusals.CONSUMER_EMPTY_GROUP_NAME
        if not _GROUP.fullmatch(group):
            return refusals.CONSUMER_INVALID_GROUP_NAME
    return None


CONSUMER_RULES: Final[tuple[Rule, ...]] = (
    _names,
    _replicas,
    _waits,
    _ack_by_flow,
    _backoff,
    _description,
    _push,
    _pull,
    _limits,
    _direct,
    _filters,
    _start,
    _sampling,
    _flow,
    _same_name,
    _metadata,
    _priorities,
)
