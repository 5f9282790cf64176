"""Rules for streams that copy from others: mirrors and sources.

One function per rule, in the reference's order; `stream_rules` inserts them at their position.
Origins need not exist. The rules check existing origins of the same account for message size and
cycles, and do not look up origins in another account or domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.api.api_subjects import API
from penstock.api.asset_names import is_valid_name
from penstock.subjects.match import collides
from penstock.subjects.pattern_set import ITEMS_PER_SLICE, PatternList
from penstock.subjects.tokens import ANY_TAIL, has_wildcard, is_valid_literal, is_valid_subject
from penstock.subjects.transform import BAD_SUBJECT, TransformFault, check_mapping

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.refusals import ApiError, Template
    from penstock.api.rules.stream_defaults import StreamContext
    from penstock.api.stream_config import StreamConfig, StreamSource, SubjectTransform
    from penstock.base.slices import Sliced

    Rule = Callable[[StreamConfig, StreamContext], ApiError | Sliced[ApiError | None] | None]


def copies_of(cfg: StreamConfig) -> tuple[StreamSource, ...]:
    """Return everything the stream copies from: its mirror, then its sources."""
    return (cfg.mirror, *cfg.sources) if cfg.mirror is not None else cfg.sources


def _mirror_alone(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    """Refuse a mirror with settings that only an independent stream may have."""
    if cfg.mirror is None:
        return None
    conflicts = (
        (cfg.first_seq, refusals.MIRROR_WITH_FIRST_SEQ),
        (cfg.subjects, refusals.MIRROR_WITH_SUBJECTS),
        (cfg.sources, refusals.MIRROR_WITH_SOURCES),
        (cfg.allow_msg_counter, refusals.MIRROR_WITH_COUNTERS),
        (cfg.allow_atomic, refusals.MIRROR_WITH_ATOMIC_PUBLISH),
        (cfg.allow_batched, refusals.MIRROR_WITH_BATCH_PUBLISH),
        (cfg.allow_msg_schedules, refusals.MIRROR_WITH_MSG_SCHEDULES),
        (_has_unfit_consumer(cfg.mirror), refusals.MIRROR_DURABLE_CONSUMER_CFG_INVALID),
        (_filters_twice(cfg.mirror), refusals.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED),
    )
    for found, refused in conflicts:
        if found:
            return refused
    if cfg.subject_delete_marker_ttl > 0:
        # Markers would take sequences, which only the origin may assign.
        return _invalid("subject delete markers forbidden on mirrors")
    return None


def _mirror_filters(cfg: StreamConfig, ctx: StreamContext) -> Sliced[ApiError | None]:
    transforms = cfg.mirror.subject_transforms if cfg.mirror is not None else ()
    filters = PatternList([transform.src for transform in transforms])
    yield from filters.fill()
    for at, transform in enumerate(transforms):
        refused = _transform_fault(
            transform,
            source=refusals.MIRROR_INVALID_SUBJECT_FILTER,
            destination=refusals.MIRROR_INVALID_TRANSFORM_DESTINATION,
        )
        if refused is not None:
            return refused
        if (yield from filters.meets_other(at)):
            return refusals.MIRROR_OVERLAPPING_SUBJECT_FILTERS
        if (at + 1) % ITEMS_PER_SLICE == 0:
            yield
    return None


def _mirror_origin(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    if cfg.mirror is None or cfg.mirror.external is not None:
        return None
    if not is_valid_name(cfg.mirror.name):
        return refusals.MIRROR_INVALID_STREAM_NAME
    origin = ctx.streams.get(cfg.mirror.name)
    if origin is None:
        return None
    if 0 < cfg.max_msg_size < origin.max_msg_size:
        return refusals.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG
    if ctx.pedantic and cfg.mirror_direct != origin.allow_direct:
        text = "origin stream has direct get set, mirror has it disabled"
        return refusals.PEDANTIC(err=text)
    return None


def _sources(cfg: StreamConfig, ctx: StreamContext) -> Sliced[ApiError | None]:
    if cfg.sources and cfg.allow_msg_schedules:
        return refusals.SOURCE_WITH_MSG_SCHEDULES
    earlier: set[object] = set()
    for at, source in enumerate(cfg.sources, 1):
        refused = yield from _source(source, earlier)
        if refused is not None:
            return refused
        origin = None if source.external is not None else ctx.streams.get(source.name)
        if origin is not None and 0 < cfg.max_msg_size < origin.max_msg_size:
            return refusals.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG
        if at % ITEMS_PER_SLICE == 0:
            yield
    return None


def _source(source: StreamSource, earlier: set[object]) -> Sliced[ApiError | None]:
    """Check one source; `earlier` holds the identities of the sources before it."""
    if not is_valid_name(source.name):
        return refusals.SOURCE_INVALID_STREAM_NAME
    identity = _identity(source)
    if identity in earlier:
        return refusals.SOURCE_DUPLICATE_DETECTED
    earlier.add(identity)
    if _filters_twice(source):
        return refusals.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED
    refused = yield from _source_filters(source)
    if refused is not None:
        return refused
    if _has_unfit_consumer(source):
        return refusals.SOURCE_DURABLE_CONSUMER_CFG_INVALID
    if source.consumer is None:
        return None
    consumer = _consumer_identity(source, source.consumer.name)
    if consumer in earlier:
        return refusals.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED
    earlier.add(consumer)
    return None


def _source_filters(source: StreamSource) -> Sliced[ApiError | None]:
    transforms = source.subject_transforms
    for at, transform in enumerate(transforms, 1):
        refused = _transform_fault(
            transform,
            source=refusals.SOURCE_INVALID_SUBJECT_FILTER,
            destination=refusals.SOURCE_INVALID_TRANSFORM_DESTINATION,
        )
        if refused is not None:
            return refused
        if at % ITEMS_PER_SLICE == 0:
            yield
    filters = PatternList([transform.src for transform in transforms])
    yield from filters.fill()
    for at in range(len(transforms)):
        if (yield from filters.is_covered(at)):
            return refusals.SOURCE_OVERLAPPING_SUBJECT_FILTERS
        if (at + 1) % ITEMS_PER_SLICE == 0:
            yield
    return None


def _deliver_prefixes(cfg: StreamConfig, ctx: StreamContext) -> Sliced[ApiError | None]:
    """Refuse a delivery prefix whose subjects overlap with those that an origin here captures."""
    copies = copies_of(cfg)
    if not any(copy.external is not None and copy.external.deliver for copy in copies):
        return None
    origins = dict.fromkeys(copy.name for copy in copies if copy.external is None)
    # A literal subject never collides with itself plus a prefix.
    captured = [
        subject
        for name in origins
        if name in ctx.streams
        for subject in ctx.streams[name].subjects
        if has_wildcard(subject)
    ]
    compared = 0
    for copy in copies:
        prefix = copy.external.deliver if copy.external is not None else ""
        if not prefix:
            continue
        if not is_valid_literal(prefix):
            return refusals.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ(prefix=prefix)
        for subject in captured:
            if collides(subject, f"{prefix}.{subject}"):
                return refusals.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS(prefix=prefix, subject=subject)
            compared += 1
            if compared % ITEMS_PER_SLICE == 0:
                yield
    return None


def _api_prefixes(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    for copy in copies_of(cfg):
        prefix = copy.external.api if copy.external is not None else ""
        if not prefix:
            continue
        if not is_valid_literal(prefix):
            text = f'stream external api prefix "{prefix}" must be a valid subject'
            return _invalid(f"{text} without wildcards")
        if collides(prefix, API):
            return refusals.STREAM_EXTERNAL_API_OVERLAP(prefix=prefix, subject=API)
    return None


def _circle(cfg: StreamConfig, ctx: StreamContext) -> Sliced[ApiError | None]:
    """Refuse a cycle of sources and mirrors among the streams of this account."""
    visited: set[str] = set()
    level = [cfg]
    looked_at = 0
    while level:
        following: list[StreamConfig] = []
        for current in level:
            visited.add(current.name)
            for source in current.sources:
                if source.external is not None:
                    continue
                if source.name not in visited:
                    following += [ctx.streams[source.name]] if source.name in ctx.streams else []
                elif (yield from _feeds(current, source)):
                    return _invalid("detected cycle")
                looked_at += 1
                if looked_at % ITEMS_PER_SLICE == 0:
                    yield
            mirror = current.mirror
            if mirror is not None and mirror.external is None:
                if mirror.name in visited:
                    return _invalid("detected cycle")
                following += [ctx.streams[mirror.name]] if mirror.name in ctx.streams else []
        level = _ends(following)
    return None


def _ends(streams: list[StreamConfig]) -> list[StreamConfig]:
    """Keep the first and the last occurrence of each stream.

    A stream can be reached on many paths, and their number doubles with each level. The first
    occurrence decides what is visited next; the last one sees everything visited before.
    """
    last = {stream.name: at for at, stream in enumerate(streams)}
    seen: set[str] = set()
    kept = []
    for at, stream in enumerate(streams):
        if stream.name not in seen or last[stream.name] == at:
            seen.add(stream.name)
            kept.append(stream)
    return kept


def _feeds(cfg: StreamConfig, source: StreamSource) -> Sliced[bool]:
    wanted = source.filter_subject
    if not wanted:
        return True
    for at, subject in enumerate(cfg.subjects, 1):
        if collides(subject, wanted):
            return True
        if at % ITEMS_PER_SLICE == 0:
            yield
    return False


# -- helpers


def _invalid(text: str) -> ApiError:
    return refusals.STREAM_INVALID_CONFIG(err=text)


def _transform_fault(
    transform: SubjectTransform, *, source: Template, destination: Template
) -> ApiError | None:
    if transform.src and not is_valid_subject(transform.src):
        return source(err=f"{BAD_SUBJECT} {transform.src}")
    try:
        check_mapping(transform.src, transform.dest)
    except TransformFault as fault:
        return destination(err=fault)
    return None


def _filters_twice(source: StreamSource) -> bool:
    return bool(source.filter_subject and source.subject_transforms)


def _has_unfit_consumer(source: StreamSource) -> bool:
    """Return whether the source names a pre-created consumer with an invalid configuration.

    Such a consumer needs a valid name and a literal deliver subject. It defines start and filter
    itself, so the source must not set them.
    """
    consumer = source.consumer
    if consumer is None:
        return False
    if not is_valid_name(consumer.name) or not is_valid_literal(consumer.deliver_subject):
        return True
    has_start = source.opt_start_seq != 0 or source.opt_start_time is not None
    return has_start or bool(source.filter_subject)


def _identity(source: StreamSource) -> tuple[object, ...]:
    """Return the key that distinguishes two sources."""
    if source.subject_transforms:
        pairs = tuple((t.src or ANY_TAIL, t.dest or ANY_TAIL) for t in source.subject_transforms)
    else:
        pairs = ((source.filter_subject or ANY_TAIL, ANY_TAIL),)
    return (
        source.name,
        source.external and source.external.api,
        source.consumer and source.consumer.name,
        pairs,
    )


def _consumer_identity(source: StreamSource, consumer: str) -> tuple[object, ...]:
    """Return the key that distinguishes two pre-created consumers."""
    return (source.name, source.external and source.external.api, consumer)


COPY_RULES: Final[tuple[Rule, ...]] = (
    _mirror_alone,
    _mirror_filters,
    _mirror_origin,
    _sources,
    _deliver_prefixes,
    _api_prefixes,
    _circle,
)
