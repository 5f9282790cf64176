"""What a stream builds from its configuration, apart from what it stores.

Everything that building can refuse is refused here, by an exception, before a configuration is
written down or put into force. `Stream.plan_update` and whoever makes a stream call `build_parts`
first; the planner and the applier only pick up what was built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.api.source_rules import copies_of
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
    """Build everything; raises if the configuration cannot be put into force."""
    mapped, again = cfg.subject_transform, cfg.republish
    for copy in copies_of(cfg):
        Progress(copy)  # which builds its transforms; the feed makes one of its own
    return StreamParts(
        transform=Transform(mapped.src, mapped.dest) if mapped and mapped.dest else None,
        republisher=Republisher(cfg.name, again) if again and again.dest else None,
        limits=limits_of(cfg),
    )
