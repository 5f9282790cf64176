"""INFO and CONNECT: what the server reports about itself, and what a client reports.

Fields are declared once, in wire order. Empty fields that the reference omits are omitted.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from penstock.base.json_depth import check_nesting
from penstock.base.version import PROTOCOL, REFERENCE_API_LEVEL, REFERENCE_VERSION, VERSION


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The INFO message. Fields without a default are always sent."""

    server_id: str
    server_name: str
    version: str
    proto: int
    penstock: str
    go: str
    host: str
    port: int
    headers: bool
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int
    jetstream: bool = False
    client_id: int
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    connect_urls: tuple[str, ...] = ()
    ws_connect_urls: tuple[str, ...] = ()
    ldm: bool = False
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0
    xkey: str = ""

    def line(self) -> bytes:
        return b"INFO %b \r\n" % msgspec.json.encode(self)


#: Fields that are equal for every server of this version. `go` is always present in the reference
#: and clients expect it; there it names the Go runtime.
FIXED_INFO: Final[dict[str, Any]] = {
    "version": REFERENCE_VERSION,
    "proto": PROTOCOL,
    "penstock": VERSION,
    "go": "",
    "api_lvl": REFERENCE_API_LEVEL,
}


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The CONNECT options. The defaults apply before a client has sent CONNECT."""

    verbose: bool = True
    pedantic: bool = True
    tls_required: bool = False
    auth_token: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 0
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    account: str = ""
    new_account: bool = False

    def __repr__(self) -> str:
        return f"ConnectOptions(name={self.name!r}, lang={self.lang!r}, version={self.version!r})"


INT_MAX: Final = 2**63 - 1

_FIELDS: Final = {
    field.encode_name: (field.name, field.type) for field in msgspec.structs.fields(ConnectOptions)
}


def parse_connect(payload: bytes, said_before: ConnectOptions) -> ConnectOptions:
    """Parse CONNECT as the reference does; absent fields keep their value in `said_before`.

    Keys match in any case, nulls count as absent, invalid UTF-8 becomes U+FFFD, and a value of
    the wrong type is refused. Raises ValueError.
    """
    check_nesting(payload)
    found = json.loads(
        payload.decode("utf-8", "replace"), parse_constant=_no_constant, object_pairs_hook=_Pairs
    )
    if found is None:
        return said_before
    if not isinstance(found, _Pairs):
        raise ValueError("CONNECT is not a JSON object")
    changes = {}
    for key, value in found:
        name, kind = _FIELDS.get(key) or _FIELDS.get(key.lower()) or ("", None)
        if kind is None or value is None:
            continue
        if type(value) is not kind or (kind is int and abs(value) > INT_MAX):
            raise ValueError(f"{key} in CONNECT is not a {kind.__name__}")
        changes[name] = _clean(value) if kind is str else value
    return msgspec.structs.replace(said_before, **changes)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as key/value pairs: every pair is checked, the last duplicate wins."""


def _clean(text: str) -> str:
    """Replace lone surrogates, which JSON escapes can express and UTF-8 cannot encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
