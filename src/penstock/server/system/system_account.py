"""System: the requests that the server replies to over NATS and the events that it publishes.

In every account, clients can query their user and their account's statistics. In the system
account, they can request every monitoring page, send commands to the server, and receive events
about connections. The subscribers here are internal callbacks; they run after the turn that
delivered the request and must not raise. An event without subscribers is not built.

The contents of replies and events are in `system_requests` and `system_events`, which are imported
on first use, so that an unused system account does not slow down the start.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.server.monitor.page_values import compact
from penstock.server.monitor.process_usage import ProcessorShare
from penstock.server.monitor.sliced_pages import is_done_soon, paced, pieces_of
from penstock.server.server_log import log
from penstock.subjects.trie import Subscription

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from penstock.server.net.client_link import ClientLink
    from penstock.server.net.client_record import ClientRecord
    from penstock.server.net.client_session import ClientSession
    from penstock.server.server_state import ServerState
    from penstock.server.system.server_accounts import Account
    from penstock.server.system.system_claims import Handler
    from penstock.server.system.system_events import ServerIdentity

    Answerer = Callable[[bytes], dict[str, Any] | None]

PAGE_NAMES: Final = (
    "VARZ",
    "CONNZ",
    "SUBSZ",
    "HEALTHZ",
    "ACCOUNTZ",
    "ROUTEZ",
    "GATEWAYZ",
    "LEAFZ",
    "JSZ",
    "RAFTZ",
    "IPQUEUESZ",
)
ACCOUNT_PAGE_NAMES: Final = ("CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO", "STATZ")
COMMAND_NAMES: Final = ("KICK", "LDM", "RELOAD")
FIRST_STATSZ_S: Final = 1.0
STATSZ_INTERVAL_S: Final = 10.0
CONNS_INTERVAL_S: Final = 30.0
CONNS_GAP_S: Final = 0.25
TOO_MANY_REQUESTS: Final = 429
ACCOUNT_TOKEN: Final = 3  # index of the account in $SYS.REQ.ACCOUNT.<account>.<page>


class System:
    """The server's subscriptions and events in its accounts."""

    def __init__(self, service: ServerState) -> None:
        self._service = service
        self._share = ProcessorShare()
        self._seq = itertools.count(1)
        self._served: dict[str, list[str]] = {}
        self._statsz_timer: asyncio.TimerHandle | None = None
        self._conns_timer: asyncio.TimerHandle | None = None
        self._conns_cooldowns: dict[str, asyncio.TimerHandle] = {}
        self._conns_changed: set[str] = set()
        self._pages: set[asyncio.Task[None]] = set()

    # -- start and stop

    def start(self) -> None:
        self.serve_accounts()
        loop = self._service.loop
        self._statsz_timer = loop.call_later(FIRST_STATSZ_S, self._statsz_due)
        self._conns_timer = loop.call_later(CONNS_INTERVAL_S, self._conns_due)

    def stop(self) -> None:
        """Publish the shutdown event while connections are still open."""
        for timer in (self._statsz_timer, self._conns_timer, *self._conns_cooldowns.values()):
            if timer is not None:
                timer.cancel()
        for page in self._pages:
            page.cancel()
        self._publish_identity("SHUTDOWN")

    def serve_accounts(self) -> None:
        """Subscribe in every account that is not served yet."""
        for account in self._service.accounts:
            if account.name not in self._served:
                self._served[account.name] = []
                self._serve_every(account)
                if account.name == self._service.system_account:
                    self._serve_system(account)

    def subjects_of(self, account: str) -> list[str]:
        """Return the subscriptions that the server itself holds in an account."""
        return self._served.get(account, [])

    @property
    def _account(self) -> Account:
        return self._service.accounts[self._service.system_account]

    # -- requests

    def _serve_every(self, account: Account) -> None:
        self._listen(account, "$SYS.REQ.USER.INFO", self._user_info)
        if account.name == self._service.system_account:
            return
        own = partial(self._account_page, account.name)
        self._answer(account, "$SYS.REQ.ACCOUNT.PING.CONNZ", partial(own, "CONNZ"))
        self._answer(account, "$SYS.REQ.SERVER.PING.CONNZ", partial(own, "CONNZ"))
        self._answer(account, "$SYS.REQ.ACCOUNT.PING.STATZ", partial(own, "STATZ"))

    def _serve_system(self, account: Account) -> None:
        server = f"$SYS.REQ.SERVER.{self._service.server_id}."
        self._answer(account, "$SYS.REQ.SERVER.PING", self._statsz)
        for prefix in ("$SYS.REQ.SERVER.PING.", server):
            self._answer(account, prefix + "IDZ", self._idz)
            self._answer(account, prefix + "STATSZ", self._statsz)
            for name in PAGE_NAMES:
                self._answer(account, prefix + name, partial(self._page, name))
        for name in COMMAND_NAMES:
            self._answer(account, server + name, partial(self._command, name))
        self._listen(account, "$SYS.REQ.ACCOUNT.*.CONNS", self._connections)
        for name in ACCOUNT_PAGE_NAMES:
            self._listen(account, f"$SYS.REQ.ACCOUNT.*.{name}", self._named_account)
        self._answer(account, "$SYS.REQ.ACCOUNT.PING.STATZ", self._all_statz)
        self._serve_claims(account)

    def _serve_claims(self, account: Account) -> None:
        if self._service.operator_mode.trust is None:
            return
        from penstock.server.system.system_claims import handlers_of

        for subject, handler in handlers_of(self._service).items():
            self._listen(account, subject, partial(self._claims, handler), needs_reply=False)

    def _claims(
        self, handler: Handler, subject: str, reply: str, payload: bytes, source: ClientLink | None
    ) -> None:
        replies = handler(subject, payload)
        for one in replies if reply else ():
            answer = one if isinstance(one, bytes) else compact({"server": self._identity(), **one})
            self._service.io_loop.publish(self._account.interest, reply, answer)

    def _answer(self, account: Account, subject: str, answerer: Answerer) -> None:
        """Reply to requests on a subject, from any client."""

        def respond(_: str, reply: str, payload: bytes, source: ClientLink | None) -> None:
            self._reply(account, reply, answerer(payload))

        self._listen(account, subject, respond)

    def _listen(
        self,
        account: Account,
        subject: str,
        respond: Callable[[str, str, bytes, ClientLink | None], None],
        *,
        needs_reply: bool = True,
    ) -> None:
        def received(
            subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
        ) -> None:
            if needs_reply and not reply:
                return
            try:
                respond(subject, reply, payload, source)
            except Exception:
                log.exception("system request %s failed", subject)

        self._served[account.name].append(subject)
        account.interest.insert(Subscription(subject, value=received), call=True)

    def _reply(self, account: Account, reply: str, answer: dict[str, Any] | None) -> None:
        if answer is None:
            return
        steps = answer.get("data")
        if isinstance(steps, Generator):
            self._reply_in_slices(account, reply, answer, steps)
        else:
            self._service.io_loop.publish(account.interest, reply, compact(answer))

    def _reply_in_slices(
        self,
        account: Account,
        reply: str,
        answer: dict[str, Any],
        steps: Generator[None, None, Any],
    ) -> None:
        """Reply at once if the page is short; else build it between turns."""
        pieces = pieces_of(steps, indent=0, around=answer)
        made: list[bytes] = []
        if is_done_soon(pieces, made):
            self._service.io_loop.publish(account.interest, reply, b"".join(made))
        elif self._service.page_room.is_full:
            self._reply(account, reply, self._error(TOO_MANY_REQUESTS, "too many requests wait"))
        else:
            page = self._service.loop.create_task(self._finish_page(account, reply, made, pieces))
            self._pages.add(page)
            page.add_done_callback(self._pages.discard)

    async def _finish_page(
        self, account: Account, reply: str, made: list[bytes], pieces: Iterator[bytes]
    ) -> None:
        try:
            async with self._service.page_room:
                made += [piece async for piece in paced(pieces)]
            self._service.io_loop.publish(account.interest, reply, b"".join(made))
        except Exception:
            log.exception("a page for %s failed", reply)

    def _user_info(
        self, subject: str, reply: str, payload: bytes, source: ClientLink | None
    ) -> None:
        from penstock.server.net.client_session import ClientSession
        from penstock.server.system.system_requests import user_info

        session = None if source is None else source.handler
        if isinstance(session, ClientSession):
            answer = {"server": self._identity(), "data": user_info(session)}
            self._reply(session.account, reply, answer)

    def _named_account(
        self, subject: str, reply: str, payload: bytes, source: ClientLink | None
    ) -> None:
        tokens = subject.split(".")
        name, page = tokens[ACCOUNT_TOKEN], tokens[-1]
        if (name, page) != ("PING", "STATZ"):  # which has its own subscription
            self._reply(self._account, reply, self._account_page(name, page, payload))

    def _connections(
        self, subject: str, reply: str, payload: bytes, source: ClientLink | None
    ) -> None:
        """Reply to servers that share an account's limits; no reply without clients of it."""
        account = self._service.accounts.by_name.get(subject.split(".")[ACCOUNT_TOKEN])
        if account is not None and account.connections:
            from penstock.server.system.system_events import connections_event
            from penstock.server.system.system_requests import MalformedRequest, read_body

            try:
                read_body(payload, dict[str, object])
            except MalformedRequest as error:
                log.error("malformed request %s: %s", subject, error)
                return
            event = connections_event(self._service, account, self._identity())
            self._service.io_loop.publish(self._account.interest, reply, compact(event))

    def _idz(self, payload: bytes) -> dict[str, Any]:
        service = self._service
        return {
            "name": service.server_name,
            "host": service.client_address[0],
            "id": service.server_id,
        }

    def _statsz(self, payload: bytes) -> dict[str, Any] | None:
        from penstock.server.system.system_events import statsz

        return self._guarded(
            payload,
            lambda: {"server": self._identity(), "statsz": statsz(self._service, self._share)},
        )

    def _page(self, name: str, payload: bytes) -> dict[str, Any] | None:
        from penstock.server.system.system_requests import page

        return self._guarded(
            payload, lambda: self._data(page(self._service, self._share, name, payload))
        )

    def _account_page(self, account: str, name: str, payload: bytes) -> dict[str, Any] | None:
        from penstock.server.system.system_requests import account_page

        return self._guarded(
            payload, lambda: self._data(account_page(self._service, account, name, payload))
        )

    def _all_statz(self, payload: bytes) -> dict[str, Any] | None:
        from penstock.server.net.client_record import Now
        from penstock.server.system.system_requests import statz

        return self._guarded(payload, lambda: self._data(statz(self._service, Now.read(), payload)))

    def _command(self, name: str, payload: bytes) -> dict[str, Any] | None:
        from penstock.server.system.system_requests import (
            COMMANDS,
            FAILED,
            CommandFailed,
            MalformedRequest,
        )

        try:
            COMMANDS[name](self._service, payload)
        except CommandFailed as error:
            return self._error(FAILED, str(error))
        except MalformedRequest as error:
            log.error("malformed %s request: %s", name, error)
            return None
        return {"server": self._identity()}

    def _guarded(
        self, payload: bytes, answer: Callable[[], dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Return the reply or an error; None if the request addresses other servers."""
        from penstock.server.monitor.query_string import BadQuery
        from penstock.server.system.system_requests import (
            BAD_REQUEST,
            FAILED,
            Filter,
            MalformedRequest,
            is_meant,
            read_body,
        )

        try:
            if not is_meant(self._service, read_body(payload, Filter)):
                return None
            return answer()
        except MalformedRequest as error:
            return self._error(BAD_REQUEST, str(error))
        except BadQuery as error:
            return {**self._data(None), "error": {"code": FAILED, "description": str(error)}}

    def _data(self, data: object) -> dict[str, Any]:
        return {"server": self._identity(), "data": data}

    def _error(self, code: int, text: str) -> dict[str, Any]:
        return {"server": self._identity(), "error": {"code": code, "description": text}}

    def identity(self) -> ServerIdentity:
        """Return this server's identity, with the sequence number of its next message."""
        return self._identity()

    def _identity(self) -> ServerIdentity:
        from penstock.server.system.system_events import identity

        return identity(self._service, next(self._seq), time.time_ns())

    # -- events

    def client_connected(self, session: ClientSession) -> None:
        self._connections_changed(session.account)
        subject = f"$SYS.ACCOUNT.{session.account.name}.CONNECT"
        if self._has_interest(subject):
            from penstock.server.net.client_record import Now, record_of
            from penstock.server.system.system_events import connect_event

            record = record_of(session, Now.read())
            self._publish(subject, connect_event(record, self._identity()))

    def client_closed(self, record: ClientRecord, *, counted: bool) -> None:
        """Publish a disconnect; `counted`: the account's connection count changed."""
        if counted:
            self._connections_changed(self._service.accounts[record.account])
        self._publish_disconnect(f"$SYS.ACCOUNT.{record.account}.DISCONNECT", record)

    def login_refused(self, session: ClientSession, reason: str) -> None:
        subject = f"$SYS.SERVER.{self._service.server_id}.CLIENT.AUTH.ERR"
        if self._has_interest(subject):
            from penstock.server.net.client_record import Now, record_of

            self._publish_disconnect(subject, record_of(session, Now.read(), reason=reason))

    def lame_duck(self) -> None:
        self._publish_identity("LAMEDUCK")

    def _publish_disconnect(self, subject: str, record: ClientRecord) -> None:
        if self._has_interest(subject):
            from penstock.server.system.system_events import disconnect_event

            self._publish(subject, disconnect_event(record, self._identity()))

    def _connections_changed(self, account: Account) -> None:
        """Publish now, then at most every CONNS_GAP_S: each event scans every client."""
        if account.name in self._conns_cooldowns:
            self._conns_changed.add(account.name)
            return
        self._publish_connections(account)
        self._conns_cooldowns[account.name] = self._service.loop.call_later(
            CONNS_GAP_S, self._conns_gap_over, account
        )

    def _conns_gap_over(self, account: Account) -> None:
        del self._conns_cooldowns[account.name]
        if account.name in self._conns_changed:
            self._conns_changed.discard(account.name)
            self._connections_changed(account)

    def _publish_connections(self, account: Account) -> None:
        """Publish to the current subject and to the one that older listeners use."""
        subjects = (
            f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS",
            f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS",
        )
        if not any(self._has_interest(subject) for subject in subjects):
            return
        from penstock.server.system.system_events import connections_event

        event = connections_event(self._service, account, self._identity())
        for subject in subjects:
            self._publish(subject, event)

    def _publish_identity(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._service.server_id}.{what}"
        if self._has_interest(subject):
            self._publish(subject, self._identity())

    def _statsz_due(self) -> None:
        loop = self._service.loop
        self._statsz_timer = loop.call_later(STATSZ_INTERVAL_S, self._statsz_due)
        subject = f"$SYS.SERVER.{self._service.server_id}.STATSZ"
        if self._has_interest(subject):
            self._publish(subject, self._statsz(b""))

    def _conns_due(self) -> None:
        self._conns_timer = self._service.loop.call_later(CONNS_INTERVAL_S, self._conns_due)
        for account in self._service.accounts:
            if account.connections:
                self._publish_connections(account)

    def _has_interest(self, subject: str) -> bool:
        return self._account.interest.has_interest(subject)

    def _publish(self, subject: str, event: object) -> None:
        self._service.io_loop.publish(self._account.interest, subject, compact(event))
