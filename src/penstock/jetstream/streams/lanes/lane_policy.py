"""Which streams have a fast lane, and what it may take: the rules around `lane.StreamLane`.

The lane knows appending, ids, expectations and the limits by number, size and subject. A stream
that needs anything else for an ordinary message keeps its lane closed, and every message goes
through `Stream.plan`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api.stream_config import Discard, Retention
from penstock.jetstream.streams.lanes.publish_lane import StreamLane
from penstock.jetstream.streams.pubacks import PubAcks
from penstock.store.contract import Removed
from penstock.store.indexed_store import IndexedStore

if TYPE_CHECKING:
    from penstock.api.stream_config import StreamConfig
    from penstock.broker.router import LaneOwner, Router
    from penstock.jetstream.streams.stream import Stream
    from penstock.subjects.trie import SubList

NO_PAYLOAD_LIMIT: Final = 2**31


def make_lane(
    stream: Stream,
    router: Router,
    interest: SubList,
    *,
    call: object,
    owner: LaneOwner,
    domain: str,
) -> StreamLane | None:
    """The lane of a stream; None if its store has none. It is closed until it is configured."""
    store = stream.store
    if not isinstance(store, IndexedStore):
        return None
    return StreamLane(
        router=router,
        interest=interest,
        call=call,
        owner=owner,
        prefix=PubAcks(stream.cfg.name, domain).prefix,
        name=stream.cfg.name.encode(),
        ids=stream.ids,
        batches=stream.gatherings,
        **store.lane_parts(),
    )


def configure_lane(lane: StreamLane, cfg: StreamConfig, *, is_free: bool) -> None:
    """Opens the lane as far as the configuration allows, unless something is in its way."""
    lane.configure(
        is_open=is_free and is_ordinary(cfg),
        packs=is_packed(cfg),
        acks_wanted=not cfg.no_ack,
        discard_new=cfg.discard is Discard.NEW,
        msgs_max=cfg.max_msgs,
        bytes_max=cfg.max_bytes,
        per_subject_max=cfg.max_msgs_per_subject,
        payload_max=cfg.max_msg_size if cfg.max_msg_size > 0 else NO_PAYLOAD_LIMIT,
    )


def is_ordinary(cfg: StreamConfig) -> bool:
    """Whether a message that says nothing special needs only to be appended, and limits kept."""
    return not (
        cfg.sealed
        or cfg.allow_msg_counter
        or cfg.subject_transform is not None
        or (cfg.republish is not None and cfg.republish.dest)
        or cfg.discard_new_per_subject
        or cfg.retention is Retention.INTEREST
        or cfg.mirror is not None
        or cfg.allow_msg_schedules
    )


def is_packed(cfg: StreamConfig) -> bool:
    """Whether messages of an atomic batch that say nothing special need no judgement, either: no
    limit refuses them."""
    return cfg.allow_atomic and cfg.discard is not Discard.NEW and is_ordinary(cfg)


def removed_one_by_one(seqs: list[int]) -> Removed:
    """What the lane's limits took out, as a store would report it; sizes are not known."""
    return Removed(len(seqs), 0, tuple((seq, seq) for seq in sorted(seqs)))
