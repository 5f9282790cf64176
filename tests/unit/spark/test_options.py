"""Options are read as declared, refused with a hint, and keep their secrets."""

from __future__ import annotations

import pickle
import re

import msgspec
import pytest

from penstock.spark.options import (
    KAFKA_NAMES,
    ConnectionOptions,
    OptionError,
    check_connection,
    parse,
)
from penstock.spark.read.source_options import ReadOptions

URL = {"url": "nats://127.0.0.1:4222"}


def test_names_are_read_in_any_case() -> None:
    found = parse(ReadOptions, {"URL": "nats://a", "STREAM": "S", "maxoffsetspertrigger": "5"})
    assert (found.url, found.stream, found.max_offsets_per_trigger) == ("nats://a", "S", 5)


def test_path_names_stream() -> None:
    assert parse(ReadOptions, {**URL, "path": "S"}, path="stream").stream == "S"
    with pytest.raises(OptionError, match="unknown option path"):
        parse(ReadOptions, {**URL, "path": "S"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingSequence": "1"}, "unknown option startingSequence: did you mean startingSeq?"),
        ({"zzz": "1"}, "unknown option zzz$"),
        ({"retries": "many"}, "option retries: expected `int`"),
        ({"retries": "-1"}, "option retries: expected `int` >= 0"),
        ({"failOnDataLoss": "perhaps"}, "option failOnDataLoss: expected `bool"),
        ({"readMode": "best"}, "option readMode: invalid enum value"),
    ],
)
def test_wrong_option_is_reported_by_name(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse(ReadOptions, {**URL, "stream": "S", **given})


def test_missing_fields_are_reported() -> None:
    with pytest.raises(OptionError, match="option url, stream is missing"):
        parse(ReadOptions, {})


def test_options_added_by_spark_are_ignored() -> None:
    assert parse(ConnectionOptions, {**URL, "checkpointLocation": "/tmp/x"}).url == URL["url"]


@pytest.mark.parametrize("name", ["url", "password", "token", "creds", "nkeySeed"])
def test_no_secret_is_shown(name: str) -> None:
    found = parse(ConnectionOptions, {**URL, name: "nats://u:hush@host"})
    assert "hush" not in repr(found)
    assert "hush" not in str(found)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"user": "a", "token": "b"}, "give one of user, token"),
        ({"url": "nats://a:b@c", "token": "b"}, "give one of credentials in url, token"),
        ({"domain": "a", "apiPrefix": "b"}, "one of domain, apiPrefix"),
        ({"tlsCert": "a"}, "tlsCert and tlsKey belong together"),
        ({"url": "http://a"}, "option url: .*not http"),
    ],
)
def test_contradictions_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        check_connection(parse(ConnectionOptions, {**URL, **given}))


def test_kafka_option_names_are_mapped_to_ours() -> None:
    for name, ours in (("startingOffsets", "startingSeq"), ("kafka.bootstrap.servers", "url")):
        with pytest.raises(OptionError, match=f"unknown option {name}: .* is {ours} here"):
            parse(ReadOptions, {"url": "nats://a", "stream": "S", name: "x"})


def test_every_name_of_kafkas_leads_to_option_that_exists() -> None:
    known = {field.encode_name for field in msgspec.structs.fields(ReadOptions)}
    for hint in KAFKA_NAMES.values():
        assert known & set(re.findall(r"[A-Za-z]+", hint)), hint


def test_options_added_by_catalog_table_are_ignored() -> None:
    given = {"url": "nats://a", "option.stream": "S", "option.url": "nats://b", "path": "file:/t"}
    found = parse(ReadOptions, given, path="stream")
    assert (found.url, found.stream) == ("nats://a", "S")
