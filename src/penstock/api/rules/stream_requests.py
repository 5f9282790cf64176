"""Decide a stream create, restore or update request: the configuration to store, or a refusal.

This module combines the rules for a single configuration with the rest: the name in the subject,
the account's limits, the other streams, and, for an update, the previous configuration. The checks
run in the reference's order, because a request may have several faults. Pure functions: the caller
passes the existing state as `StreamContext` and creates the stream itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from penstock.api import refusals
from penstock.api.api_levels import without_levels
from penstock.api.rules.source_rules import copies_of
from penstock.api.rules.stream_defaults import normalise, seal
from penstock.api.rules.stream_rules import check_stream_sliced, invalid
from penstock.api.stream_config import Retention, Storage, StreamConfig
from penstock.base.slices import finish
from penstock.subjects.match import collides
from penstock.subjects.pattern_set import ITEMS_PER_SLICE
from penstock.subjects.tokens import ANY_TAIL, is_valid_subject
from penstock.subjects.transform import BAD_SUBJECT, Transform, TransformFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.api.refusals import ApiError
    from penstock.api.rules.stream_defaults import StreamContext
    from penstock.base.slices import Sliced

    Change = Callable[[StreamConfig, StreamConfig], ApiError | None]


# -- creation


def plan_create(name: str, cfg: StreamConfig, ctx: StreamContext) -> StreamConfig | ApiError:
    """Return the configuration to store for a request to create `name`, or the refusal.

    If the stream exists with an equal configuration, return the existing configuration.
    """
    return finish(plan_create_sliced(name, cfg, ctx))


def plan_create_sliced(
    name: str, cfg: StreamConfig, ctx: StreamContext
) -> Sliced[StreamConfig | ApiError]:
    """Do the work of `plan_create` in slices."""
    refused = _create_refused(name, cfg, ctx) or (yield from check_stream_sliced(cfg, ctx))
    if refused is not None:
        return refused
    if cfg.num_replicas > 1 and not ctx.clustered:
        return refusals.STREAM_REPLICAS_NOT_SUPPORTED
    made = normalise(cfg, ctx)
    existing = ctx.streams.get(name)
    if existing is not None:
        return existing if _is_same(existing, made) else refusals.STREAM_NAME_EXIST
    refused = _over_limits(made, ctx) or _unfit_filter(made)
    return refused or (yield from _overlap(made, ctx)) or made


def _create_refused(name: str, cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    """Check what precedes the rules: name, sealing, mirror_direct and account limits."""
    if name != cfg.name:
        return refusals.STREAM_MISMATCH
    if "\\" in name or "/" in name:
        return refusals.STREAM_NAME_CONTAINS_PATH_SEPARATORS
    if cfg.sealed:
        return invalid("stream configuration for create can not be sealed")
    if cfg.mirror_direct and cfg.mirror is None:
        return invalid("stream has no mirror but does have mirror direct")
    limits = ctx.limits_for(cfg.num_replicas)
    if limits is None:
        return refusals.NO_LIMITS
    others = _count_in_tier(cfg, ctx) - (name in ctx.streams)
    if 0 < limits.max_streams <= others:
        return refusals.MAXIMUM_STREAMS_LIMIT
    if 0 < limits.max_consumers < cfg.max_consumers:
        return refusals.MAXIMUM_CONSUMERS_LIMIT
    return _over_limits(cfg, ctx) if ctx.storage_given else None


def _is_same(existing: StreamConfig, made: StreamConfig) -> bool:
    """Compare without the API level, which another version may have stored."""
    return structs.replace(existing, metadata=without_levels(existing.metadata)) == structs.replace(
        made, metadata=without_levels(made.metadata)
    )


def _unfit_filter(cfg: StreamConfig) -> ApiError | None:
    for copy in copies_of(cfg):
        wanted = copy.filter_subject
        if wanted and not is_valid_subject(wanted):
            whose = "mirror" if copy is cfg.mirror else "source:"
            return refusals.STREAM_CREATE(
                err=f"subject filter '{wanted}' for the {whose} {BAD_SUBJECT}"
            )
    return None


def _overlap(cfg: StreamConfig, ctx: StreamContext) -> Sliced[ApiError | None]:
    """Refuse a subject that belongs to another stream."""
    find = ctx.streams_on or partial(_streams_on, ctx)
    for at, subject in enumerate(cfg.subjects, 1):
        for name in find(subject):
            if name is None:
                yield
            elif name != cfg.name:
                return refusals.STREAM_SUBJECT_OVERLAP
        if at % ITEMS_PER_SLICE == 0:
            yield
    return None


def _streams_on(ctx: StreamContext, subject: str) -> Iterator[str]:
    for name, other in ctx.streams.items():
        if any(collides(subject, own) for own in other.subjects):
            yield name


# -- restore


def plan_restore(name: str, cfg: StreamConfig, ctx: StreamContext) -> StreamConfig | ApiError:
    """Return the configuration of a stream to restore from an archive, or the refusal."""
    return finish(plan_restore_sliced(name, cfg, ctx))


def plan_restore_sliced(
    name: str, cfg: StreamConfig, ctx: StreamContext
) -> Sliced[StreamConfig | ApiError]:
    """Do the work of `plan_restore` in slices."""
    cfg = cfg if cfg.name else structs.replace(cfg, name=name)
    if name != cfg.name:
        return refusals.STREAM_MISMATCH
    if "\\" in name or "/" in name:
        return refusals.STREAM_NAME_CONTAINS_PATH_SEPARATORS
    refused = yield from check_stream_sliced(cfg, ctx)
    if refused is not None:
        return refused
    made = normalise(cfg, ctx)
    return _no_room(made, ctx) or _name_taken(made, ctx) or made


def check_restored(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    """Return why a stream that `plan_restore` accepted cannot be created now, or None."""
    refused = _name_taken(cfg, ctx) or _no_room(cfg, ctx)
    if refused is not None:
        return refused
    refused = _unfit_filter(cfg) or finish(_overlap(cfg, ctx))
    if cfg.num_replicas > 1 and not ctx.clustered:
        refused = refusals.STREAM_REPLICAS_NOT_SUPPORTED
    if refused is None:
        return None
    why = f"error adding stream: {refused.description} ({refused.err_code})"
    return refusals.STREAM_RESTORE(err=why)


def _name_taken(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    return refusals.STREAM_NAME_EXIST_RESTORE_FAILED if cfg.name in ctx.streams else None


def _no_room(cfg: StreamConfig, ctx: StreamContext) -> ApiError | None:
    limits = ctx.limits_for(cfg.num_replicas)
    if limits is None:
        return refusals.NO_LIMITS
    if 0 < limits.max_streams <= _count_in_tier(cfg, ctx):
        return refusals.MAXIMUM_STREAMS_LIMIT
    return _over_limits(cfg, ctx)


# -- limits


def _is_other_tier(cfg: StreamConfig, ctx: StreamContext) -> bool:
    """Return whether this stream's tier holds no existing stream: on one server all are in R1."""
    return bool(ctx.tiers) and cfg.num_replicas > 1


