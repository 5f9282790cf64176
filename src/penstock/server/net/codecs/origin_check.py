"""Checks the Origin header of a WebSocket upgrade against the listener's rules.

A request without an origin does not come from a browser and is accepted; a browser cannot omit it.
An origin that cannot be parsed is refused as soon as any rule exists. As in the reference, ports
are compared after the scheme's default is filled in, schemes and hosts ignoring case.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

SCHEMES = {False: "http", True: "https"}
DEFAULT_PORTS = {False: "80", True: "443"}


@dataclass(frozen=True, slots=True)
class OriginRules:
    """`allowed` maps a host to its permitted schemes and ports; empty allows all."""

    same: bool = False
    allowed: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)

    @classmethod
    def parse(cls, same: bool, origins: tuple[str, ...]) -> "OriginRules":
        """Build the rules. Raises ValueError for an origin that is not a URL."""
        allowed: dict[str, frozenset[tuple[str, str]]] = {}
        for origin in origins:
            scheme, host, port = _split_origin(origin)
            allowed[host] = allowed.get(host, frozenset()) | {(scheme, port)}
        return cls(same, allowed)

    def complaint(self, origin: str, host: str, *, secure: bool) -> str:
        """Return why this origin may not connect to the server as `host`; "" if it may."""
        if not origin or not (self.same or self.allowed):
            return ""
        try:
            scheme, origin_host, port = _split_origin(origin)
        except ValueError as error:
            return str(error)
        ours = (SCHEMES[secure], *_split_host(host, secure))
        if self.same and (scheme, origin_host, port) != ours:
            return "not same origin"
        if self.allowed and (scheme, port) not in self.allowed.get(origin_host, frozenset()):
            return "not in the allowed list"
        return ""


def _split_origin(origin: str) -> tuple[str, str, str]:
    unreadable = ValueError(f"cannot parse {origin!r}")
    if "://" not in origin or " " in origin or "%" in origin:
        raise unreadable
    try:
        parts = urlsplit(origin)
        _ = parts.port
    except ValueError:
        raise unreadable from None
    scheme = parts.scheme.lower()
    host, port = _split_host(parts.netloc.rpartition("@")[2], scheme == "https")
    return scheme, host, port


def _split_host(text: str, secure: bool) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, DEFAULT_PORTS[secure]
    return host.strip("[]").lower(), port
