"""Small runs of every kind of scenario that needs JetStream, against both servers."""

from collections.abc import Iterator

import pytest

from penstock.bench.bench_error import BenchError
from penstock.bench.load import jetstream_load
from penstock.bench.load.asset_control import Control, open_control
from penstock.bench.measurement import run_scenario
from penstock.bench.scenarios import (
    BucketGet,
    Durability,
    JetStreamScenario,
    Scenario,
    StreamPublish,
    StreamRead,
)
from penstock.bench.server_process import (
    RunningServer,
    ServerCommand,
    our_command,
    reference_command,
    running,
)

pytestmark = pytest.mark.sockets

COUNT = 1200

SHAPES: list[JetStreamScenario] = [
    StreamPublish("memory, one at a time", storage="memory", window=1),
    StreamPublish("memory", storage="memory"),
    StreamPublish("file", 1024),
    StreamPublish("subjects", subjects=300, window=50),
    StreamPublish("ids", subjects=300, ids=True),
    StreamPublish("put", subjects=100, bucket=True),
    StreamPublish("put, one at a time", subjects=100, bucket=True, window=1),
    StreamRead("push", pushed=True),
    StreamRead("pull"),
    StreamRead("pull, acked", acks=True),
    BucketGet("get", window=20),
    BucketGet("get, one at a time"),
]


@pytest.fixture(scope="module", params=["ours", "reference"])
def jet(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    try:
        command = our_command() if request.param == "ours" else reference_command()
    except BenchError as error:
        pytest.skip(str(error))
    with running(command, Durability.LAZY.setting) as found:
        yield found


@pytest.fixture
def control(jet: RunningServer) -> Iterator[Control]:
    with open_control(jet.endpoint) as found:
        yield found


def streams(control: Control) -> int:
    return int(control.ask("$JS.API.STREAM.NAMES").get("total", 0))


@pytest.mark.parametrize("scenario", SHAPES, ids=lambda scenario: scenario.name)
def test_every_message_is_answered_or_read_and_stream_is_removed(
    jet: RunningServer, control: Control, scenario: Scenario
) -> None:
    result = run_scenario(scenario, jet.endpoint, COUNT, jet.pid)
    assert result.messages == COUNT
    assert result.cpu_per_million is not None
    assert (result.latency is not None) == scenario.name.endswith("one at a time")
    assert streams(control) == 0


def test_stream_is_read_again_until_enough_was_read(
    jet: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream_load, "FILL_MAX", 700)
    result = run_scenario(StreamRead("push", pushed=True), jet.endpoint, 2000)
    assert result.messages == 3 * 700


def test_refused_publish_fails_run_with_words_of_server(
    jet: RunningServer, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream_load, "BUCKET", {**jetstream_load.BUCKET, "max_bytes": 10_000})
    with pytest.raises(BenchError, match="maximum bytes exceeded"):
        run_scenario(StreamPublish("put", subjects=1000, bucket=True), jet.endpoint, COUNT)
    for name in control.ask("$JS.API.STREAM.NAMES")["streams"]:
        control.delete_stream(name)


def test_acks_that_never_arrive_are_noticed(
    jet: RunningServer, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.bench.load.asset_control.STABLE_TIMEOUT_S", 0.05)
    control.create_stream("S", ["s"], "memory")
    control.create_consumer("S", {"name": "c", "durable_name": "c", "ack_policy": "explicit"})
    with pytest.raises(BenchError, match="acks were lost: floor 0 of 5, 0 waiting"):
        control.await_acks("S", "c", 5)
    control.delete_consumer("S", "c")
    control.delete_stream("S")


def test_words_of_refused_api_request_are_passed_on(control: Control) -> None:
    with pytest.raises(BenchError, match="stream not found"):
        control.stored("nothing-there")


def test_server_without_jetstream_is_reported(server: RunningServer) -> None:
    with pytest.raises(BenchError, match=r"no JetStream|not enabled"):
        run_scenario(StreamPublish("p"), server.endpoint, 10)


def test_each_durability_configures_server(reference: ServerCommand) -> None:
    for durability in Durability:
        with running(reference, durability.setting) as found:
            scenario = StreamPublish("p", durability=durability)
            assert run_scenario(scenario, found.endpoint, 20).messages == 20
