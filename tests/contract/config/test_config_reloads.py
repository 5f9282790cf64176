"""The reference and ours reload the same change of a configuration."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from penstock.server.config.command_line import options_from
from penstock.server.config.config_file import ConfigError
from penstock.server.config.config_reader import reloadable_changes
from support.servers import REFERENCE, ServerUnderTest, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(REFERENCE is None, reason="no nats-server to compare with")

USERS = "authorization {users: [{user: a, password: b}]}\n"
BASE = "host: 127.0.0.1\nport: -1\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerUnderTest]:
    assert REFERENCE is not None
    server = ServerUnderTest(REFERENCE, tmp_path_factory.mktemp("reload"), config=BASE)
    yield server
    server.kill()


def reload_log(server: ServerUnderTest, config: str) -> str:
    """What the reference logs while it reloads `config`."""
    before = len(server.log)
    server.config_path.write_text(config)
    server.send_signal(signal.SIGHUP)
    done = re.compile("Reloaded server configuration|Failed to reload")
    until(lambda: done.search(server.log, before) is not None, "the end of the reload")
    return server.log[before:]


@pytest.mark.parametrize(
    "change",
    [
        "",
        "debug: true",
        "trace: true",
        "trace_verbose: true",
        "logtime_utc: true",
        "max_payload: 2MB",
        "max_connections: 10",
        "max_subscriptions: 10",
        "max_sub_tokens: 10",
        "max_control_line: 2048",
        "max_pending: 32MB",
        "max_closed_clients: 5",
        "ping_interval: '5s'",
        "ping_max: 5",
        "write_deadline: '5s'",
        "server_name: x",
        "server_tags: [a]",
        "server_metadata {a: b}",
        "http_port: -1",
        "http_base_path: /x",
        USERS,
        "authorization {user: a, password: b}",
        "authorization {token: b}",
        "authorization {timeout: 3}",
        USERS + "no_auth_user: a",
        "accounts {A {}}\nsystem_account: A",
        "no_system_account: true",
        "log_size_limit: 1000",
        "logfile_max_num: 3",
        "max_traced_msg_len: 3",
        "client_advertise: 'a:5'",
        "lame_duck_duration: 40s",
        "lame_duck_grace_period: 1s",
        "no_fast_producer_stall: true",
        "disable_sublist_cache: true",
        "no_header_support: true",
        "allow_non_tls: true",
        "cluster {name: x, listen: '127.0.0.1:-1'}",
        "max_payload: 100MB",
        "zzz: 5",
    ],
)
def test_reload_result_matches_reference(change: str, running: ServerUnderTest) -> None:
    log = reload_log(running, BASE + change)
    reload_log(running, BASE)
    flags = {"config": str(running.config_path), "addr": "127.0.0.1", "port": -1}
    old = options_from(flags, {}).options
    running.config_path.write_text(BASE + change)
    refusal = ""
    try:
        told = reloadable_changes(old, options_from(flags, {}).options)
    except ConfigError as error:
        told, refusal = [], f"Failed to reload server configuration: {error}"
    assert refusal in log
    assert sorted(told) == sorted(re.findall(r"Reload(?:ed)?: .*", log))
