"""Command line -> command: Go's flag rules, overriding the file, refusing what is not served."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.config.command_line import (
    FLAGS,
    CheckConfig,
    RunServer,
    SendSignal,
    ShowHelp,
    ShowVersion,
    SignalRequest,
    UsageError,
    options_from,
    parse_command_line,
    usage,
)
from penstock.server.config.config_file import ConfigError
from penstock.server.config.options import ListenOnly, Options

if TYPE_CHECKING:
    from pathlib import Path


def run(*argv: str) -> Options:
    command = parse_command_line(argv, {})
    assert isinstance(command, RunServer)
    return command.options


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        ("-p -1", "port", -1),
        ("--port=-1", "port", -1),
        ("-port 0x10", "port", 16),
        ("--p 017", "port", 15),
        ("-p 0", "port", 4222),
        ("-p 1 -p 2", "port", 2),
        ("-a ::1", "host", "::1"),
        ("--net=::1", "host", "::1"),
        ("--addr ::1", "http_host", "::1"),
        ("-n x", "server_name", "x"),
        ("--name x", "server_name", "x"),
        ("-P f", "pid_file", "f"),
        ("-m 8222", "http_port", 8222),
        ("--client_advertise a:1", "client_advertise", "a:1"),
        ("--ports_file_dir d", "ports_file_dir", "d"),
        ("-l f", "log_file", "f"),
        ("-T=false", "logtime", False),
        ("--logtime_utc", "logtime_utc", True),
        ("-D", "debug", True),
        ("-D=0", "debug", False),
        ("-V", "trace", True),
        ("-VV", "trace_verbose", True),
        ("-DV", "trace", True),
        ("-DVV", "debug", True),
        ("--log_size_limit 5", "log_size_limit", 5),
        ("--max_traced_msg_len 5", "max_traced_msg_len", 5),
        ("-sd=d", "store_dir", "d"),
        ("--js=false", "jetstream", False),
        ("-js", "jetstream", True),
        ("--cluster nats://127.0.0.1:-1", "cluster", ListenOnly(host="127.0.0.1", port=-1)),
        (
            "--cluster_listen nats://127.0.0.1:6222 --cluster_name c",
            "cluster",
            ListenOnly(name="c", host="127.0.0.1", port=6222),
        ),
        ("--cluster_name c", "cluster", None),
        ("--cluster=", "cluster", None),
        ("--tls=false", "tls", None),
    ],
)
def test_flag_sets_its_option(argv: str, field: str, value: object) -> None:
    assert getattr(run(*argv.split()), field) == value


def test_credentials() -> None:
    auth = run("--user", "a", "--pass", "b", "--auth=c").authorization
    assert (auth.user, auth.password, auth.token) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--nope", "flag provided but not defined: -nope"),
        ("-p abc", 'invalid value "abc" for flag -p: parse error'),
        ("-p", "flag needs an argument: -p"),
        ("-p=99999999999999999999", "value out of range"),
        ("-D=maybe", 'invalid boolean value "maybe" for -D: parse error'),
        ("--=x", "bad flag syntax: --=x"),
        ("---p 1", "bad flag syntax: ---p"),
    ],
)
def test_mistyped_flag_shows_usage_and_ends_with_0(argv: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_command_line(argv.split(), {})
    assert message in caught.value.message
    assert caught.value.exit_code == 0
    assert caught.value.show_usage


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("frob", 'unrecognized command: "frob"'),
        ("-D true", 'unrecognized command: "true"'),
        ("-- x", 'unrecognized command: "x"'),
        ("-", 'unrecognized command: "-"'),
        ("-t", "must specify [-c, --config] option to check configuration file syntax"),
        ("-c /nope.conf", "open /nope.conf: no such file or directory"),
        ("-sl foo", 'unknown signal "foo"'),
        ("-sl stop=a=b", "invalid signal parameters: [b]"),
        ("--routes nats://a:1", "solicited routes require cluster capabilities"),
        ("--routes nats://a:1 --cluster nats://a:2", "-routes is not supported by this server yet"),
        ("-s", "-syslog is not supported by this server yet"),
        ("-r udp://a:1", "-remote_syslog is not supported by this server yet"),
        ("--profile 1", "-profile is not supported by this server yet"),
        ("--tls", "TLS Server certificate must be present and valid"),
        ("--tls --tlscert x", "TLS Server private key must be present and valid"),
        ("--tlscert /nope --tlskey y", "error parsing X509 certificate/key pair: open /nope"),
        ("--cluster foo", "missing port in address"),
        ("--cluster nats://a", "address a: missing port in address"),
        ("--cluster nats://u@a:5", "expected cluster password to be set"),
        ("--cluster nats://u:p@a:5", "cluster authorization is not supported"),
        ("--cluster nats://a:x", 'invalid port "x" in cluster address'),
        ("-p 70000", "Error listening on port"),
        ("-m 1 -ms 2", "can't specify both HTTP"),
    ],
)
def test_refusal_ends_with_1(argv: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_command_line(argv.split(), {})
    assert message in caught.value.message
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("argv", ["-v", "--version", "version", "-v frob"])
def test_version_wins_over_everything_else(argv: str) -> None:
    assert parse_command_line(argv.split(), {}) == ShowVersion("nats-server: v2.15.1")


@pytest.mark.parametrize("argv", ["-h", "--help", "help"])
def test_help_is_usage(argv: str) -> None:
    assert parse_command_line([argv], {}) == ShowHelp(usage())


def test_tls_help_is_text() -> None:
    command = parse_command_line(["--help_tls"], {})
    assert isinstance(command, ShowHelp)
    assert "cert_file" in command.text


def test_usage_names_every_flag() -> None:
    for flag in FLAGS:
        for spelling in flag.spellings:
            assert f"-{spelling}" in usage()


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("ldm", SignalRequest(command="ldm")),
        ("stop=123", SignalRequest(command="stop", pid="123")),
        ("reload=/run/x.pid", SignalRequest(command="reload", pid="/run/x.pid")),
    ],
)
def test_signal_is_value(text: str, request_: SignalRequest) -> None:
    assert parse_command_line(["--signal", text], {}) == SendSignal(request_)


def test_flags_override_file(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text("port: 1\nhost: a\nserver_name: f\ndebug: true")
    options = run("-c", str(tmp_path / "x.conf"), "--port", "-1", "-n", "g", "-D=false")
    assert (options.port, options.host) == (-1, "a")
    assert (options.server_name, options.debug) == ("g", False)


def test_checked_configuration_reports_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_text("port: 4222")
    command = parse_command_line(["-t", "-c", str(path)], {})
    assert isinstance(command, CheckConfig)
    assert command.message.startswith(f"nats-server: configuration file {path} is valid (sha256:79")


def test_warning_fails_check_but_not_start(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_text("ping_interval: 5")
    with pytest.raises(UsageError, match="should be converted to a duration"):
        parse_command_line(["-t", "-c", str(path)], {})
    command = parse_command_line(["-c", str(path)], {})
    assert isinstance(command, RunServer)
    assert command.options.ping_interval_ns == 5_000_000_000
    assert len(command.warnings) == 1


def test_same_flags_read_changed_file_again(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_text("max_payload: 1000")
    command = parse_command_line(["-c", str(path), "-p", "-1"], {})
    assert isinstance(command, RunServer)
    path.write_text("max_payload: 2000")
    again = options_from(command.flags, {}).options
    assert (again.port, again.max_payload) == (-1, 2000)
    path.write_text("max_payload: x")
    with pytest.raises(ConfigError, match="interface conversion"):
        options_from(command.flags, {})


def test_run_does_not_show_password() -> None:
    assert "hush" not in repr(parse_command_line(["--pass", "hush", "--auth=hush"], {}))


@given(st.lists(st.sampled_from(["-", "--", "=", "p", "D", "t", "1", "x", "", "-p", "-D", "-h"])))
def test_any_words_are_command_or_usage_error(words: list[str]) -> None:
    with contextlib.suppress(UsageError):
        parse_command_line(["".join(words[:3]), *words[3:]], {})
