"""Upgrade requests and what the reference answers to them, recorded from version 2.15.1.

Kept as data, so that the codec and a live reference can be asked the same questions.
"""

from support.transport_codecs import KEY, upgrade_request

FIRST_LINE = "GET / HTTP/1.1"

GOOD: dict[str, bytes] = {
    "plain": upgrade_request(),
    "path and query": upgrade_request("GET /foo?x=1 HTTP/1.1"),
    "absolute target": upgrade_request("GET http://127.0.0.1/ HTTP/1.1"),
    "HTTP/1.0": upgrade_request("GET / HTTP/1.0"),
    "bare LF": upgrade_request(eol="\n"),
    "case of Upgrade": upgrade_request(Upgrade="WebSocket"),
    "list in Upgrade": upgrade_request(Upgrade="foo, websocket"),
    "list in Connection": upgrade_request(Connection="keep-alive, Upgrade"),
    "list of versions": upgrade_request(Sec_WebSocket_Version="8, 13"),
    "empty body": upgrade_request(FIRST_LINE, "Content-Length: 0"),
    "origin without rules": upgrade_request(Origin="http://evil"),
    "subprotocol": upgrade_request(Sec_WebSocket_Protocol="nats"),
    "second key": upgrade_request(FIRST_LINE, "Sec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA=="),
    "folded header": upgrade_request(FIRST_LINE, "A: b", " folded"),
    "long header": upgrade_request(FIRST_LINE, f"A: {'x' * 10_000}"),
}

BAD: dict[str, tuple[bytes, int]] = {
    "POST": (upgrade_request("POST / HTTP/1.1"), 405),
    "HEAD": (upgrade_request("HEAD / HTTP/1.1"), 405),
    "method in lower case": (upgrade_request("get / HTTP/1.1"), 405),
    "mqtt": (upgrade_request("GET /mqtt HTTP/1.1"), 404),
    "HTTP/2.0": (upgrade_request("GET / HTTP/2.0"), 505),
    "no version": (upgrade_request("GET /"), 400),
    "bad target": (upgrade_request("GET foo HTTP/1.1"), 400),
    "bad escape": (upgrade_request("GET /%zz HTTP/1.1"), 400),
    "no Host": (upgrade_request(drop=("Host",)), 400),
    "no Host, HTTP/1.0": (upgrade_request("GET / HTTP/1.0", drop=("Host",)), 400),
    "two Hosts": (upgrade_request(FIRST_LINE, "Host: b"), 400),
    "empty Host": (upgrade_request(Host=""), 400),
    "no Upgrade": (upgrade_request(drop=("Upgrade",)), 400),
    "other Upgrade": (upgrade_request(Upgrade="h2c"), 400),
    "no Connection": (upgrade_request(drop=("Connection",)), 400),
    "other Connection": (upgrade_request(Connection="keep-alive"), 400),
    "no key": (upgrade_request(drop=("Sec-WebSocket-Key",)), 400),
    "short key": (upgrade_request(Sec_WebSocket_Key="abcd"), 400),
    "key that is no base64": (upgrade_request(Sec_WebSocket_Key="!!!"), 400),
    "key of 15 bytes": (upgrade_request(Sec_WebSocket_Key="AAAAAAAAAAAAAAAAAAAA"), 400),
    "unpadded key": (upgrade_request(Sec_WebSocket_Key=KEY.rstrip("=")), 400),
    "no version header": (upgrade_request(drop=("Sec-WebSocket-Version",)), 400),
    "other version": (upgrade_request(Sec_WebSocket_Version="12"), 400),
    "garbage": (b"garbage\r\n\r\n", 400),
    "NATS": (b"CONNECT {}\r\nPING\r\n\r\n", 400),
    "header without colon": (upgrade_request(FIRST_LINE, "no colon"), 400),
    "blank in header name": (upgrade_request(FIRST_LINE, "a b: c"), 400),
    "blank after header name": (upgrade_request(FIRST_LINE, "ab : c"), 400),
    "NUL in header": (upgrade_request(FIRST_LINE, "A: a\x00b"), 400),
    "CR before the request": (b"\r\n" + upgrade_request(), 400),
}
