"""What the suite of nats-py imports as `tests.utils`: servers, one set per kind of test.

The released source of nats-py has its tests but neither this module nor the keys, certificates
and configurations beside it. They are made here, once per run. The ports are those the tests dial,
so only one run fits on an address space: use `unshare -n`, as the README beside this shows.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from material import write_certificates, write_keys

START_SECONDS_MAX = 10.0
PATIENCE = float(os.environ.get("SUITE_PATIENCE", "1"))  # how busy the machine is
HERE = Path(tempfile.mkdtemp(prefix="nats-py-suite-"))
write_certificates(HERE / "certs")
write_keys(HERE / "nkeys")
TLS = f"""tls {{
  cert_file: "{HERE}/certs/server-cert.pem", key_file: "{HERE}/certs/server-key.pem"
  ca_file: "{HERE}/certs/ca.pem", verify: VERIFY
}}"""
CONFIGURATIONS = {
    "tls_handshake_first.conf": TLS.replace("VERIFY", "true\n  handshake_first: true"),
    "ws.conf": "websocket { port: 8080, no_tls: true }",
    "ws_tls.conf": "websocket { port: 8081\n" + TLS.replace("VERIFY", "false") + "}",
    "js-limits.conf": """jetstream { domain: "test-domain" }, no_auth_user: foo
