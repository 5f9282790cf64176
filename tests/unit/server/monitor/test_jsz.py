"""/jsz and the metrics of JetStream: a long page gives way, and leaves out what goes meanwhile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import nats
import pytest

from penstock.server.monitor.jsz import JszOptions, jsz_steps
from penstock.server.monitor.server_metrics import metrics
from penstock.server.monitor.sliced_pages import pieces_of
from penstock.server.net.client_record import Now
from penstock.server.server_app import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator
    from pathlib import Path

    from nats.js import JetStreamContext

pytestmark = pytest.mark.sockets

EVERYTHING = JszOptions(accounts=True, streams=True, consumer=True)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with Server(jetstream=True, store_dir=str(tmp_path)) as running:
        yield running


@pytest.fixture
async def jetstream(server: Server) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(server.url)
    made = client.jetstream()
    for name in ("A", "B", "C"):
        await made.add_stream(name=name, subjects=[name.lower()])
        await made.publish(name.lower(), b"hello")
        for durable in ("one", "two"):
            await made.add_consumer(name, durable_name=durable)
    yield made
    await client.close()


def written(steps: Generator[None, None, Any]) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(b"".join(pieces_of(steps)))
    return page


def shown(page: dict[str, Any]) -> dict[str, list[str]]:
    return {
        stream["name"]: [consumer["name"] for consumer in stream.get("consumer_detail", ())]
        for stream in page["account_details"][0]["stream_detail"]
    }


@pytest.mark.usefixtures("jetstream")
async def test_there_is_step_for_every_stream_and_consumer(server: Server) -> None:
    page = written(jsz_steps(server.service, EVERYTHING, Now.read()))
    assert shown(page) == {name: ["one", "two"] for name in "ABC"}
    assert (page["streams"], page["consumers"], page["messages"]) == (3, 6, 3)
    assert len(list(jsz_steps(server.service, EVERYTHING, Now.read()))) == 3 + 6


async def test_messages_removed_between_steps_are_left_out(
    server: Server, jetstream: JetStreamContext
) -> None:
    steps = jsz_steps(server.service, EVERYTHING, Now.read())
    next(steps)  # of stream A
    next(steps)  # of its first consumer
    await jetstream.delete_consumer("A", "two")
    await jetstream.delete_stream("B")
    assert shown(written(steps)) == {"A": ["one"], "C": ["one", "two"]}


def page(server: Server) -> bytes:
    """The whole of /metrics; on a busy machine a part of it is made later."""
    made = metrics(server.service)
    return b"".join([made.body, *(made.rest or ())])


@pytest.mark.usefixtures("jetstream")
async def test_metrics_report_stream_contents(server: Server) -> None:
    text = page(server).decode()
    told = dict(line.split(" ") for line in text.splitlines() if "_jetstream_" in line[:20])
    assert told["penstock_jetstream_streams"] == "3.0"
    assert told["penstock_jetstream_consumers"] == "6.0"
    assert told["penstock_jetstream_stored_messages"] == "3.0"
    assert told["penstock_jetstream_refusing_streams"] == "0.0"
    assert told["penstock_jetstream_api_requests_total"] == "9.0"
    assert float(told["penstock_jetstream_storage_bytes"]) > 0


async def test_server_without_jetstream_has_no_metrics_of_it() -> None:
    async with Server() as server:
        assert b"jetstream" not in page(server)
