"""Planning and reading without a JVM: what a driver plans and a task reads, on both servers.

These are the objects Spark calls, called here in the order Spark calls them. Faults are easier to
place this way, and a test takes no seconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.spark.errors import DataLoss, SourceError
from penstock.spark.message_rows import message_schema
from penstock.spark.options import OptionError, parse
from penstock.spark.read.source_batch import StreamTable
from penstock.spark.read.source_options import ReadOptions
from penstock.spark.read.source_stream import StreamFollower
from support.spark import Streams

if TYPE_CHECKING:
    from support.servers import ServerUnderTest, Starter

QUICK = {"retries": "1", "retryIntervalMs": "20", "idleWaitMs": "0", "pollTimeoutMs": "600"}


def options(url: str, stream: str, **more: Any) -> ReadOptions:
    given = {"url": url, "stream": stream, **QUICK}
    return parse(ReadOptions, given | {name: str(value) for name, value in more.items()})


def batch(url: str, stream: str, **more: Any) -> StreamTable:
    return StreamTable(options(url, stream, **more), message_schema())


def follower(url: str, stream: str, **more: Any) -> StreamFollower:
    return StreamFollower(options(url, stream, **more), message_schema())


def seqs_of(reader: StreamTable | StreamFollower, parts: Any) -> list[int]:
    found = [one for part in parts for one in reader.read(part)]
    return [seq for one in found for seq in one.column("seq").to_pylist()]


def read(reader: StreamFollower, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return seqs_of(reader, reader.partitions(start, end))


def latest(reader: StreamFollower, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


@pytest.fixture
def streams(server: ServerUnderTest) -> Streams:
    return Streams(server.url)


@pytest.fixture
def name(streams: Streams) -> str:
    return streams.make("R")


# -- offsets


def test_batches_follow_each_other_without_gap(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 10)
    reader = follower(server.url, name, maxOffsetsPerTrigger=4)
    offset = reader.initialOffset()
    found = []
    while (end := latest(reader, offset)) != offset:
        found.append(read(reader, offset, end))
        offset = end
    assert found == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_limit_in_bytes_is_kept_about(server: ServerUnderTest, streams: Streams, name: str) -> None:
    streams.fill(name, 100)
    per_message = streams.state(name).bytes / 100
    reader = follower(server.url, name, maxBytesPerTrigger=int(30 * per_message))
    end = latest(reader, reader.initialOffset())
    assert 25 <= end["streams"][name]["seq"] <= 35


def test_limit_is_shared_by_streams(server: ServerUnderTest, streams: Streams, name: str) -> None:
    other = streams.make("R")
    streams.fill(name, 90)
    streams.fill(other, 10)
    reader = follower(server.url, f"{name},{other}", maxOffsetsPerTrigger=50)
    end = latest(reader, reader.initialOffset())
    assert {one: end["streams"][one]["seq"] for one in (name, other)} == {name: 45, other: 5}


def test_target_of_available_now_is_fixed_when_it_begins(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 5)
    reader = follower(server.url, name)
    reader.prepareForTriggerAvailableNow()
    streams.fill(name, 5, first=5)
    start = reader.initialOffset()
    end = latest(reader, start)
    assert read(reader, start, end) == [1, 2, 3, 4, 5]
    assert latest(reader, end) == end


def test_enough_is_waited_for_but_not_for_ever(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 3)
    patient = follower(server.url, name, minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    start = patient.initialOffset()
    assert latest(patient, start) == start
    assert patient.latestOffset(start, ReadAllAvailable()) != start
    hasty = follower(server.url, name, minOffsetsPerTrigger=5, maxTriggerDelay="0s")
    assert latest(hasty, start)["streams"][name]["seq"] == 3
    streams.fill(name, 2, first=3)
    assert latest(patient, start)["streams"][name]["seq"] == 5


def test_start_at_the_end_is_written_down_by_batch_of_its_own(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 4)
    reader = follower(server.url, name, startingSeq="latest")
    start = reader.initialOffset()
    end = latest(reader, start)
    assert end != start
    assert read(reader, start, end) == []
    streams.fill(name, 2, first=4)
    after_restart = follower(server.url, name, startingSeq="latest")
    moved = after_restart.initialOffset()
    assert moved != start
    assert read(after_restart, moved, latest(after_restart, end)) == []
    assert read(after_restart, end, latest(after_restart, end)) == [5, 6]


def test_first_batch_planned_again_begins_where_it_began(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 4)
    reader = follower(server.url, name, startingSeq="latest")
    start = reader.initialOffset()
    streams.fill(name, 3, first=4)
    end = latest(reader, start)
    assert read(reader, start, end) == [5, 6, 7]
    streams.fill(name, 3, first=7)
    again = follower(server.url, name, startingSeq="latest")
    assert read(again, again.initialOffset(), json.loads(json.dumps(end))) == [5, 6, 7]


def test_stream_that_joins_query_is_read_from_its_beginning(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 3)
    reader = follower(server.url, name)
    end = latest(reader, reader.initialOffset())
    other = streams.make("R")
    streams.fill(other, 2)
    both = follower(server.url, f"{name},{other}")
    assert read(both, end, latest(both, end)) == [1, 2]


# -- loss


def test_messages_that_went_before_they_were_read_are_noticed(
    server: ServerUnderTest, streams: Streams
) -> None:
    name = streams.make("R", max_msgs=5)
    streams.fill(name, 5)
    reader = follower(server.url, name)
    end = latest(reader, reader.initialOffset())
    streams.fill(name, 8, first=5)
    with pytest.raises(DataLoss, match="begins at 9, though 6 is next to be read"):
        latest(reader, end)
    lenient = follower(server.url, name, failOnDataLoss=False)
    assert read(lenient, end, latest(lenient, end)) == [9, 10, 11, 12, 13]


def test_stream_that_keeps_newest_values_loses_nothing_by_it(
    server: ServerUnderTest, streams: Streams
) -> None:
    name = streams.make("R", max_msgs_per_subject=1)
    streams.fill(name, 6)
    reader = follower(server.url, name)
    start = reader.initialOffset()
    end = latest(reader, start)
    assert read(reader, start, end) == [4, 5, 6]
    streams.fill(name, 9, first=6)
    assert read(reader, end, latest(reader, end)) == [13, 14, 15]


def test_loss_between_planning_and_reading_is_noticed(
    server: ServerUnderTest, streams: Streams
) -> None:
    name = streams.make("R", max_msgs=5)
    streams.fill(name, 5)
    table = batch(server.url, name, failOnDataLoss=True)
    parts = table.partitions()
    tolerant = batch(server.url, name)
    tolerant_parts = tolerant.partitions()
    streams.fill(name, 2, first=5)
    with pytest.raises(DataLoss, match="begins at 3, though 1 is next to be read"):
        seqs_of(table, parts)
    assert seqs_of(tolerant, tolerant_parts) == [3, 4, 5]
    lenient = batch(server.url, name, failOnDataLoss=False)
    assert seqs_of(lenient, parts) == [3, 4, 5]


def test_range_of_stream_recreated_is_not_another_streams_messages(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 5)
    parts = batch(server.url, name).partitions()
    streams.remake(name)
    streams.fill(name, 9)
    with pytest.raises(DataLoss, match="was deleted and recreated"):
        seqs_of(batch(server.url, name), parts)
    assert seqs_of(batch(server.url, name, failOnDataLoss=False), parts) == []


def test_checkpoint_beyond_streams_end_is_noticed(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 5)
    reader = follower(server.url, name)
    end = latest(reader, reader.initialOffset())
    end["streams"][name]["seq"] = 8
    with pytest.raises(DataLoss, match="ends at 5, though it was read up to 8"):
        latest(reader, end)
    lenient = follower(server.url, name, failOnDataLoss=False)
    assert latest(lenient, end)["streams"][name]["seq"] == 5


def test_stream_emptied_before_it_was_read_is_noticed(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 5)
    reader = follower(server.url, name)
    start = reader.initialOffset()
    streams.do(lambda js: js.purge_stream(name))
    with pytest.raises(DataLoss):
        latest(reader, start)
    lenient = follower(server.url, name, failOnDataLoss=False)
    assert read(lenient, start, latest(lenient, start)) == []


def test_empty_stream_is_empty_table(server: ServerUnderTest, name: str) -> None:
    assert batch(server.url, name).partitions() == []
    reader = follower(server.url, name)
    assert latest(reader, reader.initialOffset()) == reader.initialOffset()


# -- servers that go away


def test_task_continues_after_its_last_row_when_server_comes_back(start: Starter) -> None:
    one = start("", "-js", "-sd", "store")
    streams = Streams(one.url)
    for more in ({}, {"readMode": "direct"}):
        name = streams.make("R", allow_direct=True)
        streams.fill(name, 300)
        table = batch(one.url, name, maxRecordsPerPartition=100, **more)
        first, *rest = table.partitions()
        found = seqs_of(table, [first])
        one.restart()
        assert found + seqs_of(table, rest) == list(range(1, 301))


def test_server_that_is_not_there_is_reported_soon(start: Starter) -> None:
    one = start("", "-js", "-sd", "store")
    streams = Streams(one.url)
    name = streams.make("R")
    streams.fill(name, 5)
    table = batch(one.url, name, reconnectTimeoutMs=200)
    parts = table.partitions()
    one.kill()
    with pytest.raises(SourceError, match=r"no server could be reached: .* Check url"):
        table.partitions()
    with pytest.raises(SourceError, match=r"no server could be reached|connection was lost"):
        seqs_of(table, parts)


def test_server_without_jetstream_is_reported(start: Starter) -> None:
    with pytest.raises(SourceError, match="JetStream is off"):
        batch(start().url, "ANY").partitions()


def test_stream_that_is_not_there_is_reported(server: ServerUnderTest) -> None:
    with pytest.raises(SourceError, match="there is no stream NONE in this account"):
        batch(server.url, "NONE").partitions()


# -- rights

RIGHTS = """
jetstream: { store_dir: "store" }
authorization: { users: [
  { user: admin, password: admin }
  { user: frugal, password: "s3cret-word", permissions: {
      publish: { allow: [
        "$JS.API.STREAM.INFO.>", "$JS.API.DIRECT.GET.>", "$JS.API.STREAM.MSG.GET.>"
      ] } } }
  { user: pushed, password: "s3cret-word", permissions: {
      publish: { deny: [ "$JS.API.CONSUMER.MSG.NEXT.>", "$JS.API.DIRECT.GET.>" ] } } }
  { user: nobody, password: "s3cret-word", permissions: { publish: { deny: ["$JS.API.>"] } } }
] }
"""


def test_reader_without_consumer_permission_reads_directly(start: Starter) -> None:
    one = start(RIGHTS)
    streams = Streams(one.url.replace("//", "//admin:admin@"))
    for allow_direct in (True, False):
        name = streams.make("R", allow_direct=allow_direct)
        streams.fill(name, 5)
        table = batch(one.url, name, user="frugal", password="s3cret-word")
        assert seqs_of(table, table.partitions()) == [1, 2, 3, 4, 5]


def test_reader_without_pull_permission_uses_push(start: Starter) -> None:
    one = start(RIGHTS)
    streams = Streams(one.url.replace("//", "//admin:admin@"))
    name = streams.make("R")
    streams.fill(name, 5)
    table = batch(one.url, name, user="pushed", password="s3cret-word", readMode="consumer")
    assert seqs_of(table, table.partitions()) == [1, 2, 3, 4, 5]


def test_no_secret_is_in_what_is_reported(start: Starter) -> None:
    one = start(RIGHTS)
    said = []
    for password in ("s3cret-word", "s3cret-wrong"):
        by_option = options(one.url, "ANY", user="reply_no_responders", password=password)
        by_url = options(one.url.replace("//", f"//nobody:{password}@"), "ANY")
        for chosen in (by_option, by_url):
            with pytest.raises(SourceError) as failure:
                StreamTable(chosen, message_schema()).partitions()
            said += [str(failure.value), repr(failure.value.__cause__), repr(chosen)]
    assert any("Give this user that permission" in text for text in said)
    assert any("check user, password" in text for text in said)
    assert not [text for text in said if "s3cret" in text]


def test_filters_that_overlap_are_reported(
    server: ServerUnderTest, streams: Streams, name: str
) -> None:
    streams.fill(name, 3)
    table = batch(server.url, name, subjects=f"{name}.>,{name}.1")
    with pytest.raises(SourceError, match="overlap"):
        seqs_of(table, table.partitions())


def test_stream_that_takes_no_more_consumers_is_read_directly(
    server: ServerUnderTest, streams: Streams
) -> None:
    name = streams.make("R", max_consumers=1)
    streams.do(lambda js: js.add_consumer(name, durable_name="one"))
    streams.fill(name, 3)
    table = batch(server.url, name)
    assert seqs_of(table, table.partitions()) == [1, 2, 3]


def test_options_that_contradict_are_refused(server: ServerUnderTest) -> None:
    with pytest.raises(OptionError, match="one of startingSeq, startingTimestamp"):
        batch(server.url, "ANY", startingSeq=1, startingTimestamp=1)
    with pytest.raises(OptionError, match="are for tables"):
        follower(server.url, "ANY", endingSeq=1)
    with pytest.raises(OptionError, match="is no name of a stream"):
        batch(server.url, "A.B")
