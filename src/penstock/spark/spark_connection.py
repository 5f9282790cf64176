"""Build connections from options: credentials, TLS, and one shared reader per process.

A worker process runs many tasks, in sequence or in parallel; they share a reader, which pools idle
connections for the next task. An invalid option (missing file, malformed seed) raises an
`OptionError` that names the option but not its value.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.base import nkeys
from penstock.bulk.blocking_reader import BlockingReader
from penstock.bulk.bulk_connection import ConnectSettings
from penstock.bulk.bulk_reader import BulkReader
from penstock.bulk.connection_pool import LinkPool
from penstock.bulk.login import Credentials, split_urls
from penstock.spark.options import ConnectionOptions, OptionError, check_connection

if TYPE_CHECKING:
    from collections.abc import Callable

#: Arrow batches of about this size reach the JVM without extra cost.
BATCH_RECORDS: Final = 50_000
BATCH_BYTES: Final = 16 << 20
MS: Final = 1000
PEM_MARK: Final = "-----BEGIN"
READERS_KEPT: Final = 16

T = TypeVar("T")

_opening = threading.Lock()


def dialling(
    options: ConnectionOptions,
    *,
    records_max: int = BATCH_RECORDS,
    batch_bytes_max: int = BATCH_BYTES,
) -> ConnectSettings:
    """Return everything needed to open a connection."""
    check_connection(options)
    addresses, in_url = split_urls(options.url)
    return ConnectSettings(
        addresses,
        credentials(options) or in_url,
        tls=tls_context(options),
        tls_first=options.tls_first,
        name=options.client_name,
        inbox_prefix=options.inbox_prefix,
        records_max=records_max,
        batch_bytes_max=batch_bytes_max,
        connect_seconds=options.connect_timeout_ms / MS,
        answer_seconds=options.request_timeout_ms / MS,
    )


def bulk_reader(options: ConnectionOptions, *, consumer_prefix: str = "") -> BulkReader:
    """Return a reader with no open connection, for use on one event loop."""
    way = dialling(options)
    return BulkReader(
        way,
        pool=LinkPool(way),
        domain=options.domain,
        api_prefix=options.api_prefix,
        consumer_prefix=consumer_prefix,
        reconnect_seconds=options.reconnect_timeout_ms / MS,
    )


def shared_reader(options: ConnectionOptions, *, consumer_prefix: str = "") -> BlockingReader:
    """Return this process's reader for these options; its thread ends with the process."""
    with _opening:
        return _open(options, consumer_prefix, os.getpid())


@lru_cache(READERS_KEPT)
def _open(options: ConnectionOptions, consumer_prefix: str, pid: int) -> BlockingReader:
    # The pid is part of the key, because threads do not survive a fork.
    return BlockingReader(bulk_reader(options, consumer_prefix=consumer_prefix)).__enter__()


def credentials(options: ConnectionOptions) -> Credentials:
    """Return the credentials of the options, empty if there are none; ignores those in the URL."""
    if options.creds:
        return _checked("creds", lambda: Credentials.from_file_text(_plain(options.creds)))
    if options.creds_file:
        return _checked("credsFile", lambda: Credentials.from_file(options.creds_file))
    if options.nkey_seed:
        return _checked("nkeySeed", lambda: _from_seed(options.nkey_seed))
    if options.nkey_seed_file:
        path = Path(options.nkey_seed_file)
        return _checked("nkeySeedFile", lambda: _from_seed(path.read_text().strip()))
    return Credentials(user=options.user, password=options.password, token=options.token)


def tls_context(options: ConnectionOptions) -> ssl.SSLContext | None:
    """Return the TLS context, or None if no option requires TLS.

    For a `tls://` URL without TLS options the connection uses the system defaults.
    """
    if not (options.tls or options.tls_first or options.tls_ca or options.tls_cert):
        return None
    return _checked("tlsCa, tlsCert, tlsKey", lambda: _tls(options))


def _tls(options: ConnectionOptions) -> ssl.SSLContext:
    is_text = options.tls_ca.lstrip().startswith(PEM_MARK)
    context = ssl.create_default_context(
        cafile=options.tls_ca if options.tls_ca and not is_text else None,
        cadata=options.tls_ca if is_text else None,
    )
    if options.tls_cert:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    return context


def _checked(name: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except OSError as error:
        # Name the option only: the path may be next to secrets.
        raise OptionError(f"option {name}: {error.strerror}") from None
    except ValueError as error:
        raise OptionError(f"option {name}: {error}") from None


def _from_seed(seed: str) -> Credentials:
    nkeys.public_from_seed(seed)
    return Credentials(seed=seed)


def _plain(creds: str) -> str:
    if PEM_MARK in creds:
        return creds
    try:
        return base64.b64decode(creds, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("neither the text of a credentials file nor that in base64") from None
