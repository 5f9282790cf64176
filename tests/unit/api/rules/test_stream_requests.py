"""Creating and changing streams: what is filled in, what is for good, what accounts can promise."""

from __future__ import annotations

import random
from typing import get_type_hints

import pytest
from msgspec import structs

from penstock.api import refusals
from penstock.api.account_usage import AccountLimits
from penstock.api.json_codec import marks_of
from penstock.api.refusals import ApiError
from penstock.api.rules.stream_defaults import StreamContext, normalise, required_level, shown
from penstock.api.rules.stream_requests import check_update, plan_create, plan_update
from penstock.api.rules.stream_rules import check_stream
from penstock.api.stream_config import (
    ConsumerLimits,
    PersistMode,
    Republish,
    Storage,
    StreamConfig,
    SubjectTransform,
)
from support.streams import NAME, SECOND, asked, drawn, origins

CTX = StreamContext()
AROUND = origins()
HINTS = get_type_hints(StreamConfig, include_extras=True)
FIXED = [name for name, hint in HINTS.items() if "fixed" in marks_of(hint)]
OTHER_VALUES = {
    "name": "other",
    "storage": Storage.MEMORY,
    "allow_msg_counter": True,
    "persist_mode": PersistMode.ASYNC,
}


def made(cfg: StreamConfig, ctx: StreamContext = CTX) -> StreamConfig:
    planned = plan_create(cfg.name, cfg, ctx)
    assert isinstance(planned, StreamConfig), planned
    return planned


def refused(answer: StreamConfig | ApiError) -> ApiError:
    assert isinstance(answer, ApiError), answer
    return answer


# -- what is filled in


def test_unset_fields_get_defaults() -> None:
    cfg = made(StreamConfig(name="S"))
    assert cfg.subjects == ("S",)
    assert cfg.num_replicas == 1
    assert cfg.duplicate_window == 120 * SECOND
    unlimited = (cfg.max_msgs, cfg.max_bytes, cfg.max_msgs_per_subject)
    assert unlimited == (-1, -1, -1)
    assert (cfg.max_msg_size, cfg.max_consumers) == (-1, -1)
    assert cfg.metadata == {"_nats.req.level": "0"}
    assert shown(cfg).metadata.keys() == {"_nats.req.level", "_nats.ver", "_nats.level"}


