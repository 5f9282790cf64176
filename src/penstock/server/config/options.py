"""Every option of the server, declared once: name, type, default and description.

The configuration file (`config_reader`), the command line (`command_line`), an embedding program
and the generated reference pages all use these values. Invariant: values are frozen and hold plain
data; a change creates a new `Options` (`msgspec.structs.replace`). Times are integer nanoseconds,
sizes are bytes, port -1 means any free port. This module reads no file, clock or environment, and
no `repr` shows a secret.
"""

from __future__ import annotations

# msgspec resolves annotations when docs are generated, so their names must exist at run time.
from collections import abc  # noqa: TC003
from typing import Annotated

from msgspec import Meta, Struct

from penstock.base.units import SECOND_NS
from penstock.broker.permission_values import Permissions  # noqa: TC001
from penstock.broker.share_values import Export, Import, Mapping  # noqa: TC001

CLIENT_PORT_DEFAULT = 4222
HOST_DEFAULT = "0.0.0.0"
TLS_TIMEOUT_NS_DEFAULT = 2 * SECOND_NS
AUTH_TIMEOUT_NS_DEFAULT = 2 * SECOND_NS
HANDSHAKE_FIRST_FALLBACK_NS_DEFAULT = 50_000_000
UNLIMITED = -1
REDACTED = "[REDACTED]"


def Doc(text: str) -> Meta:
    """Describe an option in one line."""
    return Meta(description=text)


