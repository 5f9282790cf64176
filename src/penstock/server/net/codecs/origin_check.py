"""Which web pages may open a WebSocket here: the Origin header against the listener's rules.

A request without an origin comes from no browser and is let in; a browser cannot leave it out.
An origin that cannot be read is refused as soon as there is any rule. Ports are compared after the
scheme's default is filled in, schemes and hosts without regard to case, as the reference does both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

SCHEMES = {False: "http", True: "https"}
DEFAULT_PORTS = {False: "80", True: "443"}


@dataclass(frozen=True, slots=True)
class OriginRules:
    """`allowed` maps a host to the schemes and ports it may come from; empty allows all."""

    same: bool = False
    allowed: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)

    @classmethod
    def parse(cls, same: bool, origins: tuple[str, ...]) -> "OriginRules":
        """Raises ValueError for an origin that is no URL."""
        allowed: dict[str, frozenset[tuple[str, str]]] = {}
        for origin in origins:
            scheme, host, port = _split_origin(origin)
            allowed[host] = allowed.get(host, frozenset()) | {(scheme, port)}
        return cls(same, allowed)

    def complaint(self, origin: str, host: str, *, secure: bool) -> str:
        """Why this origin may not connect to us under the name `host`; "" when it may."""
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
