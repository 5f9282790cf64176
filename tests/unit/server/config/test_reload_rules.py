"""What a reload takes over, and what it refuses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.server.config.config_file import ConfigError
from penstock.server.config.options import (
    Authorization,
    ListenOnly,
    Options,
    TlsOptions,
    WebsocketOptions,
)
from penstock.server.config.reload_rules import FIXED, reloadable_changes

ALWAYS = ["authorization users", "accounts"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ALWAYS),
        ({"debug": True}, ["debug = true", *ALWAYS]),
        ({"max_connections": 10}, ["max_connections = 10", *ALWAYS]),
        ({"max_payload": 7}, [*ALWAYS, "max_payload = 7"]),
        ({"ping_interval_ns": 5_000_000_000}, [*ALWAYS, "ping_interval = 5s"]),
        ({"server_tags": ("a",)}, [*ALWAYS, "tags"]),
        ({"server_metadata": {"a": "b"}}, [*ALWAYS, "metadata"]),
        ({"no_fast_producer_stall": True}, [*ALWAYS, "fast producers will not be stalled"]),
        (
            {"authorization": Authorization(user="a", password="b", timeout_ns=3_000_000_000)},
            [
                *ALWAYS,
                "authorization username",
                "authorization password",
                "authorization timeout = 3",
            ],
        ),
        ({"authorization": Authorization(token="t")}, [*ALWAYS, "authorization token"]),
        ({"tls": TlsOptions(cert_file="c", key_file="k")}, [*ALWAYS, "tls = enabled"]),
    ],
)
def test_reload_names_what_changed(changes: dict[str, object], told: list[str]) -> None:
    lines = reloadable_changes(Options(), replace(Options(), **changes))
    assert lines == [f"Reloaded: {text}" for text in told]


def test_new_advertised_address_is_reported_in_references_words() -> None:
    lines = reloadable_changes(Options(), Options(client_advertise="a:5"))
    assert lines[0] == "Reload: client_advertise = a:5"


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"host": "::1"}, "for Host: old=0.0.0.0, new=::1"),
        ({"port": 5}, "for Port: old=4222, new=5"),
        ({"server_name": "x"}, "for ServerName: old=, new=x"),
        ({"max_pending": 5}, "for MaxPending: old=67108864, new=5"),
        ({"lame_duck_duration_ns": 40_000_000_000}, "for LameDuckDuration: old=2m0s, new=40s"),
        ({"allow_non_tls": True}, "for AllowNonTLS: old=false, new=true"),
        ({"no_auth_user": "a"}, "for NoAuthUser: old=, new=a"),
        ({"websocket": WebsocketOptions(port=1)}, "for Websocket: "),
        ({"cluster": ListenOnly(port=1)}, "for cluster host: old=, new=0.0.0.0"),
        ({"leafnodes": ListenOnly(port=1)}, "for LeafNode host: "),
    ],
)
def test_reload_refuses_what_is_fixed(changes: dict[str, object], refusal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        reloadable_changes(Options(), replace(Options(), **changes))
    assert f"config reload not supported {refusal}" in str(caught.value)


def test_reload_takes_new_websocket_certificate() -> None:
    tls = [TlsOptions(cert_file=name, key_file="k") for name in ("a", "b")]
    old, new = (Options(websocket=WebsocketOptions(port=1, tls=each)) for each in tls)
    assert "Reloaded: websocket tls" in reloadable_changes(old, new)


def test_every_fixed_option_exists() -> None:
    assert set(FIXED) <= set(Options.__struct_fields__)
