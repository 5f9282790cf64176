"""One publisher for each worker process and target: opened for the first row, kept for later tasks.

A task gets it for itself, since a worker process runs one at a time. A publisher that a task failed
with is thrown away: what it still had on its way is nobody's. Every task looks at the stream first,
so that a wrong target is told before a row leaves.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.api.api_subjects import API, domain_api
from penstock.bulk.blocking_publisher import BlockingPublisher
from penstock.bulk.bulk_publisher import Publisher
from penstock.bulk.errors import BulkError, NoResponders, Refused
from penstock.spark.spark_connection import MS, dialling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.bulk.bulk_publisher import PublishRefusal
    from penstock.spark.write.sink_options import PublishOptions

REFUSALS_SHOWN: Final = 3

_idle: dict[tuple[PublishOptions, str, int], BlockingPublisher] = {}


class SinkError(RuntimeError):
    """Rows could not be written; the text says why and what to set."""


@dataclass(frozen=True, slots=True)
class WorkerPublisher:
    """A publisher to one stream, and how that stream is configured."""

    publisher: BlockingPublisher
    config: dict[str, Any]
    api: str
    #: Of the stream, when this task began.
    last_seq: int = 0

    @property
    def common(self) -> bytes:
        """Header lines of every row: no other stream takes it, whatever its subject."""
        return b"Nats-Expected-Stream: %b\r\n" % self.config["name"].encode()

    def call(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON API over the publisher's connection."""
        return _call(self.publisher, f"{self.api}.{subject}", body)

    def refuse(self, refusals: list[PublishRefusal]) -> None:
        if refusals:
            told = {f"{one.description} ({one.err_code or one.code})": one for one in refusals}
            shown = "; ".join(list(told)[:REFUSALS_SHOWN])
            raise SinkError(
                f"stream {self.config['name']} refused {len(refusals)} of the rows: {shown}"
            )


@contextmanager
def outlet(
    options: PublishOptions, stream: str, check: Callable[[dict[str, Any]], None]
) -> Iterator[WorkerPublisher]:
    """This process's publisher to a stream; `check` may refuse how that is configured.

    Errors of the wire come out as `SinkError`.
    """
    # The process is part of the key: a thread does not live on in a fork.
    key = (options, stream, os.getpid())
    try:
        publisher = _idle.pop(key, None) or publisher_to(options, stream).__enter__()
        try:
            opened = _outlet(publisher, options, stream)
            check(opened.config)
            yield opened
        except BaseException:
            publisher.close()
            raise
        _idle[key] = publisher
    except NoResponders:
        raise SinkError("the server has no JetStream, or not for this account") from None
    except BulkError as error:
        raise SinkError(f"writing to stream {stream}: {error}") from error


def publisher_to(options: PublishOptions, stream: str) -> BlockingPublisher:
    """A publisher that is not open yet."""
    return BlockingPublisher(
        Publisher(
            dialling(options),
            stream=stream,
            slots=options.max_in_flight,
            ack_seconds=options.ack_timeout_ms / MS,
            patience_seconds=options.reconnect_timeout_ms / MS,
        )
    )


def _outlet(publisher: BlockingPublisher, options: PublishOptions, stream: str) -> WorkerPublisher:
    api = options.api_prefix or (domain_api(options.domain) if options.domain else API)
    try:
        info = _call(publisher, f"{api}.STREAM.INFO.{stream}", {})
    except Refused as error:
        raise SinkError(f"stream {stream}: {error.description}; create it first") from None
    return WorkerPublisher(publisher, info["config"], api, info["state"]["last_seq"])


def _call(publisher: BlockingPublisher, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    heard = publisher.ask(subject, json.dumps(body).encode() if body else b"")
    answer: dict[str, Any] = json.loads(heard.payload)
    if error := answer.get("error"):
        raise Refused.said(error)
    return answer
