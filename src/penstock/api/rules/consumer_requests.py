"""Decide a consumer create or update request: its target, the configuration to store, or a refusal.

`addressed` parses the three forms of the subject. `decide` applies defaults and rules and compares
the result with the stream's existing consumers. Both check in the reference's order. Pure
functions: they return the configuration to store or the refusal, and change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from penstock.api import refusals
from penstock.api.api_levels import stored_metadata, without_levels
from penstock.api.asset_names import NAME_BYTES_MAX, byte_length
from penstock.api.consumer_config import (
    AckPolicy,
    ConsumerAction,
    ConsumerConfig,
    CreateConsumerRequest,
    DeliverPolicy,
    PriorityPolicy,
)
from penstock.api.refusals import ApiError
from penstock.api.rules.consumer_defaults import ConsumerCaps, normalise
from penstock.api.rules.consumer_rules import check_consumer_sliced
from penstock.api.stream_config import Retention, StreamConfig
from penstock.base.slices import finish
from penstock.base.text import is_utf8
from penstock.base.units import SECOND_NS
from penstock.subjects.match import collides
from penstock.subjects.pattern_set import ITEMS_PER_SLICE, VISITS_PER_SLICE, PatternIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.base.slices import Sliced

INACTIVE_NS_DEFAULT: Final = 5 * SECOND_NS
"""Default inactive threshold of a consumer without durable name."""

_CREATE_TOKENS: Final = 5
_NO_INTEREST: Final = frozenset[str]()


class Addressed(NamedTuple):
    """The stream and consumer that a request names; `config` carries the subject's name."""

    stream: str
    name: str
    """Empty if the server chooses the name."""
    config: ConsumerConfig


class RequestContext(NamedTuple):
    """The stream, limits and consumers against which a request is checked."""

    stream: StreamConfig
    caps: ConsumerCaps = ConsumerCaps()
    consumers: Mapping[str, ConsumerConfig] = {}
    """The existing consumers of the stream, by name."""
    has_interest: Callable[[str], bool] = _NO_INTEREST.__contains__
    """Returns whether a subject has a subscriber."""


def addressed(
    tokens: Sequence[str], request: CreateConsumerRequest, *, clustered: bool = False
) -> Addressed | ApiError:
    """Parse `$JS.API.CONSUMER.CREATE.<stream>[.<name>[.<filter>]]` and the DURABLE form.

    The caller passes only subjects that the API subscribes to: the DURABLE form has exactly seven
    tokens.
    """
    cfg = request.config
    is_durable_form = tokens[3] == "DURABLE"
    stream = tokens[5] if is_durable_form else tokens[4]
    is_open = len(tokens) == _CREATE_TOKENS
    name = cfg.name if is_open else tokens[6] if is_durable_form else tokens[5]
    if stream != request.stream_name:
        return refusals.STREAM_MISMATCH
    if "\\" in name or "/" in name:
        return refusals.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS
    if not is_utf8(name):
        return refusals.CONSUMER_CREATE(err="consumer name is not valid UTF-8")
    if is_open and cfg.durable_name:
        return refusals.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME
    if is_durable_form and not cfg.durable_name:
        return refusals.CONSUMER_DURABLE_NAME_NOT_SET
    if cfg.durable_name not in ("", name):
        return refusals.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT
    subject_filter = "" if is_durable_form else ".".join(tokens[6:])
    if subject_filter and cfg.filter_subjects:
        return refusals.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED
    if subject_filter not in ("", cfg.filter_subject):
        return refusals.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH
    if cfg.num_replicas > 1 and not clustered:
        return refusals.STREAM_REPLICAS_NOT_SUPPORTED
    return Addressed(stream, name, structs.replace(cfg, name=name))


def decide(
    cfg: ConsumerConfig, action: ConsumerAction, around: RequestContext, *, pedantic: bool = False
) -> ConsumerConfig | ApiError:
    """Return the configuration to store for the consumer `cfg.name`, or the refusal."""
    return finish(decide_sliced(cfg, action, around, pedantic=pedantic))


