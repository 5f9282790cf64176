"""Auth callout: a service decides a login; the server sends it a request while the client waits.

The server publishes the request to `$SYS.REQ.USER.AUTH` in the account of the callout. It reads
nothing more from the client until the service replies or the authentication timeout ends.
`auth.callout_request` builds the request and interprets the reply; it is loaded with the first
request.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from penstock.base import nkeys
from penstock.base.units import SECOND_NS
from penstock.broker.permission_values import Permissions
from penstock.broker.permissions import compile_permissions
from penstock.server.auth.authenticator import claimed_name
from penstock.server.auth.login_values import LoginRefused
from penstock.server.net.codecs.transport_facts import tls_of
from penstock.server.net.connect_info import FIXED_INFO
from penstock.subjects.trie import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.permissions import CompiledPermissions
    from penstock.server.auth.login_values import Accepted, Login
    from penstock.server.config.options import CalloutOptions
    from penstock.server.net.client_link import ClientLink
    from penstock.server.net.client_session import ClientSession
    from penstock.server.server_state import ServerState

    Decided = Callable[[Accepted | LoginRefused], None]

COMPILED_MAX: Final = 1024
INBOX_BYTES: Final = 6


def ask(service: ServerState, session: ClientSession, login: Login, decided: Decided) -> None:
    """Request a decision from the service; call `decided`, unless the client disconnects first."""
    from penstock.server.auth import callout_request

    options = service.options.authorization.callout
    assert options is not None
    if options.account not in service.accounts.by_name:
        decided(LoginRefused(f'authorization callout account "{options.account}" not valid'))
        return
    question = _Question(service, session, login, decided, options)
    service.io_loop.hold(session.link)
    service.io_loop.post(
        question.interest, callout_request.SUBJECT, question.text(), reply=question.reply
    )


class _Question:
    """One login that waits for the service's reply."""

    def __init__(
        self,
        service: ServerState,
        session: ClientSession,
        login: Login,
        decided: Decided,
        options: CalloutOptions,
    ) -> None:
        self._service = service
        self._session = session
        self._login = login
        self._decided = decided
        self._options = options
        self._user_key = nkeys.encode_public(
            nkeys.KeyKind.USER, secrets.token_bytes(nkeys.KEY_BYTES)
        )
        self._timeout_s = service.options.authorization.timeout_ns / SECOND_NS
        self.interest = service.accounts[options.account].interest
        self.reply = f"$SYS._INBOX.{secrets.token_hex(INBOX_BYTES)}.{session.cid}"
        self._inbox = Subscription(self.reply, value=self._answered)
        self.interest.insert(self._inbox, call=True)
        self._timer = service.loop.call_later(self._timeout_s, self._overdue)

    def text(self) -> bytes:
        from penstock.server.auth import callout_request

        service, session, login = self._service, self._session, self._login
        nats = {
            "server_id": {
                "name": service.server_name,
                "host": service.announced_address[0],
                "id": service.server_id,
                "version": FIXED_INFO["version"],
            },
            "user_nkey": self._user_key,
            "client_info": _client(session, login),
            "connect_opts": _shown(session, login),
        }
        tls = tls_of(session.link.codec)
        if tls is not None:
            nats["client_tls"] = _tls(tls.version, tls.cipher_suite, tls.peer_der)
        return callout_request.question(
            nats,
            issuer_seed=service.signing_seed,
            about=self._options.issuer,
            now_s=int(time.time()),
            timeout_s=int(self._timeout_s),
        )

    def _answered(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        from penstock.server.auth import callout_request

        decision = callout_request.verdict(
            payload,
            callout=self._options,
            user_key=self._user_key,
            server_id=self._service.server_id,
            accounts=self._service.accounts.by_name,
            login=replace(self._login, now_s=time.time()),
        )
        self._timer.cancel()
        self.interest.remove(self._inbox)
        # Not in the turn that delivered the reply: input that the client has already sent follows.
        self._service.loop.call_soon(self._apply_decision, decision)

    def _overdue(self) -> None:
        self.interest.remove(self._inbox)
        account = self._options.account
        self._apply_decision(
            LoginRefused(
                f'authorization callout response not received in time on account "{account}"'
            )
        )

    def _apply_decision(self, decision: Accepted | LoginRefused) -> None:
        link = self._session.link
        if link.close_reason is None:
            self._decided(decision)
        self._service.io_loop.release(link)
        self._service.io_loop.flush_and_close()


def permissions_of(service: ServerState, accepted: Accepted) -> CompiledPermissions | None:
    """Return the permissions of a login.

    In the callout's account they exclude publishing to the callout subject, so that no client can
    send requests in the name of the server.
    """
    callout = service.options.authorization.callout
    if callout is None or accepted.account != callout.account:
        return accepted.permissions
    return _without_asking(accepted.permissions or compile_permissions(Permissions()))


@lru_cache(COMPILED_MAX)
def _without_asking(permissions: CompiledPermissions) -> CompiledPermissions:
    from penstock.server.auth.callout_request import SUBJECT

    return permissions.without_publish(SUBJECT)


# -- fields of the request; empty values are omitted


def _client(session: ClientSession, login: Login) -> dict[str, Any]:
    return _filled(
        host=session.ip,
        id=session.cid,
        user=claimed_name(login),
        name=session.options.name,
        kind="Client",
        type="websocket" if session.kind == "WEBSOCKET" else "nats",
        nonce=session.nonce,
    )


def _shown(session: ClientSession, login: Login) -> dict[str, Any]:
    options = session.options
    shown = _filled(
        nkey=login.nkey,
        sig=login.sig,
        auth_token=login.token,
        user=login.user,
        name=options.name,
        lang=options.lang,
        version=options.version,
    )
    shown["pass"] = login.password
    return {**_filled(**shown), "protocol": options.protocol}


def _tls(version: str, cipher_suite: str, peer_der: bytes | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"version": version, "cipher": cipher_suite}
    if peer_der is not None:
        from ssl import DER_cert_to_PEM_cert

        facts["certs"] = [DER_cert_to_PEM_cert(peer_der)]
    return facts


def _filled(**values: object) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}