@pytest.mark.parametrize("seed", range(5))
def test_normalising_twice_changes_nothing(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        planned = asked("CREATE", NAME, drawn(draw, draw.randint(1, 4)), AROUND)
        if isinstance(planned, StreamConfig):
            again = StreamContext(streams=AROUND)
            assert normalise(planned, again) == planned


def test_short_life_shortens_window() -> None:
    assert made(StreamConfig(name="S", max_age=SECOND)).duplicate_window == SECOND


def test_markers_need_ttls_and_rollups_and_bring_them() -> None:
    cfg = made(StreamConfig(name="S", subject_delete_marker_ttl=SECOND, deny_purge=True))
    assert cfg.allow_msg_ttl
    assert cfg.allow_rollup_hdrs
    assert not cfg.deny_purge


def test_everything_may_be_republished_as_it_was_transformed() -> None:
    transform = SubjectTransform(src="a", dest="b")
    cfg = StreamConfig(
        name="S", subjects=("a",), subject_transform=transform, republish=Republish(dest=">")
    )
    assert made(cfg).republish == Republish(src="b", dest="b")


def test_every_field_of_level_needs_that_level() -> None:
    for name, hint in HINTS.items():
        marks = marks_of(hint)
        default = getattr(StreamConfig(), name)
        value = PersistMode.ASYNC if name == "persist_mode" else not default
        if isinstance(default, bool) or name in ("persist_mode", "subject_delete_marker_ttl"):
            cfg = structs.replace(StreamConfig(), **{name: value})
            assert required_level(cfg) == marks.get("since", 0), name


# -- updates


@pytest.mark.parametrize("field", FIXED)
def test_fixed_field_cannot_be_changed(field: str) -> None:
    old = made(StreamConfig(name="S"))
    new = structs.replace(old, **{field: OTHER_VALUES[field]})
    ctx = StreamContext(streams={"S": old})
    answer = plan_update("S", new, ctx)
    assert refused(answer).err_code == (10056 if field == "name" else 10052)


def test_update_to_the_same_changes_nothing() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        old = asked("CREATE", NAME, drawn(draw, draw.randint(1, 3)), AROUND)
        if isinstance(old, ApiError) or old.republish == Republish(src=">"):
            continue
        if check_stream(old, ctx := around(old)) is None:
            assert check_update(old, old, ctx) == old


def around(old: StreamConfig) -> StreamContext:
    return StreamContext(streams={**AROUND, old.name: old})


def test_update_may_not_break_consumers_there_are() -> None:
    old = made(StreamConfig(name="S"))
    new = structs.replace(old, consumer_limits=ConsumerLimits(max_ack_pending=10))
    uses = {"a": ConsumerLimits(max_ack_pending=50), "b": ConsumerLimits(max_ack_pending=10)}
    ctx = StreamContext(streams={"S": old}, consumers=uses)
    assert plan_update("S", new, ctx) == refusals.STREAM_UPDATE(
        err="change to limits violates consumers: a"
    )
    assert plan_update("S", new, ctx._replace(consumers={"b": uses["b"]})) == new


def test_update_may_not_take_subjects_of_others() -> None:
    old, other = made(StreamConfig(name="S")), made(StreamConfig(name="O"))
    ctx = StreamContext(streams={"S": old, "O": other})
    taken = structs.replace(old, subjects=("S", "O"))
    assert plan_update("S", taken, ctx) == refusals.STREAM_SUBJECT_OVERLAP


# -- creating again


def test_same_stream_again_is_one_that_is_there() -> None:
    there = made(StreamConfig(name="S", metadata={"k": "v"}))
    older = structs.replace(there, metadata={"k": "v", "_nats.req.level": "9"})
    ctx = StreamContext(streams={"S": older})
    assert plan_create("S", StreamConfig(name="S", metadata={"k": "v"}), ctx) is older
    assert plan_create("S", StreamConfig(name="S"), ctx) == refusals.STREAM_NAME_EXIST


# -- limits


def test_account_promises_no_more_than_it_has() -> None:
    there = made(StreamConfig(name="A", max_bytes=60))
    ctx = StreamContext(streams={"A": there}, limits=AccountLimits(max_storage=100))
    assert made(StreamConfig(name="B", max_bytes=40), ctx).max_bytes == 40
    too_much = plan_create("B", StreamConfig(name="B", max_bytes=41), ctx)
    assert too_much == refusals.STORAGE_RESOURCES_EXCEEDED
    in_memory = StreamConfig(name="B", max_bytes=41, storage=Storage.MEMORY)
    assert made(in_memory, ctx).max_bytes == 41


def test_only_what_stream_grows_by_is_asked_of_server() -> None:
    old = made(StreamConfig(name="S", max_bytes=100))
    ctx = StreamContext(streams={"S": old}, free_storage=10)
    assert check_update(old, structs.replace(old, max_bytes=110), ctx).max_bytes == 110  # type: ignore[union-attr]
    grown = check_update(old, structs.replace(old, max_bytes=111), ctx)
    assert grown == refusals.STORAGE_RESOURCES_EXCEEDED
    assert check_update(old, structs.replace(old, max_bytes=5), ctx._replace(free_storage=0))


def test_account_has_so_many_streams() -> None:
    ctx = StreamContext(streams={"A": made(StreamConfig(name="A"))})
    full = ctx._replace(limits=AccountLimits(max_streams=1))
    assert plan_create("B", StreamConfig(name="B"), full) == refusals.MAXIMUM_STREAMS_LIMIT
    assert plan_create("A", StreamConfig(name="A"), full) == ctx.streams["A"]


def test_account_may_want_to_know_sizes() -> None:
    ctx = StreamContext(limits=AccountLimits(max_bytes_required=True, storage_max_stream_bytes=9))
    unsized = plan_create("A", StreamConfig(name="A"), ctx)
    assert unsized == refusals.STREAM_MAX_BYTES_REQUIRED
    large = plan_create("A", StreamConfig(name="A", max_bytes=10), ctx)
    assert large == refusals.STREAM_MAX_STREAM_BYTES_EXCEEDED
