"""Dispatches the API requests of one account: pull requests, direct gets, and endpoints.

A request is served in the turn in which it arrives, unless an earlier request of the same client or
on the same stream waits, or the turn has spent its budget. Then it waits in the account's queue
(`request_queue`), and the event loop serves it after other clients had a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import api_subjects
from penstock.api.advisories import ApiLimitReached
from penstock.api.api_subjects import DIRECT_GET_PREFIX, NEXT_PREFIX
from penstock.base.message import Inbound
from penstock.jetstream.account.endpoints import Endpoints, Request, consumer_key
from penstock.jetstream.account.request_queue import AccountQueue, Keys
from penstock.jetstream.handlers import ENDPOINTS
from penstock.jetstream.host.disk_work import DiskWork, Vacancy
from penstock.server.jetstream.direct_reads import DirectReads
from penstock.server.net.client_session import ClientSession
from penstock.server.server_log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from penstock.jetstream.account.endpoints import Pause, Running
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.server.jetstream.account_runtime import AccountRuntime
    from penstock.server.jetstream.direct_reads import Receive
    from penstock.server.net.client_link import ClientLink

PAIR: Final = 2
"""Tokens that name a consumer: its stream and its name."""


class ApiRequests:
    """Serves the API of one account."""

    def __init__(self, account: AccountRuntime, call: Receive, *, is_system: bool) -> None:
        self._account = account
        self._runtime = account.runtime
        self._io_loop = account.runtime.io_loop
        self.reads = DirectReads(account, call)
        self.queue = AccountQueue(account.runtime.requests, self)
        self._lines = self.queue.lines
        self._endpoints = Endpoints(account.assets, account, ENDPOINTS, is_system=is_system)

    def received(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        """Serve a request, now or later."""
        is_late = self._io_loop.is_late() or self.queue.is_held
        if not is_late and not self._lines:
            if subject.startswith(NEXT_PREFIX):
                self._next(Inbound(subject, reply, header, payload), source)
                return
            if subject.startswith(DIRECT_GET_PREFIX):
                self._read(Inbound(subject, reply, header, payload), source)
                return
        client = self._runtime.client_of(source)
        self.queue.submit(Request(subject, reply, header, payload, client), is_late=is_late)

    def retire(self, host: StreamHost) -> None:
        """Resume the requests that wait for a closed stream, and clear the lane."""
        self.reads.lane.clear()
        self.queue.resume_all(host)

    def close(self) -> None:
        """Drop the waiting requests."""
        self.queue.close()

    def in_order(self, host: StreamHost, name: str, steps: Generator[Pause, None, None]) -> None:
        """Run the server's own steps about a consumer, in order with requests about it."""
        request = Request(f"inactive consumer {host.name} > {name}", "", b"", b"")
        keys = Keys((host.name, consumer_key(host.name, name)))
        self.queue.run_steps(request, keys, steps)

    # -- calls from the queue

    def begin(self, request: Request) -> Running | None:
        self._account.acks.take_collected()
        subject, reply, header, body, client = request
        if subject.startswith((NEXT_PREFIX, DIRECT_GET_PREFIX)):
            source = client.link if isinstance(client, ClientSession) else None
            serve = self._next if subject.startswith(NEXT_PREFIX) else self._read
            serve(Inbound(subject, reply, header, body), source)
            return None
        self.reads.lane.clear()  # any request may change which stream serves a read
        return self._endpoints.handle(request, self._runtime.now_ns())

    def keys(self, request: Request) -> Keys:
        subject = request.subject
        for prefix in (NEXT_PREFIX, DIRECT_GET_PREFIX):
            if subject.startswith(prefix):
                stream = subject.removeprefix(prefix).split(".", 1)[0]
                return Keys(brief=(stream,) if request.client is None else (request.client, stream))
        return self._endpoints.keys(request)

    def wait_for(self, wait: Pause, resume: Callable[[], None]) -> None:
        if isinstance(wait, DiskWork):
            self._runtime.disk_queue.run(self._account.name, wait, lambda _: resume())
        elif isinstance(wait, Vacancy):
            wait.gate.when_free(resume)
        elif wait is not None:
            self._account.driver(wait.host).fetch(wait.cold, resume)

    def pause(self, client: object) -> None:
        if isinstance(client, ClientSession):
            self._io_loop.pause(client.link)

    def unpause(self, client: object) -> None:
        if isinstance(client, ClientSession):
            self._io_loop.unpause(client.link)

    def dropped(self, count: int) -> None:
        """Report dropped requests as the reference does: in the log and to the system account."""
        log.warning(
            "account %s: API queue limit reached, dropped %d requests", self._account.name, count
        )
        self._runtime.advise_system(
            api_subjects.API_LIMIT_REACHED,
            ApiLimitReached(server=self._runtime.service.server_name, dropped=count),
        )

    # -- pull requests and direct reads

    def _next(self, msg: Inbound, source: ClientLink | None) -> None:
        account = self._account
        names = msg.subject.removeprefix(NEXT_PREFIX).split(".")
        found = account.consumer(*names) if len(names) == PAIR else None
        if found is None:
            account.reply_no_responders(msg, source)
            return
        driver, consumer = found
        effects = consumer.request(msg.reply, msg.header, msg.payload, self._runtime.now_ns())
        driver.host.touched(consumer, effects)
        driver.mark()

    def _read(self, msg: Inbound, source: ClientLink | None) -> None:
        if not self.reads.read(msg, may_open=not self._lines):
            self._account.reply_no_responders(msg, source)
