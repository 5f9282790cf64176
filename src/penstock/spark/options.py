"""Declaration and parsing of Spark options, and the connection options that every format shares.

An option is declared once: type, default, description, and whether it is a secret. Spark passes
options as text under names of any case; `parse` converts them or raises an `OptionError` that names
the wrong option and the valid form. Invariant: no error and no `repr` shows a secret. The reference
page is generated from these declarations (`make reference`).
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import NODEFAULT, Meta, Struct, ValidationError, convert
from msgspec.structs import FieldInfo, fields

from penstock.bulk.login import split_urls

if TYPE_CHECKING:
    from collections.abc import Mapping

REDACTED = "[REDACTED]"
#: The option that `load("NAME")` and `save("NAME")` set.
PATH_OPTION = "path"
#: Options that Spark passes to a format on its own.
SPARKS_OWN = frozenset(
    {"__path__", "paths", "provider", "owner", "location", "checkpointlocation", "queryname"}
)

#: Prefix of table options (`CREATE TABLE … USING`); they come with it only, or with and without it.
TABLE_MARK = "option."
#: Options of Spark's Kafka source and their equivalents here.
KAFKA_NAMES = {
    "kafka.bootstrap.servers": "url",
    "subscribe": "stream",
    "topic": "stream",
    "subscribepattern": "stream (names, separated by commas) and subjects (filters)",
    "assign": "stream; minPartitions and maxRecordsPerPartition cut it into tasks",
    "startingoffsets": "startingSeq",
    "endingoffsets": "endingSeq",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "startingtime": "startingTimestamp",
    "groupidprefix": "consumerNamePrefix",
    "kafka.group.id": "consumerNamePrefix",
    "kafkaconsumer.polltimeoutms": "pollTimeoutMs",
    "fetchoffset.numretries": "retries",
    "fetchoffset.retryintervalms": "retryIntervalMs",
    "kafka.security.protocol": "tls, or a URL that begins with tls://",
    "kafka.ssl.truststore.location": "tlsCa",
    "kafka.ssl.keystore.location": "tlsCert and tlsKey",
    "kafka.sasl.jaas.config": "user and password, creds, nkeySeed or token",
}

Milliseconds = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


def Doc(text: str) -> Meta:
    """Describe an option, for the reference page and for readers of the code."""
    return Meta(description=text)


#: Never shown, neither in errors nor in a `repr`.
SECRET = Meta(extra={"secret": True})


class OptionError(ValueError):
    """An option is unknown, missing or invalid; the text states the valid form."""


class SparkOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of all option declarations."""

    def __repr__(self) -> str:
        shown = (
            f"{field.encode_name}={REDACTED if is_secret(field) else repr(value)}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class ConnectionOptions(SparkOptions, frozen=True, kw_only=True):
    """Servers and credentials. Set at most one kind of credentials; files must exist on every
    machine that runs a task."""

    # Servers
    url: Annotated[
        str, Doc("Servers, separated by commas: `nats://host:4222` or `tls://host`."), SECRET
    ]
    client_name: Annotated[str, Doc("How we introduce ourselves to the server.")] = "penstock spark"
    domain: Annotated[str, Doc("JetStream domain.")] = ""
    api_prefix: Annotated[
        str, Doc("Subjects of the JetStream API, if not `$JS.API`; excludes `domain`.")
    ] = ""
    inbox_prefix: Annotated[str, Doc("Where answers come to, as permissions allow.")] = "_INBOX"
    # Credentials
    user: Annotated[str, Doc("Login name.")] = ""
    password: Annotated[str, Doc("Password of `user`."), SECRET] = ""
    token: Annotated[str, Doc("Token."), SECRET] = ""
    creds_file: Annotated[str, Doc("Path of a credentials file.")] = ""
    creds: Annotated[str, Doc("A credentials file's text, or that in base64."), SECRET] = ""
    nkey_seed: Annotated[str, Doc("Seed of a user nkey."), SECRET] = ""
    nkey_seed_file: Annotated[str, Doc("Path of a file with such a seed.")] = ""
    # TLS
    tls: Annotated[bool, Doc("Speak TLS whatever the URL says.")] = False
    tls_first: Annotated[bool, Doc("Begin with TLS, before the server's greeting.")] = False
    tls_ca: Annotated[str, Doc("Certificates to trust: a path, or PEM text.")] = ""
    tls_cert: Annotated[str, Doc("Path of our certificate.")] = ""
    tls_key: Annotated[str, Doc("Path of its key.")] = ""
    # Patience
    connect_timeout_ms: Annotated[
        Milliseconds, Doc("How long one server may take to accept us.")
    ] = 10_000
    request_timeout_ms: Annotated[Milliseconds, Doc("How long an answer may take.")] = 10_000
    retries: Annotated[
        int, Meta(ge=0), Doc("How often a question is asked again when the server is away.")
    ] = 3
    retry_interval_ms: Annotated[
        Milliseconds, Doc("The pause before that; it doubles each time.")
    ] = 500
    reconnect_timeout_ms: Annotated[
        Milliseconds,
        Doc("How long a task in the middle of its work waits for a server that went away."),
    ] = 60_000


Declared = TypeVar("Declared", bound=SparkOptions)


def parse(kind: type[Declared], given: Mapping[str, str], *, path: str = "") -> Declared:
    """Parse the options declared by `kind`; `path` names the option that `load("…")` sets."""
    known = {field.encode_name.lower(): field for field in fields(kind)}
    named: dict[str, str] = {}
    given = _of_table(given)
    own = {name.lower() for name in given}
    for name, value in given.items():
        if _is_warehouse_path(name, path, own):
            continue
        wanted = path if name.lower() == PATH_OPTION and path else name
        if wanted.lower() in SPARKS_OWN:
            continue
        field = known.get(wanted.lower())
        if field is None:
            raise OptionError(_unknown(wanted, known))
        named[field.encode_name] = value
    _check_required(known.values(), named)
    try:
        return convert(named, kind, strict=False)
    except ValidationError as error:
        raise OptionError(_wrong(str(error))) from None


def is_secret(field: FieldInfo) -> bool:
    metadata: tuple[Any, ...] = getattr(field.type, "__metadata__", ())
    return any(isinstance(one, Meta) and (one.extra or {}).get("secret") for one in metadata)


def check_connection(options: ConnectionOptions) -> None:
    """Raise `OptionError` if options contradict each other."""
    try:
        _, in_url = split_urls(options.url)
    except ValueError as error:
        raise OptionError(f"option url: {error}") from None
    ways = {
        "credentials in url": bool(in_url),
        "user": bool(options.user),
        "token": bool(options.token),
        "credsFile": bool(options.creds_file),
        "creds": bool(options.creds),
        "nkeySeed": bool(options.nkey_seed),
        "nkeySeedFile": bool(options.nkey_seed_file),
    }
    chosen = [name for name, is_given in ways.items() if is_given]
    if len(chosen) > 1:
        raise OptionError(f"give one of {', '.join(chosen)}, not {len(chosen)}")
    if options.domain and options.api_prefix:
        raise OptionError("give one of domain, apiPrefix, not both")
    if bool(options.tls_cert) != bool(options.tls_key):
        raise OptionError("tlsCert and tlsKey belong together: give both")


def _check_required(known: Any, named: Mapping[str, str]) -> None:
    missing = [
        field.encode_name
        for field in known
        if field.default is NODEFAULT
        and field.default_factory is NODEFAULT
        and field.encode_name not in named
    ]
    if missing:
        raise OptionError(f"option {', '.join(missing)} is missing: set it with .option(…)")


def _of_table(given: Mapping[str, str]) -> dict[str, str]:
    """Remove the prefix of table options; an option without the prefix takes precedence."""
    found = {
        name[len(TABLE_MARK) :]: value
        for name, value in given.items()
        if name.lower().startswith(TABLE_MARK)
    }
    plain = {
        name: value for name, value in given.items() if not name.lower().startswith(TABLE_MARK)
    }
    taken = {name.lower() for name in plain}
    return plain | {name: value for name, value in found.items() if name.lower() not in taken}


def _is_warehouse_path(name: str, path: str, own: set[str]) -> bool:
    """Return True if `path` is only the directory of a catalog table, because the option is set."""
    return bool(path) and name.lower() == PATH_OPTION and path.lower() in own


def _unknown(name: str, known: Mapping[str, FieldInfo]) -> str:
    if name.lower() in KAFKA_NAMES:
        return f"unknown option {name}: what Kafka calls so is {KAFKA_NAMES[name.lower()]} here"
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f": did you mean {known[near[0]].encode_name}?" if near else ""
    return f"unknown option {name}{hint}"


def _wrong(text: str) -> str:
    """Convert a msgspec message, which names types, bounds and the field, never the value."""
    what, _, place = text.partition(" - at `$.")
    return f"option {place.rstrip('`')}: {what[:1].lower()}{what[1:]}" if place else text
