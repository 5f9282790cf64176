"""The `tls { ... }` block of a listener.

The block is checked as far as possible without a connection: certificates and keys are loaded once,
so that a server that starts can also serve. Unsupported keys are refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.base.durations import parse_duration
from penstock.server.config.config_values import (
    ConfigFault,
    Problems,
    Reader,
    Section,
    as_list,
    as_map,
    as_text,
    as_timeout,
    not_supported,
    read_map,
    type_name,
    unsupported,
)
from penstock.server.config.options import (
    HANDSHAKE_FIRST_FALLBACK_NS_DEFAULT,
    TLS_TIMEOUT_NS_DEFAULT,
    TlsOptions,
)

if TYPE_CHECKING:
    from penstock.server.config.config_file import Node

_SHA256_HEX = re.compile(r"[0-9A-Fa-f]{64}")
_VERSIONS = {"1.2": "1.2", "1.3": "1.3"}
_OLD_VERSIONS = ("1.0", "1.1")


def read_tls(node: Node, problems: Problems) -> TlsOptions:
    """Return the block's options; raise ConfigFault if they cannot be used together."""
    before = len(problems.errors)
    options = replace(TlsOptions(), **read_map(as_map(node), _TABLE, problems, _unknown))
    if len(problems.errors) == before:
        _load(node, options)
    return options


def _load(node: Node, options: TlsOptions) -> None:
    if bool(options.cert_file) != bool(options.key_file):
        missing = "key_file" if options.cert_file else "cert_file"
        raise ConfigFault(node, f"missing '{missing}' in TLS configuration")
    if not options.cert_file and not options.ca_file:
        return
    import ssl

    from penstock.server.net.codecs.tls_context import (
        TlsConfigError,
        build_context,
        load_authorities,
    )

    try:
        if options.cert_file:
            build_context(options)
        else:  # as in the reference, authorities are read even without a certificate
            load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), options.ca_file)
    except TlsConfigError as error:
        raise ConfigFault(node, str(error)) from None


def _unknown(key: str, _node: Node) -> str:
    return f'error parsing tls config, unknown field "{key}"'


def _file(name: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        if not isinstance(node.value, str):
            raise ConfigFault(node, f"error parsing tls config, expected '{name}' to be filename")
        section.fields[name] = node.value

    return read


def _flag(node: Node, name: str) -> bool:
    if not isinstance(node.value, bool):
        raise ConfigFault(node, f"error parsing tls config, expected '{name}' to be a boolean")
    return node.value


def _boolean(name: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        section.fields[name] = _flag(node, name)

    return read


def _verify_and_map(section: Section, _key: str, node: Node) -> None:
    wanted = _flag(node, "verify_and_map")
    section.fields["verify_and_map"] = wanted
    if wanted:
        section.fields["verify"] = True


def _check_known_urls(_section: Section, key: str, node: Node) -> None:
    if _flag(node, key):
        raise ConfigFault(node, f"{key} not supported in this context")


def _insecure_ciphers(_section: Section, key: str, node: Node) -> None:
    if _flag(node, key):
        raise not_supported(node, key)


def _names(name: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        items = as_list(node)
        if not items:
            raise ConfigFault(node, f"error parsing tls config, '{name}' cannot be empty")
        section.fields[name] = tuple(as_text(item) for item in items)

    return read


def _cipher_suites(section: Section, key: str, node: Node) -> None:
    from penstock.server.net.codecs.tls_context import (
        IANA_TO_OPENSSL,
        INSECURE_SUITES,
        TLS13_SUITES,
    )

    _names("cipher_suites")(section, key, node)
    for item in as_list(node):
        name = as_text(item)
        if name in INSECURE_SUITES:
            raise not_supported(item, f"the insecure cipher suite {name}")
        if name not in IANA_TO_OPENSSL and name not in TLS13_SUITES:
            raise ConfigFault(item, f"unrecognized cipher {name}")


def _curves(section: Section, key: str, node: Node) -> None:
    from penstock.server.net.codecs.tls_context import CURVES

    _names("curve_preferences")(section, key, node)
    for item in as_list(node):
        if as_text(item) not in CURVES:
            raise ConfigFault(item, f"unrecognized curve preference {item.value}")


def _min_version(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, str):
        shown = node.value if isinstance(node.value, int | float) else type_name(node.value)
        raise ConfigFault(node, f"error parsing tls config: 'min_version' wrong type: {shown}")
    if node.value in _OLD_VERSIONS:
        raise ConfigFault(
            node, f"error parsing tls config: unsupported TLS version: TLS {node.value}"
        )
    if node.value not in _VERSIONS:
        raise ConfigFault(node, f"error parsing tls config: unknown version: {node.value}")
    section.fields["min_version"] = node.value


def _timeout(section: Section, _key: str, node: Node) -> None:
    section.fields["timeout_ns"] = as_timeout(node, "tls") or TLS_TIMEOUT_NS_DEFAULT


def _pinned(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, list):
        raise ConfigFault(
            node,
            "error parsing tls config, expected 'pinned_certs' to be a list of hex-encoded "
            "sha256 of DER encoded SubjectPublicKeyInfo",
        )
    pins = []
    for item in node.value:
        pin = as_text(item).lower()
        if not _SHA256_HEX.fullmatch(pin):
            raise ConfigFault(
                item,
                f"error parsing tls config, 'pinned_certs' key {pin} does not look like "
                "hex-encoded sha256 of DER encoded SubjectPublicKeyInfo",
            )
        pins.append(pin)
    section.fields["pinned_certs"] = tuple(pins)


def _handshake_first(section: Section, key: str, node: Node) -> None:
    value = node.value
    if isinstance(value, bool):
        section.fields["handshake_first"] = value
        return
    if not isinstance(value, str):
        kind = type_name(value)
        raise ConfigFault(node, f'field "{key}" should be a boolean or a string, got {kind}')
    section.fields["handshake_first"] = True
    if value.lower() == "auto":
        section.fields["handshake_first_fallback_ns"] = HANDSHAKE_FIRST_FALLBACK_NS_DEFAULT
        return
    try:
        section.fields["handshake_first_fallback_ns"] = parse_duration(value)
    except ValueError:
        raise ConfigFault(node, f'field "{key}"\'s value "{value}" is invalid') from None


_TABLE: dict[str, Reader] = {
    "cert_file": _file("cert_file"),
    "key_file": _file("key_file"),
    "ca_file": _file("ca_file"),
    "verify": _boolean("verify"),
    "verify_and_map": _verify_and_map,
    "verify_cert_and_check_known_urls": _check_known_urls,
    "insecure": _boolean("insecure"),
    "cipher_suites": _cipher_suites,
    "allow_insecure_cipher_suites": _insecure_ciphers,
    "curve_preferences": _curves,
    "min_version": _min_version,
    "timeout": _timeout,
    "pinned_certs": _pinned,
    **dict.fromkeys(("handshake_first", "first", "immediate"), _handshake_first),
    **dict.fromkeys(
        (
            "connection_rate_limit",
            "certs",
            "certificates",
            "cert_store",
            "cert_match",
            "cert_match_by",
            "cert_match_skip_invalid",
            "ca_certs_match",
            "ocsp_peer",
        ),
        unsupported,
    ),
}
