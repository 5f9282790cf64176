"""JetStream of one account: its subscriptions, and the objects that handle their messages.

The account's API, acks and flow control have one subscription each; every stream has one per
subject. Callbacks run after the data path of a turn, in the order in which messages arrived, and
must not raise. Also the `Port` that API handlers call. `JetStreamRuntime` creates it and calls
`open`, then `start`, and at the end `shut_down` and `close`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api.api_subjects import API_PREFIX
from penstock.base.message import Inbound
from penstock.jetstream.account.endpoints import Port
from penstock.jetstream.consumers.pull_delivery import Closing
from penstock.jetstream.handlers.consumer_handlers import delete_consumer
from penstock.jetstream.host.asset_files import file_name
from penstock.server.jetstream.ack_intake import AckIntake
from penstock.server.jetstream.api_dispatch import ApiRequests
from penstock.server.jetstream.archive_tasks import Transfers
from penstock.server.jetstream.effect_runner import Performer
from penstock.server.jetstream.source_subscriptions import SourceSubscriptions
from penstock.server.jetstream.stream_driver import StreamDriver
from penstock.server.server_log import log
from penstock.server.system.request_info import asked_by
from penstock.subjects.trie import Subscription

if TYPE_CHECKING:
    from penstock.api.account_usage import AccountLimits
    from penstock.api.advisories import AdvisoryClient
    from penstock.api.stream_config import StreamConfig
    from penstock.base.effects import Effect
    from penstock.base.slices import Sliced
    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.account.endpoints import Request
    from penstock.jetstream.archive.archive_transfer import Transfer
    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.jetstream.host.asset_files import AccountDirectory
    from penstock.jetstream.host.disk_work import FileSteps
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.server.jetstream.runtime import JetStreamRuntime
    from penstock.server.net.client_link import ClientLink
    from penstock.server.system.account_imports import Shadow
    from penstock.server.system.server_accounts import Account


INFO_SUBJECT: Final = API_PREFIX + "INFO"
BUCKETS_PREFIX: Final = "$KV."
"""Clients that use a domain publish KV writes to `$JS.<domain>.API.$KV.<bucket>.<key>`."""


class Sweep:
    """Removes the files of deleted streams."""

    __slots__ = ("_files",)

    def __init__(self, files: AccountDirectory) -> None:
        self._files = files

    def run(self) -> None:
        self._files.sweep()


class Capture(NamedTuple):
    """What routes the messages of one subject to a stream."""

    subscription: Subscription
    shadow: Shadow


class AccountRuntime(Port):
    """JetStream of one account."""

    def __init__(self, runtime: JetStreamRuntime, account: Account, assets: Assets) -> None:
        self.runtime = runtime
        self.assets = assets
        self.name = account.name
        self.interest = account.interest
        self._drivers: dict[str, StreamDriver] = {}
        self._captures: dict[str, dict[str, Capture]] = {}
        """By stream, then by subject."""
        self._watched: dict[tuple[str, str | None], list[tuple[StreamDriver, Consumer]]] = {}
        self._watching: dict[Consumer, tuple[str, str | None]] = {}
        self.acks = AckIntake(self)
        self.copying = SourceSubscriptions(self)
        self._sweeps_wanted = 0
        self.transfers = Transfers(self)
        self.performer = Performer(
            runtime.io_loop,
            account.interest,
            nuid=assets.environment.nuid,
            now_ns=runtime.now_ns,
            domain=assets.environment.domain,
        )
        is_system = account.name == runtime.service.system_account
        self._api = ApiRequests(self, self._called, is_system=is_system)

    def start(self) -> Sliced[None]:
        """Serve the existing streams, one per slice; requests wait until all are served."""
        for host in list(self.assets):
            self._serve_recovered(host)
            yield
        self._api.queue.release()

    def open(self) -> None:
        """Subscribe to requests and acks; requests wait until `start` has ended."""
        self._api.queue.hold()
        self.listen("$JS.API.>", self._api.reads.lane, lane=True)
        if self.assets.environment.domain:
            self.listen(f"$JS.{self.assets.environment.domain}.API.>", self._called_in_domain)
        self.listen("$JS.ACK.>", self.acks.lane, lane=True)
        self.listen("$JS.FC.>", self._flow_answered)

    def _serve_recovered(self, host: StreamHost) -> None:
        """Serve a stream found on disk; if that fails, leave its files there."""
        try:
            self.serve(host)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            log.error("stream %s > %s: not served", self.name, host.name, exc_info=error)
            self.runtime.unserved.append(f"account {self.name}: stream {host.name}: {why}")
            self.assets.drop(host)
            self.assets.unserved[file_name(host.name)] = why
            host.close()
            host.let_go()

    def listen(self, subject: str, call: object, *, lane: bool = False) -> Subscription:
        """Call a function for every message on a subject, or offer the messages to a lane."""
        subscription = Subscription(subject, value=call)
        self.interest.insert(subscription, call=True, lane=lane)
        return subscription

    # -- streams come and go

    def serve(self, host: StreamHost) -> None:
        """Route messages to the stream, on its current subjects, from now on."""
        self._api.reads.lane.clear()
        with contextlib.ExitStack() as undo:
            self._listen_for(host, undo)
            undo.pop_all()
        self._drivers[host.name].mark()

    def prepare_sources(self, host: StreamHost, cfg: StreamConfig) -> Sliced[None]:
        """Create the source readers of a configuration, in slices, before `serve` starts them."""
        return self.copying.prepare(host, cfg)

    def _listen_for(self, host: StreamHost, undo: contextlib.ExitStack) -> None:
        """Subscribe to new subjects of the stream, then remove subscriptions to its old subjects.

        `undo` collects the calls that revert this if something raises.
        """
        if host.name not in self._drivers:
            self._drivers[host.name] = StreamDriver(host, self)
            undo.callback(self._forget_driver, host)
        driver = self._drivers[host.name]
        if host.lane is None:
            driver.open_lane()
        old = self._captures.get(host.name, {})
        added: dict[str, Capture] = {}
        undo.callback(self._drop, added)
        subjects = set(host.stream.cfg.subjects)
        for subject in subjects - old.keys():
            added[subject] = self._capture(subject, driver)
        for consumer in host.consumers.values():
            self.watch(host, consumer)
        self.copying.follow(host)
        self._drop({subject: old[subject] for subject in old.keys() - subjects})
        kept = {subject: old[subject] for subject in old.keys() & subjects}
        self._captures[host.name] = kept | added

    def _forget_driver(self, host: StreamHost) -> None:
        for consumer in host.consumers.values():
            self.unwatch(consumer)
        self.copying.drop(host)
        self.runtime.deadline_queue.forget(self._drivers.pop(host.name))

    def _drop(self, captures: dict[str, Capture]) -> None:
        for capture in captures.values():
            self.interest.remove(capture.subscription)
            self.runtime.service.account_imports.drop(capture.shadow)

    def _capture(self, subject: str, driver: StreamDriver) -> Capture:
        lane = driver.host.lane
        subscription = Subscription(subject, value=driver.received if lane is None else lane)
        self.interest.insert(subscription, call=True, lane=lane is not None)
        # Messages that other accounts export under the stream's subjects are stored, too.
        account_imports = self.runtime.service.account_imports
        shadow = account_imports.shadow(self.name, subject, None, driver.received)
        return Capture(subscription, shadow)

    def retire(self, host: StreamHost) -> None:
        """Remove a deleted stream from the routing, and release everything that waits for it."""
        self._drop(self._captures.pop(host.name, {}))
        for consumer in host.consumers.values():
            self.unwatch(consumer)
        self.copying.drop(host)
        driver = self._drivers.pop(host.name, None)
        host.deleted()
        if driver is None:
            host.let_go()  # it was never served
        else:
            self.runtime.deadline_queue.forget(driver)
            driver.run()
            driver.let_go()
        self._api.retire(host)

    def grant(self, limits: AccountLimits, tiers: dict[str, AccountLimits]) -> None:
        """Set the account's limits; its streams keep what they hold."""
        assets = self.assets
        if (assets.limits, assets.tiers) == (limits, tiers):
            return
        assets.grant(limits, tiers)
        for driver in self.drivers:
            driver.limits_changed()

    def driver(self, host: StreamHost) -> StreamDriver:
        return self._drivers[host.name]

    @property
    def drivers(self) -> list[StreamDriver]:
        return list(self._drivers.values())

    def delete_abandoned(self, host: StreamHost, consumer: Consumer) -> None:
        """Delete a consumer that was inactive for its threshold, in order with requests."""
        self._api.in_order(host, consumer.name, self._delete_abandoned(host, consumer))

    def _delete_abandoned(self, host: StreamHost, consumer: Consumer) -> FileSteps:
        now_ns = self.runtime.now_ns()
        is_there = not host.is_closed and host.consumers.get(consumer.name) is consumer
        if not is_there or not consumer.is_abandoned(now_ns):
            return  # a request used or deleted it first
        try:
            yield from delete_consumer(self, host, consumer, now_ns)
        except Exception as error:
            log.error("consumer %s of %s can not be removed: %s", consumer.name, host.name, error)

    def mark(self, host: StreamHost) -> None:
        driver = self._drivers.get(host.name)
        if driver is not None:
            driver.mark()

    def freeze(self, host: StreamHost, *, frozen: bool) -> None:
        self._drivers[host.name].freeze(frozen=frozen)

    def perform(self, effects: list[Effect]) -> None:
        self.performer.perform(effects)

    @property
    def num_transfers(self) -> int:
        return len(self.transfers)

    def begin(self, transfer: Transfer) -> None:
        self.transfers.begin(transfer)

    def sweep(self) -> None:
        """Remove the files of deleted streams; one sweep at a time, because two conflict."""
        files = self.assets.files
        self._sweeps_wanted += 1
        if files is not None and self._sweeps_wanted == 1:
            self.runtime.committer.run(Sweep(files), self._swept)

    def _swept(self, failure: Exception | None) -> None:
        wanted, self._sweeps_wanted = self._sweeps_wanted, 0
        if wanted > 1:
            self.sweep()
        if failure is not None:
            log.warning("what is left of deleted streams could not be removed: %s", failure)

    def describe_client(self, request: Request) -> AdvisoryClient:
        return asked_by(request.client, request.header, self.name, self.runtime.service)

    def failed(self, request: Request, error: Exception) -> None:
        log.error("account %s: %s failed", self.name, request.subject, exc_info=error)

    def shut_down(self) -> None:
        """End the waiting pull requests with a status: the server stops."""
        for host in self.assets:
            for consumer in host.consumers.values():
                self.performer.perform(consumer.closing(Closing.SHUTDOWN))

    def close(self) -> None:
        """Make everything durable and close the files."""
        self._api.close()
        self.transfers.abandon()
        for driver in self.drivers:
            driver.give_up()
        for host in list(self.assets):
            host.close()
            host.let_go()

    # -- interest of push consumers

    def watch(self, host: StreamHost, consumer: Consumer) -> None:
        if not consumer.cfg.deliver_subject:
            return
        key = (consumer.cfg.deliver_subject, consumer.cfg.deliver_group or None)
        watchers = self._watched.setdefault(key, [])
        if any(other is consumer for _, other in watchers):
            return
        watchers.append((self._drivers[host.name], consumer))
        self._watching[consumer] = key
        self.interest.watch(*key)

    def unwatch(self, consumer: Consumer) -> None:
        self.acks.forget(consumer)
        key = self._watching.pop(consumer, None)
        if key is None:
            return
        self.interest.unwatch(*key)
        kept = [entry for entry in self._watched.pop(key) if entry[1] is not consumer]
        if kept:
            self._watched[key] = kept

    def interest_changed(self) -> None:
        """Notify push consumers and transfers whose subscribers came or went."""
        for subject, queue, is_there in self.interest.drain_interest_changes():
            if queue is None:
                self.transfers.interest_changed(subject, is_there)
            for driver, consumer in self._watched.get((subject, queue), ()):
                effects = consumer.interest_changed(self.runtime.now_ns())
                driver.host.touched(consumer, effects)
                driver.mark()

    # -- messages

    def _called(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        self.acks.take_collected()
        if self._is_elsewhere:
            if not self.runtime.service.account_imports.serves(self.name, subject):
                self.reply_no_responders(Inbound(subject, reply, header, payload), source)
            return
        self._api.received(subject, reply, header, payload, source)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the account has JetStream disabled but imports another account's API."""
        account_imports = self.runtime.service.account_imports
        return not self.assets.is_enabled and account_imports.serves(self.name, INFO_SUBJECT)

    def _called_in_domain(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        local = subject.split(".", 3)[3]
        if not local.startswith(BUCKETS_PREFIX):
            self._called(API_PREFIX + local, reply, header, payload, source)
        elif not self.runtime.io_loop.post(self.interest, local, payload, reply, header):
            self.reply_no_responders(Inbound(subject, reply, header, payload), source)

    def reply_no_responders(self, msg: Inbound, source: ClientLink | None) -> None:
        """Reply with 503 if JetStream's own subscription matched but cannot handle the request.

        As the router does: only to clients that requested it, and if no other subscription matched.
        """
        client = self.runtime.client_of(source)
        if not msg.reply or client is None or not client.options.no_responders:
            return
        listeners = self.interest.match(msg.subject)
        if len(listeners.plain) + len(listeners.queues) <= 1:
            subject = msg.subject.encode("utf-8", "surrogateescape")
            header = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
            self.runtime.io_loop.post(self.interest, msg.reply, b"", "", header)

    def consumer(self, stream: str, name: str) -> tuple[StreamDriver, Consumer] | None:
        """Return a consumer and its stream's driver."""
        driver = self._drivers.get(stream)
        consumer = None if driver is None else driver.host.consumers.get(name)
        return None if driver is None or consumer is None else (driver, consumer)

    def _flow_answered(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        tokens = subject.split(".")
        found = self.consumer(tokens[-3], tokens[-2]) if len(tokens) > 4 else None
        if found is None or not found[1].cfg.flow_control:
            self.reply_no_responders(Inbound(subject, reply, header, payload), source)
        else:
            driver, consumer = found
            effects = consumer.flow_reply(subject, header, self.runtime.now_ns())
            driver.host.touched(consumer, effects)
            driver.mark()
