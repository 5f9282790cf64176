"""Peers that have not logged in: whatever they send, it costs them their connection at most."""

from __future__ import annotations

import random
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from support.peers import Peer, several
from support.victims import MIB, Victim, connect_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.tls import Certificates

VIOLATION = b"-ERR 'Authorization Violation'\r\n"
TIMEOUT = b"-ERR 'Authentication Timeout'\r\n"
TOO_LONG = b"-ERR 'maximum control line exceeded'\r\n"


def test_silent_and_slow_peers_are_closed(guarded: Victim) -> None:
    with several(50, guarded.peer) as silent, guarded.peer() as slow:
        for byte in b"CONNECT {":
            slow.send(bytes([byte]))
        assert {peer.read_to_end() for peer in (*silent, slow)} == {TIMEOUT}


@pytest.mark.parametrize(
    "said",
    [
        "PING\r\n",
        "SUB > 1\r\n",
        "PUB a 0\r\n\r\n",
        "UNSUB 1\r\n",
        "+OK\r\n",
        "INFO {}\r\n",
        "-ERR x\r\n",
        "HPUB a 0 0\r\n\r\n",
        "MSG a 1 0\r\n\r\n",
        "\x00\x00\x00",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n",
        "RS+ $G a\r\n",
    ],
)
def test_only_connect_is_accepted_before_login(guarded: Victim, said: str) -> None:
    assert guarded.answer(said) == VIOLATION


def test_commands_after_refused_login_are_ignored(guarded: Victim) -> None:
    with guarded.client() as witness:
        witness.send("SUB > 1\r\n")
        witness.fence()
        told = guarded.answer(connect_line(user="amy", **{"pass": "wrong"}) + "PUB a 2\r\nhi\r\n")
        assert told == VIOLATION
        assert witness.deliveries() == []


@pytest.mark.parametrize(
    "options",
    [
        {"account": "$SYS"},
        {"account": "OTHER", "new_account": True},
        {"user": "amy", "pass": ""},
        {"user": "", "pass": "secret"},
        {"user": "amy\x00", "pass": "secret"},
        {"user": "amy", "pass": "secret" * 500},
        {"user": "$SYS", "pass": "secret"},
        {"auth_token": "secret"},
        {"nkey": "U" * 56, "sig": "x" * 86},
        {"jwt": "eyJhbGciOiJub25lIn0.e30.", "sig": "x"},
    ],
)
def test_other_kinds_of_credentials_are_refused(
    guarded: Victim, options: dict[str, object]
) -> None:
    assert guarded.answer(connect_line(**options)) == VIOLATION


@pytest.mark.parametrize("start", [b"CONNECT ", b"PING ", b"SUB ", b"PUB ", b"-ERR ", b"INFO "])
def test_endless_line_ends_connection(unguarded: Victim, start: bytes) -> None:
    before = unguarded.resident()
    with unguarded.peer() as peer:
        peer.try_send(start)
        for _ in range(64):
            peer.try_send(b"x" * 65_536)
        assert peer.read_to_end() in (TOO_LONG, b"")
    assert unguarded.resident() - before < 8 * MIB


@pytest.mark.parametrize("start", [b"CONNECT", b"SUB", b"PUB"])
def test_endless_blanks_end_connection(unguarded: Victim, start: bytes) -> None:
    with unguarded.peer() as peer:
        peer.try_send(start)
        for _ in range(64):
            peer.try_send(b" \t" * 32_768)
        assert peer.read_to_end() in (TOO_LONG, b"")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"}",
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b"{} {}",
        b'{"a":' * 600 + b"1" + b"}" * 600,
        b"[" * 4000,
        b'{"verbose":NaN}',
        b'{"verbose":Infinity}',
        b'{"protocol":1e999}',
        b'{"protocol":' + b"9" * 4000 + b"}",
        b'{"protocol":-1}',
        b'{"protocol":1.5}',
        b'{"verbose":"yes"}',
        b'{"user":1}',
        b'{"user":{"$gt":""}}',
        b'{"user":"amy","user":"bob","pass":"x"}',
        b'{"USER":"amy","User":"bob"}',
        b'{"user":"\\ud800"}',
        b'{"user":"\xff\xfe"}',
        b'{"user":"\\u0000"}',
        b'{"echo":null,"verbose":null}',
        b"\x00" * 100,
        b"{\x00}",
    ],
)
@pytest.mark.parametrize("login", [True, False], ids=["guarded", "open"])
def test_connect_with_any_payload_never_stops_server(
    request: pytest.FixtureRequest, payload: bytes, login: bool
) -> None:
    victim: Victim = request.getfixturevalue("guarded" if login else "unguarded")
    with victim.peer() as peer:
        peer.try_send(b"CONNECT " + payload + b"\r\nPING\r\n")
        peer.socket.shutdown(socket.SHUT_WR)
        told = peer.read_to_end()
    if login:
        assert b"PONG" not in told


