"""Who gets a message, in which order, when many connections take part."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING

import pytest

from support.patience import PATIENCE_SECONDS
from support.servers import until
from support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import Implementation, ServerPool, ServerUnderTest

MESSAGES = 400
MEMBERS = 4
PUBLISHERS = 3
STATUS = re.compile(r"HMSG inbox 9 .*")


@contextlib.contextmanager
def _clients(server: ServerUnderTest, count: int, **options: object) -> Iterator[list[Wire]]:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(server.address, name=str(n))) for n in range(count)]
        for wire in wires:
            wire.connect(**options)
        yield wires


def _payloads(wire: Wire) -> list[str]:
    """All message payloads so far, up to the answer to a ping."""
    wire.send("PING\r\n")
    found = []
    while (line := wire.line()) != "PONG":
        assert line.startswith("MSG ")
        found.append(wire.line())
    return found


def _publish(wire: Wire, subject: str, payloads: list[str]) -> None:
    wire.send("".join(f"PUB {subject} {len(p)}\r\n{p}\r\n" for p in payloads))
    wire.expect_quiet()


def _unsubscribed(wires: list[Wire], sid: str = "1") -> None:
    """Leave the shared server as it was found."""
    for wire in wires:
        wire.send(f"UNSUB {sid}\r\n")
        wire.expect_quiet()


def test_queue_group_receives_each_message_once(
    server: ServerUnderTest,
) -> None:
    with _clients(server, MEMBERS + 1) as [publisher, *members]:
        for member in members:
            member.send("SUB work crew 1\r\n")
            member.expect_quiet()
        _publish(publisher, "work", [str(n) for n in range(MESSAGES)])
        shares = [[int(p) for p in _payloads(member)] for member in members]
        _unsubscribed(members)
    assert sorted(n for share in shares for n in share) == list(range(MESSAGES))
    # A fair choice leaves a member below a tenth of its share about once in 10^15 runs.
    assert min(len(share) for share in shares) > MESSAGES / MEMBERS / 10
    assert all(share == sorted(share) for share in shares)


def test_queue_group_with_different_patterns_receives_each_message_once(
    server: ServerUnderTest,
) -> None:
    patterns = ["work.a", "work.*", "work.>", ">"]
    with _clients(server, len(patterns) + 1) as [publisher, *members]:
        for member, pattern in zip(members, patterns, strict=True):
            member.send(f"SUB {pattern} crew 1\r\n")
            member.expect_quiet()
        _publish(publisher, "work.a", [str(n) for n in range(MESSAGES)])
        shares = [_payloads(member) for member in members]
        _unsubscribed(members)
    assert sorted(int(p) for share in shares for p in share) == list(range(MESSAGES))
    assert all(shares)


def test_each_subscriber_sees_each_publisher_in_order(server: ServerUnderTest) -> None:
    with _clients(server, PUBLISHERS + 2) as [first, second, *publishers]:
        for subscriber in (first, second):
            subscriber.send("SUB many.* 1\r\n")
            subscriber.expect_quiet()
        for start in range(0, MESSAGES, 50):
            for number, publisher in enumerate(publishers):
                batch = [f"{number}:{n}" for n in range(start, start + 50)]
                publisher.send("".join(f"PUB many.{number} {len(p)}\r\n{p}\r\n" for p in batch))
        for publisher in publishers:
            publisher.expect_quiet()
        seen = [_payloads(subscriber) for subscriber in (first, second)]
        _unsubscribed([first, second])
    for payloads in seen:
        for number in range(PUBLISHERS):
            mine = [p for p in payloads if p.startswith(f"{number}:")]
            assert mine == [f"{number}:{n}" for n in range(MESSAGES)]


def test_pong_confirms_earlier_subscriptions_of_connection(
    server: ServerUnderTest,
) -> None:
    with _clients(server, 2) as [publisher, subscriber]:
        for n in range(50):
            subscriber.send(f"SUB fenced.{n} {n}\r\n")
            subscriber.expect_quiet()
            publisher.send(f"PUB fenced.{n} 1\r\nx\r\n")
            publisher.expect_quiet()
            subscriber.expect(f"MSG fenced.{n} {n} 1", "x")


def test_subscriptions_end_with_their_connection(server: ServerUnderTest) -> None:
    with Wire(server.address) as gone:
        gone.connect()
        gone.send("SUB service 1\r\n")
        gone.expect_quiet()
    with Wire(server.address) as client:
        client.connect(headers=True, no_responders=True)
        client.send("SUB inbox 9\r\n")

        def unheard() -> bool:
            client.send("PUB service inbox 0\r\n\r\nPING\r\n")
            first = client.line()
            if first == "PONG":
                return False
            client.expect("NATS/1.0 503", "Nats-Subject: service", "", "", "PONG")
            return bool(STATUS.fullmatch(first))

        until(unheard, "nothing reaches a closed subscriber")
        client.send("UNSUB 9\r\n")
        client.expect_quiet()


def test_large_message_reaches_every_subscriber_intact(server: ServerUnderTest) -> None:
    body = ("0123456789abcdef" * 65536)[: 1024 * 1024]
    with _clients(server, 4) as [publisher, *subscribers]:
        for subscriber in subscribers:
            subscriber.send("SUB large 1\r\n")
            subscriber.expect_quiet()
        publisher.send(f"PUB large {len(body)}\r\n{body}\r\n")
        for subscriber in subscribers:
            subscriber.expect(f"MSG large 1 {len(body)}", body)
        publisher.expect_quiet()
        _unsubscribed(subscribers)


@pytest.fixture
def tight(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """A server that keeps little for a client that does not read."""
    return pool.get(implementation, "max_payload: 8192\nmax_pending: 65536\n")


def test_client_that_does_not_read_is_closed_without_error_line(tight: ServerUnderTest) -> None:
    with Wire(tight.address) as slow, Wire(tight.address) as publisher:
        slow.connect()
        slow.send("SUB flood 1\r\n")
        slow.expect_quiet()
        publisher.connect(headers=True, no_responders=True)
        publisher.send("SUB inbox 9\r\n")
        message = f"PUB flood 8192\r\n{'x' * 8192}\r\n" * 16
        deadline = time.monotonic() + PATIENCE_SECONDS
        answer = ""
        while answer != "NATS/1.0 503":
            assert time.monotonic() < deadline, "the slow client was never closed"
            publisher.send(f"{message}PUB flood inbox 0\r\n\r\nPING\r\n")
            answer = publisher.line()
            if answer.startswith("HMSG"):
                answer = publisher.line()
                publisher.expect("Nats-Subject: flood", "", "", "PONG")
        received = _until_closed(slow)
    assert b"-ERR" not in received
    assert received.startswith(b"MSG flood 1 8192\r\nxxx")


def _until_closed(wire: Wire) -> bytes:
    received = bytearray()
    wire.socket.settimeout(PATIENCE_SECONDS)
    with contextlib.suppress(ConnectionResetError):
        while data := wire.socket.recv(1 << 20):
            received += data
    return bytes(received)


def test_others_are_served_while_client_does_not_read(tight: ServerUnderTest) -> None:
    with Wire(tight.address) as slow, Wire(tight.address) as quick, Wire(tight.address) as sender:
        for wire in (slow, quick, sender):
            wire.connect()
        slow.send("SUB shared 1\r\n")
        quick.send("SUB shared 1\r\n")
        slow.expect_quiet()
        quick.expect_quiet()
        for n in range(400):
            bodies = [f"{n}.{part}".rjust(8192, "x") for part in range(4)]
            sender.send("".join(f"PUB shared 8192\r\n{body}\r\n" for body in bodies))
            for body in bodies:
                quick.expect("MSG shared 1 8192", body)


def test_short_lived_permission_to_respond_expires(
    pool: ServerPool, implementation: Implementation
) -> None:
    rights = 'subscribe: "svc", allow_responses: { max: 1000000, expires: "50ms" }'
    users = f"{{user: svc, password: p, permissions: {{{rights}}}}}, {{user: free, password: p}}"
    server = pool.get(implementation, f"authorization {{ users: [ {users} ] }}\n")
    with Wire(server.address) as service, Wire(server.address) as client:
        service.connect(user="svc", **{"pass": "p"})
        client.connect(user="free", **{"pass": "p"})
        service.send("SUB svc 1\r\n")
        service.expect_quiet()
        client.send("PUB svc inbox 0\r\n\r\n")
        client.expect_quiet()
        service.expect("MSG svc 1 inbox 0", "")

        def refused() -> bool:
            service.send("PUB inbox 0\r\n\r\nPING\r\n")
            if (first := service.line()) == "PONG":
                return False
            assert first == "-ERR 'Permissions Violation for Publish to \"inbox\"'"
            service.expect("PONG")
            return True

        until(refused, "the permission to respond ends")
