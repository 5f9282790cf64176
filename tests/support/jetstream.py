"""A raw JetStream client for contract tests: every byte of an answer can be looked at.

`Client` speaks the client protocol over one blocking socket and knows how JetStream is asked:
`call` for the JSON API, `publish_ack` for streams, `pull` for consumers. Each request has a
subscription of its own, since consumers answer under the stream's subjects. Every wait has a
deadline; `fence` proves that all sent before was read. JSON answers pass through `check`, which
the fixture sets to the schemas when they are there.

Handles for streams and consumers with names of their own are in `support.assets`.
"""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

RECEIVE_BYTES = 1 << 18
STORY_LINES = 30
SHOWN_BYTES = 300
API = "$JS.API."
VERSION_LINE = b"NATS/1.0"
OPTIONS = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}

Json = dict[str, Any]
Headers = "Mapping[str, str] | Iterable[tuple[str, str]] | bytes | None"


class ClientError(AssertionError):
    """The server did not answer as it had to, or not in time; the text tells the story."""


class Refusal(NamedTuple):
    """The error of an answer."""

    code: int
    err_code: int
    description: str


class Message(NamedTuple):
    """A delivery as the subscription got it."""

    subject: str
    reply: str
    header: bytes
    payload: bytes

    @property
    def status(self) -> str:
        """What stands behind the version in a status message, "" in others."""
        return self.header.partition(b"\r\n")[0].removeprefix(VERSION_LINE).decode().strip()

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The header's fields in their order."""
        lines = self.header.decode().split("\r\n")[1:]
        return [
            (key, value.strip())
            for key, _, value in (line.partition(":") for line in lines if line)
        ]

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.fields)

    @property
    def json(self) -> Any:
        return json.loads(self.payload)


class Subscription:
    """Deliveries of one subscription in order of arrival."""

    def __init__(self, client: Client, sid: int, subject: str) -> None:
        self.sid = sid
        self.subject = subject
        self.arrived: deque[Message] = deque()
        self._client = client

    def next(self, seconds: float = PATIENCE_SECONDS) -> Message:
        """The next delivery, waited for."""
        self._client.read_until(lambda: bool(self.arrived), f"a message on {self.subject}", seconds)
        return self.arrived.popleft()

    def take(self, count: int, seconds: float = PATIENCE_SECONDS) -> list[Message]:
        """So many deliveries."""
        return [self.next(seconds) for _ in range(count)]

    def until_status(self, seconds: float = PATIENCE_SECONDS) -> list[Message]:
        """Everything up to the first status message, and that one last."""
        taken = [self.next(seconds)]
        while not taken[-1].status:
            taken.append(self.next(seconds))
        return taken

    def waiting(self) -> list[Message]:
        """What the server had sent when it answered a PING."""
        self._client.fence()
        taken = list(self.arrived)
        self.arrived.clear()
        return taken

    def close(self) -> None:
        self._client.unsubscribe(self)


