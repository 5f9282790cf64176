"""The HTTP request that upgrades a connection to a WebSocket, and the server's response.

Bytes in, decision out: `UpgradeReader.feed` returns None while the head is incomplete, then an
`Upgrade`, or raises `UpgradeRefused` with the response to send. Checks, their order and the
statuses are the reference's. h11 parses the request head, which may have HANDSHAKE_BYTES_MAX bytes
in any split. Without a clock, responses carry no Date; a refused connection is closed.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.server.net.codecs.origin_check import OriginRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import h11

    from penstock.server.config.options import WebsocketOptions
    from penstock.server.net.codecs.contract import BytesLike

#: Request line and headers together; enough for a JWT cookie, but bounds memory before login.
HANDSHAKE_BYTES_MAX = 64 * 1024
#: Characters of peer-supplied text in a log line.
LOG_TEXT_CHARS_MAX = 200
KEY_BYTES = 16
ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
DEFLATE = "permessage-deflate"
DEFLATE_AGREED = f"{DEFLATE}; server_no_context_takeover; client_no_context_takeover"
#: Path prefixes of protocols that the reference serves on this port and this server does not.
FOREIGN_PATHS = {"/mqtt": "mqtt", "/leafnode": "leafnode"}
STATUS_TEXTS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    505: "HTTP Version Not Supported",
}
BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
COOKIE_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
COOKIE_VALUE = re.compile(r"[\x20\x21\x23-\x3a\x3c-\x5b\x5d-\x7e]*")


@dataclass(frozen=True, slots=True)
class UpgradeRules:
    """The requirements of one listener for upgrades, and its additional response headers."""

    origins: OriginRules = field(default_factory=OriginRules)
    compression: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    secure: bool = False
    """Whether TLS is the lower layer; sets the default port of an origin or host."""


def upgrade_rules(options: "WebsocketOptions", *, secure: bool) -> UpgradeRules:
    """Build the rules. Raises ValueError if an allowed origin is not a URL."""
    return UpgradeRules(
        origins=OriginRules.parse(options.same_origin, options.allowed_origins),
        compression=options.compression,
        headers=tuple(options.headers.items()),
        secure=secure,
    )


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An accepted request: the facts that the session uses, and the response."""

    path: str
    client_ip: str
    """The first X-Forwarded-For header if it is exactly one IP address; else ""."""
    cookies: "Mapping[str, str]" = field(repr=False)
    browser: bool
    safari: bool
    compress: bool
    masked: bool
    """Whether frames must be masked; a peer can opt out with Nats-No-Masking."""
    response: bytes = field(repr=False)


class UpgradeRefused(Exception):
    """`text` is for the log, `response` (possibly empty) for the peer."""

    def __init__(self, text: str, response: bytes) -> None:
        super().__init__(text)
        self.text = text
        self.response = response


class UpgradeReader:
    """Collects one request head; not reusable after a result."""

    __slots__ = ("_bytes_fed", "_http", "_rules")

    def __init__(self, rules: UpgradeRules) -> None:
        import h11

        self._rules = rules
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HANDSHAKE_BYTES_MAX)
        self._bytes_fed = 0

    def feed(self, data: "BytesLike") -> Upgrade | None:
        """Return None until the head is complete. Raises UpgradeRefused."""
        import h11

        if len(data) == 0:
            # h11 would read this as the end of the stream.
            return None
        self._bytes_fed += len(data)
        try:
            self._http.receive_data(bytes(data))
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise _malformed(error) from error
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Request):
            raise _refusal(400, "no HTTP request")
        trailing = len(self._http.trailing_data[0])
        if self._bytes_fed - trailing > HANDSHAKE_BYTES_MAX:
            raise _refusal(431, "request head too large")
        upgrade = _check_request(event, self._rules)
        if trailing:
            # The reference closes without a response here, so this server does too.
            raise UpgradeRefused(_text("client sent data before handshake is complete"), b"")
        return upgrade


class _Headers:
    """Case-insensitive view of a request's headers."""

    def __init__(self, request: "h11.Request") -> None:
        self._pairs = [(n.decode("ascii"), v.decode("latin-1")) for n, v in request.headers]

    def all(self, name: str) -> list[str]:
        return [value for pair_name, value in self._pairs if pair_name == name]

    def first(self, name: str) -> str:
        return next(iter(self.all(name)), "")

    def has_token(self, name: str, token: str) -> bool:
        return any(
            part.strip(" \t").lower() == token
            for value in self.all(name)
            for part in value.split(",")
        )


