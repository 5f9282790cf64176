"""TLS against OpenSSL's own client half: same bytes whatever the chunking, bounded, orderly."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.server.net.codecs.contract import (
    CLIENT_CLOSED,
    READ_ERROR,
    TLS_HANDSHAKE_FAILURE,
    CodecClosed,
    CodecError,
)
from penstock.server.net.codecs.peer_certificate import spki_sha256
from penstock.server.net.codecs.tls_codec import HANDSHAKE_BYTES_MAX, TlsCodec, looks_like_tls
from support.certs import EXPIRED, common_name, make_authority
from support.transport_codecs import SPLITS, TlsClient, feed, split

if TYPE_CHECKING:
    from support.transport_codecs import Pki

MESSAGE = b"PUB a 5\r\nhello\r\n" * 5000


def connected(
    pki: Pki, how: str = "whole", *, with_certificate: bool = False, **options: object
) -> tuple[TlsCodec, TlsClient]:
    codec = pki.acceptor(**options).codec()
    client = TlsClient(pki.client_context(with_certificate=with_certificate))
    client.shake_hands(codec, how)
    return codec, client


@pytest.mark.parametrize("how", SPLITS)
def test_any_chunking_of_records_gives_the_same_bytes(pki: Pki, how: str) -> None:
    codec, client = connected(pki, how)
    assert codec.established
    assert feed(codec, client.write(MESSAGE), how) == (MESSAGE, None)


def test_client_reads_encoded_frames(pki: Pki) -> None:
    codec, client = connected(pki)
    assert client.read(codec.encode(memoryview(MESSAGE))) == MESSAGE
    assert codec.encode(b"") == b""


def test_nothing_is_established_before_client_has_finished(pki: Pki) -> None:
    codec = pki.acceptor().codec()
    assert not codec.established
    assert codec.outgoing() == b""
    assert (codec.version, codec.cipher_suite, codec.peer_der) == ("", "", None)


def test_version_and_cipher_have_names_of_reference(pki: Pki) -> None:
    codec, _ = connected(pki)
    assert codec.version == "1.3"
    assert codec.cipher_suite.startswith("TLS_")

    codec = pki.acceptor().codec()
    context = pki.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")
    TlsClient(context).shake_hands(codec)
    assert codec.version == "1.2"
    assert codec.cipher_suite == "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"


def test_bytes_before_close_notify_count_and_close_is_answered(pki: Pki) -> None:
    codec, client = connected(pki)
    records = client.write(b"PING\r\n") + client.close()
    with pytest.raises(CodecClosed) as caught:
        codec.receive(records)
    assert caught.value.received == b"PING\r\n"
    assert caught.value.reason == CLIENT_CLOSED
    assert client.read(codec.encode(b"PONG\r\n")) == b"PONG\r\n"
    assert codec.farewell(CLIENT_CLOSED) != b""
    assert codec.farewell(CLIENT_CLOSED) == b""
    assert codec.receive(b"anything") == b""


def test_our_farewell_is_orderly_end_to_client(pki: Pki) -> None:
    codec, client = connected(pki)
    last = codec.encode(b"-ERR 'Stale Connection'\r\n") + codec.farewell("Stale Connection")
    assert client.read(last) == b"-ERR 'Stale Connection'\r\n"
    assert client.read(b"") == b""
    assert codec.encode(b"more") == b""


def test_damaged_record_ends_connection_with_alert(pki: Pki) -> None:
    codec, client = connected(pki)
    good, bad = client.write(b"PING\r\n"), bytearray(client.write(b"PONG\r\n"))
    bad[-1] ^= 1
    with pytest.raises(CodecError) as caught:
        codec.receive(good + bad)
    assert caught.value.received == b"PING\r\n"
    assert caught.value.reason == READ_ERROR
    assert codec.encode(b"x") != b"", "the alert"
    assert codec.farewell(READ_ERROR) == b""


@pytest.mark.parametrize(
    "text",
    [b'CONNECT {"verbose":false}\r\n', b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" * 9],
)
def test_plaintext_and_garbage_fail_handshake(pki: Pki, text: bytes) -> None:
    codec = pki.acceptor().codec()
    _, end = feed(codec, text, "bytes")
    assert isinstance(end, CodecError)
    assert end.reason == TLS_HANDSHAKE_FAILURE
    assert end.text.startswith("TLS handshake error: ")
    assert "\n" not in end.text


def test_handshake_that_never_ends_is_cut_off_at_named_size(pki: Pki) -> None:
    codec = pki.acceptor(verify=True).codec()
    context = pki.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client = TlsClient(context)
    client._step()
    codec.receive(client.write(b""))
    # A certificate message that claims 90000 bytes, in records of one byte: legal, and slow.
    message = b"\x0b" + (90_000).to_bytes(3, "big") + bytes(90_000)
    trickle = b"".join(b"\x16\x03\x03\x00\x01%c" % byte for byte in message)
    _, end = feed(codec, trickle, "random")
    assert len(trickle) > HANDSHAKE_BYTES_MAX
    assert isinstance(end, CodecError)
    assert "too many bytes" in end.text


def test_client_certificate_is_asked_for_and_kept(pki: Pki) -> None:
    codec, _ = connected(pki, with_certificate=True, verify=True)
    der = codec.peer_der
    assert der is not None
    assert ssl.DER_cert_to_PEM_cert(der).split() == Path(pki.client[0]).read_text().split()


def test_no_certificate_is_asked_for_without_verify(pki: Pki) -> None:
    codec, _ = connected(pki, with_certificate=True)
    assert codec.peer_der is None


def refused(pki: Pki, client_context: ssl.SSLContext, **options: object) -> CodecError:
    """How a handshake fails for the server."""
    codec = pki.acceptor(**options).codec()
    with pytest.raises(CodecError) as caught:
        TlsClient(client_context).shake_hands(codec)
    assert not codec.established
    assert caught.value.reason == TLS_HANDSHAKE_FAILURE
    return caught.value


def test_client_without_certificate_is_refused_when_verifying(pki: Pki) -> None:
    end = refused(pki, pki.client_context(), verify=True)
    assert "certificate" in end.text


def test_certificate_of_stranger_is_refused(pki: Pki) -> None:
    stranger = make_authority("stranger").sign(common_name("client"))
    context = pki.client_context()
    context.load_cert_chain(*stranger.write(pki.directory, "stranger"))
    assert "verify" in refused(pki, context, verify_and_map=True).text


def test_authority_below_root_can_be_trusted_alone(pki: Pki) -> None:
    issuing = make_authority("issuing", make_authority("root"))
    ca_file, _ = issuing.write(pki.directory, "issuing")
    context = pki.client_context()
    context.load_cert_chain(*issuing.sign(common_name("client")).write(pki.directory, "issued"))
    codec = pki.acceptor(verify=True, ca_file=ca_file).codec()
    TlsClient(context).shake_hands(codec)
    assert codec.established


def test_expired_certificate_is_refused(pki: Pki) -> None:
    expired = pki.authority.sign(common_name("client"), not_after=EXPIRED)
    context = pki.client_context()
    context.load_cert_chain(*expired.write(pki.directory, "expired"))
    assert "expired" in refused(pki, context, verify=True).text


def test_old_protocol_versions_are_refused(pki: Pki) -> None:
    context = pki.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    refused(pki, context, min_version="1.3")


def test_only_pinned_keys_are_let_in(pki: Pki) -> None:
    der = ssl.PEM_cert_to_DER_cert(Path(pki.client[0]).read_text())
    pin = spki_sha256(der)
    codec, _ = connected(pki, with_certificate=True, verify=True, pinned_certs=(pin.upper(),))
    assert codec.established
    context = pki.client_context(with_certificate=True)
    end = refused(pki, context, verify=True, pinned_certs=("ab" * 32,))
    assert end.text == "TLS handshake error: certificate not pinned"
    refused(pki, pki.client_context(), pinned_certs=(pin,))


def test_renegotiation_is_refused(pki: Pki) -> None:
    assert pki.acceptor().context.options & ssl.OP_NO_RENEGOTIATION


def test_first_byte_distinguishes_tls_from_plaintext(pki: Pki) -> None:
    client = TlsClient(pki.client_context())
    client._step()
    assert looks_like_tls(client.write(b"")[:1])
    for plain in (b"CONNECT {}", b"PING", b"GET /", b"", b"\r\n"):
        assert not looks_like_tls(plain)


def test_split_helper_keeps_all_bytes() -> None:
    for how in SPLITS:
        assert b"".join(split(MESSAGE, how)) == MESSAGE
