"""The addresses of this machine, for listeners bound to all of them.

`0.0.0.0` and `::` both mean every address of both families, as in the reference.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Final

UNSPECIFIED: Final = ("", "0.0.0.0", "::")
LOOPBACK: Final = "127.0.0.1"
_SIOCGIFADDR: Final = 0x8915
_IFREQ: Final = struct.Struct("16s2xH4s16x")
"""struct ifreq: an interface name, then a struct sockaddr_in; only port and address matter."""
_IF_INET6: Final = Path("/proc/net/if_inet6")
_MAPPED_PREFIX: Final = "::ffff:"


def reachable(host: str) -> str:
    """Return an address to connect to; for a listener on every address, the loopback address."""
    return LOOPBACK if host in UNSPECIFIED else host


def addresses_of(host: str) -> list[str]:
    """Return all addresses of a listener on `host`; for all addresses, loopback comes first."""
    if host not in UNSPECIFIED:
        return [host]
    found = [LOOPBACK]
    for _, name in socket.if_nameindex():
        found += [*_v4_of(name), *_v6_of(name)]
    return list(dict.fromkeys(found))


def plain_address(host: str) -> str:
    """Return a peer's address; an IPv4-mapped IPv6 address is shown as IPv4."""
    return host.removeprefix(_MAPPED_PREFIX) if host.startswith(_MAPPED_PREFIX) else host


def _v4_of(interface: str) -> list[str]:
    """Return the first IPv4 address of an interface; this ioctl reports no others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = _IFREQ.pack(interface.encode()[:15], 0, bytes(4))
        try:
            _, _, raw = _IFREQ.unpack(fcntl.ioctl(asking, _SIOCGIFADDR, request))
        except OSError:
            return []
    return [str(ipaddress.IPv4Address(raw))]


def _v6_of(interface: str) -> list[str]:
    try:
        lines = _IF_INET6.read_text().splitlines()
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [
        str(ipaddress.IPv6Address(bytes.fromhex(row[0])))
        for row in rows
        if len(row) == 6 and row[5] == interface
    ]
