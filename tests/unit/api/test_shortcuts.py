"""The marks of configuration fields: which shortcuts a configuration forbids."""

from typing import Annotated

import pytest
from msgspec import Struct
from msgspec.structs import replace

from penstock.api.consumer_config import CONSUMER_SHORTCUTS, ConsumerConfig, PriorityPolicy
from penstock.api.shortcuts import ALLOWS, ENFORCED, STORING, Shortcut, ShortcutRules, forbids
from penstock.api.stream_config import (
    STREAM_SHORTCUTS,
    Discard,
    Republish,
    Retention,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

STREAM_FIELDS = {
    "retention": (Retention.INTEREST, STORING | Shortcut.PLAN),
    "max_age": (1, Shortcut.TIMELESS),
    "discard": (Discard.NEW, Shortcut.STAGE | Shortcut.PLAN),
    "mirror": (StreamSource(name="O"), Shortcut.LANE | Shortcut.STAGE),
    "subject_transform": (SubjectTransform(src="a", dest="b"), STORING | Shortcut.PLAN),
    "republish": (Republish(src="a", dest="b"), STORING | Shortcut.APPLY),
    "discard_new_per_subject": (True, STORING | Shortcut.PLAN),
    "sealed": (True, STORING | Shortcut.PLAN),
    "allow_msg_ttl": (True, Shortcut.TIMELESS),
    "allow_msg_counter": (True, STORING | Shortcut.PLAN),
    "allow_atomic": (True, Shortcut.TIMELESS),
    "allow_msg_schedules": (True, STORING | Shortcut.APPLY | Shortcut.TIMELESS),
    "allow_batched": (True, Shortcut.TIMELESS),
}

CONSUMER_FIELDS = {
    "rate_limit_bps": (1, Shortcut.RUN),
    "sample_freq": ("50%", Shortcut.ACK),
    "priority_policy": (PriorityPolicy.OVERFLOW, Shortcut.REQUEST),
}


class TestFieldWithoutMark:
    def test_raises_and_names_field(self) -> None:
        class Config(Struct):
            marked: Annotated[int, ALLOWS] = 0
            unmarked: int = 0

        with pytest.raises(TypeError, match=r"Config\.unmarked needs exactly one"):
            ShortcutRules(Config)

    def test_raises_if_annotation_has_other_metadata_only(self) -> None:
        class Config(Struct):
            size: Annotated[int, "bytes"] = 0

        with pytest.raises(TypeError, match=r"Config\.size"):
            ShortcutRules(Config)

    def test_raises_if_field_has_two_marks(self) -> None:
        class Config(Struct):
            size: Annotated[int, ALLOWS, ENFORCED] = 0

        with pytest.raises(TypeError, match=r"Config\.size"):
            ShortcutRules(Config)


class TestForbids:
    def test_without_values_forbids_every_value_but_default(self) -> None:
        class Config(Struct):
            size: Annotated[int, forbids(Shortcut.LANE)] = 5

        rules = ShortcutRules(Config)
        assert rules.allow(Config(), Shortcut.LANE)
        assert not rules.allow(Config(size=0), Shortcut.LANE)

    def test_with_values_forbids_only_these(self) -> None:
        class Config(Struct):
            size: Annotated[int, forbids(Shortcut.LANE, 1, 2)] = 1

        rules = ShortcutRules(Config)
        assert [rules.allow(Config(size=size), Shortcut.LANE) for size in (0, 1, 2, 3)] == [
            True,
            False,
            False,
            True,
        ]

    def test_unites_what_several_fields_forbid(self) -> None:
        cfg = StreamConfig(max_age=1, sealed=True)
        expected = Shortcut.TIMELESS | STORING | Shortcut.PLAN
        assert STREAM_SHORTCUTS.forbidden(cfg) == expected


class TestStreamFields:
    def test_default_configuration_allows_every_shortcut(self) -> None:
        assert not STREAM_SHORTCUTS.forbidden(StreamConfig(name="S", subjects=("s",)))

    @pytest.mark.parametrize("field", sorted(STREAM_FIELDS))
    def test_field_forbids_its_shortcuts_and_no_other(self, field: str) -> None:
        value, expected = STREAM_FIELDS[field]
        cfg = replace(StreamConfig(name="S"), **{field: value})
        assert STREAM_SHORTCUTS.forbidden(cfg) == expected

    def test_work_queues_and_limits_keep_lane(self) -> None:
        cfg = StreamConfig(
            retention=Retention.WORKQUEUE,
            max_msgs=5,
            max_bytes=5,
            max_msgs_per_subject=1,
            max_msg_size=10,
            duplicate_window=1,
            no_ack=True,
        )
        assert not STREAM_SHORTCUTS.forbidden(cfg)


class TestConsumerFields:
    def test_default_configuration_allows_every_shortcut(self) -> None:
        assert not CONSUMER_SHORTCUTS.forbidden(ConsumerConfig(durable_name="C"))

    @pytest.mark.parametrize("field", sorted(CONSUMER_FIELDS))
    def test_field_forbids_its_shortcuts_and_no_other(self, field: str) -> None:
        value, expected = CONSUMER_FIELDS[field]
        cfg = replace(ConsumerConfig(durable_name="C"), **{field: value})
        assert CONSUMER_SHORTCUTS.forbidden(cfg) == expected
