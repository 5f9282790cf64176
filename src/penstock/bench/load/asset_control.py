"""Create and delete the JetStream assets of a run through the API; never part of a figure.

It uses one connection with its own inbox, one request at a time, in plain Python. A refusal is a
BenchError with the server's text. Streams and consumers get default settings except those a run
names.
"""

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

from penstock.api.api_client import read_reply
from penstock.api.refusals import ApiError
from penstock.bench.bench_error import BenchError
from penstock.bench.load.raw_client import (
    HANDSHAKE_TIMEOUT_S,
    READ_BYTES,
    Client,
    ServerEndpoint,
    deadline_after,
    open_client,
)

STABLE_TIMEOUT_S = 10.0
STABLE_POLL_S = 0.001

Json = dict[str, Any]


class Control:
    """A connection for API requests; a context manager that closes it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._asked = 0
        self._received = b""
        client.subscribe(f"{self._inbox}.*", 1, deadline_after(HANDSHAKE_TIMEOUT_S))

    def ask(self, subject: str, body: Json | None = None) -> Json:
        """Send one API request and return the reply."""
        self._asked += 1
        reply = f"{self._inbox}.{self._asked}"
        payload = b"" if body is None else json.dumps(body).encode()
        frame = b"PUB %b %b %d\r\n%b\r\n" % (
            subject.encode(),
            reply.encode(),
            len(payload),
            payload,
        )
        try:
            self._client.sock.settimeout(HANDSHAKE_TIMEOUT_S)
            self._client.sock.sendall(frame)
            return read_reply(self._answer(reply.encode()))
        except OSError as error:
            raise BenchError(f"{subject}: {error.strerror or error}") from None
        except ApiError as error:
            raise BenchError(f"{subject}: {error.description}") from None

    def create_stream(self, name: str, subjects: list[str], storage: str, **more: object) -> None:
        config = {"name": name, "subjects": subjects, "storage": storage, **more}
        self.ask(f"$JS.API.STREAM.CREATE.{name}", config)

    def delete_stream(self, name: str) -> None:
        self.ask(f"$JS.API.STREAM.DELETE.{name}")

    def stored(self, name: str) -> int:
        """Return how many messages the stream holds."""
        return int(self.ask(f"$JS.API.STREAM.INFO.{name}")["state"]["messages"])

    def create_consumer(self, stream: str, config: Json) -> None:
        subject, body = consumer_request(stream, config)
        self.ask(subject, body)

    def delete_consumer(self, stream: str, name: str) -> None:
        self.ask(f"$JS.API.CONSUMER.DELETE.{stream}.{name}")

    def await_acks(self, stream: str, consumer: str, last_seq: int) -> None:
        """Wait until the consumer has processed every ack; raise BenchError on timeout."""
        deadline = time.monotonic() + STABLE_TIMEOUT_S
        while True:
            info = self.ask(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}")
            floor, waiting = info["ack_floor"]["stream_seq"], info["num_ack_pending"]
            if floor == last_seq and waiting == 0:
                return
            if time.monotonic() > deadline:
                raise BenchError(f"acks were lost: floor {floor} of {last_seq}, {waiting} waiting")
            time.sleep(STABLE_POLL_S)

    def _answer(self, reply: bytes) -> bytes:
        while True:
            line, found, rest = self._received.partition(b"\r\n")
            if not found:
                self._receive()
                continue
            if not line.startswith((b"MSG", b"HMSG")):
                self._take_control(line, rest)
                continue
            fields = line.split()
            size = int(fields[-1])
            if len(rest) < size + 2:
                self._receive()
                continue
            self._received = rest[size + 2 :]
            if fields[0] == b"HMSG":
                raise BenchError("no JetStream there (no responders)")
            if fields[1] == reply:
                return rest[:size]

    def _take_control(self, line: bytes, rest: bytes) -> None:
        self._received = rest
        if line == b"PING":
            self._client.sock.sendall(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            raise BenchError(f"server said: {line.decode('utf-8', 'replace')}")

    def _receive(self) -> None:
        part = self._client.sock.recv(READ_BYTES)
        if not part:
            raise BenchError("connection closed in the midst of an API request")
        self._received += part


@contextlib.contextmanager
def open_control(endpoint: ServerEndpoint) -> Iterator[Control]:
    with open_client(endpoint) as client:
        yield Control(client)


def consumer_request(stream: str, config: Json) -> tuple[str, Json]:
    """Return subject and body of a request that creates a consumer; `config` must have a name."""
    subject = f"$JS.API.CONSUMER.CREATE.{stream}.{config['name']}"
    return subject, {"stream_name": stream, "config": config, "action": "create"}
