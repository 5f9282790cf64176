"""The published schemas describe what the servers say.

Answers of the whole suite are checked as they come; here the rest is: that the schemas are there
at all, and publish acknowledgements, which carry no type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.schemas import PUB_ACK, SCHEMAS, check_shape

if TYPE_CHECKING:
    from support.assets import JetStream


def test_replies_match_published_schemas() -> None:
    if SCHEMAS is None:
        pytest.skip("PENSTOCK_SCHEMAS names no schemas: shapes of answers go unchecked")
    assert (SCHEMAS / "api" / "v1" / "stream_create_response.json").exists()


@pytest.mark.parametrize(
    "headers",
    [{}, {"Nats-Msg-Id": "twice"}, {"Nats-Expected-Stream": "other"}, {"Nats-TTL": "1"}],
    ids=["plain", "duplicate", "wrong stream", "not allowed"],
)
def test_publish_ack_matches_its_schema(jetstream: JetStream, headers: dict[str, str]) -> None:
    stream = jetstream.stream()
    for _ in range(2):
        check_shape(PUB_ACK, jetstream.publish_ack(stream.subject("a"), b"x", headers or None))
