"""ServerState: what all connections of one server share.

Owns the IoLoop, the accounts, the authentication rules and the counters of a running server.
Sessions and listeners use it, monitoring reads it. `server_app` creates one and starts listeners on
it. One event-loop thread owns all of it; the only threads started here compare bcrypt hashes.
"""

from __future__ import annotations

import collections
import itertools
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from penstock.base import nkeys
from penstock.broker.router import Router
from penstock.server.auth import (
    BCRYPT_CHECKS_MAX,
    BCRYPT_WAITING_MAX,
    Authenticator,
    LoginRefused,
    NeedsBcrypt,
)
from penstock.server.auth.operator_mode import OperatorMode
from penstock.server.config_reload import SessionRecheck
from penstock.server.monitor.sliced_pages import PageRoom
from penstock.server.net.client_limits import tightest
from penstock.server.net.client_record import Now, record_of
from penstock.server.net.codecs.transport_facts import tls_of, upgrade_of
from penstock.server.net.connect_info import FIXED_INFO, ServerInfo
from penstock.server.net.io_loop import IoLoop
from penstock.server.net.refusal_log import ViolationLog
from penstock.server.server_log import log
from penstock.server.system.account_imports import AccountImports
from penstock.server.system.loop_watch import LoopWatch
from penstock.server.system.server_accounts import Accounts, GuardTable
from penstock.subjects.trie import SubList

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.server.auth.login_values import Accepted, ConnectionType, PeerCertificate
    from penstock.server.config.options import Options
    from penstock.server.jetstream.runtime import JetStreamRuntime
    from penstock.server.net.client_record import ClientRecord
    from penstock.server.net.client_session import ClientSession
    from penstock.server.system.system_account import System

NONCE_BYTES: Final = 11
FIRST_CLIENT_ID: Final = 5
SEED_BITS: Final = 64
JITTER_STEPS: Final = 1000


