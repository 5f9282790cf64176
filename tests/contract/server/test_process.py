"""The program: flags, exit codes, its log, the files it writes, and the signals it obeys."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import urllib.request
from typing import TYPE_CHECKING

import pytest

from support.patience import PATIENCE_SECONDS
from support.servers import until
from support.wire import Wire

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import Implementation, ServerUnderTest, Starter

STAMP = r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[(?:INF|WRN|ERR|DBG|TRC|FTL)\] .*"
LOOPBACK = ("-a", "127.0.0.1", "-p", "-1")


def _run(
    implementation: Implementation, cwd: Path, *flags: str
) -> subprocess.CompletedProcess[str]:
    """A run that is expected to end by itself, at once."""
    command = [*implementation.command, *flags]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def _config(directory: Path, text: str) -> str:
    (directory / "given.conf").write_text(text)
    return "given.conf"


# -- runs that end by themselves -------------------------------------------------------------


@pytest.mark.parametrize("flag", ["-v", "--version", "-version", "--v"])
def test_version_is_printed_to_stdout(
    implementation: Implementation, tmp_path: Path, flag: str
) -> None:
    done = _run(implementation, tmp_path, flag)
    assert done.returncode == 0
    assert re.fullmatch(r"nats-server: v\d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_goes_to_stdout(implementation: Implementation, tmp_path: Path, flag: str) -> None:
    done = _run(implementation, tmp_path, flag)
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("Usage:", "-port", "-config", "-signal"))


def test_good_configuration_passes_check(implementation: Implementation, tmp_path: Path) -> None:
    done = _run(implementation, tmp_path, "-t", "-c", _config(tmp_path, "port: -1\n"))
    assert done.returncode == 0
    assert re.search(
        r"configuration file given\.conf is valid \(sha256:[0-9a-f]{64}\)", done.stderr
    )


def test_check_needs_file(implementation: Implementation, tmp_path: Path) -> None:
    done = _run(implementation, tmp_path, "-t")
    assert done.returncode == 1
    assert "must specify [-c, --config] option" in done.stderr


BAD_CONFIGURATIONS = {
    "syntax": ('"port": : "invalid syntax"\n', "Parse error on line 1"),
    "unknown field": ("no_such: 1\n", 'given.conf:1:0: unknown field "no_such"'),
    "unknown variable": ("port: $NOPE\n", "variable reference for 'NOPE' on line 1"),
    "reserved account": ("accounts { $G { } }\n", '"$G" is a Reserved Account'),
    "wrong type": ('port: "abc"\n', "given.conf:1:0"),
    "too many tokens": ("max_sub_tokens: 300\n", "max_sub_tokens value is too big"),
    "duplicate user": (
        "authorization {users: [{user: a, password: b}, {user: a, password: c}]}\n",
        'Duplicate user "a" detected',
    ),
    "two kinds of credentials": (
        "authorization {token: a, user: b, password: c}\n",
        "Cannot have a user/pass and token",
    ),
    "bad permission": (
        'authorization {users: [{user: a, password: b, permissions: {publish: "a..b"}}]}\n',
        'subject "a..b" is not a valid subject',
    ),
    "short lame duck": ('lame_duck_duration: "1s"\n', "minimum is 30 seconds"),
}


@pytest.mark.parametrize("checking", [True, False], ids=["check", "start"])
@pytest.mark.parametrize("fault", BAD_CONFIGURATIONS)
def test_invalid_configuration_is_reported_and_exits_with_1(
    implementation: Implementation, tmp_path: Path, fault: str, checking: bool
) -> None:
    text, complaint = BAD_CONFIGURATIONS[fault]
    flags = ["-t"] if checking else [*LOOPBACK]
    done = _run(implementation, tmp_path, *flags, "-c", _config(tmp_path, text))
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Server is ready" not in done.stderr


def test_number_for_duration_fails_check_only(
    implementation: Implementation, tmp_path: Path, start: Starter
) -> None:
    text = "ping_interval: 50\n"
    done = _run(implementation, tmp_path, "-t", "-c", _config(tmp_path, text))
    assert done.returncode == 1
    assert "ping_interval should be converted to a duration" in done.stderr
    assert start(text).alive


START_FAULTS = {
    "missing file": (["-c", "missing.conf"], "open missing.conf: no such file or directory"),
    "payload over pending": (["-c", "pending.conf"], "cannot be higher than max_pending"),
    "unknown command": (["extra"], 'unrecognized command: "extra"'),
    "tls without certificate": (["--tls"], "TLS Server certificate must be present and valid"),
    "routes without cluster": (["--routes", "nats://x"], "require cluster capabilities"),
}


@pytest.mark.parametrize("fault", START_FAULTS)
def test_failed_start_is_reported_and_exits_with_1(
    implementation: Implementation, tmp_path: Path, fault: str
) -> None:
    (tmp_path / "pending.conf").write_text("max_payload: 100MB\n")
    flags, complaint = START_FAULTS[fault]
    done = _run(implementation, tmp_path, *LOOPBACK, *flags)
    assert done.returncode == 1
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--nope"], "flag provided but not defined: -nope"),
        (["-p", "abc"], 'invalid value "abc" for flag -p: parse error'),
        (["-p"], "flag needs an argument: -p"),
    ],
)
def test_wrong_flag_is_named_and_usage_shown(
    implementation: Implementation, tmp_path: Path, flags: list[str], complaint: str
) -> None:
    done = _run(implementation, tmp_path, *flags)
    assert complaint in done.stderr
    assert "Usage:" in done.stdout


def test_port_in_use_is_fatal(implementation: Implementation, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _run(implementation, tmp_path, "-a", "127.0.0.1", "-p", str(port))
    assert done.returncode == 1
    told = rf"\[FTL\] .*port.* 127\.0\.0\.1:{port}.*address already in use"
    assert re.search(told, done.stderr, re.IGNORECASE)


def test_monitoring_port_in_use_is_fatal(implementation: Implementation, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _run(implementation, tmp_path, *LOOPBACK, "-m", str(port))
    assert done.returncode == 1
    told = r"\[FTL\] .*monitor.*address already in use"
    assert re.search(told, done.stderr, re.IGNORECASE)


def test_invalid_address_is_fatal(implementation: Implementation, tmp_path: Path) -> None:
    done = _run(implementation, tmp_path, "-a", "999.999.999.999", "-p", "-1")
    assert done.returncode == 1
    assert re.search(r"\[FTL\] .*port.* 999\.999\.999\.999:0", done.stderr)


def test_pid_file_that_cannot_be_written_is_fatal(
    implementation: Implementation, tmp_path: Path
) -> None:
    done = _run(implementation, tmp_path, *LOOPBACK, "-P", str(tmp_path / "none" / "pid"))
    assert done.returncode == 1
    assert re.search(r"\[FTL\] .*pid ?file.*no such file", done.stderr, re.IGNORECASE)


# -- the log ---------------------------------------------------------------------------------


def test_every_log_line_has_pid_time_and_level(start: Starter) -> None:
    server = start("", "-D")
    with Wire(server.address) as wire:
        wire.connect()
    server.stop()
    lines = server.log.splitlines()
    assert [line for line in lines if not re.fullmatch(STAMP, line)] == []
    assert {line.split()[0] for line in lines} == {f"[{server.pid}]"}


def test_startup_lines_are_in_order(start: Starter) -> None:
    server = start('websocket { host: "127.0.0.1", port: -1, no_tls: true }\n', "-m", "-1")
    server.stop()
    steps = [
        "Version:",
        "Using configuration file: ",
        "Starting http monitor on 127.0.0.1:",
        f"Listening for client connections on 127.0.0.1:{server.port}",
        "Server is ready",
        "Initiating Shutdown...",
        "Server Exiting..",
    ]
    places = [server.log.find(step) for step in steps]
    assert -1 not in places
    assert places == sorted(places)
    web = server.log.find(f"Listening for websocket clients on {server.websocket_url}")
    assert -1 < web < server.log.find("Server is ready")


def test_log_time_can_be_disabled(start: Starter) -> None:
    server = start("", "-T=false")
    assert re.search(rf"^\[{server.pid}\] \[INF\] Server is ready$", server.log, re.MULTILINE)


def test_all_lines_go_to_log_file(start: Starter, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    server = start("", "-l", str(log))
    server.stop()
    assert server.log == ""
    assert "Server is ready" in log.read_text()


def test_log_file_is_reopened_on_request(start: Starter, tmp_path: Path) -> None:
    log, moved = tmp_path / "server.log", tmp_path / "moved.log"
    server = start("", "-l", str(log))
    log.rename(moved)
    server.send_signal(signal.SIGUSR1)
    until(lambda: log.exists() and "File log re-opened" in log.read_text(), "a new log file")
    assert "Server is ready" in moved.read_text()


def test_passwords_stay_out_of_log(start: Starter) -> None:
    server = start("authorization { user: bob, password: top5ecret }\n", "-DV")
    with Wire(server.address) as wire:
        wire.connect(user="bob", **{"pass": "top5ecret"})
    with Wire(server.address) as wire:
        wire.send('CONNECT {"user":"bob","pass":"wr0ng","auth_token":"t0ken"}\r\n')
        wire.expect("-ERR 'Authorization Violation'")
    server.stop()
    assert not [word for word in ("top5ecret", "wr0ng", "t0ken") if word in server.log]


# -- files and flags -------------------------------------------------------------------------


def test_ports_file_lists_every_listener(start: Starter) -> None:
    server = start('websocket { host: "127.0.0.1", port: -1, no_tls: true }\n', "-m", "-1")
    listed = json.loads(server.ports_path.read_text())
    assert set(listed) == {"nats", "monitoring", "websocket"}
    assert listed["nats"] == [server.url]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", listed["monitoring"][0])
    assert re.fullmatch(r"ws://127\.0\.0\.1:\d+", listed["websocket"][0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ports_file_is_removed_at_exit(start: Starter, number: signal.Signals) -> None:
    server = start()
    assert server.ports_path.exists()
    server.stop(number)
    assert not server.ports_path.exists()


def test_ports_file_may_be_asked_for_in_configuration(start: Starter, tmp_path: Path) -> None:
    server = start(f'ports_file_dir: "{tmp_path}"\n')
    server.stop()
    assert list(tmp_path.glob("*.ports")) == []


@pytest.mark.parametrize("by_flag", [True, False], ids=["flag", "configuration"])
def test_pid_file_holds_process(start: Starter, tmp_path: Path, by_flag: bool) -> None:
    path = tmp_path / "pid"
    server = start("", "-P", str(path)) if by_flag else start(f'pid_file: "{path}"\n')
    assert path.read_text() == str(server.pid)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_files_are_not_world_readable(start: Starter, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        server = start("", "-l", str(tmp_path / "log"), "-P", str(tmp_path / "pid"))
    finally:
        os.umask(before)
    assert _mode(tmp_path / "log") == 0o640 & ~umask
    assert _mode(tmp_path / "pid") == 0o600 & ~umask
    # The reference leaves the ports file to the umask.
    widest = 0o640 if server.name == "ours" else 0o666
    assert _mode(server.ports_path) == widest & ~umask


def test_rotated_log_keeps_its_mode(start: Starter, tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = start(f'log_file: "{log}"\nlog_size_limit: 400\n')
    before = os.umask(0)
    try:
        until(lambda: len(list(tmp_path.glob("log*"))) > 1, "a rotated log file")
    finally:
        os.umask(before)
    server.stop()
    assert {_mode(path) for path in tmp_path.glob("log*")} == {0o640}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_flags_win_over_configuration(start: Starter) -> None:
    text = 'port: 1\nhost: "127.0.0.9"\nserver_name: written\nhttp: "127.0.0.1:2"\n'
    server = start(text, "-n", "given", "-m", "-1")
    with Wire(server.address) as wire:
        assert wire.info["server_name"] == "given"
        assert wire.info["host"] == "127.0.0.1"
    with urllib.request.urlopen(f"{server.http_url}/varz", timeout=PATIENCE_SECONDS) as answer:
        assert json.load(answer)["server_name"] == "given"


@pytest.mark.parametrize(
    "flags",
    [
        ["-n", "mill"],
        ["-name", "mill"],
        ["--name", "mill"],
        ["--name=mill"],
        ["-n=mill"],
        ["--server_name", "mill"],
        ["-server_name=mill"],
    ],
    ids=" ".join,
)
def test_every_spelling_of_flag_is_accepted(start: Starter, flags: list[str]) -> None:
    with Wire(start("", *flags).address) as wire:
        assert wire.info["server_name"] == "mill"


@pytest.mark.parametrize(
    "text",
    [
        'server_name: "mill"',
        "server_name = mill",
        "server_name mill",
        '{"server_name": "mill"}',
        "'server_name': 'mill' # why not",
        "NAME: mill\nserver_name: $NAME",
        "debug: false, server_name: mill; trace: false",
    ],
)
def test_every_spelling_of_setting_is_accepted(start: Starter, text: str) -> None:
    with Wire(start(f"{text}\n").address) as wire:
        assert wire.info["server_name"] == "mill"


def test_configuration_may_include_another_beside_it(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "users.conf").write_text("user: bob\npassword: b\n")
    (tmp_path / "main.conf").write_text("authorization {\n  include ./users.conf\n}\n")
    with Wire(start("", "-c", str(tmp_path / "main.conf")).address) as wire:
        wire.connect(user="bob", **{"pass": "b"})


def test_store_directory_without_jetstream_is_ignored(start: Starter, tmp_path: Path) -> None:
    assert start("", "-sd", str(tmp_path / "store")).alive


def test_server_listens_on_ipv6(start: Starter) -> None:
    server = start("", "--addr", "::1")
    server.wait_for_log(r"Listening for client connections on \[::1\]:\d+")


def test_monitoring_listens_when_configured(start: Starter) -> None:
    server = start("", "-m", "-1")
    with urllib.request.urlopen(f"{server.http_url}/varz", timeout=PATIENCE_SECONDS) as answer:
        seen = json.load(answer)
    assert seen["port"] == server.port
    assert re.fullmatch(r"\d+\.\d+\.\d+", seen["version"])


# -- signals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_exits_with_0(start: Starter, number: signal.Signals) -> None:
    assert start().stop(number) == 0


def test_sigterm_with_clients_and_messages_exits_with_0(start: Starter) -> None:
    server = start()
    with Wire(server.address) as wire:
        wire.connect()
        wire.send("SUB foo 1\r\nPUB foo 2\r\nhi\r\n")
        wire.expect("MSG foo 1 2", "hi")
        assert server.stop() == 0


def _tell(implementation: Implementation, server: ServerUnderTest, word: str) -> int:
    return _run(implementation, server.workdir, "--signal", f"{word}={server.pid}").returncode


@pytest.mark.parametrize("word", ["stop", "quit", "term"])
def test_signal_flag_stops_another_server(
    implementation: Implementation, start: Starter, word: str
) -> None:
    server = start()
    assert _tell(implementation, server, word) == 0
    expected = -signal.SIGKILL if word == "stop" else 0
    assert server.process.wait(PATIENCE_SECONDS) == expected


def test_signal_flag_reloads_another_server(implementation: Implementation, start: Starter) -> None:
    server = start("max_payload: 1000\n")
    server.config_path.write_text("max_payload: 2000\n")
    assert _tell(implementation, server, "reload") == 0
    server.wait_for_log("Reloaded server configuration")
    with Wire(server.address) as wire:
        assert wire.info["max_payload"] == 2000


def test_signal_flag_puts_another_server_into_lame_duck_mode(
    implementation: Implementation, start: Starter
) -> None:
    server = start()
    assert _tell(implementation, server, "ldm") == 0
    server.wait_for_log("Entering lame duck mode, stop accepting new clients")


def test_signal_may_name_pid_file(
    implementation: Implementation, start: Starter, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    server = start("", "-P", str(path))
    assert _run(implementation, tmp_path, "--signal", f"quit={path}").returncode == 0
    assert server.process.wait(PATIENCE_SECONDS) == 0


def test_signal_without_process_fails(implementation: Implementation, tmp_path: Path) -> None:
    done = _run(implementation, tmp_path, "--signal", "quit=4194303")
    assert done.returncode == 1
    assert "no such process" in done.stderr.lower()


def test_unknown_signal_fails_and_sends_none(
    implementation: Implementation, start: Starter
) -> None:
    server = start()
    assert _tell(implementation, server, "bogus") == 1
    assert server.alive
