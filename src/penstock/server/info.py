"""What the server says of itself in INFO, and what a client says of itself in CONNECT.

Both are declared once, in wire order; empty fields that the reference leaves out are left out.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.base.version import PROTOCOL, REFERENCE_API_LEVEL, REFERENCE_VERSION, VERSION


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """INFO. Fields without a default are always sent."""

    server_id: str
    server_name: str
    version: str
    proto: int
    penstock: str
    go: str
    host: str
    port: int
    headers: bool
    max_payload: int
    client_id: int
    client_ip: str = ""
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    jetstream: bool = False
    nonce: str = ""
    cluster: str = ""
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


#: Fields that every server of this version sends alike. `go` is always there in the reference,
#: and clients expect it; it names the runtime.
FIXED_INFO: Final[dict[str, Any]] = {
    "version": REFERENCE_VERSION,
    "proto": PROTOCOL,
    "penstock": VERSION,
    "go": "",
    "api_lvl": REFERENCE_API_LEVEL,
}


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """CONNECT. Defaults hold for what the client leaves out, once it has sent one."""

    verbose: bool = False
    pedantic: bool = False
    tls_required: bool = False
    auth_token: str = msgspec.field(default="")
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


_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(ConnectOptions))


def parse_connect(payload: bytes) -> ConnectOptions:
    """Reads CONNECT as the reference does: keys in any case, nulls as absent, the rest exact.

    Raises ValueError.
    """
    try:
        found = msgspec.json.decode(payload)
    except RecursionError as error:
        raise ValueError("CONNECT is nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError("CONNECT is not a JSON object")
    known = {
        key if key in _FIELDS else key.lower(): value
        for key, value in found.items()
        if value is not None
    }
    return msgspec.convert(known, ConnectOptions)
