"""A stream that is deleted while requests and messages for it are under way: all get a reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.server.threaded_server import ThreadedServer
from support.jetstream import Client, encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.sockets

MESSAGES = 50


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with (
        ThreadedServer(jetstream=True, store_dir=str(tmp_path)) as server,
        Client(("127.0.0.1", server.port)) as client,
    ):
        client.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        yield client


def replies(client: Client, sent: list[tuple[str, bytes]]) -> list[bytes]:
    """Send all in one piece; return the first reply to each."""
    inboxes = [client.subscribe() for _ in sent]
    pairs = zip(sent, inboxes, strict=True)
    client.send(b"".join(encode(subject, body, inbox.subject) for (subject, body), inbox in pairs))
    return [inbox.next().payload for inbox in inboxes]


def test_requests_before_deletion_are_answered(client: Client) -> None:
    question = ("$JS.API.STREAM.INFO.S", b"")
    *asked, deleted = replies(client, [*[question] * MESSAGES, ("$JS.API.STREAM.DELETE.S", b"")])
    assert b'"success":true' in deleted
    assert all(b"stream_info_response" in answer for answer in asked)


@pytest.mark.parametrize("headers", [b"", b"NATS/1.0\r\nNats-Expected-Stream: S\r\n\r\n"])
def test_messages_before_and_after_deletion_are_answered(client: Client, headers: bytes) -> None:
    inboxes = [client.subscribe() for _ in range(2 * MESSAGES)]
    delete = encode("$JS.API.STREAM.DELETE.S", b"", client.subscribe().subject)
    kind = f"HPUB s.a {{}} {len(headers)} {len(headers)}" if headers else "PUB s.a {} 0"
    sent = [f"{kind.format(inbox.subject)}\r\n".encode() + headers + b"\r\n" for inbox in inboxes]
    client.send(b"".join([*sent[:MESSAGES], delete, *sent[MESSAGES:]]))
    answers = [inbox.next() for inbox in inboxes]
    assert all(b'"stream":"S"' in one.payload or one.status == "503" for one in answers)
    assert b'"seq":1}' in answers[0].payload