def decide_sliced(
    cfg: ConsumerConfig, action: ConsumerAction, around: RequestContext, *, pedantic: bool = False
) -> Sliced[ConsumerConfig | ApiError]:
    """Do the work of `decide` in slices."""
    old = around.consumers.get(cfg.durable_name or cfg.name)
    if old is not None:
        cfg = _kept(old, cfg)
    normal = normalise(with_level(cfg), around.stream, around.caps, pedantic=pedantic)
    if isinstance(normal, ApiError):
        return normal
    refused = yield from check_consumer_sliced(normal, around.stream, around.caps)
    if refused is not None:
        return refused
    if old is not None:
        return (yield from _changed(old, normal, action, around))
    if action is ConsumerAction.UPDATE:
        return refusals.CONSUMER_DOES_NOT_EXIST
    return (yield from _created(normal, around))


def for_source(meant: Addressed, stream: StreamConfig, suffix: str) -> Addressed:
    """Adapt a consumer that another stream requests as its source to this stream's retention.

    A stream that removes acknowledged messages must remember what its copies have received, so the
    consumer becomes durable. With limits retention, each attempt creates a new consumer with a
    unique name.
    """
    cfg = meant.config
    if not (cfg.direct and cfg.sourcing and cfg.name):
        return meant
    if stream.retention is Retention.LIMITS:
        name = f"{cfg.name}-{suffix}"
        return meant._replace(name=name, config=structs.replace(cfg, name=name))
    durable = structs.replace(
        cfg,
        direct=False,
        durable_name=cfg.name,
        ack_policy=AckPolicy.FLOW_CONTROL,
        ack_wait=0,
        max_deliver=0,
        inactive_threshold=0,
    )
    return meant._replace(config=durable)


def _kept(old: ConsumerConfig, new: ConsumerConfig) -> ConsumerConfig:
    """Return `new` with the fields that this request cannot change.

    These are the pause, which has its own request, and the start position of a durable consumer
    that feeds another stream.
    """
    new = structs.replace(new, pause_until=old.pause_until)
    if not (new.sourcing and new.durable_name):
        return new
    return structs.replace(
        new,
        deliver_policy=old.deliver_policy,
        opt_start_seq=old.opt_start_seq,
        opt_start_time=old.opt_start_time,
    )


def _changed(
    old: ConsumerConfig, new: ConsumerConfig, action: ConsumerAction, around: RequestContext
) -> Sliced[ConsumerConfig | ApiError]:
    if action is ConsumerAction.CREATE:
        if _without_level(old) != _without_level(new):
            return refusals.CONSUMER_ALREADY_EXISTS
        new = old
    is_queue = around.stream.retention is Retention.WORKQUEUE
    if is_queue and not (yield from _is_partition(new, around.consumers)):
        return refusals.CONSUMER_WQ_CONSUMER_NOT_UNIQUE
    refused = check_consumer_update(old, new, around.has_interest)
    if refused is not None:
        return refused
    if new.inactive_threshold == 0 and not old.durable_name:
        return structs.replace(new, inactive_threshold=INACTIVE_NS_DEFAULT)
    return new


def _created(cfg: ConsumerConfig, around: RequestContext) -> Sliced[ConsumerConfig | ApiError]:
    if not is_internal(cfg):
        refused = yield from _crowded(cfg, around)
        if refused is not None:
            return refused
    if byte_length(cfg.name) > NAME_BYTES_MAX:
        return refusals.CONSUMER_NAME_TOO_LONG(max=NAME_BYTES_MAX)
    if cfg.inactive_threshold == 0 and not cfg.durable_name:
        return structs.replace(cfg, inactive_threshold=INACTIVE_NS_DEFAULT)
    return cfg