class _Secretive(Struct, frozen=True, kw_only=True):
    """Redacts fields that hold secrets when a value appears in a log or a traceback."""

    def __repr__(self) -> str:
        hidden = {"password", "token", "key", "prev_key"}
        shown = (
            f"{name}={REDACTED if name in hidden and value else repr(value)}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class UserOptions(_Secretive, frozen=True, kw_only=True):
    """One user: either a name with a password (plain or bcrypt), or an nkey."""

    user: Annotated[str, Doc("Login name; empty for an nkey user.")] = ""
    password: Annotated[str, Doc("Plain text or a bcrypt hash.")] = ""
    nkey: Annotated[str, Doc("Public user nkey (U...); empty for a named user.")] = ""
    permissions: Annotated[Permissions | None, Doc("None: the defaults of its account.")] = None
    allowed_connection_types: Annotated[
        tuple[str, ...], Doc("STANDARD, WEBSOCKET, ...; empty allows every type.")
    ] = ()
    account: Annotated[str, Doc("Account it belongs to; empty is the global account.")] = ""


class CalloutOptions(Struct, frozen=True, kw_only=True):
    """An external service that decides logins."""

    issuer: Annotated[str, Doc("Public key of the account that signs its answers.")] = ""
    account: Annotated[str, Doc("Where the service listens.")] = "$G"
    auth_users: Annotated[tuple[str, ...], Doc("Users it does not decide about.")] = ()
    allowed_accounts: Annotated[
        tuple[str, ...], Doc("Configured users of other accounts are not asked about.")
    ] = ()


class Authorization(_Secretive, frozen=True, kw_only=True):
    """The clients that may connect: one user, one token, or a list of users."""

    user: Annotated[str, Doc("The single user.")] = ""
    password: Annotated[str, Doc("Password of the single user, plain or bcrypt.")] = ""
    token: Annotated[str, Doc("The single token, plain or bcrypt.")] = ""
    users: Annotated[tuple[UserOptions, ...], Doc("Users of the global account.")] = ()
    timeout_ns: Annotated[int, Doc("How long a client may take to authenticate.")] = (
        AUTH_TIMEOUT_NS_DEFAULT
    )
    default_permissions: Annotated[
        Permissions | None, Doc("For users without permissions of their own.")
    ] = None
    callout: Annotated[CalloutOptions | None, Doc("A service that decides logins.")] = None


class AccountConnectionLimits(Struct, frozen=True, kw_only=True):
    """Limits of one account; -1 means unlimited."""

    max_connections: Annotated[int, Doc("Client connections.")] = UNLIMITED
    max_subscriptions: Annotated[int, Doc("Subscriptions.")] = UNLIMITED
    max_payload: Annotated[int, Doc("Bytes of one message.")] = UNLIMITED
    max_leafnodes: Annotated[int, Doc("Leaf node connections.")] = UNLIMITED


class JetStreamAccountLimits(Struct, frozen=True, kw_only=True):
    """JetStream limits of one account; -1 means unlimited."""

    max_memory: Annotated[int, Doc("Bytes in memory.")] = UNLIMITED
    max_storage: Annotated[int, Doc("Bytes in files.")] = UNLIMITED
    max_streams: Annotated[int, Doc("Streams.")] = UNLIMITED
    max_consumers: Annotated[int, Doc("Consumers of a stream.")] = UNLIMITED
    max_ack_pending: Annotated[int, Doc("Unacknowledged messages of a consumer.")] = UNLIMITED
    memory_max_stream_bytes: Annotated[int, Doc("Bytes of one stream in memory.")] = UNLIMITED
    storage_max_stream_bytes: Annotated[int, Doc("Bytes of one stream in files.")] = UNLIMITED
    max_bytes_required: Annotated[bool, Doc("Every stream must say its max_bytes.")] = False
    tiers: Annotated[
        dict[str, JetStreamAccountLimits],
        Doc("Limits by number of replicas (`R1`, `R3`) in place of these; only claims have them."),
    ] = {}


class BatchOptions(Struct, frozen=True, kw_only=True):
    """Limits of batch publishing."""

    max_inflight_per_stream: Annotated[int, Doc("Open batches of a stream.")] = 50
    max_inflight_total: Annotated[int, Doc("Open batches of the server.")] = 1000
    max_msgs: Annotated[int, Doc("Messages of one batch.")] = 1000
    timeout_ns: Annotated[int, Doc("A batch idle for this long is abandoned.")] = 10 * SECOND_NS


class JetStreamLimits(Struct, frozen=True, kw_only=True):
    """Limits for all accounts; 0 means no limit."""

    max_ack_pending: Annotated[int, Doc("Cap and default of consumers' max_ack_pending.")] = 0
    max_request_batch: Annotated[int, Doc("Cap of consumers' max_batch.")] = 0
    default_max_consumers: Annotated[int, Doc("max_consumers of streams that say none.")] = 1000
    duplicate_window_ns: Annotated[int, Doc("Cap of streams' duplicate_window.")] = 0
    batch: Annotated[BatchOptions, Doc("Bounds of batched publishing.")] = BatchOptions()


class JetStreamOptions(_Secretive, frozen=True, kw_only=True):
    """Persistence. Acknowledged messages are synced, unless `sync_interval_ns` is set."""

    max_memory: Annotated[int, Doc("Bytes in memory; -1: three quarters of the machine's.")] = -1
    max_store: Annotated[int, Doc("Bytes in files; -1: three quarters of what is free.")] = -1
    domain: Annotated[str, Doc("Name of this JetStream among others.")] = ""
    sync_interval_ns: Annotated[
        int, Doc("0 syncs before every acknowledgement; else lazily, this often.")
    ] = 0
    strict: Annotated[bool, Doc("Refuse requests with fields that are unknown.")] = True
    key: Annotated[str, Doc("Encrypt files with a key made from this.")] = ""
    prev_key: Annotated[str, Doc("The former `key`; data keys are sealed again under `key`.")] = ""
    cipher: Annotated[str, Doc("aes or chacha; empty is automatic.")] = ""
    limits: Annotated[JetStreamLimits, Doc("Bounds for all accounts.")] = JetStreamLimits()


class TokenDirectory(Struct, frozen=True, kw_only=True):
    """A directory with one JWT file per account; system users may change the files."""

    path: Annotated[str, Doc("The directory; it is made if need be.")]
    allow_delete: Annotated[bool, Doc("Whether operators may have accounts deleted.")] = False
    hard_delete: Annotated[bool, Doc("Delete files, rather than rename them.")] = False
    limit: Annotated[int, Doc("Accounts it may hold; 0 is unlimited.")] = 0


class AccountOptions(Struct, frozen=True, kw_only=True):
    """An isolated subject space with its users."""

    name: Annotated[str, Doc("Unique name; $G is reserved.")]
    users: Annotated[tuple[UserOptions, ...], Doc("Users of this account.")] = ()
    default_permissions: Annotated[
        Permissions | None, Doc("For users without permissions of their own.")
    ] = None
    limits: Annotated[AccountConnectionLimits, Doc("Bounds of the account.")] = (
        AccountConnectionLimits()
    )
    jetstream: Annotated[
        JetStreamAccountLimits | None, Doc("What it may persist; None: nothing.")
    ] = None
    exports: Annotated[tuple[Export, ...], Doc("What other accounts may import.")] = ()
    imports: Annotated[tuple[Import, ...], Doc("What it takes of other accounts.")] = ()
    mappings: Annotated[tuple[Mapping, ...], Doc("Published subjects that become others.")] = ()
    trace_dest: Annotated[
        str, Doc("Where traces of messages with a sampled traceparent go; empty: none.")
    ] = ""
    trace_sampling: Annotated[int, Doc("Percent of them that are traced.")] = 100


class TlsOptions(Struct, frozen=True, kw_only=True):
    """TLS of one listener. File names are relative to the working directory."""

    cert_file: Annotated[str, Doc("Server certificate chain, PEM.")] = ""
    key_file: Annotated[str, Doc("Private key of the certificate, PEM.")] = ""
    ca_file: Annotated[str, Doc("Authorities for client certificates, PEM.")] = ""
    verify: Annotated[bool, Doc("Require and verify a client certificate.")] = False
    verify_and_map: Annotated[bool, Doc("Verify, and log in as the certificate's name.")] = False
    timeout_ns: Annotated[int, Doc("How long a handshake may take.")] = TLS_TIMEOUT_NS_DEFAULT
    handshake_first: Annotated[bool, Doc("TLS handshake before INFO.")] = False
    handshake_first_fallback_ns: Annotated[
        int, Doc("With handshake_first: send INFO after this wait; 0 waits for ever.")
    ] = 0
    min_version: Annotated[str, Doc("1.2 or 1.3; empty is 1.2.")] = ""
    cipher_suites: Annotated[tuple[str, ...], Doc("Names as TLS_...; empty is automatic.")] = ()
    curve_preferences: Annotated[tuple[str, ...], Doc("Curve names; empty is automatic.")] = ()
    pinned_certs: Annotated[
        tuple[str, ...], Doc("Hex SHA-256 of accepted client public keys; empty accepts all.")
    ] = ()
    insecure: Annotated[bool, Doc("Do not verify the other side where this server dials.")] = False


class WebsocketOptions(_Secretive, frozen=True, kw_only=True):
    """The WebSocket listener."""

    host: Annotated[str, Doc("Address to bind; empty binds all.")] = ""
    port: Annotated[int, Doc("Port; 0 is off, -1 any free port.")] = 0
    advertise: Annotated[str, Doc("host:port advertised to clients.")] = ""
    no_tls: Annotated[bool, Doc("Without certificates, serve ws:// instead of failing.")] = False
    tls: Annotated[TlsOptions | None, Doc("Certificates; with them wss:// is served.")] = None
    same_origin: Annotated[bool, Doc("Refuse upgrades from another origin.")] = False
    allowed_origins: Annotated[tuple[str, ...], Doc("Accepted origins; empty accepts all.")] = ()
    compression: Annotated[bool, Doc("Offer permessage-deflate.")] = False
    handshake_timeout_ns: Annotated[int, Doc("How long an upgrade may take; 0 is 2 s.")] = 0
    no_auth_user: Annotated[str, Doc("User of clients without credentials.")] = ""
    headers: Annotated[abc.Mapping[str, str], Doc("Extra headers of the upgrade response.")] = {}
    ping_interval_ns: Annotated[int, Doc("Own ping interval; 0 takes the server's.")] = 0
    user: Annotated[str, Doc("Single user of this listener.")] = ""
    password: Annotated[str, Doc("Its password.")] = ""
    token: Annotated[str, Doc("Single token of this listener.")] = ""
    auth_timeout_ns: Annotated[int, Doc("0 takes the server's authorization timeout.")] = 0
    jwt_cookie: Annotated[str, Doc("Cookie that carries a JWT.")] = ""
    user_cookie: Annotated[str, Doc("Cookie that carries the user name.")] = ""
    pass_cookie: Annotated[str, Doc("Cookie that carries the password.")] = ""
    token_cookie: Annotated[str, Doc("Cookie that carries the token.")] = ""

    @property
    def is_secure(self) -> bool:
        """Return whether the listener serves wss://; `no_tls` only permits missing certificates."""
        return self.tls is not None


class ListenOnly(Struct, frozen=True, kw_only=True):
    """A listener for other servers: the port is open, the protocol is not served."""

    name: Annotated[str, Doc("Cluster or gateway name.")] = ""
    host: Annotated[str, Doc("Address to bind.")] = HOST_DEFAULT
    port: Annotated[int, Doc("Port; 0 is off, -1 any free port.")] = 0
    advertise: Annotated[str, Doc("host:port advertised to other servers.")] = ""
    no_advertise: Annotated[bool, Doc("Keep cluster members out of connect_urls.")] = False


class Options(Struct, frozen=True, kw_only=True):
    """All options of a server."""

    # Client listener
    host: Annotated[str, Doc("Address for client connections.")] = HOST_DEFAULT
    port: Annotated[int, Doc("Port for client connections.")] = CLIENT_PORT_DEFAULT
    dont_listen: Annotated[bool, Doc("No client listener: WebSocket only.")] = False
    client_advertise: Annotated[str, Doc("host:port advertised to clients.")] = ""

    # Identity
    server_name: Annotated[str, Doc("Empty: the server id.")] = ""
    server_tags: Annotated[tuple[str, ...], Doc("Tags for placement and monitoring.")] = ()
    server_metadata: Annotated[abc.Mapping[str, str], Doc("Free key/value pairs.")] = {}

    # Monitoring
    http_host: Annotated[str, Doc("Address of monitoring; empty takes host.")] = ""
    http_port: Annotated[int, Doc("Monitoring over HTTP; 0 is off.")] = 0
    https_port: Annotated[int, Doc("Monitoring over HTTPS; 0 is off.")] = 0
    http_base_path: Annotated[str, Doc("Path prefix of monitoring.")] = ""

    # Logging
    debug: Annotated[bool, Doc("Log debug lines.")] = False
    trace: Annotated[bool, Doc("Log protocol lines.")] = False
    trace_verbose: Annotated[bool, Doc("Trace the system account as well.")] = False
    trace_headers: Annotated[bool, Doc("Trace only headers of messages.")] = False
    logtime: Annotated[bool, Doc("Timestamps in log lines.")] = True
    logtime_utc: Annotated[bool, Doc("Timestamps in UTC.")] = False
    log_file: Annotated[str, Doc("Log to this file instead of stderr.")] = ""
    log_size_limit: Annotated[int, Doc("Rotate the log file at this size; 0 never.")] = 0
    logfile_max_num: Annotated[int, Doc("Rotated log files kept; 0 keeps all.")] = 0
    max_traced_msg_len: Annotated[int, Doc("Cut traced messages; 0 is unlimited.")] = 0

    # Files
    pid_file: Annotated[str, Doc("Where to write the process id.")] = ""
    ports_file_dir: Annotated[str, Doc("Where to write <name>_<pid>.ports.")] = ""

    # Limits
    max_connections: Annotated[int, Doc("Client connections; 0 refuses all, -1 unlimited.")] = 65536
    max_subscriptions: Annotated[int, Doc("Per connection; 0 is unlimited.")] = 0
    max_sub_tokens: Annotated[int, Doc("Tokens of a subscription; 0 is unlimited.")] = 0
    max_control_line: Annotated[int, Doc("Bytes of a protocol line's arguments.")] = 4096
    max_payload: Annotated[int, Doc("Bytes of header and body of a message.")] = 1_048_576
    max_pending: Annotated[int, Doc("Bytes queued for one connection.")] = 67_108_864
    max_closed_clients: Annotated[int, Doc("Closed connections kept for monitoring.")] = 10_000

    # Timing
    ping_interval_ns: Annotated[int, Doc("Time between pings.")] = 120 * SECOND_NS
    ping_max: Annotated[int, Doc("Unanswered pings before a connection is stale.")] = 2
    write_deadline_ns: Annotated[int, Doc("How long a write may block.")] = 10 * SECOND_NS
    lame_duck_duration_ns: Annotated[int, Doc("Closing clients is spread over this.")] = (
        120 * SECOND_NS
    )
    lame_duck_grace_period_ns: Annotated[int, Doc("Wait before the first close.")] = 10 * SECOND_NS

    # Behaviour
    no_fast_producer_stall: Annotated[bool, Doc("Drop instead of pausing producers.")] = False
    disable_sublist_cache: Annotated[bool, Doc("Match without a result cache.")] = False
    no_header_support: Annotated[bool, Doc("Announce no header support.")] = False

    # Security
    authorization: Annotated[Authorization, Doc("Who may connect.")] = Authorization()
    accounts: Annotated[tuple[AccountOptions, ...], Doc("Isolated subject spaces.")] = ()
    mappings: Annotated[
        tuple[Mapping, ...], Doc("Subjects published in the global account that become others.")
    ] = ()
    operators: Annotated[
        tuple[str, ...], Doc("JWTs of trusted operators: accounts and users come as JWTs, too.")
    ] = ()
    trusted_keys: Annotated[tuple[str, ...], Doc("Public operator nkeys, without their JWTs.")] = ()
    resolver: Annotated[str, Doc("Where the JWTs of accounts are: MEMORY, FULL or nowhere.")] = ""
    resolver_directory: Annotated[
        TokenDirectory | None, Doc("With FULL: the directory that has them all.")
    ] = None
    resolver_preload: Annotated[
        abc.Mapping[str, str], Doc("JWTs of accounts by their public nkeys.")
    ] = {}
    resolver_pinned_accounts: Annotated[
        tuple[str, ...], Doc("The only accounts whose users may connect; empty: all.")
    ] = ()
    default_sentinel: Annotated[str, Doc("Bearer JWT of clients that send none.")] = ""
    no_auth_user: Annotated[str, Doc("User of clients without credentials.")] = ""
    system_account: Annotated[str, Doc("Account of system events; empty is $SYS.")] = ""
    no_system_account: Annotated[bool, Doc("Do not create the $SYS account.")] = False
    tls: Annotated[TlsOptions | None, Doc("TLS for clients.")] = None
    allow_non_tls: Annotated[bool, Doc("Take plain clients beside TLS ones.")] = False

    # Other listeners
    websocket: Annotated[WebsocketOptions | None, Doc("WebSocket listener.")] = None
    cluster: Annotated[ListenOnly | None, Doc("Port for routes.")] = None
    gateway: Annotated[ListenOnly | None, Doc("Port for gateways.")] = None
    leafnodes: Annotated[ListenOnly | None, Doc("Port for leaf nodes.")] = None

    # Storage
    store_dir: Annotated[str, Doc("Directory for persisted data.")] = ""
    jetstream: Annotated[bool, Doc("Persistence.")] = False
    jetstream_options: Annotated[JetStreamOptions, Doc("How to persist.")] = JetStreamOptions()

    # Origin of the options
    config_file: Annotated[str, Doc("File the options were read from.")] = ""
    config_digest: Annotated[str, Doc("sha256:<hex> of the configuration.")] = ""
