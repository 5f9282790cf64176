"""Configuration file -> options: what each key sets, and how a bad one is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.broker.permission_values import (
    Permissions,
    ResponsePermission,
    SubjectPermission,
)
from penstock.server.config.config_reader import (
    ConfigError,
    load_config,
    read_config,
)
from penstock.server.config.options import (
    AccountConnectionLimits,
    AccountOptions,
    Authorization,
    BatchOptions,
    JetStreamLimits,
    JetStreamOptions,
    ListenOnly,
    Options,
    TlsOptions,
    UserOptions,
    WebsocketOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], Options]:
    def read_text(text: str) -> Options:
        path = tmp_path / "x.conf"
        path.write_text(text)
        return read_config(path, {}).options

    return read_text


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ('listen: "127.0.0.1:-1"', "port", -1),
        ('listen: "[::1]:5"', "host", "::1"),
        ("net: localhost", "host", "localhost"),
        ("PORT: 5", "port", 5),
        ("client_advertise: 'a:5'", "client_advertise", "a:5"),
        ("server_name: n", "server_name", "n"),
        ("server_tags: [B, ' c ', b]", "server_tags", ("b", "c")),
        ("server_tags: one", "server_tags", ("one",)),
        ("server_metadata {a: b}", "server_metadata", {"a": "b"}),
        ('http: "127.0.0.1:-1"', "http_host", "127.0.0.1"),
        ("monitor_port: 8222", "http_port", 8222),
        ("https_port: 8443", "https_port", 8443),
        ("http_base_path: /x", "http_base_path", "/x"),
        ("trace_verbose: yes", "trace", True),
        ("trace_headers: yes", "trace_headers", True),
        ("logtime: off", "logtime", False),
        ("logfile: l", "log_file", "l"),
        ("log_max_num: 3", "logfile_max_num", 3),
        ("log_size_limit: 1MB", "log_size_limit", 1048576),
        ("pidfile: p", "pid_file", "p"),
        ("ports_file_dir: d", "ports_file_dir", "d"),
        ("max_conn: 5", "max_connections", 5),
        ("max_subs: 5", "max_subscriptions", 5),
        ("max_subscription_tokens: 5", "max_sub_tokens", 5),
        ("max_control_line: 2k", "max_control_line", 2000),
        ("max_payload: 2MB", "max_payload", 2097152),
        ("max_pending: 1KiB", "max_pending", 1024),
        ("max_closed_clients: 5", "max_closed_clients", 5),
        ('ping_interval: "100ms"', "ping_interval_ns", 100_000_000),
        ("ping_interval: 5", "ping_interval_ns", 5_000_000_000),
        ("ping_max: 5", "ping_max", 5),
        ('write_deadline: "2s"', "write_deadline_ns", 2_000_000_000),
        ("lame_duck_duration: 40s", "lame_duck_duration_ns", 40_000_000_000),
        ("lame_duck_grace_period: 1s", "lame_duck_grace_period_ns", 1_000_000_000),
        ("no_fast_producer_stall: true", "no_fast_producer_stall", True),
        ("no_sublist_cache: true", "disable_sublist_cache", True),
        ("no_header_support: true", "no_header_support", True),
        ("no_auth_user: u", "no_auth_user", "u"),
        ("system: A", "system_account", "A"),
        ("no_sys_acc: true", "no_system_account", True),
        ("allow_non_tls: true", "allow_non_tls", True),
        ("store_dir: s", "store_dir", "s"),
        ("jetstream {enabled: false, store_dir: s}", "store_dir", "s"),
        ("jetstream: disabled", "jetstream", False),
        ("jetstream: enabled", "jetstream", True),
        ("jetstream: true", "jetstream", True),
        ("jetstream {domain: d}", "jetstream", True),
        (
            'jetstream {max_mem: 1G, max_file: 2048, domain: d, sync: "2s", strict: false}',
            "jetstream_options",
            JetStreamOptions(
                max_memory=1_000_000_000,
                max_store=2048,
                domain="d",
                sync_interval_ns=2_000_000_000,
                strict=False,
            ),
        ),
        ("jetstream {sync_interval: always}", "jetstream_options", JetStreamOptions()),
        (
            'jetstream {limits {max_ack_pending: 5, duplicate_window: "1m", batch {max_msgs: 7}}}',
            "jetstream_options",
            JetStreamOptions(
                limits=JetStreamLimits(
                    max_ack_pending=5,
                    duplicate_window_ns=60_000_000_000,
                    batch=BatchOptions(max_msgs=7),
                )
            ),
        ),
        (
            "cluster {listen: '127.0.0.1:-1', name: c}",
            "cluster",
            ListenOnly(name="c", host="127.0.0.1", port=-1),
        ),
        ("cluster {port: 6222, routes: []}", "cluster", ListenOnly(port=6222)),
        ("gateway {name: g, port: 7222}", "gateway", ListenOnly(name="g", port=7222)),
        ("leaf {listen: '127.0.0.1:-1'}", "leafnodes", ListenOnly(host="127.0.0.1", port=-1)),
        ("accounts: [A, B]", "accounts", (AccountOptions(name="A"), AccountOptions(name="B"))),
    ],
)
def test_key_sets_its_option(
    read: Callable[[str], Options], text: str, field: str, value: object
) -> None:
    assert getattr(read(text), field) == value


def test_authorization_forms(read: Callable[[str], Options]) -> None:
    single = read("authorization {username: a, pass: b, timeout: 0.5}").authorization
    assert single == Authorization(user="a", password="b", timeout_ns=500_000_000)
    token = read("authorization {token: '$2a$11$x', timeout: '3s'}").authorization
    assert token == Authorization(token="$2a$11$x", timeout_ns=3_000_000_000)
    many = read(
        f"authorization {{users: [{{user: a, password: b}}, {{nkey: {NKEY}, clients: standard}}],"
        " default_permissions {publish: x}}"
    ).authorization
    assert many.users == (
        UserOptions(user="a", password="b"),
        UserOptions(nkey=NKEY, allowed_connection_types=("STANDARD",)),
    )
    assert many.default_permissions == Permissions(publish=SubjectPermission(allow=("x",)))


@pytest.mark.parametrize(
    ("text", "permissions"),
    [
        ("{publish: a}", Permissions(publish=SubjectPermission(allow=("a",)))),
        ("{pub: [a, b.>]}", Permissions(publish=SubjectPermission(allow=("a", "b.>")))),
        (
            "{subscribe: {allow: [a, 'b  q.*'], deny: c}}",
            Permissions(subscribe=SubjectPermission(allow=("a", "b q.*"), deny=("c",))),
        ),
        ("{sub: {}, pub: []}", Permissions(publish=SubjectPermission())),
        ("{allow_responses: true}", Permissions(responses=ResponsePermission())),
        ("{allow_responses: false}", Permissions()),
        (
            "{allow_responses: {max: 3, expires: '1m'}}",
            Permissions(responses=ResponsePermission(max_msgs=3, expires_ns=60_000_000_000)),
        ),
        (
            "{allow_responses: {max: -5, ttl: '-1s'}}",
            Permissions(responses=ResponsePermission(max_msgs=-1, expires_ns=-1)),
        ),
    ],
)
def test_permissions_forms(
    read: Callable[[str], Options], text: str, permissions: Permissions
) -> None:
    user = read(f"authorization {{users: [{{user: a, permissions: {text}}}]}}").authorization.users[
        0
    ]
    assert user.permissions == permissions


def test_account_holds_users_limits_and_defaults(read: Callable[[str], Options]) -> None:
    options = read(
        "accounts { A { users: [{user: u}], limits {max_conn: 1, max_pay: 2},"
        " default_permissions {sub: x}, exports: [], jetstream: disabled } }"
    )
    assert options.accounts == (
        AccountOptions(
            name="A",
            users=(UserOptions(user="u", account="A"),),
            limits=AccountConnectionLimits(max_connections=1, max_payload=2),
            default_permissions=Permissions(subscribe=SubjectPermission(allow=("x",))),
        ),
    )


def test_websocket_options(read: Callable[[str], Options]) -> None:
    options = read(
        "websocket {listen: '127.0.0.1:-1', no_tls: true, compress: yes, origins: [http://a],"
        " same_origin: on, handshake_timeout: 3, ping_interval: '9s', headers {X-A: b},"
        " authorization {user: u, pass: p, timeout: 4}, user_cookie: c}"
    )
    assert options.websocket == WebsocketOptions(
        host="127.0.0.1",
        port=-1,
        no_tls=True,
        compression=True,
        allowed_origins=("http://a",),
        same_origin=True,
        handshake_timeout_ns=3_000_000_000,
        ping_interval_ns=9_000_000_000,
        headers={"X-A": "b"},
        user="u",
        password="p",
        auth_timeout_ns=4_000_000_000,
        user_cookie="c",
    )


def test_tls_options_without_files(read: Callable[[str], Options]) -> None:
    pin = "A" * 64
    tls = read(
        "tls {verify_and_map: true, timeout: 0.25, min_version: '1.3', handshake_first: auto,"
        f" cipher_suites: [TLS_AES_128_GCM_SHA256], curve_preferences: [X25519],"
        f" pinned_certs: [{pin}]}}"
    ).tls
    assert tls == TlsOptions(
        verify=True,
        verify_and_map=True,
        timeout_ns=250_000_000,
        min_version="1.3",
        handshake_first=True,
        handshake_first_fallback_ns=50_000_000,
        cipher_suites=("TLS_AES_128_GCM_SHA256",),
        curve_preferences=("X25519",),
        pinned_certs=(pin.lower(),),
    )
    assert read("tls {first: '300ms'}").tls == TlsOptions(
        handshake_first=True, handshake_first_fallback_ns=300_000_000
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("foo: 1", '1:0: unknown field "foo"'),
        ("\nfoo: 1", '2:1: unknown field "foo"'),
        ("cluster {foo: 1}", 'unknown field "foo"'),
        ("port: x", "interface conversion: interface {} is string, not int64"),
        ("debug: 1", "interface {} is int64, not bool"),
        ("host: 1.5", "interface {} is float64, not string"),
        ("max_payload: 3GB", "max_payload value is too big"),
        ("max_sub_tokens: 256", "max_sub_tokens value is too big"),
        ("max_sub_tokens: 0", "max_sub_tokens value can not be negative"),
        ("listen: x", 'could not parse address string "x"'),
        ("listen: a:b", 'could not parse port "b"'),
        ("lame_duck_duration: 2s", "invalid lame_duck_duration of 2s, minimum is 30 seconds"),
        ("lame_duck_grace_period: '-1s'", "needs to be positive"),
        ("ping_interval: '2 m'", "error parsing ping_interval: time: unknown unit"),
        ("server_name: 'a b'", "server name cannot contain spaces"),
        ("authorization {user: a, token: b}", "Cannot have a user/pass and token"),
        ("authorization {user: a, users: []}", "single user/pass and a users array"),
        ("authorization {token: a}, accounts {A {users: [{user: b}]}}", "a token and a users"),
        ("authorization {users: [{user: a}, {user: a}]}", 'Duplicate user "a" detected'),
        ("authorization {users: [{password: a}]}", "User entry requires a user"),
        ("authorization {users: [{nkey: UAAA}]}", "Not a valid public nkey for a user"),
        (f"authorization {{users: [{{nkey: {NKEY}, user: a}}]}}", "do not take usernames"),
        ("authorization {users: [{user: a, clients: [FOO]}]}", 'invalid connection types ["FOO"]'),
        ("authorization {users: [{user: a, permissions: {x: 1}}]}", 'Unknown field "x" parsing'),
        ("authorization {users: [{user: a, permissions: {pub: 'a b'}}]}", 'subject "a b" is not'),
        ("authorization {users: [{user: a, permissions: {sub: 'a..b q'}}]}", 'subject "a..b" is'),
        ("accounts {$G {}}", '"$G" is a Reserved Account'),
        ("accounts: [A, A]", "Duplicate Account Entry: A"),
        ("accounts {A: 5}", "Expected map entries for accounts"),
        ("accounts {A {users: [{user: u}]}, B {users: [{user: u}]}}", 'Duplicate user "u"'),
        ("tls {cert_file: x}", "missing 'key_file' in TLS configuration"),
        ("tls {key_file: x}", "missing 'cert_file' in TLS configuration"),
        ("tls {cert_file: /nope, key_file: y}", "error parsing X509 certificate/key pair: open"),
        ("tls {zz: 1}", 'error parsing tls config, unknown field "zz"'),
        ("tls {cipher_suites: [FOO]}", "unrecognized cipher FOO"),
        ("tls {min_version: '1.1'}", "unsupported TLS version: TLS 1.1"),
        ("store_dir: a, jetstream {enabled: false, store_dir: b}", "Duplicate 'store_dir'"),
        ("jetstream: foo", "Expected 'enabled' or 'disabled' for string value, got 'foo'"),
        ("write_timeout: foo", "write_timeout must be 'default', 'close' or 'retry'"),
    ],
)
def test_bad_value_is_reported_with_its_place(
    read: Callable[[str], Options], tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/x.conf:")


@pytest.mark.parametrize(
    "text",
    [
        "mqtt {port: 1883}",
        "resolver: URL(http://a)",
        "resolver: {type: cache, dir: x}",
        "syslog: true",
        "ocsp: true",
        "proxy_protocol: true",
        "proxies {}",
        "prof_port: 1",
        "feature_flags {x: true}",
        "write_timeout: retry",
        "accounts {A {exports: [{service: a, latency: b}]}}",
        "cluster {routes: [nats://a:1]}",
        "cluster {authorization {user: a}}",
        "gateway {gateways: [{name: x}]}",
        "leafnodes {remotes: [{url: x}]}",
        "tls {ocsp_peer: true}",
        "tls {connection_rate_limit: 5}",
    ],
)
def test_unsupported_options_are_refused_not_ignored(
    read: Callable[[str], Options], text: str
) -> None:
    with pytest.raises(ConfigError, match=r"x\.conf:1:.* not supported by this server yet$"):
        read(text)


def test_every_fault_of_file_is_reported_at_once(read: Callable[[str], Options]) -> None:
    with pytest.raises(ConfigError) as caught:
        read("foo: 1\nport: x\nping_interval: 5\nauthorization {users: [{pass: a}, {pass: b}]}")
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    assert "should be converted to a duration" in lines[0]


def test_unknown_key_that_served_as_variable_passes(read: Callable[[str], Options]) -> None:
    assert read("my_port: 5\nport: $my_port").port == 5


def test_bare_number_as_duration_is_warning(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text("ping_interval: 5")
    (warning,) = read_config(tmp_path / "x.conf", {}).warnings
    assert warning.endswith('"ping_interval": ping_interval should be converted to a duration')


def test_empty_file_is_refused(read: Callable[[str], Options]) -> None:
    with pytest.raises(ConfigError, match="config has no values or is empty"):
        read("# nothing")


def test_environment_reaches_options(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text("port: $P")
    assert load_config(tmp_path / "x.conf", {"P": "4567"}).port == 4567


def test_no_repr_shows_secret(read: Callable[[str], Options]) -> None:
    options = read(
        "authorization {users: [{user: u, password: hush}]}\n"
        "accounts {A {users: [{user: v, password: hush}]}}\n"
        "websocket {authorization {token: hush, password: hush}}"
    )
    assert "hush" not in repr(options)
    assert "hush" not in repr(read("authorization {token: hush}"))
