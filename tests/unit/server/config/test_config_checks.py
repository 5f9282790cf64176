"""Defaults that depend on other options, and contradictions between options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.config.config_checks import check_options, normalise
from penstock.server.config.config_file import ConfigError
from penstock.server.config.options import (
    Authorization,
    ListenOnly,
    Options,
    TlsOptions,
    UserOptions,
    WebsocketOptions,
)


def test_normalise_fills_what_was_left_open() -> None:
    options = normalise(
        Options(
            host="",
            port=0,
            max_payload=0,
            ping_max=0,
            http_base_path="a/",
            tls=TlsOptions(timeout_ns=5_000_000_000),
            websocket=WebsocketOptions(),
            leafnodes=ListenOnly(),
        )
    )
    assert (options.host, options.port, options.http_host) == ("0.0.0.0", 4222, "0.0.0.0")
    assert (options.max_payload, options.ping_max) == (1048576, 2)
    assert options.http_base_path == "/a"
    assert options.authorization.timeout_ns == 6_000_000_000
    assert options.websocket is None
    assert options.leafnodes is None


@given(
    st.builds(
        Options,
        port=st.integers(-1, 3),
        max_payload=st.integers(0, 2),
        http_base_path=st.sampled_from(["", "/", "a", "/a/../b"]),
        tls=st.none() | st.just(TlsOptions()),
        websocket=st.none() | st.builds(WebsocketOptions, port=st.integers(-1, 1)),
        trace_verbose=st.booleans(),
    )
)
def test_normalising_twice_changes_nothing_more(options: Options) -> None:
    once = normalise(options)
    assert normalise(once) == once


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (Options(max_payload=2, max_pending=1), r"max_payload \(2\) cannot be higher than"),
        (
            Options(lame_duck_duration_ns=30_000_000_000, lame_duck_grace_period_ns=30_000_000_000),
            r"lame duck grace period \(30s\) should be strictly lower",
        ),
        (Options(server_name="a b"), "server name cannot contain spaces"),
        (Options(no_auth_user="x"), 'no_auth_user: "x" present, but users/nkeys are not'),
        (
            Options(no_auth_user="x", authorization=Authorization(users=(UserOptions(user="y"),))),
            'no_auth_user: "x" not present as user or nkey',
        ),
        (Options(gateway=ListenOnly(port=1)), "gateway has no name"),
        (Options(gateway=ListenOnly(name="g")), 'gateway "g" has no port specified'),
        (
            Options(cluster=ListenOnly(name="a", port=1), gateway=ListenOnly(name="b", port=2)),
            "cluster name conflicts",
        ),
        (Options(websocket=WebsocketOptions(port=1)), "websocket requires TLS configuration"),
        (
            Options(websocket=WebsocketOptions(port=1, no_tls=True, jwt_cookie="j")),
            "required for JWT authentication via cookie",
        ),
        (
            Options(websocket=WebsocketOptions(port=1, no_tls=True, allowed_origins=("::x",))),
            "unable to parse allowed origin",
        ),
        (
            Options(
                websocket=WebsocketOptions(port=1, no_tls=True, user="u"),
                authorization=Authorization(users=(UserOptions(user="y"),)),
            ),
            "websocket authentication username not compatible",
        ),
        (Options(system_account="A"), "error resolving system account"),
        (Options(tls=TlsOptions()), "tls requires 'cert_file' and 'key_file'"),
        (Options(http_port=1, https_port=2), "can't specify both HTTP"),
        (Options(https_port=2), "TLS cert and key required for HTTPS"),
        (Options(max_closed_clients=-1), "max_closed_clients cannot be negative"),
        (Options(port=70000), "Error listening on port: 0.0.0.0:70000"),
    ],
)
def test_contradiction_is_refused(options: Options, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_options(options)


def test_defaults_contradict_nothing() -> None:
    check_options(normalise(Options()))