def _count_in_tier(cfg: StreamConfig, ctx: StreamContext) -> int:
    return 0 if _is_other_tier(cfg, ctx) else len(ctx.streams)


def _over_limits(
    cfg: StreamConfig, ctx: StreamContext, *, replaces: StreamConfig | None = None
) -> ApiError | None:
    """Return a refusal if the account or server cannot reserve the stream's maximum size."""
    limits = ctx.limits_for(cfg.num_replicas)
    if limits is None:
        return refusals.NO_LIMITS
    if 0 < limits.max_consumers < cfg.max_consumers:
        return refusals.MAXIMUM_CONSUMERS_LIMIT
    in_memory = cfg.storage is Storage.MEMORY
    exceeded = (
        refusals.MEMORY_RESOURCES_EXCEEDED if in_memory else refusals.STORAGE_RESOURCES_EXCEEDED
    )
    most = limits.max_memory if in_memory else limits.max_storage
    free = ctx.free_memory if in_memory else ctx.free_storage
    more = cfg.max_bytes if cfg.max_bytes >= 0 else 1
    if replaces is not None:
        more = max(max(cfg.max_bytes, 0) - max(replaces.max_bytes, 0), 0)
    kept = max(cfg.max_bytes, 0) - more if replaces is not None else 0
    copies = 1 if ctx.tiers else cfg.num_replicas  # a tier counts a stream once, not per replica
    wanted = _reserved_by_others(cfg, ctx) + _reservation(copies, more)
    if 0 <= most < wanted + _reservation(copies, kept):
        return exceeded
    return exceeded if more > free else None


def _reserved_by_others(cfg: StreamConfig, ctx: StreamContext) -> int:
    if _is_other_tier(cfg, ctx):
        return 0
    own = ctx.streams.get(cfg.name)
    if ctx.reserved is not None:
        is_counted = own is not None and own.storage is cfg.storage
        return ctx.reserved[cfg.storage] - (reservation_of(own) if own and is_counted else 0)
    return sum(
        reservation_of(other)
        for other in ctx.streams.values()
        if other.name != cfg.name and other.storage is cfg.storage
    )


def reservation_of(cfg: StreamConfig) -> int:
    """Return the bytes that the account reserves for a stream."""
    return _reservation(cfg.num_replicas, cfg.max_bytes)


def _reservation(replicas: int, size: int) -> int:
    """Return the reserved bytes; an account pays for every replica."""
    return max(replicas, 1) * max(size, 0)


# -- update


def plan_update(name: str, cfg: StreamConfig, ctx: StreamContext) -> StreamConfig | ApiError:
    """Return the configuration to store for a request to update `name`, or the refusal."""
    return finish(plan_update_sliced(name, cfg, ctx))


