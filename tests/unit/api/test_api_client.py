"""The JSON API client: requests and replies as values."""

from __future__ import annotations

import base64
import json

import pytest

from penstock.api.api_client import ApiClient, MalformedReply, read_message, read_reply
from penstock.api.refusals import STREAM_NOT_FOUND, ApiError


def test_request_has_prefix_of_its_api() -> None:
    assert ApiClient().request("STREAM.NAMES") == ("$JS.API.STREAM.NAMES", b"")
    assert ApiClient("hub").request("INFO", {}) == ("$JS.hub.API.INFO", b"{}")
    assert ApiClient(prefix="mapped").request("INFO").subject == "mapped.INFO"


def test_consumer_request_names_its_only_filter_in_subject() -> None:
    plain = ApiClient().consumer_create("S", {"name": "c"})
    assert plain.subject == "$JS.API.CONSUMER.CREATE.S.c"
    assert json.loads(plain.payload) == {
        "stream_name": "S",
        "config": {"name": "c"},
        "action": "create",
    }
    filtered = ApiClient().consumer_create("S", {"name": "c", "filter_subject": "a.>"})
    assert filtered.subject == "$JS.API.CONSUMER.CREATE.S.c.a.>"


def test_refusal_is_raised_with_its_codes() -> None:
    raw = b'{"error":{"code":404,"err_code":10059,"description":"stream not found"}}'
    with pytest.raises(ApiError) as refused:
        read_reply(raw)
    assert refused.value == STREAM_NOT_FOUND
    with pytest.raises(ApiError) as refused:
        read_reply(b'{"error":{"code":500}}')
    assert (refused.value.code, refused.value.err_code) == (500, 0)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"7", b"\xff"])
def test_reply_that_is_no_object_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedReply):
        read_reply(raw)


def test_message_without_header_and_payload_is_read() -> None:
    message = {"subject": "a", "seq": 7, "time": "2026-01-01T00:00:00Z"}
    assert read_message({"message": message}) == ("a", 7, message["time"], b"", b"")
    message["data"] = base64.b64encode(b"x").decode()
    assert read_message({"message": message}).payload == b"x"