class Client:
    """One connection."""

    _names = itertools.count(1)

    def __init__(
        self,
        address: tuple[str, int],
        *,
        check: Callable[[Json], None] = lambda answer: None,
        login: Callable[[Client], Mapping[str, str]] = lambda client: {},
        **options: object,
    ) -> None:
        self._socket = socket.create_connection(address, PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._subscriptions: dict[int, Subscription] = {}
        self._numbers = itertools.count(1)
        self._pongs = 0
        self._check = check
        self._story: deque[str] = deque(maxlen=STORY_LINES)
        self.info: Json = {}
        self.errors: list[str] = []
        self.inbox = f"_INBOX.{next(Client._names)}.{self._socket.getsockname()[1]}"
        self.read_until(lambda: bool(self.info), "INFO")
        said = {**OPTIONS, **options, **login(self)}
        self.send(f"CONNECT {json.dumps(said)}\r\n".encode())
        self.fence()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    # -- the protocol

    def send(self, data: bytes) -> None:
        self._story.append(f"> {_shown(data)}")
        self._socket.sendall(data)

    def publish(
        self, subject: str, payload: bytes = b"", *, reply: str = "", headers: Headers = None
    ) -> None:
        self.send(encode(subject, payload, reply, headers))

    def subscribe(self, subject: str = "", queue: str = "") -> Subscription:
        """A subscription to a subject, or to an inbox of its own."""
        sid = next(self._numbers)
        made = Subscription(self, sid, subject or f"{self.inbox}.{sid}")
        self._subscriptions[sid] = made
        self.send(f"SUB {made.subject} {queue} {sid}\r\n".encode())
        return made

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription.sid, None)
        self.send(f"UNSUB {subscription.sid}\r\n".encode())

    def fence(self) -> None:
        """All sent so far was read, and all the server had to say before that has arrived."""
        wanted = self._pongs + 1
        self.send(b"PING\r\n")
        self.read_until(lambda: self._pongs >= wanted, "PONG")

    def read_until(
        self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Read until something holds; fail with the story when the deadline passes."""
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0 or not self._fill(left):
                story = "\n".join(self._story)
                raise ClientError(f"not within {seconds} s: {what}\nso far:\n{story}")
            while self._take_frame():
                pass

    # -- JetStream

    def request(
        self,
        subject: str,
        body: object = None,
        headers: Headers = None,
        *,
        seconds: float = PATIENCE_SECONDS,
    ) -> Message:
        """The first answer to a request."""
        inbox = self.subscribe()
        self.publish(subject, encode_body(body), reply=inbox.subject, headers=headers)
        try:
            return inbox.next(seconds)
        finally:
            inbox.close()

    def call(self, api: str, body: object = None, headers: Headers = None) -> Json:
        """The JSON answer of `$JS.API.<api>`."""
        answer = self.request(API + api, body, headers)
        if answer.status:
            raise ClientError(f"{api}: {answer.status}")
        decoded: Json = answer.json
        self._check(decoded)
        return decoded

    def done(self, api: str, body: object = None, headers: Headers = None) -> Json:
        """The answer of a request that must succeed."""
        answer = self.call(api, body, headers)
        assert "error" not in answer, f"{api} {body}: {answer['error']}"
        return answer

    def refused(self, api: str, body: object = None, headers: Headers = None) -> Refusal:
        """The error of a request that must be refused."""
        answer = self.call(api, body, headers)
        assert "error" in answer, f"{api} {body} was accepted"
        return refusal(answer)

    def publish_ack(self, subject: str, payload: bytes = b"", headers: Headers = None) -> Json:
        """The stream's acknowledgement, or its refusal."""
        answer = self.request(subject, payload, headers)
        assert answer.payload, f"{subject}: {answer.header!r}"
        decoded: Json = answer.json
        return decoded

    def pull(self, stream: str, consumer: str, body: object = None) -> Subscription:
        """A waiting pull request: its messages and statuses arrive on the subscription."""
        inbox = self.subscribe()
        subject = f"{API}CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self.publish(subject, encode_body(body), reply=inbox.subject)
        return inbox

    # -- reading

    def _fill(self, seconds: float) -> bool:
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            return False
        self._received += data
        if not data:
            self._story.append("< closed")
        return bool(data)

    def _take_frame(self) -> bool:
        end = self._received.find(b"\r\n")
        if end < 0:
            return False
        line = self._received[:end].decode(errors="surrogateescape")
        if line.startswith(("MSG ", "HMSG ")):
            return self._take_message(line, end + 2)
        del self._received[: end + 2]
        self._story.append(f"< {line[:SHOWN_BYTES]}")
        if line == "PING":
            self.send(b"PONG\r\n")
        elif line == "PONG":
            self._pongs += 1
        elif line.startswith("INFO "):
            self.info = json.loads(line[5:])
        else:
            self.errors.append(line)
        return True

    def _take_message(self, line: str, start: int) -> bool:
        verb, subject, sid, *rest = line.split(" ")
        size = int(rest[-1])
        if len(self._received) < start + size + 2:
            return False
        header_size = int(rest[-2]) if verb == "HMSG" else 0
        reply = rest[0] if len(rest) == (3 if verb == "HMSG" else 2) else ""
        body = bytes(self._received[start : start + size])
        del self._received[: start + size + 2]
        self._story.append(f"< {line} {_shown(body)}")
        target = self._subscriptions.get(int(sid))
        if target is not None:
            target.arrived.append(Message(subject, reply, body[:header_size], body[header_size:]))
        return True


def refusal(answer: Json) -> Refusal:
    """The error of an API answer or a publish acknowledgement."""
    error = answer["error"]
    return Refusal(error["code"], error.get("err_code", 0), error.get("description", ""))


def encode(subject: str, payload: bytes, reply: str = "", headers: Headers = None) -> bytes:
    """The frame of one publish."""
    if headers is None:
        return f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n"
    block = headers if isinstance(headers, bytes) else encode_headers(headers)
    sizes = f"{len(block)} {len(block) + len(payload)}"
    return f"HPUB {subject} {reply} {sizes}\r\n".encode() + block + payload + b"\r\n"


def encode_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> bytes:
    pairs = headers.items() if hasattr(headers, "items") else headers
    return b"NATS/1.0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in pairs) + b"\r\n"


def encode_body(body: object) -> bytes:
    """Bytes and text as they are, anything else as JSON."""
    if body is None:
        return b""
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def _shown(raw: bytes) -> str:
    text = repr(raw)[2:-1]
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}... ({len(raw)} bytes)"
