"""The lag of a query is what its progress says, for our offsets alone."""

from __future__ import annotations

import json

from penstock.spark.query_progress import StreamLag, exposition, lags_of
from penstock.spark.read.offsets import Offset, Position


def text(**seqs: int) -> str:
    return json.dumps(
        Offset(
            {name: Position(seq, "2026-01-01T00:00:00Z") for name, seq in seqs.items()}
        ).as_json()
    )


def test_each_stream_has_lag() -> None:
    found = lags_of("q", 7, text(A=5, B=9), text(A=8, B=9))
    assert [(one.stream, one.behind, one.batch_id) for one in found] == [("A", 3, 7), ("B", 0, 7)]


def test_other_sources_have_none() -> None:
    for end in (None, "null", "12", '{"v": 9}', '{"logOffset": 3}', "{"):
        assert lags_of("q", 0, end, text(A=1)) == []
        assert lags_of("q", 0, text(A=1), end) == []


def test_seconds_are_what_source_found_out() -> None:
    latest = json.loads(text(A=8, B=9)) | {"lag": {"A": {"messages": 3, "seconds": 1.5}}}
    found = lags_of("q", 7, text(A=5, B=9), json.dumps(latest))
    assert [one.seconds for one in found] == [1.5, None]


def test_prometheus_gets_every_lag_with_its_query_and_stream() -> None:
    page = exposition([StreamLag('a "b"', 7, "EV", 5, 8, 1.5), StreamLag("c", 1, "EV", 8, 8)])
    assert 'penstock_spark_lag_messages{query="a \\"b\\"",stream="EV"} 3\n' in page
    assert 'penstock_spark_lag_seconds{query="a \\"b\\"",stream="EV"} 1.5\n' in page
    assert 'penstock_spark_lag_seconds{query="c"' not in page
    assert page.endswith("\n")
