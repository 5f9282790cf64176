"""Certificates and keys for the suite of nats-py, made again for every run."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
from typing import TYPE_CHECKING

import nkeys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

LIFE = datetime.timedelta(days=1)
UNLIMITED = {"subs": -1, "data": -1, "payload": -1}


def write_certificates(where: Path) -> None:
    """An authority, and a server and a client it vouches for."""
    where.mkdir()
    authority_key, authority = _certificate("authority", None)
    (where / "ca.pem").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    for name in ("server", "client"):
        key, certificate = _certificate(name, (authority_key, authority))
        (where / f"{name}-cert.pem").write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
        )
        (where / f"{name}-key.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )


def _certificate(name, signer):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer[1].subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFE)
        .not_valid_after(now + LIFE)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_issuer_id(signer[0] if signer else key), critical=False)
    )
    if not signer:
        builder = builder.add_extension(_signs_certificates(), critical=True)
    return key, builder.sign(signer[0] if signer else key, hashes.SHA256())


def _issuer_id(key):
    """Python 3.13 and newer refuse certificates without it."""
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _signs_certificates():
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
             "key_agreement", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip
    return x509.KeyUsage(key_cert_sign=True, **dict.fromkeys(names, False))


def write_keys(where: Path) -> None:
    """A user known by its key; the same user vouched for by an account and its operator."""
    where.mkdir()
    operator, account, user = (
        nkeys.encode_seed(os.urandom(32), kind)
        for kind in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    )
    user_claim = _claim(account, user, {"type": "user", **UNLIMITED})
    limits = {**UNLIMITED, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    account_claim = _claim(operator, account, {"type": "account", "limits": limits})
    operator_claim = _claim(operator, operator, {"type": "operator"})
    (where / "nkeys_server.conf").write_text(
        f"authorization {{ users: [ {{ nkey: {_public(user)}, permissions {{ "
        'publish: { allow: [help, "_INBOX.>"] }, subscribe: { allow: [help, "_INBOX.>"] } } } ] }'
    )
    (where / "resolver_preload.conf").write_text(
        f"operator: {operator_claim}\nresolver: MEMORY\n"
        f"resolver_preload {{ {_public(account)}: {account_claim} }}"
    )
    (where / "foo-user.nk").write_bytes(user)
    (where / "foo-user.jwt").write_text(user_claim)
    for name, seed in (
        ("foo-user", user.decode()),
        ("bad-user", None),
        ("bad-user2", ""),
    ):
        text = f"-----BEGIN NATS USER JWT-----\n{user_claim}\n------END NATS USER JWT------\n\n"
        if seed is None:
            text += " -----BEGIN USER NKEY SEED-----\n"
        elif not seed:
            text += " -----BEGIN USER NKEY SEED-----\n\n"
        else:
            text += f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        (where / f"{name}.creds").write_text(text)


def _public(seed: bytes) -> str:
    return nkeys.from_seed(bytearray(seed)).public_key.decode()


def _claim(issuer: bytes, subject: bytes, nats: dict[str, object]) -> str:
    claims = {"jti": "ID", "iat": 1, "iss": _public(issuer), "sub": _public(subject)}
    parts = ({"typ": "JWT", "alg": "ed25519-nkey"}, {**claims, "nats": {"version": 2, **nats}})
    text = b".".join(_url_safe(json.dumps(part).encode()) for part in parts)
    signature = nkeys.from_seed(bytearray(issuer)).sign(text)
    return (text + b"." + _url_safe(signature)).decode()


def _url_safe(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")
