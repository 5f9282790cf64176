"""Whose credentials count, what is never shown, and what a bucket is made of."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from penstock.base import nkeys
from penstock.kv.bucket import differences, stream_config
from penstock.kv.bucket_writer import duration
from penstock.kv.contract import BucketConfig
from penstock.kv.kv_connection import NatsConfig

if TYPE_CHECKING:
    from pathlib import Path

SEED = nkeys.encode_seed(nkeys.KeyKind.USER, bytes(range(32)))


def credentials_file(jwt: str) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )


def test_inline_credentials_come_first_then_file_then_url(tmp_path: Path) -> None:
    path = tmp_path / "secret.creds"
    path.write_text(credentials_file("from.file"))
    inline = base64.b64encode(credentials_file("from.inline").encode()).decode()
    url = "nats://amy:sesame@h"
    first = NatsConfig.of(url, inline_credentials=inline, credentials_file=path)
    second = NatsConfig.of(url, credentials_file=path)
    third = NatsConfig.of(url)
    assert [one.credentials.jwt for one in (first, second, third)] == [
        "from.inline",
        "from.file",
        "",
    ]
    assert (first.credentials.user, third.credentials.user) == ("", "amy")
    assert not NatsConfig.of("h").credentials
    for shown in map(repr, (first, second, third)):
        for secret in ("sesame", "amy", "from.", SEED, str(path)):
            assert secret not in shown


def test_inline_credentials_that_are_none_are_refused_without_quoting_them() -> None:
    for text in ("not base64!", base64.b64encode(b"my secret").decode()):
        with pytest.raises(ValueError, match="credentials file") as refusal:
            NatsConfig.of(inline_credentials=text)
        assert text not in str(refusal.value)


def test_bucket_is_stream_as_convention_has_it() -> None:
    made = stream_config("b", BucketConfig(history=5, max_age=60, max_bytes=10, marker_ttl=2))
    assert made["name"] == "KV_b"
    assert made["subjects"] == ["$KV.b.>"]
    assert (made["max_msgs_per_subject"], made["max_bytes"]) == (5, 10)
    assert made["max_age"] == made["duplicate_window"] == 60_000_000_000
    assert (made["allow_msg_ttl"], made["subject_delete_marker_ttl"]) == (True, 2_000_000_000)
    assert "allow_msg_ttl" not in stream_config("b", BucketConfig())


def test_history_is_bounded() -> None:
    for history in (0, 65):
        with pytest.raises(ValueError, match="history"):
            BucketConfig(history=history)


def test_differences_leave_out_what_is_empty_on_both_sides() -> None:
    assert differences({"a": 0, "b": 1, "c": False}, {"b": 2, "d": 3}) == ["b"]


def test_time_to_live_is_written_in_milliseconds() -> None:
    assert duration(1.5) == "1500ms"
