"""The HTTP upgrade: good requests are answered as RFC 6455 asks, bad ones as the reference does.

BAD was recorded from the reference; test_upgrade_reference asks it again, live.
"""

from __future__ import annotations

import pytest

from penstock.server.config.options import WebsocketOptions
from penstock.server.net.codecs.origin_check import OriginRules
from penstock.server.net.codecs.upgrade import (
    HANDSHAKE_BYTES_MAX,
    Upgrade,
    UpgradeReader,
    UpgradeRefused,
    UpgradeRules,
    upgrade_rules,
)
from support.transport_codecs import SPLITS, split, upgrade_request
from support.upgrades import BAD, GOOD


def read(request: bytes, how: str = "whole", rules: UpgradeRules | None = None) -> Upgrade | None:
    reader = UpgradeReader(rules or UpgradeRules())
    for piece in split(request, how):
        upgrade = reader.feed(piece)
        if upgrade is not None:
            return upgrade
    return None


def accept(request: bytes, rules: UpgradeRules | None = None) -> Upgrade:
    upgrade = read(request, rules=rules)
    assert upgrade is not None
    return upgrade


def refuse(request: bytes, how: str = "whole", rules: UpgradeRules | None = None) -> UpgradeRefused:
    with pytest.raises(UpgradeRefused) as caught:
        read(request, how, rules)
    return caught.value


@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("name", GOOD)
def test_good_request_is_accepted_in_any_chunking(name: str, how: str) -> None:
    upgrade = read(GOOD[name], how)
    assert upgrade is not None
    assert upgrade.response.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in upgrade.response
    assert upgrade.response.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("name", BAD)
def test_bad_request_is_refused_with_recorded_status(name: str, how: str) -> None:
    request, status = BAD[name]
    refused = refuse(request, how)
    assert refused.response.split(b" ", 2)[1] == str(status).encode()
    assert refused.text.startswith("websocket handshake error: ")
    head, _, body = refused.response.partition(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % len(body) in head
    assert head.endswith(b"Connection: close")


@pytest.mark.parametrize("how", SPLITS)
def test_request_head_beyond_limit_is_refused_whatever_its_chunks(how: str) -> None:
    step = HANDSHAKE_BYTES_MAX // 8
    pads = [f"X-{i}: {'x' * step}" for i in range(8)]
    assert refuse(upgrade_request("GET / HTTP/1.1", *pads), how).response[9:12] == b"431"
    endless = b"GET /" + b"a" * (HANDSHAKE_BYTES_MAX + 1)
    assert refuse(endless, how).response[9:12] == b"431"


def test_data_before_handshake_is_complete_is_refused_without_word() -> None:
    refused = refuse(upgrade_request() + b"\x82\x80abcd")
    assert refused.response == b""
    assert "client sent data before handshake is complete" in refused.text


def test_feeding_nothing_is_no_end_of_stream() -> None:
    reader = UpgradeReader(UpgradeRules())
    assert reader.feed(b"") is None
    assert reader.feed(upgrade_request()) is not None


@pytest.mark.parametrize(
    ("offer", "enabled", "agreed"),
    [
        ("permessage-deflate", True, True),
        ("permessage-deflate; client_max_window_bits", True, True),
        ("foo, PerMessage-Deflate; server_max_window_bits=8", True, True),
        ("x-webkit-deflate-frame", True, False),
        ("permessage-deflate", False, False),
    ],
)
def test_compression_is_agreed_on_without_context_takeover(
    offer: str, enabled: bool, agreed: bool
) -> None:
    rules = UpgradeRules(compression=enabled)
    upgrade = accept(upgrade_request(Sec_WebSocket_Extensions=offer), rules)
    assert upgrade.compress is agreed
    answer = (
        b"Sec-WebSocket-Extensions: permessage-deflate; "
        b"server_no_context_takeover; client_no_context_takeover\r\n"
    )
    assert (answer in upgrade.response) is agreed


def test_masking_is_waived_only_on_request() -> None:
    assert accept(upgrade_request()).masked
    assert accept(upgrade_request(Nats_No_Masking="yes")).masked
    waived = accept(upgrade_request(Nats_No_Masking="true"))
    assert not waived.masked
    assert b"Nats-No-Masking: true\r\n" in waived.response


def test_configured_headers_are_added_to_answer() -> None:
    options = WebsocketOptions(port=1, headers={"X-My": "yes", "x-lower": "a b"})
    upgrade = accept(upgrade_request(), upgrade_rules(options, secure=False))
    assert b"X-My: yes\r\nx-lower: a b\r\n" in upgrade.response


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("::1", "::1"),
        ("1.2.3.4, 5.6.7.8", ""),
        ("1.2.3.4:55", ""),
        ("[::1]", ""),
        ("fe80::1%eth0", ""),
        ("01.2.3.4", ""),
        ("bogus", ""),
    ],
)
def test_forwarded_address_counts_when_it_is_one_address(header: str, address: str) -> None:
    assert accept(upgrade_request(X_Forwarded_For=header)).client_ip == address


