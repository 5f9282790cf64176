"""Flags follow the declarations of the API, and send only what was given."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from msgspec.structs import fields

from penstock.api.consumer_config import ConsumerConfig
from penstock.api.json_codec import marks_of
from penstock.api.stream_config import StreamConfig
from penstock.cli.command_spec import parser_of
from penstock.cli.commands import consumer_command, stream_command
from penstock.cli.config_flags import (
    DEST,
    LEFT_OUT,
    config_arguments,
    config_given,
    differences,
    merged,
    sendable,
)


def parsed(action: str, *words: str, noun: Any = stream_command.NOUN) -> dict[str, Any]:
    command = noun.find(action)
    assert command is not None
    return config_given(parser_of(command, "x").parse_args(list(words)))


@pytest.mark.parametrize("kind", [StreamConfig, ConsumerConfig])
def test_every_field_of_configuration_has_flag(kind: Any) -> None:
    dests = {str(one.settings.get("dest", "")) for one in config_arguments(kind)}
    reached = {dest.removeprefix(DEST).partition(".")[0] for dest in dests}
    assert set(kind.__struct_fields__) - LEFT_OUT <= reached


@pytest.mark.parametrize("kind", [StreamConfig, ConsumerConfig])
def test_unchangeable_fields_have_no_flag_when_editing(kind: Any) -> None:
    hints = typing.get_type_hints(kind, include_extras=True)
    fixed = {f.name for f in fields(kind) if "fixed" in marks_of(hints[f.name])}
    dests = {one.settings.get("dest", "") for one in config_arguments(kind, editing=True)}
    assert fixed
    assert not {DEST + name for name in fixed} & dests


def test_unset_options_are_not_sent() -> None:
    assert parsed("add", "S") == {}


def test_flags_become_values_of_api() -> None:
    given = parsed(
        "add",
        "S",
        *("--subject", "a", "--subject", "b.>", "--max-age", "1h", "--max-bytes", "1KiB"),
        *("--no-allow-direct", "--discard", "new", "--metadata", "k=v", "--source", "O"),
        *("--mirror", "M", "--mirror-opt-start-seq", "7", "--placement-tags", "ssd"),
    )
    assert given == {
        "subjects": ["a", "b.>"],
        "max_age": 3_600_000_000_000,
        "max_bytes": 1024,
        "allow_direct": False,
        "discard": "new",
        "metadata": {"k": "v"},
        "sources": [{"name": "O"}],
        "mirror": {"name": "M", "opt_start_seq": 7},
        "placement": {"tags": ["ssd"]},
    }


def test_backoff_of_consumer_is_list_of_durations() -> None:
    given = parsed(
        "add", "S", "C", "--backoff", "1s", "--backoff", "1m", noun=consumer_command.NOUN
    )
    assert given == {"backoff": [1_000_000_000, 60_000_000_000]}


def test_edit_keeps_what_it_does_not_name() -> None:
    old = {"name": "S", "unknown": 1, "limits": {"a": 1, "b": 2}, "list": [1, 2]}
    new = merged(old, {"limits": {"b": 3}, "list": [3]})
    assert new == {"name": "S", "unknown": 1, "limits": {"a": 1, "b": 3}, "list": [3]}
    assert old["limits"] == {"a": 1, "b": 2}
    assert [row[0] for row in differences(old, new)] == ["limits", "list"]


def test_metadata_of_server_is_not_sent_back() -> None:
    assert sendable({"name": "S", "metadata": {"_nats.ver": "2", "a": "b"}})["metadata"] == {
        "a": "b"
    }
    assert sendable({"name": "S", "metadata": {"_nats.ver": "2"}}) == {"name": "S"}
