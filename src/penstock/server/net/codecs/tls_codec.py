"""TLS, server side, over OpenSSL's memory buffers: records in, NATS bytes out, and back.

`TlsAcceptor` is made once per listener (and again on reload) and makes one `TlsCodec` per
connection. Invariant: what a peer can make us hold before it has proved itself is bounded, by
HANDSHAKE_BYTES_MAX here and by OpenSSL's own record and certificate limits. Renegotiation is off,
so a codec that is established stays so until it ends. No deadline lives here.
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

#: Bytes a peer may send without finishing its handshake; OpenSSL takes up to 100 KB of chain.
HANDSHAKE_BYTES_MAX = 256 * 1024
#: Plaintext of one record, at most.
RECORD_BYTES_MAX = 16 * 1024
#: Decrypted by one call: a chunk of the smallest records holds thousands.
RECORDS_PER_RECEIVE = 1024
#: First byte of a TLS record that carries a handshake; no NATS verb and no HTTP method has it.
HANDSHAKE_RECORD = 0x16


def looks_like_tls(first_bytes: BytesLike) -> bool:
    """Whether a connection that begins so wants TLS; one byte is enough to tell."""
    return len(first_bytes) > 0 and first_bytes[0] == HANDSHAKE_RECORD


@dataclass(frozen=True, slots=True)
class TlsAcceptor:
    """What the connections of one listener share."""

    context: ssl.SSLContext
    pinned: frozenset[str] = frozenset()

    def codec(self) -> "TlsCodec":
        return TlsCodec(self.context, self.pinned)


def build_acceptor(options: "TlsOptions") -> TlsAcceptor:
    """Reads the files the options name; raises TlsConfigError, saying which one is bad and why."""
    pinned = frozenset(digest.lower() for digest in options.pinned_certs)
    return TlsAcceptor(build_context(options), pinned)


class TlsCodec:
    """One TLS connection; see `contract.Codec` for how it is driven."""

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
        """Whether records are left: one `receive` decrypts RECORDS_PER_RECEIVE at most."""
        return self._reading and self._more

    def limit_message(self, bytes_max: int) -> None:
        """TLS does not compress: records are bounded by themselves."""

    @property
    def version(self) -> str:
        """Protocol version as connz shows it, e.g. "1.3"; "" before the handshake."""
        return (self._tls.version() or "").removeprefix("TLSv") if self._established else ""

    @property
    def cipher_suite(self) -> str:
        """Cipher suite by its IANA name, as connz shows it; "" before the handshake."""
        cipher = self._tls.cipher() if self._established else None
        return OPENSSL_TO_IANA.get(cipher[0], cipher[0]) if cipher else ""

    @property
    def peer_der(self) -> bytes | None:
        """The peer's certificate, if the listener asked for one and so verified it."""
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
            # Memory buffers take everything at once, so one write is a whole write.
            self._tls.write(data)
        return self.outgoing()

    def outgoing(self) -> bytes:
        return self._out.read() if self._out.pending else b""

    def farewell(self, reason: str) -> bytes:
        """close_notify; TLS has no room for a reason."""
        self._reading = False
        if self._writing:
            self._writing = False
            # Our half is written at once; the peer's half need not be waited for.
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
            # Asking first whether there is anything left saves an exception per chunk.
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
