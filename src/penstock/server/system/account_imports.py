"""Account imports: passes services, streams and service replies between accounts.

For each imported service the importing account has an internal subscription, which passes requests
to the exporting account under that account's subject. The service sees a reply subject of its own
account; its replies are passed back. Streams are imported per subscription: a client's subscription
that overlaps an import has a shadow, an internal subscription in the exporting account. Accounts
without imports have no extra cost. Callbacks run after a turn's data path and must not raise.
"""

from __future__ import annotations

import secrets
import string
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.units import SECOND_NS
from penstock.broker.reply_routes import PREFIX, Replies
from penstock.broker.subject_mappings import Mappings
from penstock.server.config.share_config import sharing_of
from penstock.server.system.import_hops import ServiceHop, StreamHop
from penstock.server.system.server_accounts import GLOBAL_ACCOUNT
from penstock.subjects.match import match_literal, overlap
from penstock.subjects.trie import SubList, Subscription

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.broker.import_resolver import ResolvedImports
    from penstock.server.config.options import Options
    from penstock.server.net.client_link import ClientLink
    from penstock.server.server_state import ServerState
    from penstock.server.system.message_trace import MessageTrace
    from penstock.server.system.server_accounts import Account

    Take = Callable[[str, str, bytes, bytes, ClientLink | None], object]

ACK_PREFIX: Final = "$JS.ACK."
"""Acks find their consumer by subject, so these replies are never rewritten."""
TOKEN_CHARS: Final = string.ascii_letters + string.digits
TOKEN_LEN: Final = 6
CHAIN_MAX: Final = 64
"""Most accounts that a reply passes through."""


class Placed(NamedTuple):
    """A subscription and the SubList that contains it."""

    interest: SubList
    subscription: Subscription


class Shadow:
    """The internal subscriptions that represent one subscription in the exporting accounts."""

    __slots__ = ("account", "placed", "queue", "subject", "take")

    def __init__(self, account: str, subject: str, queue: str | None, take: Take) -> None:
        self.account: Final = account
        self.subject: Final = subject
        self.queue: Final = queue
        self.take: Final = take
        self.placed: list[Placed] = []


