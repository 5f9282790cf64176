"""Facts that a connection's transport knows about the peer: its certificate, its upgrade request.

Uses protocols instead of importing the codecs, so that a server without TLS never loads one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.net.codecs.contract import TransportCodec
    from penstock.server.net.codecs.upgrade import Upgrade


@runtime_checkable
class TlsFacts(Protocol):
    """The TLS layer."""

    @property
    def version(self) -> str: ...
    @property
    def cipher_suite(self) -> str: ...
    @property
    def peer_der(self) -> bytes | None: ...


@runtime_checkable
class UpgradeFacts(Protocol):
    """The WebSocket layer."""

    @property
    def upgrade(self) -> Upgrade | None: ...


def tls_of(codec: TransportCodec | None) -> TlsFacts | None:
    for layer in _layers(codec):
        if isinstance(layer, TlsFacts):
            return layer
    return None


def upgrade_of(codec: TransportCodec | None) -> Upgrade | None:
    for layer in _layers(codec):
        if isinstance(layer, UpgradeFacts):
            return layer.upgrade
    return None


def _layers(codec: TransportCodec | None) -> Iterator[object]:
    if codec is not None:
        yield getattr(codec, "upper", codec)
        yield getattr(codec, "lower", codec)
