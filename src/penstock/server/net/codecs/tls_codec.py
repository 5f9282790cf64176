"""TLS, server side, over OpenSSL's memory buffers: records in, NATS bytes out, and back.

A listener creates one `TlsAcceptor` (again on reload), which creates one `TlsCodec` per connection.
Invariant: the memory that a peer can use before its handshake completes is bounded, by
HANDSHAKE_BYTES_MAX here and by OpenSSL's own record and certificate limits. Renegotiation is off,
so an established codec stays established until it ends. The caller keeps the deadlines.
"""

import contextlib
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.server.net.codecs.contract import (
    READ_ERROR,
    TLS_HANDSHAKE_FAILURE,
    BytesLike,
    CodecClosed,
    CodecError,
)
from penstock.server.net.codecs.peer_certificate import spki_sha256
from penstock.server.net.codecs.tls_context import OPENSSL_TO_IANA, build_context

if TYPE_CHECKING:
    from penstock.server.config.options import TlsOptions

#: Bytes a peer may send before its handshake completes; OpenSSL takes up to 100 KB of chain.
HANDSHAKE_BYTES_MAX = 256 * 1024
#: Largest plaintext of one record.
RECORD_BYTES_MAX = 16 * 1024
#: Records that one call decrypts; a chunk of minimal records contains thousands.
RECORDS_PER_RECEIVE = 1024
#: First byte of a TLS handshake record; no NATS verb and no HTTP method starts with it.
HANDSHAKE_RECORD = 0x16


def looks_like_tls(first_bytes: BytesLike) -> bool:
    """Return whether a connection that starts with these bytes uses TLS; one byte suffices."""
    return len(first_bytes) > 0 and first_bytes[0] == HANDSHAKE_RECORD


@dataclass(frozen=True, slots=True)
class TlsAcceptor:
    """The settings that all connections of one listener share."""

    context: ssl.SSLContext
    pinned: frozenset[str] = frozenset()

    def codec(self) -> "TlsCodec":
        return TlsCodec(self.context, self.pinned)


def build_acceptor(options: "TlsOptions") -> TlsAcceptor:
    """Load the files that the options name; raises TlsConfigError with the bad one and why."""
    pinned = frozenset(digest.lower() for digest in options.pinned_certs)
    return TlsAcceptor(build_context(options), pinned)


class TlsCodec:
    """One TLS connection; see `contract.TransportCodec` for the calling protocol."""

    __slots__ = (
        "_established",
        "_handshake_bytes",
        "_in",
        "_more",
        "_out",
        "_pinned",
        "_reading",
        "_tls",
        "_writing",
    )

    def __init__(self, context: ssl.SSLContext, pinned: frozenset[str] = frozenset()) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._pinned = pinned
        self._established = False
        self._reading = True
        self._writing = False
        self._handshake_bytes = 0
        self._more = False

    @property
    def established(self) -> bool:
        return self._established

    @property
    def pending(self) -> bool:
        """Return whether records are left: one `receive` decrypts at most RECORDS_PER_RECEIVE."""
        return self._reading and self._more

    def limit_message(self, bytes_max: int) -> None:
        """Do nothing: TLS does not compress, and records have a fixed limit."""

    @property
    def version(self) -> str:
        """Protocol version as in connz, e.g. "1.3"; "" before the handshake."""
        return (self._tls.version() or "").removeprefix("TLSv") if self._established else ""

    @property
    def cipher_suite(self) -> str:
        """IANA name of the cipher suite, as in connz; "" before the handshake."""
        cipher = self._tls.cipher() if self._established else None
        return OPENSSL_TO_IANA.get(cipher[0], cipher[0]) if cipher else ""

    @property
    def peer_der(self) -> bytes | None:
        """The peer's certificate, if the listener requested and so verified one."""
        return self._tls.getpeercert(binary_form=True) if self._established else None

    def receive(self, data: BytesLike) -> bytes:
        if not self._reading:
            return b""
        self._in.write(data)
        if not self._established and not self._shake_hands(len(data)):
            return b""
        return self._decrypt()

    def encode(self, data: BytesLike) -> bytes:
        assert self._established, "nothing can be encrypted before the handshake"
        if self._writing and len(data) > 0:
            # A memory buffer accepts everything, so one write is complete.
            self._tls.write(data)
        return self.outgoing()

    def outgoing(self) -> bytes:
        return self._out.read() if self._out.pending else b""

    def farewell(self, reason: str) -> bytes:
        """Return close_notify; TLS cannot carry a reason."""
        self._reading = False
        if self._writing:
            self._writing = False
            # Our close_notify is written at once; the peer's is not waited for.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
        return self.outgoing()

    def _shake_hands(self, received: int) -> bool:
        self._handshake_bytes += received
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                raise self._failed("too many bytes before the handshake is complete") from None
            return False
        except (ssl.SSLError, ValueError) as error:
            raise self._failed(_reason(error)) from error
        if not self._is_pinned():
            raise self._failed("certificate not pinned")
        self._established = self._writing = True
        return True

    def _is_pinned(self) -> bool:
        if not self._pinned:
            return True
        der = self._tls.getpeercert(binary_form=True)
        return der is not None and spki_sha256(der) in self._pinned

    def _failed(self, why: str) -> CodecError:
        self._reading = False
        return CodecError(f"TLS handshake error: {why}", reason=TLS_HANDSHAKE_FAILURE)

    def _decrypt(self) -> bytes:
        incoming, tls = self._in, self._tls
        parts: list[bytes] = []
        self._more = False
        try:
            # Checking for input first saves an exception per chunk.
            while incoming.pending or tls.pending():
                if len(parts) == RECORDS_PER_RECEIVE:
                    self._more = True
                    break
                part = tls.read(RECORD_BYTES_MAX)
                if not part:
                    raise self._closed_by_peer(parts)
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            raise self._closed_by_peer(parts) from None
        except ssl.SSLError as error:
            self._reading = self._writing = False
            raise CodecError(
                f"TLS error: {_reason(error)}", reason=READ_ERROR, received=b"".join(parts)
            ) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _closed_by_peer(self, parts: list[bytes]) -> CodecClosed:
        self._reading = False
        return CodecClosed("TLS connection closed by peer", received=b"".join(parts))


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"failed to verify certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)