def test_first_of_several_forwarded_headers_counts() -> None:
    request = upgrade_request(
        "GET / HTTP/1.1", "X-Forwarded-For: 9.9.9.9", "X-Forwarded-For: 1.1.1.1"
    )
    assert accept(request).client_ip == "9.9.9.9"


@pytest.mark.parametrize(
    ("cookie", "cookies"),
    [
        ("uc=u; pc=p", {"uc": "u", "pc": "p"}),
        ("pc=p;uc=u", {"uc": "u", "pc": "p"}),
        ('uc="u"; pc="p"', {"uc": "u", "pc": "p"}),
        ("uc=bad; uc=u; pc=p", {"uc": "u", "pc": "p"}),
        ("uc=u; uc=bad; pc=p", {"uc": "bad", "pc": "p"}),
        ("UC=u; PC=p", {"UC": "u", "PC": "p"}),
        ("uc=u\r\nCookie: pc=p", {"uc": "u", "pc": "p"}),
        ("uc=u, pc=p", {"uc": "u, pc=p"}),
        ("junk; uc=u; ;; pc=p", {"junk": "", "uc": "u", "pc": "p"}),
        ("uc=u; pc=p\\", {"uc": "u"}),
        ("uc= u; pc=p", {"uc": " u", "pc": "p"}),
        ('uc="u; pc=p', {"pc": "p"}),
    ],
)
def test_cookies_are_read_as_reference_reads_them(cookie: str, cookies: dict[str, str]) -> None:
    assert accept(upgrade_request(Cookie=cookie)).cookies == cookies


def test_cookies_never_show_in_repr() -> None:
    upgrade = accept(upgrade_request(Cookie="jwt=sesame"))
    assert "sesame" not in repr(upgrade)


@pytest.mark.parametrize(
    ("agent", "browser", "safari"),
    [
        ("nats.ws", False, False),
        ("Mozilla/5.0 (X11) Firefox", True, False),
        ("Mozilla/5.0 Chrome/1 Safari/600", True, False),
        ("Mozilla/5.0 (Mac) Version/15 Safari/600", True, True),
    ],
)
def test_browsers_are_known_by_their_agent(agent: str, browser: bool, safari: bool) -> None:
    upgrade = accept(upgrade_request(User_Agent=agent))
    assert (upgrade.browser, upgrade.safari) == (browser, safari)


def test_foreign_origin_is_forbidden() -> None:
    rules = UpgradeRules(origins=OriginRules.parse(True, ()))
    refused = refuse(upgrade_request(Origin="http://evil"), rules=rules)
    assert refused.response.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert "origin not allowed: not same origin" in refused.text
    refuse(upgrade_request(Sec_WebSocket_Origin="http://evil"), rules=rules)
    accept(upgrade_request(Origin="http://127.0.0.1:80"), rules)


def test_log_texts_are_short_and_one_line_whatever_peer_sends() -> None:
    rules = UpgradeRules(origins=OriginRules.parse(True, ()))
    for request in (
        upgrade_request(Origin="x" * 5000),
        upgrade_request("GET / HTTP/1.1", "bad header " + "y" * 5000),
        b"\x01\x02" * 2000 + b"\r\n\r\n",
    ):
        text = refuse(request, rules=rules).text
        assert len(text) < 300
        assert text.isprintable()
