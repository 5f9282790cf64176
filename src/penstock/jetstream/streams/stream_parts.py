"""The parts that a stream builds from its configuration: transform, republisher and limits.

Everything that can fail while building fails here, with an exception, before a configuration is
stored or takes effect. `Stream.plan_update` and the code that creates a stream call `build_parts`
first; the planner and the applier only use the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.api.rules.source_rules import copies_of
from penstock.jetstream.streams.republish import Republisher
from penstock.jetstream.streams.retention import limits_of
from penstock.jetstream.streams.source_progress import Progress
from penstock.subjects.transform import Transform

if TYPE_CHECKING:
    from penstock.api.stream_config import StreamConfig
    from penstock.store.contract import Limits


class StreamParts(NamedTuple):
    """The parts of one configuration."""

    transform: Transform | None
    republisher: Republisher | None
    limits: Limits


def build_parts(cfg: StreamConfig) -> StreamParts:
    """Build all parts; raise if the configuration cannot take effect."""
    mapped, again = cfg.subject_transform, cfg.republish
    for copy in copies_of(cfg):
        Progress(copy)  # validates the transforms; the source reader creates its own
    return StreamParts(
        transform=Transform(mapped.src, mapped.dest) if mapped and mapped.dest else None,
        republisher=Republisher(cfg.name, again) if again and again.dest else None,
        limits=limits_of(cfg),
    )
