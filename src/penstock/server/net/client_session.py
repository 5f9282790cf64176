"""ClientSession: the Python half of one client connection.

The link executes PUB, SUB, UNSUB and PING in C. The session handles CONNECT and login, permissions,
keep-alive, and the record and log lines when the connection ends. Each link has exactly one
session, its handler. No handler method may raise into the IoLoop.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.base.json_depth import check_nesting
from penstock.base.units import SECOND_NS
from penstock.broker.permissions import ResponseGrants
from penstock.server.auth import auth_callout
from penstock.server.auth.login_values import (
    Accepted,
    Login,
    LoginRefused,
    NeedsBcrypt,
    NeedsCallout,
)
from penstock.server.net import close_reasons
from penstock.server.net.client_label import client_label, connection_label, user_claim
from penstock.server.net.client_limits import tightest
from penstock.server.net.client_link import SUBSCRIBE_ALLOWED, SUBSCRIBE_FILTERED, SUBSCRIBE_REFUSED
from penstock.server.net.client_refusals import Refusals
from penstock.server.net.codecs.contract import CodecError
from penstock.server.net.codecs.transport_facts import upgrade_of
from penstock.server.net.connect_info import ConnectOptions, parse_connect
from penstock.server.server_log import TRACE, log
from penstock.server.system.trace_ingress import TraceIngress

if TYPE_CHECKING:
    import asyncio

    from penstock.server.auth import Decision
    from penstock.server.auth.login_values import Claimed, ConnectionType
    from penstock.server.net.client_link import ClientLink
    from penstock.server.net.codecs.contract import CodecEnd
    from penstock.server.server_state import ServerState
    from penstock.server.system.account_imports import Shadow
    from penstock.server.system.server_accounts import Account, Guards

CLIENT_PROTOCOLS: Final = (0, 1)
FIRST_PING_S: Final = 2.0
RTT_VALID_NS: Final = 3_600_000_000_000


class ClientSession(Refusals, TraceIngress):
    """One client, from accept to close."""

    def __init__(
        self,
        service: ServerState,
        cid: int,
        address: tuple[str, int],
        *,
        kind: ConnectionType = "STANDARD",
        nonce: str = "",
    ) -> None:
        self.service = service
        self.cid: int = cid
        self.ip, self.port = address
        self.kind = kind
        self._label = connection_label(kind, address, cid)
        self._labelled = False  # includes the client's program, account and user
        self.nonce = nonce
        self.options = ConnectOptions()
        self.start_ns: int = time.time_ns()
        self.rtt_ns: int = 0
        self.user = ""
        self.claimed: Claimed | None = None
        self.account: Account = service.accounts["$G"]
        self.bound = False  # counted in its account
        self.connected = False
        self.announced = False  # a CONNECT event was published
        self.is_configured = False
        """Whether the configuration defines this user; otherwise the login has another source."""
        self.proved_hash = ""
        """The bcrypt hash that the client's password matched."""
        self._headers = False
        self.guards: Guards | None = None
        self.grants: ResponseGrants | None = None
        self._shadows: dict[str, Shadow] = {}
        self.link: ClientLink
        self._pings_out = 0
        self._ping_sent_ns = 0
        self._ping_timer: asyncio.TimerHandle | None = None
        self._login_timer: asyncio.TimerHandle | None = None
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None

    # -- the start

    def open(self, link: ClientLink, *, login_needed: bool, login_timeout_s: float) -> None:
        """Take the attached link: apply limits, and start the login timeout if login is needed."""
        self.link = link
        self.apply_limits()
        link.set_traced(self.service.options.trace)
        link.set_login_needed(login_needed)
        if login_needed:
            self._login_timer = self.service.loop.call_later(login_timeout_s, self._login_overdue)
        else:
            anonymous = self.service.authenticator(self.kind).anonymous
            if anonymous is not None:
                self._bind(anonymous)
        first_ping_s = min(FIRST_PING_S, self._ping_interval_s)
        self._ping_timer = self.service.loop.call_later(
            first_ping_s + self.service.jitter(first_ping_s / 5), self._ping_due
        )

    def apply_limits(self, *, has_subscriptions: bool = False) -> None:
        """Apply the tightest limits, also to existing subscriptions if the client may have some."""
        options = self.service.options
        limits = tightest(options, self.account.limits, self.claimed)
        self.link.set_limits(
            max_control_line=options.max_control_line,
            max_payload=limits.max_payload,
            max_pending=options.max_pending,
            max_subs=limits.max_subscriptions or 0,
            max_sub_tokens=options.max_sub_tokens,
        )
        if self.link.codec is not None:
            # Before login a client sends nothing longer than a control line.
            payload = max(limits.max_payload, 0) if self.bound else 0
            self.link.codec.limit_message(options.max_control_line + payload)
        subs_max = limits.max_subscriptions
        if subs_max is not None and subs_max <= (
            self.link.subscriptions if has_subscriptions else 0
        ):
            # As in the reference, a client at its subscription limit is closed.
            self.link.close(close_reasons.MAX_SUBSCRIPTIONS, "maximum subscriptions exceeded")

    def await_handshake(self, timeout_s: float) -> None:
        """Close the connection unless the TLS or WebSocket handshake completes in time."""
        self._handshake_timer = self.service.loop.call_later(timeout_s, self._handshake_overdue)

    def transport_established(self) -> None:
        self._cancel_handshake_timer()
        upgrade = upgrade_of(self.link.codec)
        if upgrade is not None and upgrade.client_ip:
            address = (self.ip, self.port)
            self._label = connection_label(self.kind, address, self.cid, upgrade.client_ip)
            self.ip = upgrade.client_ip  # a proxy reported the client's own address

    def _handshake_overdue(self) -> None:
        log.error("%s - handshake timeout", self)
        self.link.close(close_reasons.TLS_HANDSHAKE_FAILURE)
        self.service.io_loop.flush_and_close()

    def _cancel_handshake_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    # -- CONNECT

    def connect(self, payload: bytes) -> None:
        try:
            options = parse_connect(payload, self.options)
        except ValueError as error:
            self.debug("CONNECT refused: %s", error)
            self.link.close(close_reasons.PROTOCOL_VIOLATION)
            return
        if self.connected:
            self.link.drop_subscriptions()
        else:
            self.rtt_ns = time.time_ns() - self.start_ns  # round trip from INFO to CONNECT
        self.connected = True
        self.options = options
        self._headers = options.headers and not self.service.options.no_header_support
        self.link.set_options(
            verbose=options.verbose,
            pedantic=options.pedantic,
            echo=options.echo,
            headers=self._headers,
            no_responders=options.no_responders,
        )
        self._decide(self.service.authenticator(self.kind).authenticate(self.login()))

    def login(self) -> Login:
        """Return the credentials that the client presented."""
        options, cookies = self.options, self.service.cookie_credentials(self)
        return Login(
            user=options.user or cookies.get("user"),
            password=options.password or cookies.get("password"),
            token=options.auth_token or cookies.get("token"),
            nkey=options.nkey,
            sig=options.sig,
            jwt=options.jwt or cookies.get("jwt"),
            account=options.account,
            new_account=options.new_account,
            nonce=self.nonce.encode(),
            tls_peer=self.service.mapped_certificate(self),
            connection_type=self.kind,
            ip=self.ip,
            now_s=time.time(),
        )

    def _decide(self, decision: Decision) -> None:
        if isinstance(decision, NeedsBcrypt):
            checked = partial(self._bcrypt_checked, decision.hashed)
            self.service.check_bcrypt(self, decision, checked)
        elif isinstance(decision, NeedsCallout):
            self._cancel_login_timer()  # the callout has its own timeout
            auth_callout.ask(self.service, self, decision.login, self._decide)
        elif isinstance(decision, LoginRefused):
            self._refuse_login(decision.reason)
        else:
            self._login_accepted(decision)

    def _bcrypt_checked(self, hashed: str, decision: Accepted | LoginRefused) -> None:
        """Continue the login after the bcrypt comparison, which ran on another thread."""
        if isinstance(decision, Accepted):
            self.proved_hash = hashed
        self._decide(decision)

    def _refuse_login(self, why: str) -> None:
        claim = user_claim(self.options)
        log.error("%s - authentication error%s", self, f" - {claim}" if claim else "")
        self.debug("login refused: %s", why)
        self.user = self.options.user  # the claimed name, for monitoring and events
        if self.service.system is not None:
            self.service.system.login_refused(self, close_reasons.AUTHENTICATION_FAILURE)
        self.link.close(close_reasons.AUTHENTICATION_FAILURE, "Authorization Violation")

    def _login_accepted(self, accepted: Accepted) -> None:
        self._cancel_login_timer()
        self.link.set_login_needed(False)
        if not self._bind(accepted):
            return
        if not self._labelled:
            self._labelled = True
            self._label = client_label(self._label, self.options, self.account, self.user)
        if not self.announced and self.service.system is not None:
            self.announced = True
            self.service.system.client_connected(self)
        if self.options.protocol not in CLIENT_PROTOCOLS:
            self.link.close(close_reasons.BAD_PROTOCOL_VERSION, "invalid client protocol")
        elif self.options.no_responders and not self._headers:
            self.link.close(
                close_reasons.NO_RESPONDERS_NEEDS_HEADERS, "no responders requires headers support"
            )
        elif self.options.verbose:
            self.link.send(b"+OK\r\n")

    def _bind(self, accepted: Accepted) -> bool:
        """Put the client into its account, with its permissions."""
        account = self.service.accounts[accepted.account]
        if account is not self.account or not self.bound:
            if account.is_full:
                self.leave_full_account()
                return False
            self._unbind()
            account.connections += 1
            self.bound = True
            self.account = account
            is_system = account.name == self.service.system_account
            self.link.set_interest(account.interest, is_system=is_system)
            self.apply_imports()
        self.user = accepted.user
        self.claimed = accepted.claimed
        self.apply_limits()
        self._stay_until(0.0 if self.claimed is None else self.claimed.expires_s)
        self.is_configured = self.service.authenticator(self.kind).knows(accepted.user)
        self.set_permissions(accepted)
        return True

    def _stay_until(self, expires_s: float) -> None:
        """Close the client when its claims expire; 0: never."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        if expires_s:
            delay_s = max(0.0, expires_s - time.time())
            self._expiry_timer = self.service.loop.call_later(delay_s, self._expired)

    def _expired(self) -> None:
        self.link.close(close_reasons.AUTHENTICATION_EXPIRED, "User Authentication Expired")
        self.service.io_loop.flush_and_close()

    def leave_full_account(self) -> None:
        self.link.close(
            close_reasons.MAX_ACCOUNT_CONNECTIONS, "maximum account active connections exceeded"
        )

    def _unbind(self) -> None:
        if self.bound:
            self.account.connections -= 1
            self.bound = False

    def apply_imports(self) -> None:
        """Enable the link callbacks that the account's imports and mappings need."""
        account_imports, account = self.service.account_imports, self.account.name
        imports, maps = account_imports.imports_streams(account), account_imports.maps(account)
        samples = bool(self.account.trace_dest)
        self.link.set_import_hooks(imports=imports, maps=maps, samples=samples)
        if imports and not self._shadows:
            for sid, subject, queue, _, _ in self.link.subscription_details():
                self.subscribed(sid, subject, queue)

    def set_permissions(self, accepted: Accepted) -> None:
        permissions = auth_callout.permissions_of(self.service, accepted)
        if permissions is None:
            self.guards = self.grants = None
            self.link.set_guards()
            return
        guards = self.guards = self.service.guards[permissions]
        self.grants = None
        if permissions.responses is not None:
            self.grants = ResponseGrants(permissions.responses)
        self.link.set_guards(
            pub_allow=guards.pub_allow,
            pub_deny=guards.pub_deny,
            deliver_deny=guards.deliver_deny,
            guards_subscribe=guards.guards_subscribe,
            may_respond=guards.may_respond,
        )

    def apply_decision(self, decision: Accepted | LoginRefused) -> None:
        """Apply a new authentication decision after users or permissions changed."""
        if isinstance(decision, LoginRefused):
            if decision.without_error or decision.revoked:
                err_text = "User Authentication Revoked" if decision.revoked else None
                self.link.close(close_reasons.CREDENTIALS_REVOKED, err_text)
            else:
                self._refuse_login(decision.reason)
            return
        if decision.account != self.account.name:
            # As in the reference, a user that moved to another account is closed without -ERR.
            self.link.close(close_reasons.CLIENT_CLOSED)
            return
        self.claimed = decision.claimed
        self.apply_limits()
        self.set_permissions(decision)
        self.link.recheck_subscriptions()

    def spoke_before_login(self) -> None:
        self._refuse_login("spoke before CONNECT")

    def _login_overdue(self) -> None:
        self.link.close(close_reasons.AUTHENTICATION_TIMEOUT, "Authentication Timeout")
        self.service.io_loop.flush_and_close()

    def _cancel_login_timer(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None

    # -- permissions, called by the link

    def may_subscribe(self, subject: str, queue: str | None) -> int:
        if self.guards is None:
            return SUBSCRIBE_ALLOWED
        permissions = self.guards.permissions
        if not permissions.may_subscribe(subject, queue):
            return SUBSCRIBE_REFUSED
        if permissions.needs_delivery_filter(subject, queue):
            return SUBSCRIBE_FILTERED
        return SUBSCRIBE_ALLOWED

    def delivery_denied(self, subject: str, queue: str | None) -> bool:
        return self.guards is not None and self.guards.permissions.delivery_denied(subject, queue)

    def note_reply(self, reply: str) -> None:
        if (
            self.grants is not None
            and self.guards is not None
            and not self.guards.permissions.may_publish(reply)
        ):
            self.grants.grant(reply, time.monotonic_ns())

    def may_respond(self, subject: str) -> bool:
        return self.grants is not None and self.grants.take(subject, time.monotonic_ns())

    # -- imports and mappings of the account, called by the link

    def subscribed(self, sid: str, subject: str, queue: str | None) -> None:
        take = partial(self.link.hand, sid)
        account_imports = self.service.account_imports
        self._shadows[sid] = account_imports.shadow(self.account.name, subject, queue, take)

    def unsubscribed(self, sid: str | None) -> None:
        """Drop the shadow of one subscription; None: of all."""
        sids = list(self._shadows) if sid is None else [sid]
        for one in sids:
            shadow = self._shadows.pop(one, None)
            if shadow is not None:
                self.service.account_imports.drop(shadow)

    def mapped(self, subject: str) -> str | None:
        return self.service.account_imports.mapped(self.account.name, subject)

    # -- keep-alive

    @property
    def _ping_interval_s(self) -> float:
        return self.service.ping_interval_ns(self.kind) / SECOND_NS

    def first_ping(self) -> bool:
        """Send INFO with connection details to a protocol 1 client; return True once done."""
        if self.connected and self.options.protocol >= 1:
            self.link.send(self.service.info_for(self, connect_info=True).line())
        return self.connected  # a PING before CONNECT does not count

    def ponged(self) -> None:
        self._pings_out = 0
        if self._ping_sent_ns:
            self.rtt_ns = time.monotonic_ns() - self._ping_sent_ns

    def _ping_due(self) -> None:
        now_ns = time.monotonic_ns()
        interval_s = self._ping_interval_s
        self._ping_timer = self.service.loop.call_later(interval_s, self._ping_due)
        idle_ns = now_ns - self.link.last_activity_ns
        rtt_known = self._ping_sent_ns and now_ns - self._ping_sent_ns < RTT_VALID_NS
        if rtt_known and idle_ns < interval_s * SECOND_NS:
            return
        if self._pings_out + 1 > self.service.options.ping_max:
            self.service.stale_connections += 1
            self.link.close(close_reasons.STALE_CONNECTION, "Stale Connection")
        else:
            self._pings_out += 1
            self._ping_sent_ns = now_ns
            self.link.send(b"PING\r\n")
        self.service.io_loop.flush_and_close()

    # -- the end

    def peer_info(self, payload: bytes) -> None:
        """Ignore INFO from a client, but require JSON."""
        try:
            check_nesting(payload)
            json.loads(payload)
        except ValueError:
            self.link.close(close_reasons.PROTOCOL_VIOLATION)

    def peer_erred(self, text: bytes) -> None:
        self.debug("client error: %r", text)
        self.link.close(close_reasons.CLIENT_CLOSED)

    def erred(self, text: str) -> None:
        self.debug("sent -ERR: %s", text)

    def codec_ended(self, end: CodecEnd) -> None:
        if isinstance(end, CodecError):
            log.error("%s - %s", self, end.text)
        self.link.close(end.reason)

    def failed(self, error: Exception) -> None:
        log.error("%s - internal error", self, exc_info=error)
        self.link.close(close_reasons.INTERNAL_ERROR)

    def closed(self, reason: str) -> None:
        timers = (self._login_timer, self._handshake_timer, self._expiry_timer, self._ping_timer)
        for timer in timers:
            if timer is not None:
                timer.cancel()
        self._unbind()
        self.debug("client connection closed: %s", reason)
        if reason.startswith("Slow Consumer"):
            log.info("%s - %s", self, reason)
        self.service.session_closed(self, reason)

    # -- log

    def trace(self, direction: str, text: str) -> None:
        log.log(TRACE, "%s - %s [%s]", self, direction, text)

    def trace_payload(self, direction: str, body: bytes, hdr_len: int) -> None:
        options = self.service.options
        if options.trace_headers:
            body = body[:hdr_len]
        shown = str(body[: options.max_traced_msg_len or None])[2:-1].replace('"', '\\"')
        cut = "..." if 0 < options.max_traced_msg_len < len(body) else ""
        log.log(TRACE, '%s - %s MSG_PAYLOAD: ["%s%s"]', self, direction, shown, cut)

    def debug(self, text: str, *args: object) -> None:
        log.debug("%s - " + text, self, *args)

    def __str__(self) -> str:
        return self._label
