"""Lane policy: which streams have a fast lane, and what `publish_lane.StreamLane` may take.

The lane supports appends, ids, expectations and the limits by count, size and subject. The
declarations in `api.stream_config` name the fields that need more (`STREAM_SHORTCUTS`): with one of
them the lane stays closed, and every message goes through `Stream.plan`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api.shortcuts import Shortcut
from penstock.api.stream_config import STREAM_SHORTCUTS, Discard
from penstock.jetstream.streams.lanes.publish_lane import StreamLane
from penstock.jetstream.streams.pubacks import PubAcks
from penstock.store.contract import Removed
from penstock.store.indexed_store import IndexedStore

if TYPE_CHECKING:
    from penstock.api.stream_config import StreamConfig
    from penstock.broker.router import LaneListener, Router
    from penstock.jetstream.streams.stream import Stream
    from penstock.subjects.trie import SubList

NO_PAYLOAD_LIMIT: Final = 2**31


def make_lane(
    stream: Stream,
    router: Router,
    interest: SubList,
    *,
    listener: LaneListener,
    domain: str,
) -> StreamLane | None:
    """Create a stream's lane; None if its store has none. It is closed until configured."""
    store = stream.store
    if not isinstance(store, IndexedStore):
        return None
    return StreamLane(
        router=router,
        interest=interest,
        listener=listener,
        prefix=PubAcks(stream.cfg.name, domain).prefix,
        name=stream.cfg.name.encode(),
        ids=stream.ids,
        batches=stream.staged_batches,
        **store.lane_parts(),
    )


def configure_lane(lane: StreamLane, cfg: StreamConfig, *, is_free: bool) -> None:
    """Open the lane as far as the configuration allows; `is_free` False keeps it closed."""
    lane.configure(
        is_open=is_free and STREAM_SHORTCUTS.allow(cfg, Shortcut.LANE),
        packs=stages_batches(cfg),
        acks_wanted=not cfg.no_ack,
        discard_new=cfg.discard is Discard.NEW,
        msgs_max=cfg.max_msgs,
        bytes_max=cfg.max_bytes,
        per_subject_max=cfg.max_msgs_per_subject,
        payload_max=cfg.max_msg_size if cfg.max_msg_size > 0 else NO_PAYLOAD_LIMIT,
    )


def stages_batches(cfg: StreamConfig) -> bool:
    """Return whether messages of an atomic batch without other stream keys need no checks: no limit
    can reject them."""
    return cfg.allow_atomic and STREAM_SHORTCUTS.allow(cfg, Shortcut.STAGE)


def removed_one_by_one(seqs: list[int]) -> Removed:
    """Return what the lane's limits removed, in the store's format; sizes are unknown."""
    return Removed(len(seqs), 0, tuple((seq, seq) for seq in sorted(seqs)))
