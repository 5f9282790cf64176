"""System requests and events, held against the reference: same subjects, same JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from support.monitor import CONFIG, SECRETS, ordered, shape, without
from support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.monitor import Pair, Scene
    from support.servers import ServerUnderTest, Starter

INBOX = "_INBOX.test"
MESSAGE = re.compile(r"MSG (\S+) (\S+) +(?:(\S+) )?(\d+)")
#: What one of the two has alone: ours names itself, the reference its build and its imports;
#: and what depends on who asked before.
ONE_SIDED = {"penstock", "penstock_loop", "git_commit", "imports", "exports", "http_req_stats"}


class Asker:
    """A client that asks, and hears."""

    def __init__(self, server: ServerUnderTest, user: str) -> None:
        self.wire = Wire(server.address, name=user)
        self.wire.connect(
            **{"user": user, "pass": f"{user}-secret"}, headers=True, no_responders=True, protocol=1
        )
        self.wire.expect_info()  # how it is connected, after the first PING
        self.wire.send(f"SUB {INBOX} inbox\r\n")
        self.wire.expect_quiet()

    def ask(self, subject: str, body: str = "") -> Any:
        """The reply as JSON; None if this subject has no responder."""
        self.wire.send(f"PUB {subject} {INBOX} {len(body)}\r\n{body}\r\n")
        line = self.wire.line()
        if line.startswith("HMSG"):
            self.wire.expect("NATS/1.0 503", re.compile("Nats-Subject: .*"), "", "")
            return None
        return json.loads(self._payload(line)[1])

    def next_event(self) -> tuple[str, Any]:
        subject, payload = self._payload(self.wire.line())
        return subject, json.loads(payload)

    def events_until(self, pattern: str) -> list[tuple[str, Any]]:
        """What is heard, up to the first subject that the pattern finds; heartbeats left out."""
        heard: list[tuple[str, Any]] = []
        while not heard or not re.search(pattern, heard[-1][0]):
            event = self.next_event()
            if not event[0].endswith("STATSZ"):
                heard.append(event)
        return heard

    def _payload(self, line: str) -> tuple[str, str]:
        head = MESSAGE.fullmatch(line)
        assert head is not None, line
        payload = self.wire.read_exactly(int(head[4]) + 2)[:-2]
        return head[1], payload.decode()


class Join(Protocol):
    """Connects a user whose connection ends with the test."""

    def __call__(self, server: ServerUnderTest, user: str) -> Asker: ...


@pytest.fixture
def join() -> Iterator[Join]:
    joined: list[Asker] = []

    def connect(server: ServerUnderTest, user: str) -> Asker:
        joined.append(Asker(server, user))
        return joined[-1]

    yield connect
    for asker in joined:
        asker.wire.close()


@pytest.fixture(params=["ours", "reference"])
def scene(pair: Pair, request: pytest.FixtureRequest) -> Scene:
    found: Scene = getattr(pair, request.param)
    return found


@pytest.fixture
def sam(scene: Scene, join: Join) -> Asker:
    """A user of the system account."""
    return join(scene.server, "sam")


@pytest.fixture
def sams(pair: Pair, join: Join) -> tuple[Asker, Asker]:
    """The same user of the system account on both servers."""
    return join(pair.ours.server, "sam"), join(pair.reference.server, "sam")


REQUESTS = [
    ("PING", ""),
    ("PING.IDZ", ""),
    ("PING.STATSZ", ""),
    ("PING.VARZ", ""),
    ("PING.CONNZ", ""),
    ("PING.CONNZ", '{"subscriptions": true, "auth": true, "acc": "B"}'),
    ("PING.CONNZ", '{"subscriptions_detail": true, "state": 1, "limit": 1}'),
    ("PING.CONNZ", '{"acc": "NOPE"}'),
    ("PING.SUBSZ", ""),
    ("PING.SUBSZ", '{"subscriptions": true, "test": "foo.bar"}'),
    ("PING.HEALTHZ", ""),
    ("PING.HEALTHZ", '{"stream": "s"}'),
    ("PING.ACCOUNTZ", ""),
    ("PING.ACCOUNTZ", '{"account": "A"}'),
    ("PING.ROUTEZ", ""),
    ("PING.GATEWAYZ", ""),
    ("PING.LEAFZ", ""),
    ("PING.JSZ", ""),
    ("<id>.STATSZ", ""),
    ("<id>.VARZ", ""),
    ("<id>.CONNZ", '{"unknown": 1}'),
]


@pytest.mark.parametrize(("name", "body"), REQUESTS)
def test_request_is_answered_with_reference_s_fields(
    sams: tuple[Asker, Asker], pair: Pair, name: str, body: str
) -> None:
    mine, theirs = (
        _shape(asker.ask(_subject(scene, name), body))
        for asker, scene in zip(sams, (pair.ours, pair.reference), strict=True)
    )
    assert mine == theirs


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("PING.CONNZ", '{"sort": "bogus"}'),
        ("PING.SUBSZ", '{"test": "foo.*"}'),
        ("PING.ACCOUNTZ", '{"account": "NOPE"}'),
        ("<id>.KICK", '{"cid": 999999}'),
        ("<id>.LDM", "{}"),
    ],
)
def test_request_is_refused_with_reference_s_error(
    sams: tuple[Asker, Asker], pair: Pair, name: str, body: str
) -> None:
    mine, theirs = (
        without(asker.ask(_subject(scene, name), body), {"server"})
        for asker, scene in zip(sams, (pair.ours, pair.reference), strict=True)
    )
    assert mine == theirs


@pytest.mark.parametrize("body", ["{bad", "[]", '{"limit": "x"}'])
def test_unreadable_body_is_bad_request(sam: Asker, body: str) -> None:
    answer = sam.ask("$SYS.REQ.SERVER.PING.CONNZ", body)
    assert answer["error"]["code"] == 400
    assert "data" not in answer


@pytest.mark.parametrize("subject", ["PING.NOPEZ", "NOBODY.VARZ", "<id>.PING"])
def test_unknown_system_request_has_no_responders(sam: Asker, scene: Scene, subject: str) -> None:
    assert sam.ask(_subject(scene, subject)) is None


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ('{"server_name": "stage"}', True),
        ('{"server_name": "sta"}', True),
        ('{"server_name": "sta", "exact_match": true}', False),
        ('{"server_name": "other"}', False),
        ('{"host": "127"}', True),
        ('{"cluster": "c"}', False),
        ('{"domain": "d"}', False),
        ('{"tags": ["east"]}', True),
        ('{"tags": ["east", "west"]}', False),
    ],
)
def test_server_filter_selects_servers(sam: Asker, body: str, meant: bool) -> None:
    sam.wire.send(f"PUB $SYS.REQ.SERVER.PING.IDZ {INBOX} 0\r\n\r\n")
    assert sam.next_event()[0] == INBOX
    sam.wire.send(f"PUB $SYS.REQ.SERVER.PING.CONNZ {INBOX} {len(body)}\r\n{body}\r\n")
    sam.wire.send(f"PUB $SYS.REQ.SERVER.PING.HEALTHZ {INBOX} 0\r\n\r\n")
    first = sam.next_event()[1]["data"]
    assert ("connections" in first) == meant


@pytest.mark.parametrize("user", ["ann", "cy", "sam"])
def test_client_can_request_its_user_and_permissions(pair: Pair, user: str, join: Join) -> None:
    answers = []
    for scene in (pair.ours, pair.reference):
        asker = join(scene.server, user)
        answers.append(asker.ask("$SYS.REQ.USER.INFO"))
    ours, reference = answers
    assert _sorted_lists(ours["data"]) == _sorted_lists(reference["data"])
    assert _shape(ours["server"]) == _shape(reference["server"])


@pytest.mark.parametrize("page", ["SERVER.PING.CONNZ", "ACCOUNT.PING.CONNZ"])
def test_account_sees_its_own_connections_and_no_others(
    scene: Scene, page: str, join: Join
) -> None:
    ann = join(scene.server, "ann")
    data = ann.ask(f"$SYS.REQ.{page}", '{"auth": true, "acc": "B"}')["data"]
    assert {row["account"] for row in data["connections"]} == {"A"}


def test_account_sees_its_own_traffic_and_no_other(scene: Scene, join: Join) -> None:
    ann = join(scene.server, "ann")
    data = ann.ask("$SYS.REQ.ACCOUNT.PING.STATZ", '{"accounts": ["B"]}')["data"]
    assert {stat["acc"] for stat in data["account_statz"]} <= {"A"}


@pytest.mark.parametrize(
    "subject", ["$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.B.CONNZ"]
)
def test_only_system_account_may_ask_about_server(scene: Scene, subject: str, join: Join) -> None:
    ann = join(scene.server, "ann")
    assert ann.ask(subject) is None


@pytest.mark.parametrize("name", ["CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO", "STATZ"])
def test_system_account_may_ask_about_every_account(sams: tuple[Asker, Asker], name: str) -> None:
    mine, theirs = (_shape(asker.ask(f"$SYS.REQ.ACCOUNT.A.{name}")) for asker in sams)
    assert mine == theirs


def test_replies_hold_no_password(sam: Asker) -> None:
    for name in ("VARZ", "CONNZ", "ACCOUNTZ"):
        text = json.dumps(sam.ask(f"$SYS.REQ.SERVER.PING.{name}", '{"auth": true}'))
        assert not any(secret in text for secret in SECRETS)


# -- events and commands, on servers of their own


def test_connect_and_disconnect_events_are_sent(start: Starter, join: Join) -> None:
    server = start(CONFIG)
    sam = join(server, "sam")
    sam.wire.send("SUB $SYS.ACCOUNT.A.* 1\r\nSUB $SYS.SERVER.ACCOUNT.A.CONNS 2\r\n")
    sam.wire.drain()
    with Wire(server.address) as ann:
        ann.connect(**{"user": "ann", "pass": "ann-secret"}, name="n", lang="l", version="v")
        ann.send("PUB x 3\r\nabc\r\n")
        ann.drain()
        came = sam.events_until("CONNECT$")
    went = sam.events_until("DISCONNECT$")
    assert [subject for subject, _ in came] == [
        "$SYS.SERVER.ACCOUNT.A.CONNS",
        "$SYS.ACCOUNT.A.CONNECT",
    ]
    client = came[-1][1]["client"]
    assert client | {"start": 0, "id": 0} == {
        "start": 0,
        "host": "127.0.0.1",
        "id": 0,
        "acc": "A",
        "user": "ann",
        "name": "n",
        "lang": "l",
        "ver": "v",
        "name_tag": "A",
        "kind": "Client",
        "client_type": "nats",
    }
    end = went[-1][1]
    assert end["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert (end["sent"], end["received"]) == ({"msgs": 1, "bytes": 3}, {"msgs": 0, "bytes": 0})
    assert end["reason"] == "Client Closed"
    assert list(end["client"])[-4:] == ["stop", "name_tag", "kind", "client_type"]


def test_events_have_the_same_fields(pair: Pair, sams: tuple[Asker, Asker], join: Join) -> None:
    wanted = {f"$SYS.ACCOUNT.B.{what}" for what in ("SERVER.CONNS", "CONNECT", "DISCONNECT")}
    shapes = []
    for sam, scene in zip(sams, (pair.ours, pair.reference), strict=True):
        sam.wire.send("SUB $SYS.ACCOUNT.B.> 1\r\n")
        sam.wire.drain()
        cy = join(scene.server, "cy")
        heard = dict(sam.events_until("CONNECT$"))
        cy.wire.close()
        while set(heard) != wanted:
            heard |= [sam.next_event()]
        shapes.append({subject: _shape(event) for subject, event in heard.items()})
    assert shapes[0] == shapes[1]


def test_refused_login_is_event(start: Starter, join: Join) -> None:
    server = start(CONFIG)
    sam = join(server, "sam")
    sam.wire.send("SUB $SYS.SERVER.*.CLIENT.AUTH.ERR 1\r\n")
    sam.wire.drain()
    with Wire(server.address) as stranger:
        stranger.send('CONNECT {"user": "ann", "pass": "guess"}\r\n')
        stranger.expect("-ERR 'Authorization Violation'")
    subject, event = sam.next_event()
    assert subject.endswith(".CLIENT.AUTH.ERR")
    assert (event["reason"], event["client"]["user"]) == ("Authentication Failure", "ann")
    assert "guess" not in json.dumps(event)


def test_disconnect_event_of_refused_login_has_its_claimed_user(start: Starter, join: Join) -> None:
    server = start(CONFIG)
    sam = join(server, "sam")
    sam.wire.send("SUB $SYS.ACCOUNT.*.DISCONNECT 1\r\n")
    sam.wire.drain()
    with Wire(server.address) as stranger:
        stranger.send('CONNECT {"user": "ann", "pass": "guess"}\r\n')
        stranger.expect("-ERR 'Authorization Violation'")
    subject, event = sam.next_event()
    assert subject == "$SYS.ACCOUNT.$G.DISCONNECT"
    assert (event["reason"], event["client"]["user"]) == ("Authentication Failure", "ann")


def test_connections_of_account_can_be_requested(start: Starter, join: Join) -> None:
    server = start(CONFIG)
    sam = join(server, "sam")
    join(server, "ann")
    answer = sam.ask("$SYS.REQ.ACCOUNT.A.CONNS", "{}")
    assert answer["type"] == "io.nats.server.advisory.v1.account_connections"
    assert (answer["acc"], answer["conns"], answer["total_conns"]) == ("A", 1, 1)
    for silent in ("B", "NOPE"):  # no responder: no reply, and no status either
        sam.wire.send(f"PUB $SYS.REQ.ACCOUNT.{silent}.CONNS {INBOX} 0\r\n\r\n")
    sam.wire.expect_quiet()


def test_server_announces_jetstream(start: Starter, join: Join) -> None:
    sam = join(start(CONFIG + "jetstream { store_dir: store, domain: hub }"), "sam")
    answer = sam.ask("$SYS.REQ.SERVER.PING")
    told = answer["server"]
    assert (told["jetstream"], told["flags"], told["domain"]) == (True, 7, "hub")
    persistence = answer["statsz"]["jetstream"]
    assert persistence["config"]["domain"] == "hub"
    assert "store_dir" not in persistence["config"]
    assert persistence["stats"]["api"]["level"] == 5
    assert sam.ask("$SYS.REQ.SERVER.PING.IDZ", '{"domain": "hub"}')["id"] == told["id"]
    sam.wire.send(f'PUB $SYS.REQ.SERVER.PING {INBOX} 20\r\n{{"domain": "harbor"}}\r\n')
    sam.wire.expect_quiet()


def test_kicked_client_is_closed_and_shown_as_kicked(start: Starter, join: Join) -> None:
    server = start(CONFIG)
    sam = join(server, "sam")
    ann = join(server, "ann")
    server_id = ann.wire.info["server_id"]
    cid = ann.wire.info["client_id"]
    answer = sam.ask(f"$SYS.REQ.SERVER.{server_id}.KICK", json.dumps({"cid": cid}))
    assert list(answer) == ["server"]
    ann.wire.expect_closed()
    closed = sam.ask("$SYS.REQ.SERVER.PING.CONNZ", json.dumps({"cid": cid, "state": 1}))
    assert [row["reason"] for row in closed["data"]["connections"]] == ["Kicked"]


@pytest.mark.parametrize("command", ["KICK", "LDM"])
def test_command_for_unknown_client_gets_no_reply(start: Starter, join: Join, command: str) -> None:
    server = start(CONFIG)
    sam = join(server, "sam")
    subject = f"$SYS.REQ.SERVER.{sam.wire.info['server_id']}.{command}"
    sam.wire.send(f"PUB {subject} {INBOX} 0\r\n\r\n")
    assert "error" in sam.ask(subject, '{"cid": 999999}')  # and nothing before it
    sam.wire.expect_quiet()


def test_one_client_can_be_put_into_lame_duck_mode(start: Starter, join: Join) -> None:
    server = start(CONFIG)
    sam, ann = join(server, "sam"), join(server, "ann")
    ann.wire.drain()
    server_id, cid = ann.wire.info["server_id"], ann.wire.info["client_id"]
    answer = sam.ask(f"$SYS.REQ.SERVER.{server_id}.LDM", json.dumps({"cid": cid}))
    assert list(answer) == ["server"]
    assert ann.wire.expect_info()["ldm"] is True


def test_reload_can_be_requested(start: Starter, join: Join) -> None:
    server = start(CONFIG)
    sam = join(server, "sam")
    server.config_path.write_text(CONFIG + "\nmax_connections: 77\n")
    server_id = sam.wire.info["server_id"]
    sam.ask(f"$SYS.REQ.SERVER.{server_id}.RELOAD")
    server.wait_for_log("Reloaded server configuration")
    sam = join(server, "sam")
    assert sam.ask("$SYS.REQ.SERVER.PING.VARZ")["data"]["max_connections"] == 77


def test_stopping_server_sends_shutdown_event(start: Starter, join: Join) -> None:
    server = start(CONFIG)
    sam = join(server, "sam")
    sam.wire.send("SUB $SYS.SERVER.*.SHUTDOWN 1\r\n")
    sam.wire.drain()
    server.process.terminate()
    subject, event = sam.next_event()
    assert subject == f"$SYS.SERVER.{sam.wire.info['server_id']}.SHUTDOWN"
    assert event["name"] == "stage"


def _subject(scene: Scene, name: str) -> str:
    server_id = scene.wires["ann"].info["server_id"]
    return "$SYS.REQ.SERVER." + name.replace("<id>", server_id)


def _shape(value: object) -> object:
    return ordered(without(shape(value), ONE_SIDED))


def _sorted_lists(value: object) -> object:
    """The reference lists permissions in any order."""
    if isinstance(value, dict):
        return {key: _sorted_lists(inner) for key, inner in value.items()}
    return sorted(value) if isinstance(value, list) else value