def _crowded(cfg: ConsumerConfig, around: RequestContext) -> Sliced[ApiError | None]:
    """Check one more consumer against the existing ones: the limit and the work-queue rules."""
    most = _max_consumers(around.stream, around.caps)
    is_queue = around.stream.retention is Retention.WORKQUEUE
    if not is_queue and not 0 < most <= len(around.consumers):
        return None
    others = [other for other in around.consumers.values() if not is_internal(other)]
    if 0 < most <= len(others):
        return refusals.MAXIMUM_CONSUMERS_LIMIT
    if not is_queue:
        return None
    if cfg.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL):
        return refusals.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK
    if cfg.deliver_policy is not DeliverPolicy.ALL:
        return refusals.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL
    if others and not cfg.filters:
        return refusals.CONSUMER_WQ_MULTIPLE_UNFILTERED
    if not (yield from _is_partition(cfg, around.consumers)):
        return refusals.CONSUMER_WQ_CONSUMER_NOT_UNIQUE
    return None


def _max_consumers(stream: StreamConfig, caps: ConsumerCaps) -> int:
    limits = (stream.max_consumers, caps.account_max_consumers)
    return min((limit for limit in limits if limit > 0), default=caps.server_max_consumers)


def is_internal(cfg: ConsumerConfig) -> bool:
    """Return whether the consumer feeds another stream."""
    return cfg.direct or cfg.sourcing


def _is_partition(cfg: ConsumerConfig, consumers: Mapping[str, ConsumerConfig]) -> Sliced[bool]:
    """Return whether no message matches both this consumer and another one.

    A consumer without filter is not compared, as in the reference: it must be the only consumer
    when it is created.
    """
    if not cfg.filters:
        return True
    own = cfg.durable_name or cfg.name
    wanted: PatternIndex[int] = PatternIndex()
    for at, subject in enumerate(cfg.filters, 1):
        wanted.add(subject, at)
        if at % ITEMS_PER_SLICE == 0:
            yield
    looked_at = 0
    for name, other in list(consumers.items()):
        if name == own or is_internal(other):
            continue
        if not other.filters:
            return False
        for theirs in other.filters:
            for owners in wanted.visit_meeting(theirs):
                if any(collides(subject, theirs) for subject in owners.values()):
                    return False
                looked_at += 1
                if looked_at % VISITS_PER_SLICE == 0:
                    yield
    return True


_FIXED_WORDS: Final = (
    ("deliver_policy", "deliver policy"),
    ("mem_storage", "storage type"),
    ("direct", "direct"),
    ("sourcing", "sourcing"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_time", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat", "heart beats"),
    ("flow_control", "flow control"),
)


def check_consumer_update(
    old: ConsumerConfig, new: ConsumerConfig, has_interest: Callable[[str], bool]
) -> ApiError | None:
    """Return why `old` cannot be updated to `new`, or None; both are normalised and checked."""
    for field, words in _FIXED_WORDS:
        if getattr(old, field) != getattr(new, field):
            return refusals.CONSUMER_CREATE(err=f"{words} can not be updated")
    if old.is_push != new.is_push:
        kinds = ("push", "pull") if old.is_push else ("pull", "push")
        words = f"can not update {kinds[0]} consumer to {kinds[1]} based"
        return refusals.CONSUMER_CREATE(err=words)
    if old.deliver_subject != new.deliver_subject and has_interest(old.deliver_subject):
        return refusals.CONSUMER_NAME_EXIST
    if old.max_waiting != new.max_waiting:
        return refusals.CONSUMER_CREATE(err="max waiting can not be updated")
    return None


def with_level(cfg: ConsumerConfig) -> ConsumerConfig:
    """Return the configuration for storage: its metadata holds the API level that it requires."""
    metadata = stored_metadata(cfg.metadata, _required_level(cfg))
    return structs.replace(cfg, metadata=metadata)


def _required_level(cfg: ConsumerConfig) -> int:
    if cfg.ack_policy is AckPolicy.FLOW_CONTROL:
        return 4
    has_priorities = (
        cfg.priority_policy is not PriorityPolicy.NONE
        or cfg.priority_timeout != 0
        or bool(cfg.priority_groups)
    )
    return 1 if cfg.pause_until or has_priorities else 0


def _without_level(cfg: ConsumerConfig) -> ConsumerConfig:
    return structs.replace(cfg, metadata=without_levels(cfg.metadata))
