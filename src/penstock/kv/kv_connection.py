"""A connection to buckets on a NATS server: nats-py for requests, the bulk reader for listings.

Credentials come from the first of these that is present: inline, file, URL; sources are not
combined. Secrets are removed from the URL before it is stored, and no `repr` shows a secret or its
path. A client configured for TLS never sends unencrypted data.
"""

from __future__ import annotations

import base64
import binascii
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.api.error_codes import STREAM_NAME_IN_USE, STREAM_NOT_FOUND
from penstock.base import nkeys
from penstock.bulk.bulk_connection import INBOX_PREFIX, ConnectSettings
from penstock.bulk.bulk_reader import BulkReader
from penstock.bulk.login import DEFAULT_URL, Credentials, split_urls
from penstock.kv.bucket import NatsBucket, differences, stream_config
from penstock.kv.bucket_log import ASK_IDENTITY, BucketLog
from penstock.kv.bucket_records import stream_of
from penstock.kv.bucket_requests import Requests
from penstock.kv.client_errors import refused
from penstock.kv.contract import BucketConfig, Capabilities
from penstock.kv.errors import ConnectionFailed, NotConnected

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from pathlib import Path

    from nats.aio.client import Client

    from penstock.bulk.login import Address

CONNECT_SECONDS: Final = 10
RETRY_SECONDS: Final = 1
#: The first server version that supports per-message TTLs.
TTL_VERSION: Final = (2, 11)
CLIENT_NAME: Final = "penstock kv"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NatsConfig:
    """Server addresses, credentials and connection settings."""

    addresses: tuple[Address, ...]
    credentials: Credentials = field(default_factory=Credentials, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    domain: str = ""
    tls_first: bool = False
    """Start the TLS handshake before the server sends INFO."""
    inbox_prefix: str = INBOX_PREFIX

    @classmethod
    def of(
        cls,
        servers: str | Sequence[str] = DEFAULT_URL,
        *,
        inline_credentials: str = "",
        credentials_file: str | Path | None = None,
        tls: ssl.SSLContext | None = None,
        domain: str = "",
    ) -> Self:
        """Return a configuration; `inline_credentials` is a credentials file in base64."""
        addresses, found = split_urls(servers)
        if inline_credentials:
            found = _inline(inline_credentials)
        elif credentials_file is not None:
            found = Credentials.from_file(credentials_file)
        return cls(addresses, found, tls, domain)

    @property
    def wants_tls(self) -> bool:
        return self.tls is not None or any(address.tls for address in self.addresses)

    def bulk_reader(self) -> BulkReader:
        return BulkReader(
            ConnectSettings(
                self.addresses,
                self.credentials,
                tls=self.tls,
                tls_first=self.tls_first,
                inbox_prefix=self.inbox_prefix,
            ),
            domain=self.domain,
        )


class NatsConnection:
    """A `Connection`."""

    def __init__(self, config: NatsConfig) -> None:
        self._config: NatsConfig | None = config
        self._client: Client | None = None
        self._is_ours = True
        self._is_there = False

    @classmethod
    def around(cls, client: Client, config: NatsConfig | None = None) -> Self:
        """Return a connection over a connected client that the caller owns and closes.

        Such a connection cannot redial. Without `config` it cannot open another connection either,
        so its buckets can be neither listed nor watched.
        """
        made = cls.__new__(cls)
        made._config = config
        made._client = client
        made._is_ours = False
        made._is_there = client.is_connected
        return made

    async def connect(self) -> None:
        if self._client is not None:
            return
        if self._config is None or not self._is_ours:
            raise ConnectionFailed("a connection around a client of your own cannot redial")
        client = _guarded_client(self._config)
        await _open(client, self._config, self._lost, self._back)
        self._client = client
        self._is_there = True

    async def close(self) -> None:
        client, self._client = self._client, None
        self._is_there = False
        if client is not None and self._is_ours:
            await client.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def is_healthy(self) -> bool:
        return self._client is not None and self._is_there and self._client.is_connected

    def capabilities(self) -> Capabilities:
        return Capabilities(
            streaming_watch=self._config is not None,
            prefix_watch=self._config is not None,
            ttl=_knows_ttl(self._client),
            max_value_size=self._client.max_payload if self._client is not None else 0,
        )

    async def bucket(self, name: str, config: BucketConfig | None = None) -> NatsBucket:
        stream = stream_of(name)
        if self._client is None:
            raise NotConnected("not connected", bucket=name)
        domain = self._config.domain if self._config is not None else ""
        requests = Requests(self._client, name, domain)
        bucket_log = BucketLog(name, requests)
        there = await _opened(requests, stream, name, config, bucket_log)
        return NatsBucket(
            name=name,
            requests=requests,
            bulk=self._config.bulk_reader() if self._config is not None else None,
            stream_config=there,
            max_payload=self._client.max_payload,
            log=bucket_log,
            empty_is_delete=config is not None and config.empty_value_is_delete,
        )

    async def _lost(self) -> None:
        self._is_there = False

    async def _back(self) -> None:
        self._is_there = True


def _knows_ttl(client: Client | None) -> bool:
    """Return whether the server supports per-message TTLs; the bucket must also allow them."""
    if client is None or not client.is_connected:
        return False
    version = client.connected_server_version
    return (version.major, version.minor) >= TTL_VERSION


async def _opened(
    requests: Requests,
    stream: str,
    bucket: str,
    config: BucketConfig | None,
    bucket_log: BucketLog,
) -> dict[str, Any]:
    """Return the configuration of the bucket's stream; create the stream if `config` is given."""
    answer = await requests.call(f"STREAM.INFO.{stream}", headers=ASK_IDENTITY)
    if answer.code == STREAM_NOT_FOUND and config is not None:
        wanted = stream_config(bucket, config)
        answer = await requests.call(f"STREAM.CREATE.{stream}", wanted)
        if answer.code in (0, STREAM_NAME_IN_USE):
            answer = await requests.call(f"STREAM.INFO.{stream}", headers=ASK_IDENTITY)
    if answer.code:
        raise refused(answer.description, answer.code, bucket)
    bucket_log.learn(answer.document)
    there: dict[str, Any] = answer.document["config"]
    if config is not None and (others := differences(stream_config(bucket, config), there)):
        log.warning("bucket differs name=%s settings=%s", bucket, ",".join(others))
    return there


def _inline(text: str) -> Credentials:
    try:
        return Credentials.from_file_text(base64.b64decode(text, validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("inline credentials are a credentials file in base64") from None


def _guarded_client(config: NatsConfig) -> Client:
    """Return a client that fails if TLS is configured and the server does not offer it.

    nats-py encrypts only if INFO requests TLS. Otherwise a server that does not request it, or an
    attacker that removes the field from INFO, would receive the password unencrypted.
    """
    try:
        from nats.aio.client import Client
        from nats.errors import Error
    except ModuleNotFoundError:
        raise ConnectionFailed("buckets are reached with nats-py: pip install nats-py") from None

    class Guarded(Client):
        async def _process_info(
            self, info: dict[str, Any], initial_connection: bool = False
        ) -> None:
            if initial_connection and config.wants_tls and not config.tls_first:
                if not (info.get("tls_required") or info.get("tls_available")):
                    raise Error("the server does not offer TLS")
                info["tls_required"] = True
            await super()._process_info(info, initial_connection)

    return Guarded()


async def _open(client: Client, config: NatsConfig, lost: Any, back: Any) -> None:
    """Connect, or fail at once if no server accepts the client; reconnect forever after that."""
    errors: list[Exception] = []

    async def on_error(error: Exception) -> None:
        errors.append(error)

    try:
        await client.connect(
            [str(address) for address in config.addresses],
            name=CLIENT_NAME,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_SECONDS,
            error_cb=on_error,
            disconnected_cb=lost,
            reconnected_cb=back,
            tls=config.tls,
            tls_handshake_first=config.tls_first,
            inbox_prefix=config.inbox_prefix,
            **_login(client, config.credentials),
        )
    except Exception as error:
        reason = errors[-1] if errors else error
        where = ", ".join(map(str, config.addresses))
        raise ConnectionFailed(f"cannot connect to {where}: {reason}") from error
    client.options.update(
        allow_reconnect=True, max_reconnect_attempts=-1, reconnect_time_wait=RETRY_SECONDS
    )


def _login(client: Client, credentials: Credentials) -> dict[str, Any]:
    """Return the nats-py login options for the credentials that the bulk reader also uses."""
    if credentials.seed:
        if not credentials.jwt:
            client._public_nkey = nkeys.public_from_seed(credentials.seed)
        login: dict[str, Any] = {"signature_cb": lambda nonce: credentials.sign(nonce).encode()}
        if credentials.jwt:
            login["user_jwt_cb"] = credentials.jwt.encode
        return login
    if credentials.token:
        return {"token": credentials.token}
    if credentials.user:
        return {"user": credentials.user, "password": credentials.password}
    return {}