class AccountImports:
    """All imports, mappings and pending service replies of one server."""

    def __init__(self, service: ServerState) -> None:
        self._service = service
        self._services: list[Placed] = []
        self._imported: dict[str, list[str]] = {}
        """Subjects of imported services, by importing account."""
        self._streams: dict[str, list[ResolvedImports]] = {}
        self._shadows: dict[Shadow, None] = {}
        self._mappings: dict[str, Mappings] = {}
        self._replies: dict[str, Replies] = {}
        self._timer: asyncio.TimerHandle | None = None

    def configure(self, options: Options) -> None:
        """Replace all imports and mappings by those of the options."""
        sharing = sharing_of(options.accounts)
        self._mappings = _mappings_of(options)
        self._remove(self._services)
        self._services = [self._serve(joined) for joined in sharing.services]
        self._imported = {}
        for joined in sharing.services:
            self._imported.setdefault(joined.importer, []).append(joined.renaming.ours)
        self._streams = {}
        for joined in sharing.streams:
            self._streams.setdefault(joined.importer, []).append(joined)
        for shadow in self._shadows:
            self._remove(shadow.placed)
            shadow.placed = self._place(shadow)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _remove(self, placed: list[Placed]) -> None:
        for one in placed:
            one.interest.remove(one.subscription)

    def _account(self, name: str) -> Account:
        return self._service.accounts[name]

    # -- mappings

    def maps(self, account: str) -> bool:
        return account in self._mappings

    def mapped(self, account: str, subject: str) -> str | None:
        """Return the mapped subject of a message published in the account; None: it is dropped."""
        mappings = self._mappings.get(account)
        return subject if mappings is None else mappings.map(subject)

    # -- streams

    def imports_streams(self, account: str) -> bool:
        return account in self._streams

    def shadow(self, account: str, subject: str, queue: str | None, take: Take) -> Shadow:
        """Pass what others export to the account under the subject to `take`, until `drop`."""
        shadow = Shadow(account, subject, queue, take)
        shadow.placed = self._place(shadow)
        self._shadows[shadow] = None
        return shadow

    def drop(self, shadow: Shadow) -> None:
        self._remove(shadow.placed)
        shadow.placed = []
        self._shadows.pop(shadow, None)

    def _place(self, shadow: Shadow) -> list[Placed]:
        placed = []
        for joined in self._streams.get(shadow.account, ()):
            common = overlap(shadow.subject, joined.renaming.ours)
            if common is None:
                continue
            theirs = joined.renaming.outward(common)
            call = StreamHop(joined, shadow, theirs)
            one = Placed(
                self._account(joined.exporter).interest,
                Subscription(theirs, shadow.queue, value=call),
            )
            one.interest.insert(one.subscription, call=True, routed=True, shadow=True)
            placed.append(one)
        return placed

    # -- services

    def serves(self, account: str, subject: str) -> bool:
        """Return whether another account serves requests to a subject of this one."""
        return any(match_literal(subject, ours) for ours in self._imported.get(account, ()))

    def _serve(self, joined: ResolvedImports) -> Placed:
        interest = self._account(joined.importer).interest
        subscription = Subscription(joined.renaming.ours, value=ServiceHop(self, joined))
        interest.insert(subscription, call=True)
        return Placed(interest, subscription)

    def asked(
        self,
        joined: ResolvedImports,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        source: ClientLink | None,
    ) -> None:
        """Pass a request from the importing account to the exporting one."""
        to = self.mapped(joined.exporter, joined.renaming.outward(subject))
        self.request(joined, subject, to, reply, header, payload, source)

    def request(
        self,
        joined: ResolvedImports,
        subject: str,
        to: str | None,
        reply: str,
        header: bytes,
        payload: bytes,
        source: ClientLink | None,
        trace: MessageTrace | None = None,
    ) -> None:
        """Pass a request for `subject` to the exporting account's `to`; None: it is dropped."""
        answer_to = self.reply_for(joined.exporter, joined.importer, reply, joined)
        reached = 0
        if to is not None:
            header = self._introduced(joined, header, source)
            interest = self._account(joined.exporter).interest
            io_loop = self._service.io_loop
            if trace is None:
                reached = io_loop.pass_on(interest, to, payload, answer_to, header, to, source)
            else:
                reached = io_loop.pass_on_traced(
                    interest, to, payload, answer_to, header, source, trace
                )
        if trace is not None and trace.only:
            self.forget(joined.exporter, answer_to)
        if not reached:
            self.forget(joined.exporter, answer_to)
            self.reply_no_responders(joined, subject, reply, source)

    def reply_no_responders(
        self, joined: ResolvedImports, subject: str, reply: str, source: ClientLink | None
    ) -> None:
        """Send a no-responders status to the requesting client."""
        if source is not None:
            source.reply_no_responders(subject, self.origin(joined.importer, reply)[1])

    def _answered(
        self,
        account: str,
        to: str,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        source: ClientLink | None,
    ) -> None:
        """Pass a reply of a service of `account` back to the requester.

        A reply that carries a subject of its own, such as a consumer's delivery, keeps it.
        """
        replies = self._replies[account]
        awaited = replies.get(to)
        if awaited is None:
            return
        onward = self.reply_for(awaited.account, account, reply, awaited.joined)
        interest = self._account(awaited.account).interest
        shown = awaited.subject if subject == to else subject
        reached = self._service.io_loop.pass_on(
            interest, shown, payload, onward, header, awaited.subject, source
        )
        if not reached:
            self.forget(awaited.account, onward)
        is_last = not reached or not (header or payload)
        replies.answered(to, is_last=is_last, now_ns=time.monotonic_ns())

    def reply_for(self, there: str, here: str, reply: str, joined: ResolvedImports) -> str:
        """Return the reply subject that the other account sees instead of this account's."""
        if not reply or reply.startswith(ACK_PREFIX):
            return reply
        replies = self._replies.get(there) or self._await(there)
        if self._timer is None:
            self._arm(joined.export.threshold_ns)
        return replies.open(here, reply, joined, time.monotonic_ns())

    def _await(self, account: str) -> Replies:
        """Subscribe to all replies of the account's services."""
        replies = self._replies[account] = Replies(_token(), _token)
        subscription = Subscription(replies.pattern, value=partial(self._answered, account))
        self._account(account).interest.insert(subscription, call=True, routed=True)
        return replies

    def forget(self, account: str, reply: str) -> None:
        if account in self._replies:
            self._replies[account].close(reply)

    def _arm(self, delay_ns: int) -> None:
        self._timer = self._service.loop.call_later(delay_ns / SECOND_NS, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ns = time.monotonic_ns()
        due = [replies.expire(now_ns) for replies in self._replies.values()]
        waiting = [due_ns for due_ns in due if due_ns is not None]
        if waiting:
            self._arm(max(0, min(waiting) - now_ns))

    def origin(self, account: str, reply: str) -> tuple[str, str]:
        """Return the account and subject where a reply finally arrives."""
        for _ in range(CHAIN_MAX):
            replies = self._replies.get(account) if reply.startswith(PREFIX) else None
            awaited = None if replies is None else replies.get(reply)
            if awaited is None:
                break
            account, reply = awaited.account, awaited.subject
        return account, reply

    def has_interest(self, account: str, subject: str) -> bool:
        """Return whether a message would reach a subscriber, in the requester's account."""
        account, subject = self.origin(account, subject)
        return self._account(account).interest.has_interest(subject)

    def _introduced(
        self, joined: ResolvedImports, header: bytes, source: ClientLink | None
    ) -> bytes:
        """Return the header with the requester's info; details only if the import shares them."""
        from penstock.server.system.request_info import introduced

        return introduced(header, self._service, joined, source)


def _token() -> str:
    return "".join(secrets.choice(TOKEN_CHARS) for _ in range(TOKEN_LEN))


def _mappings_of(options: Options) -> dict[str, Mappings]:
    cluster = "" if options.cluster is None else options.cluster.name
    configured = {GLOBAL_ACCOUNT: options.mappings}
    configured.update({one.name: one.mappings for one in options.accounts})
    return {
        name: Mappings(mappings, draw=secrets.randbelow, cluster=cluster)
        for name, mappings in configured.items()
        if mappings
    }
