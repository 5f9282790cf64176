"""A reload by SIGHUP: what it changes for clients that are connected already."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

import bcrypt
import pytest

from support.configs import reference
from support.monitor import fetch
from support.servers import REFERENCE, until
from support.wire import Wire, WireError

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import ServerUnderTest, Starter


REFUSED = "-ERR 'Authorization Violation'"
AMY = "{user: amy, password: a}"
BOB = "{user: bob, password: b}"
BOB_MOVED = "{user: bob, password: c}"
BOB_BOUND = '{user: bob, password: b, permissions: {publish: "out", subscribe: "foo"}}'


def _users(*users: str) -> str:
    return f"authorization {{ users: [ {', '.join(users)} ] }}\n"


def _login(server: ServerUnderTest, user: str, password: str) -> Wire:
    wire = Wire(server.address, name=user)
    wire.connect(user=user, **{"pass": password})
    return wire


def test_removed_user_is_disconnected_and_others_stay(start: Starter) -> None:
    server = start(_users(AMY, BOB))
    with _login(server, "amy", "a") as amy, _login(server, "bob", "b") as bob:
        server.reload(_users(BOB))
        amy.expect_closed()
        bob.expect_quiet()


def test_removed_user_cannot_come_back(start: Starter) -> None:
    server = start(_users(AMY, BOB))
    server.reload(_users(BOB))
    with Wire(server.address) as wire:
        wire.send('CONNECT {"user":"amy","pass":"a"}\r\n')
        wire.expect(REFUSED)
        wire.expect_closed()


@pytest.mark.parametrize("before", [f"accounts {{ ONE {{ users: [ {AMY} ] }} }}\n", _users(AMY)])
def test_user_moved_to_another_account_is_disconnected_without_error_line(
    start: Starter, before: str
) -> None:
    server = start(f"http_port: -1\n{before}")
    with _login(server, "amy", "a") as amy:
        server.reload(f"http_port: -1\naccounts {{ TWO {{ users: [ {AMY} ] }} }}\n")
        amy.expect_closed()
    assert _farewells(server) == ["Client Closed"]
    with _login(server, "amy", "a") as amy:
        amy.expect_quiet()


@pytest.mark.parametrize(
    ("after", "reason", "complaints"),
    [(BOB, "Client Closed", 0), ("{user: amy, password: other}", "Authentication Failure", 1)],
    ids=["removed", "changed"],
)
def test_close_reason_of_reload_is_shown(
    start: Starter, after: str, reason: str, complaints: int
) -> None:
    server = start("http_port: -1\n" + _users(AMY))
    with _login(server, "amy", "a"):
        server.reload("http_port: -1\n" + _users(after))
        until(lambda: _farewells(server) != [], "a closed client")
    assert _farewells(server) == [reason]
    assert server.log.count('authentication error - User "amy"') == complaints


def _farewells(server: ServerUnderTest) -> list[str]:
    closed = fetch(f"{server.http_url}/connz?state=closed").json["connections"]
    return [row["reason"] for row in closed]


def test_reload_logs_digest_of_configuration(start: Starter, tmp_path: Path) -> None:
    server = start("max_payload: 1000\n")
    server.reload("max_payload: 10\n")
    line = server.wait_for_log(r"Reloaded server configuration \((sha256:[0-9a-f]{64})\)")
    if REFERENCE is not None:
        _, told = reference(["-t", "-c", str(server.config_path)], tmp_path)
        assert line[1] in told


def test_added_user_can_log_in_and_others_stay_connected(start: Starter) -> None:
    server = start(_users(AMY))
    with _login(server, "amy", "a") as amy:
        server.reload(_users(AMY, BOB))
        _login(server, "bob", "b").close()
        amy.expect_quiet()


def test_changed_password_disconnects_with_reason(start: Starter) -> None:
    server = start(_users(AMY, BOB))
    with _login(server, "bob", "b") as bob:
        server.reload(_users(AMY, BOB_MOVED))
        bob.expect(REFUSED)
        bob.expect_closed()
    _login(server, "bob", "c").close()


def _hashed(password: str) -> str:
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
    return f'{{user: bob, password: "{hashed}"}}'


def test_new_hash_of_the_same_password_disconnects_no_client(start: Starter) -> None:
    server = start(_users(_hashed("b")))
    with _login(server, "bob", "b") as bob:
        server.reload(_users(_hashed("b")))
        bob.send("PING\r\n")
        bob.expect("PONG")
        bob.expect_quiet()


def test_hash_of_another_password_disconnects_with_reason(start: Starter) -> None:
    server = start(_users(AMY, _hashed("b")))
    with _login(server, "bob", "b") as bob, _login(server, "amy", "a") as amy:
        server.reload(_users(AMY, _hashed("c")))
        bob.expect(REFUSED)
        bob.expect_closed()
        amy.expect_quiet()


def test_new_permissions_wait_for_comparison_with_new_hash(start: Starter) -> None:
    bound = BOB[:-1] + ', permissions: {publish: "out"}}'
    slow = bcrypt.hashpw(b"c", bcrypt.gensalt(12)).decode()
    server = start(_users(AMY, bound))
    with _login(server, "bob", "b") as bob, _login(server, "amy", "a") as amy:
        amy.send("SUB secret 1\r\nPING\r\n")
        amy.expect("PONG")
        server.reload(_users(AMY, f'{{user: bob, password: "{slow}"}}'))
        with contextlib.suppress(OSError):  # the reference has closed the connection already
            bob.send("PUB secret 1\r\nx\r\n" * 100)
        bob.expect(REFUSED)
        bob.expect_closed()
        amy.expect_quiet()


def test_password_replaced_by_its_hash_disconnects_no_client(start: Starter) -> None:
    server = start(_users(BOB))
    with _login(server, "bob", "b") as bob:
        server.reload(_users(_hashed("b")))
        bob.send("PING\r\n")
        bob.expect("PONG")
        bob.expect_quiet()


def test_changed_token_disconnects_with_reason(start: Starter) -> None:
    server = start("authorization { token: one }\n")
    with Wire(server.address) as wire:
        wire.connect(auth_token="one")
        server.reload("authorization { token: two }\n")
        wire.expect(REFUSED)
        wire.expect_closed()


def test_enabling_authorization_disconnects_anonymous_clients(start: Starter) -> None:
    server = start("max_payload: 1000\n")
    with Wire(server.address) as wire:
        wire.connect()
        server.reload(_users(AMY))
        wire.expect(REFUSED)
        wire.expect_closed()


def test_disabling_authorization_admits_every_client(start: Starter) -> None:
    server = start(_users(AMY))
    with _login(server, "amy", "a") as amy:
        server.reload("max_payload: 1000\n")
        amy.expect_closed()
    with Wire(server.address) as wire:
        assert "auth_required" not in wire.info
        wire.connect()


def test_lost_permissions_end_subscriptions_with_error(start: Starter) -> None:
    server = start(_users(BOB))
    with _login(server, "bob", "b") as bob:
        bob.send("SUB foo 1\r\nSUB bar 2\r\n")
        bob.expect_quiet()
        server.reload(_users(BOB_BOUND))
        bob.expect('-ERR \'Permissions Violation for Subscription to "bar" (sid "2")\'')
        bob.send("PUB foo 0\r\n\r\n")
        bob.expect("-ERR 'Permissions Violation for Publish to \"foo\"'")
        bob.expect_quiet()
        with _login(server, "bob", "b") as other:
            other.send("PUB out 0\r\n\r\n")
            other.expect_quiet()
        bob.expect_quiet()


def test_unchanged_user_keeps_its_subscriptions(start: Starter) -> None:
    server = start(_users(AMY, BOB))
    with _login(server, "bob", "b") as bob:
        bob.send("SUB foo 1\r\n")
        bob.expect_quiet()
        server.reload(_users(BOB))
        bob.send("PUB foo 2\r\nhi\r\n")
        bob.expect("MSG foo 1 2", "hi")


def test_new_payload_limit_applies_to_new_connections(start: Starter) -> None:
    server = start("max_payload: 1000\n")
    server.reload("max_payload: 10\n")
    with Wire(server.address) as wire:
        assert wire.info["max_payload"] == 10
        wire.connect()
        wire.send("PUB foo 11\r\n")
        wire.expect("-ERR 'Maximum Payload Violation'")
        wire.expect_closed()


def test_lower_max_connections_closes_surplus(start: Starter) -> None:
    server = start("max_connections: 10\n")
    wires = [Wire(server.address, name=str(n)) for n in range(3)]
    for wire in wires:
        wire.connect()
    server.reload("max_connections: 1\n")
    assert sorted(_fate(wire) for wire in wires) == ["closed", "closed", "open"]
    for wire in wires:
        wire.close()


def _fate(wire: Wire) -> str:
    wire.send("PING\r\n")
    if (first := wire.line()) == "PONG":
        return "open"
    assert first == "-ERR 'maximum connections exceeded'"
    with pytest.raises(WireError):
        wire.line()
    return "closed"


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("max_payload: [\n", "Parse error on line 2"),
        ("server_name: other\n", "config reload not supported for ServerName"),
        ("max_payload: 1000\nno_such_key: 1\n", 'unknown field "no_such_key"'),
    ],
    ids=["syntax", "unsupported", "unknown"],
)
def test_invalid_reload_is_logged_and_changes_nothing(
    start: Starter, config: str, complaint: str
) -> None:
    server = start("max_payload: 1000\n")
    with Wire(server.address) as wire:
        wire.connect()
        server.config_path.write_text(config)
        server.send_signal(signal.SIGHUP)
        line = server.wait_for_log(r"\[ERR\] Failed to reload server configuration: .*")
        assert complaint in line[0]
        wire.expect_quiet()
    with Wire(server.address) as wire:
        assert wire.info["max_payload"] == 1000


SHOP = "SHOP { users: [ {user: shop, password: s} ], exports: [ {stream: news}, {service: ask} ] }"
GUEST = "GUEST { users: [ {user: guest, password: g} ]%s }"
TAKES = (
    ", imports: [ {stream: {account: SHOP, subject: news}, to: their.news},"
    " {service: {account: SHOP, subject: ask}} ], mappings: { old: new }"
)


def _shared(takes: str) -> str:
    return f"accounts {{ {SHOP}\n{GUEST % takes} }}\n"


def test_imports_and_mappings_change_under_subscriptions(start: Starter) -> None:
    server = start(_shared(""))
    with _login(server, "shop", "s") as shop, _login(server, "guest", "g") as guest:
        guest.send("SUB their.news 1\r\nSUB new 2\r\n")
        guest.expect_quiet()
        shop.send("SUB ask 1\r\n")
        shop.expect_quiet()
        for takes in (TAKES, "", TAKES):
            server.reload(_shared(takes))
            shop.send("PUB news 2\r\nhi\r\n")
            shop.expect_quiet()
            guest.send("PUB old 2\r\nho\r\nPUB ask 2\r\nha\r\n")
            if takes:
                guest.expect("MSG their.news 1 2", "hi", "MSG new 2 2", "ho")
                shop.expect("MSG ask 1 2", "ha")
            guest.expect_quiet()
            shop.expect_quiet()


def test_lower_connection_limit_of_account_closes_surplus(start: Starter) -> None:
    def limited(connections: int) -> str:
        return f"accounts {{ ONE {{ users: [ {AMY} ], limits: {{max_conn: {connections}}} }} }}\n"

    server = start(limited(2))
    with _login(server, "amy", "a") as one, _login(server, "amy", "a") as other:
        server.reload(limited(1))
        wires = [one, other]
        gone = [wire for wire in wires if _is_told(wire)]
        assert len(gone) == 1
        gone[0].expect_closed()
        wires.remove(gone[0])
        wires[0].expect_quiet()


def _is_told(wire: Wire) -> bool:
    wire.send("PING\r\n")
    return wire.line() == "-ERR 'maximum account active connections exceeded'"
