"""Refused publishes and subscriptions, in the log of both servers at the default level."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support.servers import until
from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import Implementation, ServerPool, ServerUnderTest, Starter

CONFIG = """
max_sub_tokens: 4
mappings { "pub.*": "secret.$1" }
authorization {
  users: [
    { user: amy, password: p, permissions: {
        publish: { deny: "secret.>" }, subscribe: { deny: ["secret.>", "work bad"] } } }
    { user: bob, password: p }
  ]
}
"""
LINE = re.compile(r"\[ERR\] 127\.0\.0\.1:\d+ - cid:(\d+) - (.*)")
LOGIN = {"user": "amy", "pass": "p"}
REFUSED = {
    "a publish": ("PUB secret.a 1\r\nx", 'Publish Violation - Subject "secret.a"'),
    "a mapped publish": ("PUB pub.a 1\r\nx", 'Publish Violation - Subject "secret.a"'),
    "a reserved subject": ("PUB $NRG.x 1\r\nx", 'Publish Violation - Subject "$NRG.x"'),
    "a reserved reply": ("PUB a $JS.ACK.x.y 1\r\nx", 'Publish Violation - Reply "$JS.ACK.x.y"'),
    "a subscription": ("SUB secret.a 7", 'Subscription Violation - Subject "secret.a", SID 7'),
    "a queue subscription": (
        "SUB work bad 7",
        'Subscription Violation - Subject "work", Queue: "bad", SID 7',
    ),
    "too many tokens": (
        "SUB a.b.c.d.e 7",
        'Subscription Violation Too Many Tokens - Subject "a.b.c.d.e", SID 7',
    ),
    "a subject with quotes": (
        'PUB secret."\\\u00e9 1\r\nx',
        'Publish Violation - Subject "secret.\\"\\\\\u00e9"',
    ),
}


@pytest.fixture
def guarded(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    return pool.get(implementation, CONFIG)


def _logged(server: ServerUnderTest, cid: int) -> list[str]:
    return [text for number, text in LINE.findall(server.log) if int(number) == cid]


@pytest.mark.parametrize("case", REFUSED)
def test_permission_violation_is_logged(guarded: ServerUnderTest, case: str) -> None:
    sent, text = REFUSED[case]
    with Wire(guarded.address) as wire:
        wire.connect(**LOGIN)
        wire.send(f"{sent}\r\n")
        assert wire.line().startswith("-ERR 'Permissions Violation for ")
        cid = wire.info["client_id"]
        until(lambda: bool(_logged(guarded, cid)), "the refusal in the log")
        assert _logged(guarded, cid) == [f'"$G/user:amy" - {text}']


LABELS = [
    ({"name": "me", "lang": "py", "version": "1.2"}, '"v1.2:py:me" - "$G/user:amy"'),
    ({"name": "me"}, '"me" - "$G/user:amy"'),
    ({"lang": "py", "name": 'q"'}, '"py:q\\"" - "$G/user:amy"'),
]


@pytest.mark.parametrize(("said", "label"), LABELS)
def test_log_names_program_account_and_user(
    guarded: ServerUnderTest, said: dict[str, str], label: str
) -> None:
    with Wire(guarded.address) as wire:
        wire.connect(**LOGIN, **said)
        wire.send("PUB secret.a 1\r\nx\r\n")
        cid = wire.info["client_id"]
        until(lambda: bool(_logged(guarded, cid)), "the refusal in the log")
        assert _logged(guarded, cid) == [f'{label} - Publish Violation - Subject "secret.a"']


def test_client_without_user_is_named_by_its_program_alone(server: ServerUnderTest) -> None:
    with Wire(server.address) as wire:
        wire.connect(name="me")
        wire.send("PUB $NRG.x 1\r\nx\r\n")
        cid = wire.info["client_id"]
        until(lambda: bool(_logged(server, cid)), "the refusal in the log")
        assert _logged(server, cid) == ['"me" - Publish Violation - Subject "$NRG.x"']


USERS = {
    "token": (
        "authorization { token: hush }",
        {"auth_token": "hush"},
        '"$G/token"',
    ),
    "no_auth_user": (
        "accounts { A { users: [ {user: amy, password: p} ] } }\nno_auth_user: amy",
        {},
        '"A/user:amy"',
    ),
}


@pytest.mark.parametrize("kind", USERS)
def test_log_names_users_of_every_kind(
    pool: ServerPool, implementation: Implementation, kind: str
) -> None:
    config, login, label = USERS[kind]
    server = pool.get(implementation, config)
    with Wire(server.address) as wire:
        wire.connect(**login)
        wire.send("PUB $NRG.x 1\r\nx\r\n")
        cid = wire.info["client_id"]
        until(lambda: bool(_logged(server, cid)), "the refusal in the log")
        assert _logged(server, cid) == [f'{label} - Publish Violation - Subject "$NRG.x"']


def test_message_that_is_too_large_is_logged(start: Starter) -> None:
    server = start("max_payload: 4\n")
    with Wire(server.address) as wire:
        wire.connect()
        wire.send("PUB a 5\r\nhello\r\n")
        server.wait_for_log(r"\[ERR\] .* - cid:\d+ - maximum payload exceeded: 5 vs 4")


def test_subscription_limit_is_logged_at_intervals(start: Starter) -> None:
    server = start("max_subscriptions: 1\n")
    with Wire(server.address) as wire:
        wire.connect()
        wire.send("SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
        wire.expect(
            "-ERR 'maximum subscriptions exceeded'", "-ERR 'maximum subscriptions exceeded'"
        )
        server.wait_for_log(r"\[ERR\] .* - cid:\d+ - maximum subscriptions exceeded")
        wire.expect_quiet()
    assert server.log.count("maximum subscriptions exceeded") == 1


def test_subscription_that_reload_forbids_is_logged(start: Starter) -> None:
    before = 'authorization { users: [ { user: "a m\\"y", password: p } ] }\n'
    server = start(before)
    with Wire(server.address) as wire:
        wire.connect(user='a m"y', **{"pass": "p"})
        wire.send("SUB foo 1\r\nSUB foo work 2\r\n")
        wire.expect_quiet()
        server.reload(before.replace("password: p", 'password: p, permissions: { subscribe: "x" }'))
        lines = re.findall(r"\[INF\] (Removed sub .*)", server.log)
    assert sorted(lines) == [
        'Removed sub "foo" (sid "1") for User "a m\\"y" - not authorized',
        'Removed sub "foo" using queue "work" (sid "2") for User "a m\\"y" - not authorized',
    ]


def test_clients_of_system_account_may_publish_to_raft_subjects(start: Starter) -> None:
    server = start("accounts { $SYS { users: [ { user: sys, password: p } ] } }\n")
    with Wire(server.address) as wire:
        wire.connect(user="sys", **{"pass": "p"})
        wire.send("SUB $NRG.x 1\r\nPUB $NRG.x 1\r\n1\r\n")
        wire.expect("MSG $NRG.x 1 1", "1")
        wire.send("PUB _GR_.x 1\r\n1\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"_GR_.x\"'")