@pytest.mark.parametrize("size", ["-1", "9223372036854775808", "0x10", "1.5", "1e3", "+1", "१", ""])
@pytest.mark.parametrize("line", ["PUB a {}", "PUB a b {}", "HPUB a 0 {}", "HPUB a {} 0"])
def test_invalid_size_closes_connection_without_error_line(
    unguarded: Victim, size: str, line: str
) -> None:
    told = unguarded.answer(connect_line(headers=True), line.format(size) + "\r\n", b"x" * 32)
    assert told in (b"", b"-ERR 'Unknown Protocol Operation'\r\n")


def test_header_larger_than_its_message_closes_connection(unguarded: Victim) -> None:
    assert unguarded.answer(connect_line(headers=True) + "HPUB a 20 10\r\n" + "x" * 40) == b""


@pytest.mark.parametrize(
    "name", ["a\x00b", "a\x01", "\x1b[31m", "\x7f", "a\x0bb", "\x85", "'", "é"]
)
def test_control_characters_in_names_forge_no_log_line(
    attack: Callable[..., Victim], name: str
) -> None:
    victim = attack("", "-DV")
    with victim.client() as peer:
        peer.send(f"SUB {name} {name} {name}\r\nPUB {name} {name} 2\r\nhi\r\n")
        got = peer.deliveries()
        assert [(one.subject, one.sid, one.reply, one.payload) for one in got] == [
            (name, name, name, b"hi")
        ]
    log = victim.server.log_path.read_bytes()
    assert not any(byte in log for byte in (0, 1, 0x0B, 0x1B, 0x7F))
    assert all(line.startswith(b"[") for line in log.splitlines() if line)


def test_flood_during_password_check_leaves_server_healthy(
    attack: Callable[..., Victim],
) -> None:
    """What waits behind a pending login is kept, up to a bound, and goes with the peer."""
    import bcrypt

    hashed = bcrypt.hashpw(b"secret-secret-secret", bcrypt.gensalt(10)).decode()
    victim = attack(
        f'authorization {{ user: amy, password: "{hashed}", timeout: 20 }}\n',
        login={"user": "amy", "pass": "secret-secret-secret"},
    )
    before = victim.resident()
    line = connect_line(user="amy", **{"pass": "wrong"}).encode()
    for _ in range(4):
        peer = victim.peer()
        peer.try_send(line + b"X" * 600_000)
        peer.reset()
    victim.check_well()
    assert victim.resident() - before < 16 * MIB


def test_half_sent_frames_leak_no_memory(unguarded: Victim) -> None:
    """Connections that come, leave half a frame, and go; by the hundred, again and again."""

    def wave(seed: int) -> None:
        dice = random.Random(seed)
        files = unguarded.open_files()
        for _ in range(100):
            with unguarded.peer() as peer:
                peer.try_send(connect_line() + f"PUB a {dice.randrange(1, 1 << 20)}\r\n")
                peer.try_send(b"x" * dice.randrange(1 << 18))
        unguarded.wait_for_files(files)

    wave(0)
    before = unguarded.resident()
    for seed in range(1, 4):
        wave(seed)
    assert unguarded.resident() - before < 16 * MIB


def test_server_survives_running_out_of_file_descriptors(attack: Callable[..., Victim]) -> None:
    import resource

    victim = attack()
    files = victim.open_files()
    resource.prlimit(victim.server.pid, resource.RLIMIT_NOFILE, (files + 10, files + 10))
    waiting = [socket.create_connection(("127.0.0.1", victim.port)) for _ in range(60)]
    victim.server.wait_for_log("accept failed")
    for one in waiting:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    victim.wait_for_files(files)
    victim.check_well()


@pytest.mark.parametrize("first", [True, False], ids=["tls-first", "info-first"])
def test_plain_text_on_tls_listener_gets_no_reply(
    attack: Callable[..., Victim], certificates: Certificates, first: bool
) -> None:
    victim = attack(
        certificates.block(*["handshake_first: true"] if first else []),
        transport="tls-first" if first else "tls",
        context=certificates.context(),
    )
    for said in (connect_line() + "PING\r\n", "\x00" * 200, "\x16\x03\x01" + "\xff" * 300):
        with Peer(victim.port, greeted=not first) as peer:
            peer.try_send(said.encode("latin-1"))
            assert b"PONG" not in peer.read_to_end()


def test_tls_hello_on_plain_listener_is_refused(unguarded: Victim) -> None:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2
    assert unguarded.answer(hello) == b"-ERR 'Unknown Protocol Operation'\r\n"
