"""A task hands on each message once, whatever happens on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.timestamps import format_time
from penstock.bulk.bulk_requests import StreamSummary
from penstock.bulk.direct_range import DirectRow, batch_of
from penstock.bulk.errors import AccessDenied, BulkError, ConnectionLost, NotPermitted
from penstock.spark.errors import DataLoss, SourceError
from penstock.spark.read import read_task
from penstock.spark.read.read_plan import SeqRange, StreamView
from penstock.spark.read.read_task import RangePartition, RangeReading, mode_for
from penstock.spark.read.source_options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

CREATED_NS = 1_000_000_000


class Server:
    """Has messages 1 to `last`, loses those up to `evicted`, and fails as told while it reads."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.evicted = 0
        self.failures: list[BulkError] = []
        self.missing: set[int] = set()
        self.eviction_at: dict[int, int] = {}
        self.asked: list[tuple[str, int]] = []

    def stream_state(self, stream: str) -> StreamSummary:
        config = {"allow_direct": True}
        return StreamSummary(stream, CREATED_NS, self.evicted + 1, self.last, 0, config)

    def range(self, stream: str, *, start: int, stop: int, **_: Any) -> Iterator[Any]:
        self.asked.append(("consumer", start))
        for seq in range(start, stop):
            self.evicted = self.eviction_at.get(seq, self.evicted)
            if seq == start + 2 and self.failures:
                raise self.failures.pop(0)
            if seq > self.evicted and seq not in self.missing:
                yield batch_of([DirectRow(seq, 0, b"a", b"", b"")])

    def direct(self, stream: str, *, start: int, stop: int, **_: Any) -> Iterator[Any]:
        self.asked.append(("direct", start))
        return (batch_of([DirectRow(seq, 0, b"a", b"", b"")]) for seq in range(start, stop))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server(10)
    monkeypatch.setattr(read_task, "shared_reader", lambda *_, **__: made)
    return made


def seqs(mode: str = "consumer", *, may_shrink: bool = False, **more: Any) -> list[int]:
    options = ReadOptions(url="nats://a", stream="S", retry_interval_ms=0, **more)
    span = SeqRange("S", format_time(CREATED_NS), 1, 11)
    part = RangePartition(span, (), mode, may_shrink=may_shrink)
    return [batch.first for batch in RangeReading(part, options).batches()]


def test_lost_connection_resumes_after_last_message(server: Server) -> None:
    server.failures = [
        ConnectionLost("gone"),
        ConnectionLost("gone again"),
        ConnectionLost("and again"),
    ]
    assert seqs(retries=0) == list(range(1, 11))
    assert server.asked == [("consumer", seq) for seq in (1, 3, 5, 7)]


def test_refusal_is_not_tried_again(server: Server) -> None:
    server.failures = [AccessDenied("the server said: no")]
    with pytest.raises(SourceError, match="check user, password"):
        seqs()
    assert len(server.asked) == 1


def test_reader_without_consumer_permission_continues_directly(server: Server) -> None:
    server.failures = [NotPermitted("no")]
    assert seqs() == list(range(1, 11))
    assert server.asked == [("consumer", 1), ("direct", 3)]


def test_mode_that_was_asked_for_is_kept(server: Server) -> None:
    server.failures = [NotPermitted("no")]
    with pytest.raises(SourceError, match="Give this user that permission"):
        seqs(read_mode="consumer")


def test_messages_evicted_while_they_are_read_are_noticed(server: Server) -> None:
    server.eviction_at = {5: 7}
    with pytest.raises(DataLoss, match="begins at 8, though 5 is next to be read"):
        seqs()


def test_messages_evicted_while_they_are_read_may_be_left_out(server: Server) -> None:
    server.eviction_at = {5: 7}
    assert seqs(fail_on_data_loss=False) == [1, 2, 3, 4, 8, 9, 10]


def test_messages_evicted_once_they_were_read_are_no_loss(server: Server) -> None:
    server.eviction_at = {8: 5}
    assert seqs() == list(range(1, 11))


def test_deleted_messages_are_no_loss(server: Server) -> None:
    server.missing = {2, 9, 10}
    assert seqs() == [1, 3, 4, 5, 6, 7, 8]


def test_stream_shorter_than_planned_is_noticed(server: Server) -> None:
    server.last = 6
    with pytest.raises(DataLoss, match="ends at 6, though 10 was planned"):
        seqs()


@pytest.mark.parametrize(
    ("consumes", "direct", "mode", "wanted"),
    [
        (False, True, "auto", "consumer"),
        (True, True, "auto", "direct"),
        (True, False, "auto", "single"),
        (False, True, "direct", "direct"),
        (True, True, "consumer", "consumer"),
    ],
)
def test_consumer_is_used_where_it_consumes_nothing(
    consumes: bool, direct: bool, mode: str, wanted: str
) -> None:
    view = StreamView("S", "", 1, 1, consumes=consumes, allows_direct=direct)
    assert mode_for(view, mode) == wanted


def test_task_receives_no_secrets() -> None:
    part = RangePartition(SeqRange("S", "", 1, 11), ("a.>",), "consumer")
    assert "S" in repr(part)
    assert "nats://" not in repr(vars(part))


def test_table_continues_without_what_limits_removed_and_reports_it(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.evicted = 1
    server.eviction_at = {4: 6}
    assert seqs(may_shrink=True) == [2, 3, 7, 8, 9, 10]
    assert "stream S: its limits removed 4 of the sequences 1-10" in caplog.text


def test_streaming_read_fails_where_table_continues(server: Server) -> None:
    server.eviction_at = {4: 6}
    with pytest.raises(DataLoss, match="removed before they were read"):
        seqs()
