"""`penstock pub`, `sub`, `req` and `reply` on our server and the reference; logins; signals."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING, Self

import pytest

from penstock.base.nkeys import KeyKind, encode_seed, public_from_seed
from support.claims import SHOP, Realm, creds_file, user_token

if TYPE_CHECKING:
    from pathlib import Path

    from support.cli import Cli
    from support.servers import Implementation, ServerPool
    from support.tls import Certificates

TLS_HANDSHAKE = b"\x16"
SEED = encode_seed(KeyKind.USER, bytes(range(32)))
DENIED = """
authorization { users: [
  {user: amy, password: hush, permissions: {publish: ["ok.>", "_INBOX.>"], subscribe: "_INBOX.>"}}
] }
"""

# The client library leaves the sockets of refused connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_subscriber_shows_what_is_published(cli: Cli, name: str) -> None:
    listening = cli.start("sub", f"{name}.a", f"{name}.b", "--json", "--count", "2")
    listening.wait_for("Listening")
    cli.done("pub", f"{name}.a", "hello", "-H", "A: b", "--reply", "back")
    cli.done("pub", f"{name}.b", "-", stdin=b"\xff\x00")
    ran = listening.end()
    assert ran.code == 0
    by_subject = {one["subject"]: one for one in ran.lines}
    assert by_subject[f"{name}.a"] == {
        "subject": f"{name}.a",
        "reply": "back",
        "headers": {"A": "b"},
        "data": "hello",
        "encoding": "utf-8",
    }
    assert by_subject[f"{name}.b"]["data"] == "/wA="
    assert by_subject[f"{name}.b"]["encoding"] == "base64"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_subscriber_exits_cleanly(cli: Cli, name: str, number: signal.Signals) -> None:
    listening = cli.start("sub", name)
    listening.wait_for("Listening")
    ran = listening.stop(number)
    assert (ran.code, ran.out) == (0, "")
    assert "Traceback" not in ran.err


def test_subscriber_fails_if_time_ends_before_count(cli: Cli, name: str) -> None:
    assert cli.done("sub", name, "--timeout", "50ms").out == ""
    ran = cli("sub", name, "--timeout", "50ms", "--count", "1")
    assert ran.code == 1
    assert "fewer than 1 came within 50ms" in ran.err


def test_templates_are_filled_in_only_on_request(cli: Cli, name: str) -> None:
    cli.done("stream", "add", name, "--subject", name)
    cli.done("pub", name, "{{Count}}", "--ack")
    cli.done("pub", name, "{{Count}}", "--ack", "--templates", "--count", "2")
    assert cli.done("stream", "view", name, "--raw").out == "{{Count}}\n1\n2\n"


def test_stored_publish_prints_stream_and_sequence(cli: Cli, name: str) -> None:
    cli.done("stream", "add", name, "--subject", name)
    told = cli.done("pub", name, "x", "--ack", "--count", "3", "--json").json
    assert told["stream"] == name
    assert (told["published"], told["first_seq"], told["last_seq"]) == (3, 1, 3)
    again = ("pub", name, "x", "--ack", "-H", "Nats-Msg-Id: 1", "--json")
    assert [cli.done(*again).json["duplicates"] for _ in range(2)] == [0, 1]
    assert "no stream takes that subject" in cli.refused("pub", f"{name}.other", "x", "--ack")


def test_payload_may_come_from_file(cli: Cli, name: str) -> None:
    cli.done("stream", "add", name, "--subject", name)
    (cli.directory / "body").write_bytes(b"\x00from a file")
    cli.done("pub", name, "--file", "body", "--ack")
    assert cli.done("stream", "get", name, "1", "--raw").raw == b"\x00from a file"
    assert "not both" in cli.refused("pub", name, "x", "--file", "body", code=2)
    assert "No such file" in cli.refused("pub", name, "--file", "none")


def test_request_is_answered(cli: Cli, name: str) -> None:
    answering = cli.start("reply", name, "--echo", "--count", "1")
    answering.wait_for("Answering")
    answer = cli.done("req", name, "hi", "-H", "A: b", "--json").lines[0]
    assert (answer["data"], answer["headers"]) == ("hi", {"A": "b"})
    assert answering.end().code == 0


def test_reply_is_output_of_command(cli: Cli, name: str) -> None:
    program = "import os,sys; print(os.environ['NATS_REQUEST_SUBJECT'], sys.stdin.read(), end='')"
    command = f'"{sys.executable}" -c "{program}"'
    answering = cli.start("reply", name, "--command", command, "--count", "1")
    answering.wait_for("Answering")
    assert cli.done("req", name, "hi", "--raw").out == f"{name} hi\n"


def test_missing_responder_and_timeout_are_failures(cli: Cli, name: str) -> None:
    assert f"no responders on {name}" in cli.refused("req", name)
    listening = cli.start("sub", name)
    listening.wait_for("Listening")
    assert "0 of 1 answers" in cli.refused("req", name, "--timeout", "50ms")


def test_request_waits_for_several_replies(cli: Cli, name: str) -> None:
    for _ in range(2):
        cli.start("reply", name, "pong", "--count", "1").wait_for("Answering")
    told = cli.done("req", name, "--replies", "2", "--json", "--timeout", "10s").lines
    assert [one["data"] for one in told] == ["pong", "pong"]


def test_interrupted_command_reports_it(cli: Cli, name: str) -> None:
    listening = cli.start("sub", name)
    listening.wait_for("Listening")
    asking = cli.start("req", name, "hello", "--timeout", "1m")
    assert "answers to" in listening.read_line()
    ran = asking.stop()
    assert ran.code == 130
    assert ran.err == "penstock: req: interrupted\n"


# -- logins


@pytest.fixture
def guarded(command_line: Cli, pool: ServerPool, implementation: Implementation) -> Cli:
    """A server with users, which nothing tells us of."""
    command_line.server = pool.get(implementation, DENIED)
    return command_line


def address(cli: Cli) -> str:
    assert cli.server is not None
    return cli.server.url


def test_permission_violation_is_error(guarded: Cli) -> None:
    login = ("-s", address(guarded), "--user", "amy", "--password", "hush")
    guarded.done("pub", "ok.a", "x", *login)
    assert "permissions violation" in guarded.refused("pub", "no", "x", *login)
    assert "permissions violation" in guarded.refused("sub", "no", "--timeout", "10s", *login)


def test_wrong_password_is_reported_and_not_shown(guarded: Cli) -> None:
    url = address(guarded).replace("//", "//amy:wrong@")
    for login in (("-s", url), ("-s", address(guarded), "--user", "amy", "--password", "wrong")):
        error = guarded.refused("pub", "ok.a", "x", *login)
        assert "authorization" in error.lower()
        assert "wrong" not in error


def test_context_logs_in(guarded: Cli) -> None:
    login = ("--user", "amy", "--password", "hush")
    guarded.done("context", "add", "here", "-s", address(guarded), *login)
    told = json.loads(guarded.done("server", "ping", "--count", "1", "--json").out)
    assert told["url"] == address(guarded)
    guarded.done("pub", "ok.a", "x")


def test_nkey_logs_in(command_line: Cli, pool: ServerPool, implementation: Implementation) -> None:
    users = f"authorization {{ users: [ {{nkey: {public_from_seed(SEED)}}} ] }}\n"
    server = pool.get(implementation, users)
    (command_line.directory / "user.nk").write_text(f"{SEED}\n")
    command_line.done("pub", "a", "x", "-s", server.url, "--nkey", "user.nk")
    (command_line.directory / "user.nk").write_text("SUNONSENSE\n")
    error = command_line.refused("pub", "a", "x", "-s", server.url, "--nkey", "user.nk")
    assert "user.nk: nkey" in error
    assert "NONSENSE" not in error


def test_credentials_log_in(
    command_line: Cli, pool: ServerPool, implementation: Implementation
) -> None:
    server = pool.get(implementation, Realm().add(SHOP).config())
    (command_line.directory / "user.creds").write_text(creds_file(user_token(SHOP)))
    command_line.done("pub", "a", "x", "-s", server.url, "--creds", "user.creds")
    assert "authorization" in command_line.refused("pub", "a", "x", "-s", server.url).lower()


def test_invalid_credentials_are_reported(command_line: Cli) -> None:
    (command_line.directory / "user.creds").write_text("nothing\n")
    error = command_line.refused("pub", "a", "x", "--creds", "user.creds")
    assert "not a file of user credentials" in error
    assert "No such file" in command_line.refused("pub", "a", "x", "--creds", "none")


def test_tls_works_only_with_trusted_certificate(
    command_line: Cli,
    pool: ServerPool,
    implementation: Implementation,
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    server = pool.get(implementation, certificates.verifying("verify: true"))
    pair = certificates.with_name
    trust = ("-s", server.url, "--tlsca", str(certificates.ca))
    own = ("--tlscert", str(pair.cert), "--tlskey", str(pair.key))
    command_line.done("pub", "a", "x", *trust, *own)
    assert "belong together" in command_line.refused("pub", "a", *trust, *own[:2], code=2)
    assert "cannot connect" in command_line.refused("pub", "a", "x", "-s", server.url)


def test_client_uses_tls_where_listener_allows_both(
    command_line: Cli,
    pool: ServerPool,
    implementation: Implementation,
    certificates: Certificates,
) -> None:
    server = pool.get(
        implementation, "allow_non_tls: true\nhttp: 127.0.0.1:-1\n" + certificates.block()
    )
    listening = command_line.start("sub", "a", "-s", server.url, "--tlsca", str(certificates.ca))
    listening.wait_for("Listening")
    with urllib.request.urlopen(f"{server.http_url}/connz") as page:
        (connection,) = json.load(page)["connections"]
    assert connection["tls_version"]


@pytest.mark.parametrize("wanted", [("--tlsfirst",), ("--tlsca", "ca.pem"), ()])
def test_client_that_requires_tls_sends_nothing_in_clear(
    wanted: tuple[str, ...], command_line: Cli, certificates: Certificates
) -> None:
    (command_line.directory / "ca.pem").write_bytes(certificates.ca.read_bytes())
    scheme = "nats" if wanted else "tls"
    with Eavesdropper() as other:
        url = f"{scheme}://127.0.0.1:{other.port}"
        login = ("--user", "amy", "--password", "hush")
        assert "cannot connect" in command_line.refused("pub", "a", "x", "-s", url, *login, *wanted)
    assert b"hush" not in other.heard
    assert b"CONNECT" not in other.heard


class Eavesdropper(threading.Thread):
    """A server without TLS that records what it receives."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.heard = b""
        self.clients: list[socket.socket] = []
        self.ears: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread from accept and recv, where closing the sockets would not.
        for one in (self.listener, *self.clients):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.join()
        for ear in self.ears:
            ear.join()
        self.listener.close()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.clients.append(client)
                self.ears.append(threading.Thread(target=self._listen_to, args=(client,)))
                self.ears[-1].start()

    def _listen_to(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.sendall(b'INFO {"server_id":"x","max_payload":1024}\r\n')
            while data := client.recv(4096):
                self.heard += data
                if data.startswith(TLS_HANDSHAKE):
                    return  # it would wait for an answer that cannot come
