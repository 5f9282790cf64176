"""From options to a connection: credentials, TLS, and one reader for each process.

A worker process runs many tasks, one after the other or side by side; they share a reader, which
keeps connections that are done with for the next task. What an option names wrongly (a file that
is not there, a seed that is none) is an `OptionError` that names the option and not its value.
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
from penstock.bulk.bulk_connection import Dialling
from penstock.bulk.bulk_reader import BulkReader
from penstock.bulk.connection_pool import LinkPool
from penstock.bulk.login import Credentials, split_urls
from penstock.spark.options import ConnectionOptions, OptionError, check_connection

if TYPE_CHECKING:
    from collections.abc import Callable

#: About the size at which Arrow batches travel to the JVM at no extra cost.
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
) -> Dialling:
    """All it takes to open a connection."""
    check_connection(options)
    addresses, in_url = split_urls(options.url)
    return Dialling(
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
    """A reader that opens nothing yet, for use on one event loop."""
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
    """This process's reader for these options; its thread ends with the process."""
    with _opening:
        return _open(options, consumer_prefix, os.getpid())


@lru_cache(READERS_KEPT)
def _open(options: ConnectionOptions, consumer_prefix: str, pid: int) -> BlockingReader:
    # The process is part of the key: a thread does not live on in a fork.
    return BlockingReader(bulk_reader(options, consumer_prefix=consumer_prefix)).__enter__()


def credentials(options: ConnectionOptions) -> Credentials:
    """Who we are, empty if the options do not say; those of the URL are not looked at."""
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
    """None if nothing asks for TLS; a `tls://` URL asks with the defaults of the system."""
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
        # The path may lie beside secrets, but the option names it in the clear.
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
