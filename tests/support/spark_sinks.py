"""What tests of Spark sinks share: streams made and read without Spark, and sabotaged sinks.

A sabotaged format writes as the real one does and comes to harm once, in the worker process, when
and how a file tells it. Its classes travel to workers by value, since workers know no tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import nats
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from penstock.spark.jetstream_source import JetStream
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    import pyarrow as pa
    from nats.aio.client import Client
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from support.servers import ServerUnderTest

T = TypeVar("T")

POLL_SECONDS = 0.01
SABOTAGE = "sabotage"

cloudpickle.register_pickle_by_value(sys.modules[__name__])


# -- streams without Spark


def with_client(
    server: ServerUnderTest,
    work: Callable[[Client], Awaitable[T]],
    *,
    tls: ssl.SSLContext | None = None,
) -> T:
    """Do something with nats-py."""

    async def run() -> T:
        client = await nats.connect(server.url, tls=tls)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


def call(
    server: ServerUnderTest,
    subject: str,
    body: Mapping[str, Any],
    *,
    tls: ssl.SSLContext | None = None,
) -> dict[str, Any]:
    """A request to the JetStream API; an error fails the test."""

    async def ask(client: Client) -> dict[str, Any]:
        answer = await client.request(
            f"$JS.API.{subject}", json.dumps(body).encode(), timeout=PATIENCE_SECONDS
        )
        said: dict[str, Any] = json.loads(answer.data)
        assert "error" not in said, said
        return said

    return with_client(server, ask, tls=tls)


def make_stream(
    server: ServerUnderTest, name: str, *, tls: ssl.SSLContext | None = None, **config: Any
) -> None:
    """A stream that takes NAME.> and the ledger, recreated."""
    with contextlib.suppress(AssertionError):
        call(server, f"STREAM.DELETE.{name}", {}, tls=tls)
    config = {"name": name, "subjects": [f"{name}.>", f"ledger.{name}.>"], **config}
    call(server, f"STREAM.CREATE.{name}", config, tls=tls)


@dataclass(frozen=True)
class Message:
    """A stored message."""

    subject: str
    data: str
    headers: dict[str, str]


def stored(
    server: ServerUnderTest,
    stream: str,
    *,
    marks: bool = False,
    tls: ssl.SSLContext | None = None,
) -> list[Message]:
    """What a stream holds, in its order; marks of the ledger only if asked for."""

    async def read(client: Client) -> list[Message]:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(stream)).state
        subscription = await jetstream.subscribe(
            ">", stream=stream, ordered_consumer=True, pending_msgs_limit=-1
        )
        found = []
        for _ in range(state.messages):
            message = await subscription.next_msg(timeout=PATIENCE_SECONDS)
            headers = dict(message.headers or {})
            found.append(Message(message.subject, message.data.decode(), headers))
        return found

    found = with_client(server, read, tls=tls)
    return [one for one in found if marks or not one.subject.startswith("led")]


# -- sabotage


@dataclass(frozen=True)
class Sabotage:
    """A harm that happens once: while its file is there. `after` is how many Arrow batches a task
    writes first; -1 waits until all of them are written and acknowledged."""

    path: Path
    kind: str
    after: int = -1

    def arm(self) -> str:
        """Prepare it; what the option is to be."""
        told = {"path": str(self.path), "kind": self.kind, "after": self.after}
        self.path.write_text("armed")
        return json.dumps(told)

    def strike(self) -> None:
        try:
            self.path.unlink()
        except FileNotFoundError:
            return
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "raise":
            raise RuntimeError("sabotage")
        # The test does the harm meanwhile, and says when it is done.
        self.path.with_suffix(".reached").touch()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.path.with_suffix(".done").exists():
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)

    def around(
        self,
        write: Callable[[Iterator[pa.RecordBatch]], WriterCommitMessage],
        batches: Iterator[pa.RecordBatch],
    ) -> WriterCommitMessage:
        if self.after < 0:
            written = write(batches)
            self.strike()
            return written
        return write(self._interrupted(batches))

    def _interrupted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == self.after:
                self.strike()
            yield batch


def sabotage_in(options: dict[str, str]) -> tuple[Sabotage, dict[str, str]]:
    told = json.loads(options[SABOTAGE])
    rest = {name: value for name, value in options.items() if name.lower() != SABOTAGE}
    return Sabotage(Path(told["path"]), told["kind"], told["after"]), rest


class SabotagedBatch(DataSourceArrowWriter):
    def __init__(self, sabotage: Sabotage, inner: DataSourceArrowWriter) -> None:
        self._sabotage, self._inner = sabotage, inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sabotage.around(self._inner.write, iterator)


class SabotagedStream(DataSourceStreamArrowWriter):
    def __init__(self, sabotage: Sabotage, inner: DataSourceStreamArrowWriter) -> None:
        self._sabotage, self._inner = sabotage, inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sabotage.around(self._inner.write, iterator)


class SabotagedJetStream(JetStream):
    """`jetstream`, with harm."""

    @classmethod
    def name(cls) -> str:
        return "jetstream-sabotaged"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        sabotage, rest = sabotage_in(self.options)
        return SabotagedBatch(sabotage, JetStream(rest).writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        sabotage, rest = sabotage_in(self.options)
        return SabotagedStream(sabotage, JetStream(rest).streamWriter(schema, overwrite))
