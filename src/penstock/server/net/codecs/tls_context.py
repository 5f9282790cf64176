"""Builds an OpenSSL context from TLS options, or raises TlsConfigError with the reason.

Cipher suites and curves have the names of the reference's configuration. As there, TLS 1.3 suites
cannot be chosen: a list applies to TLS 1.2 only. Options that OpenSSL or Python cannot honour are
refused, not ignored, because their purpose is to forbid something.
"""

import ssl
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.server.config.options import TlsOptions

TLS13_SUITES = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
#: IANA name -> OpenSSL name, preferred first; the default offers all of them.
IANA_TO_OPENSSL = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
OPENSSL_TO_IANA = {openssl: iana for iana, openssl in IANA_TO_OPENSSL.items()}
#: The reference accepts these only with an option that this server does not have.
INSECURE_SUITES = frozenset(
    {
        "TLS_RSA_WITH_RC4_128_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    }
)
CURVES = {
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519MLKEM768": "X25519MLKEM768",
}
#: A list with all of these forbids nothing, so OpenSSL's default order is used.
CLASSIC_CURVES = frozenset(CURVES) - {"X25519MLKEM768"}
MIN_VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
SHA256_HEX_DIGITS = 64


class TlsConfigError(ValueError):
    """The TLS options cannot be honoured; the text names the option and the reason."""


def build_context(options: "TlsOptions") -> ssl.SSLContext:
    """Return a server-side context; raises TlsConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Python's defaults already disable compression and prefer the server's cipher order.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if options.min_version not in MIN_VERSIONS:
        raise TlsConfigError(f"unsupported TLS version: {options.min_version}")
    context.minimum_version = MIN_VERSIONS[options.min_version]
    _check_pins(options.pinned_certs)
    _set_ciphers(context, options.cipher_suites)
    _set_curves(context, options.curve_preferences)
    _load_certificate(context, options.cert_file, options.key_file)
    _set_verification(context, options)
    return context


def _check_pins(digests: tuple[str, ...]) -> None:
    for digest in digests:
        if len(digest) != SHA256_HEX_DIGITS or not _is_hex(digest):
            raise TlsConfigError(
                f"'pinned_certs' key {digest} does not look like hex-encoded sha256 "
                "of DER encoded SubjectPublicKeyInfo"
            )


def _is_hex(text: str) -> bool:
    return all(char in "0123456789abcdefABCDEF" for char in text)


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    for name in names:
        if name in INSECURE_SUITES:
            raise TlsConfigError(f"insecure cipher suites are not supported: {name}")
        if name not in IANA_TO_OPENSSL and name not in TLS13_SUITES:
            raise TlsConfigError(f"unrecognized cipher {name}")
    chosen = [IANA_TO_OPENSSL[name] for name in names if name in IANA_TO_OPENSSL]
    if names and not chosen:
        # No TLS 1.2 suite is left, and OpenSSL does not accept an empty list.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_ciphers(":".join(chosen or IANA_TO_OPENSSL.values()))


def _set_curves(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in CURVES:
            raise TlsConfigError(f"unrecognized curve preference {name}")
    if not names or set(names) >= CLASSIC_CURVES:
        return
    if len(names) > 1:
        raise TlsConfigError(
            "curve_preferences can name one curve, or all of " + ", ".join(sorted(CLASSIC_CURVES))
        )
    try:
        context.set_ecdh_curve(CURVES[names[0]])
    except (ValueError, ssl.SSLError) as error:
        # The ssl module of Python 3.11.2 rejects X25519, whatever its OpenSSL supports.
        raise TlsConfigError(
            f"curve {names[0]} is not supported by the ssl module of this Python "
            f"({sys.version.split()[0]}, {ssl.OPENSSL_VERSION})"
        ) from error


def _load_certificate(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    if not cert_file:
        raise TlsConfigError("missing 'cert_file' in TLS configuration")
    if not key_file:
        raise TlsConfigError("missing 'key_file' in TLS configuration")
    _check_readable(cert_file)
    _check_readable(key_file)
    try:
        context.load_cert_chain(cert_file, key_file, password=_refuse_password)
    except (OSError, ValueError) as error:
        raise TlsConfigError(
            f"error parsing X509 certificate/key pair: {_explain(error)} ({cert_file}, {key_file})"
        ) from error


def _check_readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise TlsConfigError(
            f"error parsing X509 certificate/key pair: open {path}: {_explain(error)}"
        ) from error


def _refuse_password() -> str:
    # Without this OpenSSL would prompt on the terminal and wait forever.
    raise ValueError("encrypted private keys are not supported")


def _set_verification(context: ssl.SSLContext, options: "TlsOptions") -> None:
    if not (options.verify or options.verify_and_map):
        context.verify_mode = ssl.CERT_NONE
        if options.ca_file:
            load_authorities(context, options.ca_file)
        return
    context.verify_mode = ssl.CERT_REQUIRED
    # As in the reference, every certificate in the file is trusted, including intermediates.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if options.ca_file:
        load_authorities(context, options.ca_file)
    else:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)


def load_authorities(context: ssl.SSLContext, ca_file: str) -> None:
    """Trust the certificates in the file. Raises TlsConfigError."""
    try:
        context.load_verify_locations(cafile=ca_file)
    except ssl.SSLError as error:
        raise TlsConfigError(f"failed to parse root ca certificate ({ca_file})") from error
    except OSError as error:
        raise TlsConfigError(f"open {ca_file}: {_explain(error)}") from error


def _explain(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "private key does not match public key"
        return (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