accounts { A { users: [ { user: foo } ]
  jetstream { max_mem: 64MB, max_file: 32MB, max_streams: 10, max_consumers: 20
    max_ack_pending: 100, memory_max_stream_bytes: 2048, store_max_stream_bytes: 4096
    max_stream_bytes: true } } }""",
    "js-domain.conf": 'jetstream { domain: "test-domain" }',
    "no_auth_user.conf": """no_auth_user: foo, accounts {
  a { users: [ { user: foo, pass: foo, permissions {
    subscribe { allow: [foo, "_INBOX.>"], deny: [bar] }
    publish { allow: [foo, "_INBOX.>"], deny: [bar] } } } ] }
  b { users: [ { user: bar, pass: bar, permissions {
    subscribe { allow: [bar], deny: [">"] }, publish { allow: [bar], deny: [">"] } } } ] } }""",
}
(HERE / "conf").mkdir()
for _name, _text in CONFIGURATIONS.items():
    (HERE / "conf" / _name).write_text(_text)


def get_config_file(path: str) -> str:
    return str(HERE / path)


class NATSD:
    """One server process."""

    def __init__(
        self,
        port=4222,
        user="",
        password="",
        token="",
        timeout=0,
        http_port=8222,
        debug=False,
        tls=False,
        cluster_listen=None,
        routes=None,
        config_file=None,
        with_jetstream=None,
    ):
        self.port, self.http_port, self.user, self.password = port, http_port, user, password
        self.proc = None
        self.store_dir = tempfile.mkdtemp() if with_jetstream else None
        command = ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-m", str(http_port)]
        for flag, value in (
            ("--user", user),
            ("--pass", password),
            ("--auth", token),
            ("--cluster_listen", cluster_listen),
            ("--routes", ",".join(routes or [])),
            ("--cluster_name", "CLUSTER" if routes else ""),
            ("--config", config_file),
        ):
            command += [flag, value] if value else []
        if with_jetstream:
            command += ["-js", f"-sd={self.store_dir}"]
        if tls:
            command += ["--tls", "--tlscert", get_config_file("certs/server-cert.pem")]
            command += ["--tlskey", get_config_file("certs/server-key.pem"), "--tlsverify"]
            command += ["--tlscacert", get_config_file("certs/ca.pem")]
        self.command = command

    def start(self):
        self.proc = subprocess.Popen(
            self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self.proc

    def send_signal(self, sig):
        self.proc.send_signal(sig)

    def stop(self):
        if self.proc is not None and self.proc.returncode is None:
            self.proc.send_signal(signal.SIGKILL)
            self.proc.wait()


def start_natsd(natsd):
    natsd.start()
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end and natsd.proc.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", natsd.port), 1).close()
            socket.create_connection(("127.0.0.1", natsd.http_port), 1).close()
            return
        except OSError:
            time.sleep(0.02)


class ServersTestCase(unittest.TestCase):
    """`servers` makes the servers of a test, `started` of them are running when it begins."""

    started = 100

    def servers(self):
        raise NotImplementedError

    def setUp(self):
        self.loop = asyncio.new_event_loop()
        self.server_pool = self.servers()
        self.natsd = self.server_pool[0]
        self.ssl_ctx = ssl.create_default_context(purpose=ssl.Purpose.SERVER_AUTH)
        self.ssl_ctx.load_verify_locations(get_config_file("certs/ca.pem"))
        self.ssl_ctx.load_cert_chain(
            get_config_file("certs/client-cert.pem"), get_config_file("certs/client-key.pem")
        )
        for natsd in self.server_pool[: self.started]:
            start_natsd(natsd)

    def tearDown(self):
        for natsd in self.server_pool:
            natsd.stop()
            if natsd.store_dir:
                shutil.rmtree(natsd.store_dir, ignore_errors=True)
        self.loop.close()


def case(name, *made, started=100):
    """A kind of test: the keywords of each server it needs."""
    members = {
        "servers": lambda _: [NATSD(**keywords) for keywords in made],
        "started": started,
        "__test__": False,
    }
    kind = type(name, (ServersTestCase,), members)
    kind.__init_subclass__ = classmethod(lambda cls: setattr(cls, "__test__", True))
    return kind


ONE, TWO = {"user": "foo", "password": "bar"}, {"user": "hoge", "password": "fuga"}
FIRST, SECOND = {"port": 4223, "http_port": 8223}, {"port": 4224, "http_port": 8224}
THIRD = {"port": 4225, "http_port": 8225}
ROUTES = [f"nats://127.0.0.1:{port}" for port in (6223, 6224, 6225)]
NODES = [
    {**place, "cluster_listen": route}
    for place, route in zip((FIRST, SECOND, THIRD), ROUTES, strict=True)
]


def conf(name, **more):
    return {"config_file": get_config_file(name), **more}


SingleServerTestCase = case("SingleServerTestCase", {})
MultiServerAuthTestCase = case("MultiServerAuthTestCase", {**FIRST, **ONE}, {**SECOND, **TWO})
MultiServerAuthTokenTestCase = case(
    "MultiServerAuthTokenTestCase",
    {**FIRST, "token": "token"},
    {**SECOND, "token": "token"},
    {**THIRD, "token": "secret"},
)
TLSServerTestCase = case("TLSServerTestCase", {"port": 4224, "tls": True})
TLSServerHandshakeFirstTestCase = case(
    "TLSServerHandshakeFirstTestCase", conf("conf/tls_handshake_first.conf", port=4224)
)
MultiTLSServerAuthTestCase = case(
    "MultiTLSServerAuthTestCase", {**FIRST, **ONE, "tls": True}, {**SECOND, **TWO, "tls": True}
)
ClusteringTestCase = case(
    "ClusteringTestCase", *({**node, "routes": ROUTES} for node in NODES), started=1
)
ClusteringDiscoveryAuthTestCase = case(
    "ClusteringDiscoveryAuthTestCase", *({**node, **ONE, "routes": ROUTES[:1]} for node in NODES)
)
NkeysServerTestCase = case("NkeysServerTestCase", conf("nkeys/nkeys_server.conf"))
TrustedServerTestCase = case("TrustedServerTestCase", conf("nkeys/resolver_preload.conf"))
SingleJetStreamServerTestCase = case("SingleJetStreamServerTestCase", {"with_jetstream": True})
SingleWebSocketServerTestCase = case("SingleWebSocketServerTestCase", conf("conf/ws.conf"))
SingleWebSocketTLSServerTestCase = case(
    "SingleWebSocketTLSServerTestCase", conf("conf/ws_tls.conf", tls=True)
)
SingleJetStreamServerLimitsTestCase = case(
    "SingleJetStreamServerLimitsTestCase", conf("conf/js-limits.conf", with_jetstream=True)
)
SingleJetStreamServerDomainTestCase = case(
    "SingleJetStreamServerDomainTestCase", conf("conf/js-domain.conf", with_jetstream=True)
)
NoAuthUserServerTestCase = case(
    "NoAuthUserServerTestCase", conf("conf/no_auth_user.conf", port=4555)
)


def deadline(seconds):
    def decorate(test):
        @functools.wraps(test)
        def run(self, *args, **keywords):
            asyncio.run(asyncio.wait_for(test(self, *args, **keywords), seconds * PATIENCE))

        return run

    return decorate


async_test = deadline(5)
async_long_test = deadline(20)
async_debug_test = deadline(3600)
