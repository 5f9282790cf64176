"""A stream as a dlt resource: every run loads what arrived since the last one.

    pip install 'dlt[duckdb]'
    python examples/dlt_stream.py nats://127.0.0.1:4222 EVENTS

dlt keeps the cursor in its state, which it stores together with the data: a failed run is repeated
from the same position. A stream that was deleted and created again is rejected.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import dlt

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator


@dlt.resource(name="messages", write_disposition="append")
def messages(stream: str, url: str) -> Iterator[Any]:
    state = dlt.current.resource_state()
    rows = penstock.read(
        stream,
        url=url,
        after=state.get("cursor", ""),
        columns=["subject", "seq", "timestamp", "data"],
    )
    yield from rows.batches()
    state["cursor"] = rows.cursor


def main(url: str, stream: str) -> None:
    pipeline = dlt.pipeline(
        f"penstock_{stream.lower()}", destination="duckdb", dataset_name="streams"
    )
    print(pipeline.run(messages(stream, url), loader_file_format="parquet"))


if __name__ == "__main__":
    main(*sys.argv[1:])
