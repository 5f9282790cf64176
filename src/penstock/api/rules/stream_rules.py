"""Rules for stream configurations: one function per rule, in the reference's order.

The first refusal wins, so the order of `STREAM_RULES` is part of compatibility. Rules check the
configuration as given; where a default matters, they get it from `stream_defaults`. Pedantic mode
refuses values that would otherwise be corrected silently. Rules for mirrors and sources are in
`source_rules`; rules about other streams and account limits are in `stream_requests`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.api.account_usage import NOTHING, UNLIMITED
from penstock.api.asset_names import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    byte_length,
    is_valid_name,
    metadata_bytes,
)
from penstock.api.rules.source_rules import COPY_RULES, copies_of
from penstock.api.rules.stream_defaults import (
    DUPLICATE_WINDOW_NS,
    LIMIT_FIELDS,
    default_window,
    republish_of,
    republishes_transformed,
    subjects_of,
    window_of,
)
from penstock.api.stream_config import Discard, PersistMode, Retention, Storage
from penstock.base.durations import format_duration
from penstock.base.sequences import SEQ_MAX
from penstock.base.slices import finish
from penstock.base.units import SECOND_NS
from penstock.subjects.match import collides, is_subset
from penstock.subjects.pattern_set import ITEMS_PER_SLICE, PatternList
from penstock.subjects.tokens import ANY_TAIL, is_valid_subject
from penstock.subjects.transform import BAD_SUBJECT, Transform, TransformFault, check_mapping

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.refusals import ApiError
    from penstock.api.rules.stream_defaults import StreamContext
    from penstock.api.stream_config import StreamConfig
    from penstock.base.slices import Sliced

    Rule = Callable[[StreamConfig, StreamContext], ApiError | Sliced[ApiError | None] | None]

REPLICAS_MAX: Final = 5
SUBJECTS_MAX: Final = 10_000
"""Subjects of a stream. The reference has no such limits."""
SOURCES_MAX: Final = 10_000
"""Sources of a stream."""
TRANSFORMS_MAX: Final = 10_000
"""Transforms of all sources of a stream, or of its mirror."""
MILLISECOND_NS: Final = 1_000_000
AGE_NS_MIN: Final = 100 * MILLISECOND_NS
WINDOW_NS_MIN: Final = 100 * MILLISECOND_NS
MARKER_TTL_NS_MIN: Final = SECOND_NS
API_SPACES: Final = ("$JS.>", "$JSC.>", "$NRG.>")
EVENTS: Final = "$JS.EVENT.>"
SYSTEM_SPACE: Final = "$SYS.>"
SYSTEM_EVENTS: Final = "$SYS.ACCOUNT.>"


def check_stream(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    """Return the first refusal of a configuration, or None."""
    return finish(check_stream_sliced(cfg, ctx))


def check_stream_sliced(cfg: StreamConfig, ctx: StreamContext) -> Sliced[ApiError | None]:
    """Do the work of `check_stream` in slices, because a configuration may hold very long lists."""
    for rule in STREAM_RULES:
        refused = rule(cfg, ctx)
        if isinstance(refused, Generator):
            refused = yield from refused
        if refused is not None:
            return refused
    return None


def invalid(text: str) -> ApiError:
    """Return a refusal that has no error code of its own."""
    return refusals.STREAM_INVALID_CONFIG(err=text)


def pedantic(text: str) -> ApiError:
    """Return a refusal of a value that would otherwise be corrected."""
    return refusals.PEDANTIC(err=text)


def _name(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if not is_valid_name(cfg.name):
        return invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if byte_length(cfg.name) > NAME_BYTES_MAX:
        return invalid(f"stream name is too long, maximum allowed is {NAME_BYTES_MAX}")
    return None


def _counts(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    """Refuse lists so long that serving the stream would delay other clients."""
    transforms = sum(len(copy.subject_transforms) for copy in copies_of(cfg))
    for what, count, most in (
        ("subjects", len(cfg.subjects), SUBJECTS_MAX),
        ("sources", len(cfg.sources), SOURCES_MAX),
        ("subject transforms", transforms, TRANSFORMS_MAX),
    ):
        if count > most:
            return invalid(f"too many {what}, maximum allowed is {most}")
    return None


def _description(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if byte_length(cfg.description) > DESCRIPTION_BYTES_MAX:
        return invalid(
            f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}"
        )
    return None


def _metadata(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if metadata_bytes(cfg.metadata) > METADATA_BYTES_MAX:
        return invalid(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")
    return None


def _replicas(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if cfg.num_replicas > REPLICAS_MAX:
        return invalid(f"maximum replicas is {REPLICAS_MAX}")
    return refusals.REPLICAS_COUNT_CANNOT_BE_NEGATIVE if cfg.num_replicas < 0 else None


def _limits(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if ctx.pedantic:
        for name in LIMIT_FIELDS:
            if getattr(cfg, name) < UNLIMITED:
                return pedantic(f"{name} must be set to -1")
    return None


def _age(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if cfg.max_age < 0:
        return invalid("max age can not be negative")
    return invalid("max age needs to be >= 100ms") if 0 < cfg.max_age < AGE_NS_MIN else None


def _default_window(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if not ctx.pedantic or cfg.duplicate_window or cfg.mirror is not None or cfg.sources:
        return None
    if default_window(ctx) < DUPLICATE_WINDOW_NS:
        return pedantic("duplicate window limits are higher than current limits")
    if 0 < cfg.max_age < default_window(ctx):
        return pedantic("duplicate window cannot be bigger than max age")
    return None


def _window(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    window, limit = window_of(cfg, ctx), ctx.duplicate_window_max
    if window < 0:
        return invalid("duplicates window can not be negative")
    if 0 < cfg.max_age < window:
        return invalid("duplicates window can not be larger then max age")
    if 0 < limit < window:
        shown = format_duration(limit)
        return invalid(f"duplicates window can not be larger then server limit of {shown}")
    return invalid("duplicates window needs to be >= 100ms") if 0 < window < WINDOW_NS_MIN else None


def _rollup(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if cfg.deny_purge and cfg.allow_rollup_hdrs:
        return invalid("roll-ups require the purge permission")
    return None


def _counter(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if not cfg.allow_msg_counter:
        return None
    if cfg.discard is Discard.NEW:
        return invalid("counter stream cannot use discard new")
    if cfg.allow_msg_ttl:
        return invalid("counter stream cannot use message TTLs")
    if cfg.allow_msg_schedules:
        return invalid("counter stream cannot use message schedules")
    if cfg.retention is not Retention.LIMITS:
        return invalid("counter stream can only use limits retention")
    return None


def _discard_per_subject(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if not cfg.discard_new_per_subject:
        return None
    if cfg.discard is not Discard.NEW:
        return invalid("discard new per subject requires discard new policy to be set")
    if cfg.max_msgs_per_subject <= 0:
        return invalid("discard new per subject requires max msgs per subject > 0")
    return None


def _delete_marker(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if cfg.subject_delete_marker_ttl < 0:
        return invalid("subject delete marker TTL must not be negative")
    if cfg.subject_delete_marker_ttl == 0:
        return None
    if cfg.subject_delete_marker_ttl < MARKER_TTL_NS_MIN:
        return invalid("subject delete marker TTL must be at least 1 second")
    if ctx.pedantic and not cfg.allow_msg_ttl:
        return invalid("subject delete marker cannot be set if message TTLs are disabled")
    if ctx.pedantic and not cfg.allow_rollup_hdrs:
        return invalid("subject delete marker cannot be set if roll-ups are disabled")
    return None


def _schedules(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if not cfg.allow_msg_schedules:
        return None
    if cfg.discard is Discard.NEW:
        return invalid("message scheduling cannot use discard new")
    if ctx.pedantic and not cfg.allow_rollup_hdrs:
        return invalid("message scheduling cannot be set if roll-ups are disabled")
    return None


def _first_seq(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    """Refuse a first sequence above SEQ_MAX; the reference accepts any and wraps to 0."""
    if cfg.first_seq > SEQ_MAX:
        return invalid(f"first sequence is too large, maximum allowed is {SEQ_MAX}")
    return None


def _copy_starts(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if any(copy.opt_start_seq > SEQ_MAX for copy in copies_of(cfg)):
        return invalid(f"start sequence is too large, maximum allowed is {SEQ_MAX}")
    return None


def _persist_mode(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if cfg.persist_mode is not PersistMode.ASYNC:
        return None
    if cfg.storage is not Storage.FILE:
        return invalid("async persist mode is only supported on file storage")
    if cfg.num_replicas > 1:
        return invalid("async persist mode is not supported on replicated streams")
    if cfg.allow_atomic:
        return invalid("async persist mode is not supported with atomic batch publish")
    return None


def _subjects(cfg: StreamConfig, ctx: StreamContext) -> Sliced[ApiError | None]:
    subjects = PatternList(cfg.subjects)
    yield from subjects.fill()
    for at, subject in enumerate(cfg.subjects):
        refused = _subject(cfg, subject, is_duplicate=subjects.is_duplicate(at))
        if refused is not None:
            return refused
        met = yield from subjects.met_later(at)
        if met is not None:
            return invalid(f'subject "{subject}" overlaps with "{cfg.subjects[met]}"')
        if (at + 1) % ITEMS_PER_SLICE == 0:
            yield
    return None


def _subject(cfg: StreamConfig, subject: str, *, is_duplicate: bool) -> ApiError | None:
    if not is_valid_subject(subject):
        return invalid("invalid subject")
    if is_duplicate:
        return invalid("duplicate subjects detected")
    if subject == ANY_TAIL and not cfg.no_ack:
        return invalid("capturing all subjects requires no-ack to be true")
    if subject == ANY_TAIL and cfg.num_replicas > 1:
        return invalid("capturing all subjects requires replicas of 1")
    return None if cfg.no_ack else _reserved(subject)


def _reserved(subject: str) -> ApiError | None:
    """Refuse API and system subjects: the publish ack would reply to a request for the server."""
    if any(collides(subject, space) for space in API_SPACES) and not is_subset(subject, EVENTS):
        return invalid("subjects that overlap with jetstream api require no-ack to be true")
    if collides(subject, SYSTEM_SPACE) and not is_subset(subject, SYSTEM_EVENTS):
        return invalid("subjects that overlap with system api require no-ack to be true")
    return None


def _max_bytes(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    in_memory = cfg.storage is Storage.MEMORY
    limits = ctx.limits_for(cfg.num_replicas) or NOTHING
    most = limits.memory_max_stream_bytes if in_memory else limits.storage_max_stream_bytes
    if limits.max_bytes_required and cfg.max_bytes <= 0:
        return refusals.STREAM_MAX_BYTES_REQUIRED
    return refusals.STREAM_MAX_STREAM_BYTES_EXCEEDED if 0 < most < cfg.max_bytes else None


def _transform(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    transform = cfg.subject_transform
    if transform is None:
        return None
    if transform.src and not is_valid_subject(transform.src):
        return refusals.STREAM_TRANSFORM_INVALID_SOURCE(err=f"{BAD_SUBJECT} {transform.src}")
    try:
        check_mapping(transform.src, transform.dest)
    except TransformFault as fault:
        return refusals.STREAM_TRANSFORM_INVALID_DESTINATION(err=fault)
    return None


def _republish(cfg: StreamConfig, ctx: StreamContext) -> Sliced[ApiError | None]:
    republish = republish_of(cfg)
    if cfg.republish is None or republish is None:
        return None
    if ctx.pedantic and not cfg.republish.src:
        return pedantic("republish source can not be empty")
    if ctx.pedantic and republishes_transformed(cfg):
        return pedantic("implicit republish based on subject transform")
    for at, subject in enumerate(subjects_of(cfg), 1):
        if collides(republish.dest, subject):
            return invalid("stream configuration for republish destination forms a cycle")
        if at % ITEMS_PER_SLICE == 0:
            yield
    if not republish.dest:
        return None
    try:
        Transform(republish.src, republish.dest)
    except TransformFault:
        return invalid(
            "stream configuration for republish with transform "
            f"from '{republish.src}' to '{republish.dest}' not valid"
        )
    return None


def _placement(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if cfg.placement is not None and cfg.placement.preferred:
        return invalid("preferred server not permitted in placement")
    return None


STREAM_RULES: Final[tuple[Rule, ...]] = (
    _name,
    _counts,
    _description,
    _metadata,
    _replicas,
    _limits,
    _age,
    _default_window,
    _window,
    _rollup,
    _counter,
    _discard_per_subject,
    _delete_marker,
    _schedules,
    _persist_mode,
    _first_seq,
    *COPY_RULES,
    _copy_starts,
    _subjects,
    _max_bytes,
    _transform,
    _republish,
    _placement,
)