def plan_update_sliced(
    name: str, cfg: StreamConfig, ctx: StreamContext
) -> Sliced[StreamConfig | ApiError]:
    """Do the work of `plan_update` in slices."""
    refused = yield from check_stream_sliced(cfg, ctx)
    if refused is not None:
        return refused
    if name != cfg.name:
        return refusals.STREAM_MISMATCH
    old = ctx.streams.get(name)
    if old is None:
        return refusals.STREAM_NOT_FOUND
    return (yield from _check_update(old, cfg, ctx))


def check_update(
    old: StreamConfig, new: StreamConfig, ctx: StreamContext
) -> StreamConfig | ApiError:
    """Return the configuration to store if `old` may become `new`; the caller has checked `new`."""
    return finish(_check_update(old, new, ctx))


def _check_update(
    old: StreamConfig, new: StreamConfig, ctx: StreamContext
) -> Sliced[StreamConfig | ApiError]:
    """Do the work of `check_update` in slices."""
    made = normalise(new, ctx)
    # As in the reference, the corrected configuration must pass the rules as well.
    refused = yield from check_stream_sliced(made, ctx)
    if refused is not None:
        return refused
    if made.num_replicas > 1 and not ctx.clustered:
        return refusals.STREAM_REPLICAS_NOT_SUPPORTED
    for rule in UPDATE_RULES:
        refused = rule(old, made)
        if refused is not None:
            return refused
    made = _republished(seal(made))
    refused = _over_limits(made, ctx, replaces=old) or _unfit_consumers(old, made, ctx)
    return refused or (yield from _overlap(made, ctx)) or _unfit_republish(made) or made


def _unfit_republish(cfg: StreamConfig) -> ApiError | None:
    """Check the republish mapping; the rules ran before `_republished` set the destination."""
    if cfg.republish is None:
        return None
    src, dest = cfg.republish.src, cfg.republish.dest
    try:
        Transform(src, dest)
    except TransformFault as fault:
        words = f"stream configuration for republish from '{src}' to '{dest}': {fault}"
        return refusals.STREAM_UPDATE(err=words)
    return None


def _republished(cfg: StreamConfig) -> StreamConfig:
    """On update, an empty republish destination means `>`; on creation it republishes nothing."""
    if cfg.republish is None or cfg.republish.dest:
        return cfg
    return structs.replace(cfg, republish=structs.replace(cfg.republish, dest=ANY_TAIL))


def _unfit_consumers(old: StreamConfig, new: StreamConfig, ctx: StreamContext) -> ApiError | None:
    """Refuse a new consumer limit that an existing consumer exceeds."""
    was, now = old.consumer_limits, new.consumer_limits
    idle, pending = now.inactive_threshold, now.max_ack_pending
    is_tightened = (0 < idle != was.inactive_threshold) or (0 < pending != was.max_ack_pending)
    unfit = [
        name
        for name, uses in ctx.consumers.items()
        if 0 < idle < uses.inactive_threshold or 0 < pending < uses.max_ack_pending
    ]
    if is_tightened and unfit:
        return refusals.STREAM_UPDATE(
            err=f"change to limits violates consumers: {', '.join(unfit)}"
        )
    return None


def _storage(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if new.storage is not old.storage:
        return invalid("stream configuration update can not change storage type")
    return None


def _retention(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if new.retention is not old.retention and Retention.WORKQUEUE in (old.retention, new.retention):
        change = "stream configuration update can not change retention policy"
        return invalid(f"{change} to/from workqueue")
    return None


def _stays_set(field: str, text: str) -> Change:
    """Return a rule that refuses to clear `field` once it is set."""

    def rule(old: StreamConfig, new: StreamConfig) -> ApiError | None:
        return invalid(text) if getattr(old, field) and not getattr(new, field) else None

    return rule


def _mirror(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    """Allow a mirror to become an independent stream, but not to change its origin."""
    if new.mirror is not None and new.mirror != old.mirror:
        return refusals.STREAM_MIRROR_NOT_UPDATABLE
    return None


def _counter(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if new.allow_msg_counter != old.allow_msg_counter:
        return invalid("stream configuration update can not change message counter setting")
    return None


def _persist_mode(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if new.persist_mode is not old.persist_mode:
        return invalid("stream configuration update can not change persist mode")
    return None


UPDATE_RULES: Final[tuple[Change, ...]] = (
    _storage,
    _retention,
    _stays_set("sealed", "stream configuration update can not unseal a sealed stream"),
    _stays_set("deny_delete", "stream configuration update can not cancel deny message deletes"),
    _stays_set("deny_purge", "stream configuration update can not cancel deny purge"),
    _mirror,
    _stays_set("allow_msg_ttl", "message TTL status can not be disabled"),
    _counter,
    _stays_set("allow_msg_schedules", "message schedules can not be disabled"),
    _persist_mode,
)
