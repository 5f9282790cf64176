"""A reload asks no service for what is known already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import bcrypt
import nats
import pytest

from penstock.server import config_reload
from penstock.server.auth import authenticator
from penstock.server.server_app import Server
from support.followed_folds import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sockets

PASSWORD = "b"


def configuration(hashed: str, publish: str = ">") -> str:
    user = f'user: bob, password: "{hashed}", permissions: {{ publish: "{publish}" }}'
    return f'listen: "127.0.0.1:-1"\nauthorization {{ users: [ {{ {user} }} ] }}\n'


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes that a password was compared with."""
    seen: list[str] = []

    def matches(configured: str, presented: str) -> bool:
        seen.append(configured)
        return bcrypt.checkpw(presented.encode(), configured.encode())

    monkeypatch.setattr(authenticator, "matches_bcrypt", matches)
    return seen


async def test_password_that_was_proved_is_not_compared_again(
    tmp_path: Path, compared: list[str]
) -> None:
    file = tmp_path / "server.conf"
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    file.write_text(configuration(hashed))
    async with Server(config=file) as server:
        client = await nats.connect(server.url, user="bob", password=PASSWORD)
        assert compared == [hashed]
        [session] = server.service.sessions.values()
        before = session.guards
        file.write_text(configuration(hashed, publish="elsewhere"))
        server.reload()
        assert compared == [hashed]
        assert session.link.close_reason is None
        assert session.guards is not before, "its new permissions hold at once"
        await client.close()


async def test_negative_limit_lets_in_as_many_as_come(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    listening = 'listen: "127.0.0.1:-1"\n'
    file.write_text(f"{listening}max_connections: -1\n")
    async with Server(config=file) as server:
        clients = [await nats.connect(server.url) for _ in range(3)]
        file.write_text(f"{listening}max_connections: -2\n")
        server.reload()
        for client in clients:
            await client.flush()
            await client.close()


async def test_many_clients_are_checked_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice is one client here; the clients of the removed user are all closed in the end."""
    monkeypatch.setattr(config_reload, "SLICE_NS", 0)
    file = tmp_path / "server.conf"
    users = "{ user: amy, password: x }, { user: bob, password: x }"
    file.write_text(f'listen: "127.0.0.1:-1"\nauthorization {{ users: [ {users} ] }}\n')
    async with Server(config=file) as server:
        clients = [
            await nats.connect(server.url, user=name, password="x", allow_reconnect=False)
            for name in ("amy", "bob") * 5
        ]
        sessions = list(server.service.sessions.values())
        file.write_text(file.read_text().replace(", { user: bob, password: x }", ""))
        server.reload()
        assert sum(one.link.close_reason is not None for one in sessions) < 5
        server.reload()  # while the first one is under way
        await until(lambda: len(server.service.sessions) == 5, "the others are closed")
        assert {one.user for one in server.service.sessions.values()} == {"amy"}
        for client in clients:
            await client.close()
