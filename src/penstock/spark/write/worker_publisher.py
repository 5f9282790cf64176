"""One publisher per worker process and target: opened for the first row, kept for later tasks.

A task has it exclusively, because a worker process runs one task at a time. When a task fails, its
publisher is closed, together with the publishes still in flight. Every task reads the stream's
configuration first, so that a wrong target is reported before a row is sent.
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
from penstock.bulk.bulk_requests import accepted
from penstock.bulk.errors import BulkError, NoResponders, Refused
from penstock.spark.spark_connection import MS, dialling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.bulk.bulk_publisher import PublishRefusal
    from penstock.spark.write.sink_options import PublishOptions

REFUSALS_SHOWN: Final = 3

_idle: dict[tuple[PublishOptions, str, int], BlockingPublisher] = {}


class SinkError(RuntimeError):
    """Rows could not be written; the text gives the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class WorkerPublisher:
    """A publisher to one stream, and the configuration of that stream."""

    publisher: BlockingPublisher
    config: dict[str, Any]
    api: str
    #: Last sequence of the stream when this task began, and when the stream was created.
    last_seq: int = 0
    created: str = ""

    @property
    def common(self) -> bytes:
        """Header line of every row that makes any other stream refuse it, whatever its subject."""
        return b"Nats-Expected-Stream: %b\r\n" % self.config["name"].encode()

    def call(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a JetStream API request over the publisher's connection."""
        return _call(self.publisher, f"{self.api}.{subject}", body)

    def refuse(self, refusals: list[PublishRefusal]) -> None:
        if refusals:
            reasons = {f"{one.description} ({one.err_code or one.code})": one for one in refusals}
            shown = "; ".join(list(reasons)[:REFUSALS_SHOWN])
            raise SinkError(
                f"stream {self.config['name']} refused {len(refusals)} of the rows: {shown}"
            )


@contextmanager
def outlet(
    options: PublishOptions, stream: str, check: Callable[[dict[str, Any]], None]
) -> Iterator[WorkerPublisher]:
    """Provide this process's publisher to a stream; `check` may reject its configuration.

    Raises connection and API errors as `SinkError`.
    """
    # The pid is part of the key, because threads do not survive a fork.
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
    """Return a publisher that is not open yet."""
    return BlockingPublisher(
        Publisher(
            dialling(options),
            stream=stream,
            slots=options.max_in_flight,
            lists_stored=bool(stream),
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
    return WorkerPublisher(
        publisher, info["config"], api, info["state"]["last_seq"], info["created"]
    )


def _call(publisher: BlockingPublisher, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = publisher.ask(subject, json.dumps(body).encode() if body else b"")
    return accepted(reply.payload)