def _check_request(request: "h11.Request", rules: UpgradeRules) -> Upgrade:
    if not request.http_version.startswith(b"1."):
        raise _refusal(505, "unsupported protocol version")
    path = _path(request.target.decode("latin-1"))
    headers = _Headers(request)
    _check_handshake(request.method, path, headers)
    host = headers.first("host")
    origin = headers.first("origin") or headers.first("sec-websocket-origin")
    complaint = rules.origins.complaint(origin, host, secure=rules.secure)
    if complaint:
        raise _refusal(403, f"origin not allowed: {complaint}")
    agent = headers.first("user-agent")
    browser = agent.startswith("Mozilla/")
    compress = rules.compression and _offers_deflate(headers.all("sec-websocket-extensions"))
    masked = headers.first("nats-no-masking") != "true"
    return Upgrade(
        path=path,
        client_ip=_client_ip(headers.first("x-forwarded-for")),
        cookies=_cookies(headers.all("cookie")),
        browser=browser,
        safari=browser and "Version/" in agent and "Safari/" in agent,
        compress=compress,
        masked=masked,
        response=_accepted(headers.first("sec-websocket-key"), rules, compress, masked),
    )


def _path(target: str) -> str:
    if "://" in target:
        target = "/" + target.partition("://")[2].partition("/")[2]
    if not target.startswith("/") or BAD_ESCAPE.search(target):
        raise _refusal(400, "invalid request target")
    return target.partition("?")[0]


def _check_handshake(method: bytes, path: str, headers: _Headers) -> None:
    if method != b"GET":
        raise _refusal(405, "request method must be GET")
    if not headers.first("host"):
        raise _refusal(400, "'Host' missing in request")
    if not headers.has_token("upgrade", "websocket"):
        raise _refusal(400, "invalid value for header 'Upgrade'")
    if not headers.has_token("connection", "upgrade"):
        raise _refusal(400, "invalid value for header 'Connection'")
    if not headers.first("sec-websocket-key"):
        raise _refusal(400, "key missing")
    if not _is_key(headers.first("sec-websocket-key")):
        raise _refusal(400, "invalid websocket key")
    if not headers.has_token("sec-websocket-version", "13"):
        raise _refusal(400, "invalid version")
    if headers.all("transfer-encoding") or headers.first("content-length") not in ("", "0"):
        raise _refusal(400, "request has a body")
    for prefix, protocol in FOREIGN_PATHS.items():
        if path.startswith(prefix):
            raise _refusal(404, f"{protocol} websocket endpoint not enabled")


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _offers_deflate(offers: "Iterable[str]") -> bool:
    return any(
        part.strip(" \t").lower() == DEFLATE
        for offer in offers
        for extension in offer.split(",")
        for part in extension.split(";")
    )


def _client_ip(forwarded_for: str) -> str:
    import ipaddress

    try:
        address = ipaddress.ip_address(forwarded_for)
    except ValueError:
        return ""
    return "" if "%" in forwarded_for else str(address)


def _cookies(lines: "Iterable[str]") -> dict[str, str]:
    """Return name -> value; the last duplicate wins, malformed cookies are skipped."""
    cookies = {}
    for part in ";".join(lines).split(";"):
        name, _, value = part.strip(" \t").partition("=")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if COOKIE_NAME.fullmatch(name) and COOKIE_VALUE.fullmatch(value):
            cookies[name] = value
    return cookies


def _accepted(key: str, rules: UpgradeRules, compress: bool, masked: bool) -> bytes:
    digest = hashlib.sha1(key.encode("ascii") + ACCEPT_GUID, usedforsecurity=False).digest()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode('ascii')}",
    ]
    if compress:
        lines.append(f"Sec-WebSocket-Extensions: {DEFLATE_AGREED}")
    if not masked:
        lines.append("Nats-No-Masking: true")
    lines.extend(f"{name}: {value}" for name, value in rules.headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def _malformed(error: "h11.RemoteProtocolError") -> UpgradeRefused:
    status = error.error_status_hint if error.error_status_hint in STATUS_TEXTS else 400
    return _refusal(status, f"malformed HTTP request: {error}")


def _refusal(status: int, why: str) -> UpgradeRefused:
    reason = STATUS_TEXTS[status]
    body = f"{reason}\n"
    head = (
        f"HTTP/1.1 {status} {reason}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        "Sec-Websocket-Version: 13\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return UpgradeRefused(_text(why), (head + body).encode("ascii"))


def _text(why: str) -> str:
    return f"websocket handshake error: {why[:LOG_TEXT_CHARS_MAX]}"