@dataclass(slots=True)
class Traffic:
    """Traffic totals of one account's closed connections."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0


class ServerState:
    """The shared state of all connections."""

    def __init__(self, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self.options = options
        self.loop = loop
        self.signing_seed = nkeys.encode_seed(
            nkeys.KeyKind.SERVER, secrets.token_bytes(nkeys.KEY_BYTES)
        )
        # Only a signing server needs a real key as its id: creating one loads the crypto library.
        self.server_id = (
            nkeys.server_id(secrets.token_bytes(nkeys.KEY_BYTES))
            if options.authorization.callout is None
            else nkeys.public_from_seed(self.signing_seed)
        )
        self.server_name = options.server_name or self.server_id
        self.start_ns = time.time_ns()
        self.config_load_ns = self.start_ns
        self.router = Router(seed=secrets.randbits(SEED_BITS))
        self.io_loop = IoLoop(
            router=self.router,
            arm=self._arm,
            write_deadline_ns=options.write_deadline_ns,
            stall_publishers=not options.no_fast_producer_stall,
        )
        self.watch = LoopWatch(self.io_loop)
        self.accounts = Accounts(self._make_interest)
        self.account_imports = AccountImports(self)
        self.operator_mode = OperatorMode(self)
        self.violations = ViolationLog(loop.call_later)
        self.sessions: dict[int, ClientSession] = {}
        self.session_recheck = SessionRecheck(self)
        self.closed: collections.deque[ClientRecord] = collections.deque(
            maxlen=options.max_closed_clients
        )
        self.traffic_closed: dict[str, Traffic] = {}
        self.page_room = PageRoom()
        self.http_requests: collections.Counter[str] = collections.Counter()
        self.system: System | None = None
        self.jetstream: JetStreamRuntime | None = None
        self.reload: Callable[[], object] | None = None  # set by `Server`
        self.undecided = 0  # connections that have sent nothing yet and are not links
        self.total_connections = 0
        self.stale_connections = 0
        self.lame_duck = False
        self.client_address = (options.host, options.port)
        self.bound_ports: dict[str, int] = {}  # of the other listeners, by option
        self._cids = itertools.count(FIRST_CLIENT_ID)
        self._bcrypt: ThreadPoolExecutor | None = None
        self._bcrypt_waiting = 0
        self.configure(options)

    def configure(self, options: Options) -> None:
        """Apply the users and accounts of the options; does not re-check connected clients."""
        options = self.options = self.operator_mode.take(options)
        trust = self.operator_mode.trust
        self.accounts.configure(options)
        self.operator_mode.name_accounts()
        self.account_imports.configure(options)
        self.guards = GuardTable()
        self._authenticators: dict[ConnectionType, Authenticator] = {
            "STANDARD": Authenticator(options, trust=trust),
            "WEBSOCKET": Authenticator.for_websocket(options, trust),
        }
        self.io_loop.set_write_deadline(options.write_deadline_ns)
        if self.system is not None:
            self.system.serve_accounts()
        if self.jetstream is not None:
            self.jetstream.serve_accounts()

    def _arm(self, delay_s: float, call: Callable[[], None]) -> None:
        """Schedule a call for the IoLoop; LoopWatch measures it."""
        self.loop.call_later(delay_s, self.watch.run, "messages left by earlier turns", call)

    def _make_interest(self) -> SubList:
        interest = SubList(
            seed=secrets.randbits(SEED_BITS), cache=not self.options.disable_sublist_cache
        )
        self.io_loop.add_interest(interest)
        return interest

    # -- start and stop

    def open_storage(self) -> None:
        """Recover persisted streams, before clients can connect. Raises StoreError."""
        if self.options.jetstream:
            from penstock.server.jetstream.runtime import JetStreamRuntime

            self.jetstream = JetStreamRuntime(self)
            self.jetstream.start()

    def start(self) -> None:
        if not self.options.no_system_account:
            from penstock.server.system.system_account import System

            self.system = System(self)
            self.system.start()
        self.loop.add_reader(self.io_loop.fileno(), self.io_loop.turn)

    def count_assets(self) -> int:
        """Return the number of streams and consumers; any thread may call this."""
        jetstream = self.jetstream
        return 0 if jetstream is None else jetstream.count_assets()

    def stop(self, reason: str) -> None:
        """Close every connection; the server serves nothing afterwards."""
        if self.system is not None:
            self.system.stop()
            self.system = None
        if self.jetstream is not None:
            self.jetstream.shut_down()
        self.account_imports.close()
        self.operator_mode.close()
        self.io_loop.close_all(reason)
        self.loop.remove_reader(self.io_loop.fileno())
        if self.jetstream is not None:
            self.jetstream.close()
            self.jetstream = None
        if self._bcrypt is not None:
            self._bcrypt.shutdown(wait=False, cancel_futures=True)

    # -- connections

    def next_cid(self) -> int:
        return next(self._cids)

    @property
    def is_full(self) -> bool:
        return 0 <= self.options.max_connections <= len(self.io_loop) + self.undecided

    def session_opened(self, session: ClientSession) -> None:
        self.sessions[session.cid] = session
        self.total_connections += 1

    def session_closed(self, session: ClientSession, reason: str) -> None:
        if self.sessions.pop(session.cid, None) is None:
            return
        record = record_of(session, Now.read(), reason=reason)
        self.closed.append(record)
        traffic = self.traffic_closed.setdefault(record.account, Traffic())
        traffic.in_msgs += record.in_msgs
        traffic.in_bytes += record.in_bytes
        traffic.out_msgs += record.out_msgs
        traffic.out_bytes += record.out_bytes
        traffic.slow_consumers += reason.startswith("Slow Consumer")
        if self.system is not None:
            self.system.client_closed(record, counted=session.announced)

    # -- login

    def authenticator(self, kind: ConnectionType) -> Authenticator:
        return self._authenticators["WEBSOCKET" if kind == "WEBSOCKET" else "STANDARD"]

    def mapped_certificate(self, session: ClientSession) -> PeerCertificate | None:
        """Return the client's certificate, if certificates map to users."""
        websocket = self.options.websocket
        tls = self.options.tls
        if session.kind == "WEBSOCKET":
            tls = None if websocket is None else websocket.tls
        facts = tls_of(session.link.codec)
        if tls is None or not tls.verify_and_map or facts is None or facts.peer_der is None:
            return None
        from penstock.server.auth import read_certificate

        return read_certificate(facts.peer_der)

    def cookie_credentials(self, session: ClientSession) -> dict[str, str]:
        """Return the credentials that a browser sent as cookies with its upgrade request."""
        options = self.options.websocket
        upgrade = upgrade_of(session.link.codec)
        if session.kind != "WEBSOCKET" or options is None or upgrade is None:
            return {}
        wanted = {
            "user": options.user_cookie,
            "password": options.pass_cookie,
            "token": options.token_cookie,
            "jwt": options.jwt_cookie,
        }
        cookies = upgrade.cookies
        return {key: cookies[name] for key, name in wanted.items() if name and name in cookies}

    def make_nonce(self, kind: ConnectionType) -> str:
        needed = self.authenticator(kind).needs_nonce
        return secrets.token_urlsafe(NONCE_BYTES) if needed else ""

    def check_bcrypt(
        self,
        session: ClientSession,
        decision: NeedsBcrypt,
        checked: Callable[[Accepted | LoginRefused], None],
    ) -> None:
        """Compare on a thread; the link processes no input until the result."""
        if self._bcrypt_waiting >= BCRYPT_WAITING_MAX:
            checked(LoginRefused("too many logins are being checked"))
            return
        if self._bcrypt is None:
            self._bcrypt = ThreadPoolExecutor(BCRYPT_CHECKS_MAX, thread_name_prefix="bcrypt")
        self._bcrypt_waiting += 1
        self.io_loop.hold(session.link)
        checking = self.loop.run_in_executor(self._bcrypt, decision.check)
        checking.add_done_callback(lambda done: self._bcrypt_done(session, done, checked))

    def _bcrypt_done(
        self,
        session: ClientSession,
        done: asyncio.Future[Accepted | LoginRefused],
        checked: Callable[[Accepted | LoginRefused], None],
    ) -> None:
        self._bcrypt_waiting -= 1
        if done.cancelled():
            return
        error = done.exception()
        if session.link.close_reason is not None:
            return  # the client has disconnected
        if error is not None:
            log.error("%s - password check failed: %s", session, error)
        checked(LoginRefused("password check failed") if error is not None else done.result())
        self.io_loop.release(session.link)

    # -- INFO and keep-alive

    def jitter(self, span_s: float) -> float:
        return span_s * secrets.randbelow(JITTER_STEPS) / JITTER_STEPS

    def ping_interval_ns(self, kind: ConnectionType) -> int:
        websocket = self.options.websocket
        if kind == "WEBSOCKET" and websocket is not None and websocket.ping_interval_ns:
            return websocket.ping_interval_ns
        return self.options.ping_interval_ns

    @property
    def announced_address(self) -> tuple[str, int]:
        """The address that INFO reports: the configured one, else the listener's."""
        if not self.options.client_advertise:
            return self.client_address
        host, _, port = self.options.client_advertise.rpartition(":")
        if not port.isdigit():
            return self.options.client_advertise, self.client_address[1]
        return host.strip("[]"), int(port)

    def greeting_for(self, session: ClientSession) -> ServerInfo:
        """Return the first INFO of a connection: its listener's requirements and a nonce."""
        authenticator = self.authenticator(session.kind)
        # As in the reference, INFO requires login from a browser even with a default user.
        asked = authenticator.auth_required or (
            session.kind == "WEBSOCKET" and authenticator.guarded
        )
        return replace(
            self.info_for(session),
            auth_required=asked,
            max_payload=self.options.max_payload,
            nonce=session.nonce,
        )

    def info_for(self, session: ClientSession, *, connect_info: bool = False) -> ServerInfo:
        """Return a later INFO; as in the reference, it describes the server, not its listeners."""
        options = self.options
        websocket = options.websocket
        tls = options.tls
        mixed = options.allow_non_tls
        if session.kind == "WEBSOCKET":
            tls = None if websocket is None else websocket.tls
            mixed = False
        host, port = self.announced_address
        limits = tightest(options, session.account.limits, session.claimed)
        return ServerInfo(
            **FIXED_INFO,
            server_id=self.server_id,
            server_name=self.server_name,
            host=host,
            port=port,
            headers=not options.no_header_support,
            max_payload=limits.max_payload,
            client_id=session.cid,
            client_ip=session.ip,
            auth_required=self.authenticator("STANDARD").guarded,
            tls_required=tls is not None and not mixed,
            tls_verify=tls is not None and tls.verify,
            tls_available=tls is not None and mixed,
            jetstream=options.jetstream,
            domain=options.jetstream_options.domain if options.jetstream else "",
            cluster=options.cluster.name if options.cluster is not None else "",
            ldm=self.lame_duck,
            connect_info=connect_info,
            remote_account=session.account.name if connect_info else "",
            acc_is_sys=connect_info and session.account.name == self.system_account,
        )

    @property
    def system_account(self) -> str:
        return self.options.system_account or "$SYS"
