"""Fill in the defaults of a stream's configuration: `normalise`.

`StreamContext` holds everything about the server and the account against which a configuration is
checked. Pure functions; normalising twice changes nothing. Rules check the configuration as given;
for the filled-in values they need, they call `subjects_of`, `window_of` and `republish_of`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, get_type_hints

from msgspec import structs

from penstock.api.account_usage import UNLIMITED, AccountLimits, tier_of
from penstock.api.api_levels import shown_metadata, stored_metadata
from penstock.api.json_codec import marks_of
from penstock.api.stream_config import ConsumerLimits, Discard, Placement, Republish, StreamConfig
from penstock.subjects.tokens import ANY_TAIL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.api.stream_config import Storage

MINUTE_NS: Final = 60_000_000_000
DUPLICATE_WINDOW_NS: Final = 2 * MINUTE_NS
NO_ROOM_LIMIT: Final = 2**63 - 1
#: Fields that are -1 when unlimited.
LIMIT_FIELDS: Final = (
    "max_msgs",
    "max_msgs_per_subject",
    "max_bytes",
    "max_msg_size",
    "max_consumers",
)


class StreamContext(NamedTuple):
    """The server and account state against which a stream's configuration is checked."""

    streams: Mapping[str, StreamConfig] = {}
    """All existing streams of the account, by name."""
    streams_on: Callable[[str], Iterable[str | None]] | None = None
    """Returns the names of streams whose subjects may overlap a subject; None: check all."""
    reserved: Mapping[Storage, int] | None = None
    """Bytes reserved by all streams, counting every replica; None: compute the sum."""
    limits: AccountLimits = AccountLimits()
    """Limits of the account; unused if it has tiers."""
    tiers: Mapping[str, AccountLimits] = {}
    """Limits by tier."""
    pedantic: bool = False
    """Refuse values that would otherwise be corrected."""
    duplicate_window_max: int = 0
    """The server's limit; 0 means no limit."""
    free_memory: int = NO_ROOM_LIMIT
    """Bytes of memory that the server can still reserve for streams."""
    free_storage: int = NO_ROOM_LIMIT
    """Bytes of file storage that the server can still reserve for streams."""
    storage_given: bool = True
    """Whether the request names a storage type; if not, limits are checked after normalising."""
    clustered: bool = False
    consumers: Mapping[str, ConsumerLimits] = {}
    """What each consumer of the stream uses; checked on update."""

    def limits_for(self, replicas: int) -> AccountLimits | None:
        """Return the limits for a stream with `replicas` replicas; None if its tier has none."""
        return self.tiers.get(tier_of(replicas)) if self.tiers else self.limits


def normalise(cfg: StreamConfig, ctx: StreamContext) -> StreamConfig:
    """Return the configuration with defaults and corrections; the caller has applied the rules."""
    forces_rollup = cfg.subject_delete_marker_ttl > 0 or cfg.allow_msg_schedules
    rolls_up_by_force = forces_rollup and not cfg.allow_rollup_hdrs
    filled = {name: getattr(cfg, name) for name in LIMIT_FIELDS}
    return structs.replace(
        cfg,
        **{name: value if value > 0 else UNLIMITED for name, value in filled.items()},
        subjects=subjects_of(cfg),
        num_replicas=cfg.num_replicas or 1,
        duplicate_window=window_of(cfg, ctx),
        placement=None if cfg.placement == Placement() else cfg.placement,
        republish=republish_of(cfg),
        mirror_direct=_mirror_direct(cfg, ctx),
        allow_rollup_hdrs=cfg.allow_rollup_hdrs or forces_rollup,
        deny_purge=cfg.deny_purge and not rolls_up_by_force,
        allow_msg_ttl=cfg.allow_msg_ttl or cfg.subject_delete_marker_ttl > 0,
        metadata=stored_metadata(cfg.metadata, required_level(cfg)),
    )


def subjects_of(cfg: StreamConfig) -> tuple[str, ...]:
    """Return the captured subjects; the default is the name, but none for mirrors and sources."""
    if cfg.subjects or cfg.mirror is not None or cfg.sources:
        return cfg.subjects
    return (cfg.name,)


def default_window(ctx: StreamContext) -> int:
    """Return the default duplicate window: 2 minutes, or the server's limit if that is shorter."""
    if ctx.duplicate_window_max > 0:
        return min(DUPLICATE_WINDOW_NS, ctx.duplicate_window_max)
    return DUPLICATE_WINDOW_NS


def window_of(cfg: StreamConfig, ctx: StreamContext) -> int:
    """Return the duplicate window of the stream."""
    if cfg.duplicate_window or cfg.mirror is not None or cfg.sources:
        return cfg.duplicate_window
    window = default_window(ctx)
    return min(window, cfg.max_age) if cfg.max_age else window


def republishes_transformed(cfg: StreamConfig) -> bool:
    """Return whether the stream republishes all messages under the subject of its own transform."""
    if cfg.republish is None or cfg.subject_transform is None:
        return False
    takes_all = (cfg.republish.src or ANY_TAIL) == ANY_TAIL == cfg.republish.dest
    return takes_all and subjects_of(cfg) == (cfg.subject_transform.src,)


def republish_of(cfg: StreamConfig) -> Republish | None:
    """Return the republish setting with defaults; an empty `src` matches everything."""
    if cfg.republish is None:
        return None
    if republishes_transformed(cfg) and cfg.subject_transform is not None:
        dest = cfg.subject_transform.dest
        return structs.replace(cfg.republish, src=dest, dest=dest)
    return structs.replace(cfg.republish, src=cfg.republish.src or ANY_TAIL)


def _mirror_direct(cfg: StreamConfig, ctx: StreamContext) -> bool:
    """Return the origin's `allow_direct` if the mirror's origin is visible, else the setting."""
    if cfg.mirror is None or cfg.mirror.external is not None:
        return cfg.mirror_direct
    origin = ctx.streams.get(cfg.mirror.name)
    return cfg.mirror_direct if origin is None else origin.allow_direct


def seal(cfg: StreamConfig) -> StreamConfig:
    """Return the configuration with the other fields that sealing implies."""
    if not cfg.sealed:
        return cfg
    return structs.replace(
        cfg,
        max_age=0,
        discard=Discard.NEW,
        deny_delete=True,
        deny_purge=True,
        allow_rollup_hdrs=False,
    )


def required_level(cfg: StreamConfig) -> int:
    """Return the API level that a server needs to hold this stream."""
    return max((level for name, level in _levels().items() if _is_used(cfg, name)), default=0)


def _is_used(cfg: StreamConfig, name: str) -> bool:
    return bool(getattr(cfg, name) != StreamConfig.__struct_defaults__[_position(name)])


@cache
def _position(name: str) -> int:
    return StreamConfig.__struct_fields__.index(name)


@cache
def _levels() -> dict[str, int]:
    hints = get_type_hints(StreamConfig, include_extras=True)
    marks = {name: marks_of(hint) for name, hint in hints.items()}
    return {name: found["since"] for name, found in marks.items() if "since" in found}


def shown(cfg: StreamConfig) -> StreamConfig:
    """Return the configuration as replies show it."""
    return structs.replace(cfg, metadata=shown_metadata(cfg.metadata))
