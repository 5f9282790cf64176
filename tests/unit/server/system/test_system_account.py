"""The server's own subscriptions and events, in one process."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from penstock.server.config.options import AccountOptions, UserOptions
from penstock.server.server_app import Server
from penstock.server.system import system_account, system_requests
from penstock.subjects.trie import Subscription
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.server.server_state import ServerState

pytestmark = pytest.mark.sockets

INBOX = "_INBOX.test"


@pytest.fixture
async def service() -> AsyncIterator[ServerState]:
    async with Server() as server:
        yield server.service


class Ear:
    """Hears a subject of an account from inside the process."""

    def __init__(self, service: ServerState, subject: str, account: str = "$SYS") -> None:
        self.heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        subscription = Subscription(subject, value=self._hear)
        service.accounts[account].interest.insert(subscription, call=True)

    def _hear(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: object
    ) -> None:
        self.heard.put_nowait((subject, json.loads(payload or b"null")))

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.heard.get()


def ask(service: ServerState, subject: str, body: bytes = b"", account: str = "$SYS") -> int:
    interest = service.accounts[account].interest
    return service.io_loop.publish(interest, subject, body, reply=INBOX)


async def test_request_is_answered_on_its_reply_subject(service: ServerState) -> None:
    ear = Ear(service, INBOX)
    assert ask(service, "$SYS.REQ.SERVER.PING.IDZ") == 1
    assert (await ear.next())[1]["id"] == service.server_id


async def test_request_without_reply_costs_nothing(service: ServerState) -> None:
    ear = Ear(service, ">")
    service.io_loop.publish(service.accounts["$SYS"].interest, "$SYS.REQ.SERVER.PING", b"")
    assert (await ear.next())[0] == "$SYS.REQ.SERVER.PING"
    assert ear.heard.empty()


async def test_request_that_fails_is_logged_and_affects_no_other_client(
    service: ServerState, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(system_requests, "page", broken)
    ear = Ear(service, INBOX)
    with caplog.at_level(logging.ERROR):
        ask(service, "$SYS.REQ.SERVER.PING.VARZ")
    assert "out of order" in caplog.text
    ask(service, "$SYS.REQ.SERVER.PING.IDZ")
    assert (await ear.next())[1]["id"] == service.server_id


async def test_account_that_comes_with_reload_is_served() -> None:
    users = (UserOptions(user="amy", password="amy"),)
    async with Server() as server:
        service = server.service
        options = server.options
        service.configure(replace(options, accounts=(AccountOptions(name="NEW", users=users),)))
        ear = Ear(service, INBOX, "NEW")
        ask(service, "$SYS.REQ.ACCOUNT.PING.STATZ", account="NEW")
        statz = (await ear.next())[1]["data"]["account_statz"]
    assert [stat["acc"] for stat in statz] == ["NEW"]


async def test_account_without_system_account_is_left_alone() -> None:
    async with Server(no_system_account=True) as server:
        assert len(server.service.accounts["$G"].interest) == 0


async def test_storm_of_connections_is_reported_at_once_and_once_more(
    service: ServerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_account, "CONNS_GAP_S", 0.01)
    told: asyncio.Queue[str] = asyncio.Queue()
    voice = system_account.System(service)
    monkeypatch.setattr(
        voice, "_publish_connections", lambda account: told.put_nowait(account.name)
    )
    account = service.accounts["$G"]
    for _ in range(100):
        voice._connections_changed(account)
    assert told.qsize() == 1
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert [await told.get(), await told.get()] == ["$G", "$G"]
    voice.stop()
    assert told.empty()


async def test_event_without_listeners_is_not_built(
    service: ServerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    voice = service.system
    assert voice is not None
    monkeypatch.setattr(voice, "_identity", lambda: made.append(1))
    voice.lame_duck()
    assert made == []


@pytest.mark.parametrize("payload", [b"{", b"[]", b'{"tags": 1}', b"[" * 5000])
def test_body_that_is_not_what_it_must_be_is_malformed(payload: bytes) -> None:
    with pytest.raises(system_requests.MalformedRequest):
        system_requests.read_body(payload, system_requests.Filter)


def test_empty_body_asks_for_defaults() -> None:
    assert system_requests.read_body(b"", system_requests.Filter) == system_requests.Filter()
