"""JetStream as part of a running server: its accounts, its clock, its disk.

Owns everything of JetStream that is not pure: the store directory (locked, so that no other server
uses it), the sync threads, and one timer for all deadlines. Invariant: after the internal
subscribers of a turn have run, `calls_ended` runs every host that changed. The server calls `start`
before it serves clients, then `shut_down` and `close` when it stops.
"""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import time
from typing import TYPE_CHECKING, Final

from penstock.api.account_usage import AccountLimits
from penstock.base.effects import Advise
from penstock.base.slices import finish
from penstock.base.units import SECOND_NS
from penstock.broker.reply_routes import PREFIX as REPLY_PREFIX
from penstock.jetstream.account.asset_recovery import recover_in_slices
from penstock.jetstream.account.assets import Assets, ServerRoom
from penstock.jetstream.account.request_queue import ServerQueue
from penstock.jetstream.consumers.consumer_context import Outlet
from penstock.jetstream.deadline_queue import DeadlineQueue
from penstock.jetstream.environment import Environment
from penstock.jetstream.host.asset_files import AccountDirectory, file_name
from penstock.jetstream.streams.batches.staged_batches import InFlight
from penstock.server.jetstream.account_limits import granted
from penstock.server.jetstream.account_runtime import AccountRuntime
from penstock.server.jetstream.disk_queue import DiskQueue
from penstock.server.jetstream.group_commit import GroupCommitter
from penstock.server.jetstream.maintenance import Maintenance
from penstock.server.jetstream.nuid import Nuids
from penstock.server.jetstream.recovery_tasks import AccountRecoveries
from penstock.server.jetstream.server_policy import policy_of
from penstock.server.jetstream.store_directory import open_store_dir
from penstock.server.net.client_session import ClientSession
from penstock.server.net.turn_listener import TurnListener
from penstock.server.server_log import log
from penstock.server.system.loop_watch import NOTED_NS
from penstock.store.errors import NotFound

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from msgspec import Struct

    from penstock.base.slices import Sliced
    from penstock.jetstream.account.asset_recovery import AccountRecovery
    from penstock.server.jetstream.stream_driver import StreamDriver
    from penstock.server.net.client_link import ClientLink
    from penstock.server.server_state import ServerState
    from penstock.server.system.server_accounts import Account
    from penstock.subjects.trie import SubList

SEED_BITS: Final = 63
ROUNDS_MAX: Final = 16
"""Rounds in one turn in which hosts wake each other."""
ROUNDS_BUDGET_NS: Final = 4_000_000
"""How long one turn of the loop runs hosts before it returns to clients."""
ROOM_SHARE: Final = 0.75
"""Default limit: this share of the machine's memory, or of the disk's free space."""
SYNC_ALL_FROM: Final = 100
"""Number of streams above which one sync of the file system is faster than a sync per file."""
SPARE_BYTES: Final = 32 * 1024 * 1024
SPARE_PART: Final = 32
"""Messages leave SPARE_BYTES of the disk free, or 1/SPARE_PART of the free space if less."""
SPACE_EVERY_NS: Final = 10_000_000
"""How often storing checks the free space; on a small disk, it checks every time."""


class JetStreamRuntime(TurnListener):
    """JetStream of one server."""

    def __init__(self, service: ServerState) -> None:
        options = service.options
        self.service = service
        self.io_loop = service.io_loop
        self.options = options.jetstream_options
        self.loop: asyncio.AbstractEventLoop = service.loop
        self.committer = GroupCommitter(service.loop)
        super().__init__(self.committer.pace, self.committer.write_pace)
        self.disk_queue = DiskQueue(self.committer)
        self.has_lanes = True
        """Whether new streams get publish lanes; tests compare both ways."""
        self.dirty: dict[StreamDriver, None] = {}
        self.deadline_queue: DeadlineQueue[StreamDriver] = DeadlineQueue()
        self.requests = ServerQueue(time.monotonic_ns, self._wake_requests, service.watch.note)
        self._requests_due = False
        self.accounts: dict[str, AccountRuntime] = {}
        self._by_interest: dict[SubList, AccountRuntime] = {}
        self.store_dir, self._disk = open_store_dir(options.store_dir)
        self.recoveries = AccountRecoveries(self._recover_soon)
        self.is_started = False
        self.unserved: list[str] = []
        """Streams and consumers on disk that cannot be served, each with the reason."""
        self.room = ServerRoom(
            max_memory=self._max_memory(),
            max_storage=self._max_storage(),
            is_configured=self.options.max_memory >= 0 or self.options.max_store >= 0,
        )
        if self._num_found() > SYNC_ALL_FROM:
            self._disk.sync_file_system()
        self._spare_bytes = min(SPARE_BYTES, self._disk.free_bytes() // SPARE_PART)
        self._looked_ns = 0
        self._policy = policy_of(options, self._disk)
        self._nuids = Nuids()
        self._in_flight = InFlight()
        self._last_ns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._interval: asyncio.TimerHandle | None = None
        self.upkeep = Maintenance(self.loop.call_later)
        self._resuming: dict[StreamDriver, None] = {}
        self._resume_due = False

    def _num_found(self) -> int:
        """Return roughly how many streams are on disk."""
        return sum(
            len(self._disk.subdir(account).directories()) for account in self._disk.directories()
        )

    def _max_memory(self) -> int:
        if self.options.max_memory >= 0:
            return self.options.max_memory
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return int(pages * ROOM_SHARE)

    def _max_storage(self) -> int:
        if self.options.max_store >= 0:
            return self.options.max_store
        return int(self._disk.free_bytes() * ROOM_SHARE)

    # -- start and stop

    def start(self) -> None:
        """Recover what the directory holds, and begin to serve it."""
        started_ns = time.monotonic_ns()
        with no_collections():
            self.serve_accounts()
        self.is_started = True
        self.io_loop.set_listener(self)
        if self.options.sync_interval_ns:
            self._arm_interval()
        streams = sum(len(account.assets.hosts) for account in self.accounts.values())
        log.info(
            "JetStream ready, %d streams recovered in %.3f s",
            streams,
            (time.monotonic_ns() - started_ns) / SECOND_NS,
        )
        self.calls_ended()

    def serve_accounts(self) -> None:
        """Serve every account that is not served yet; apply new limits to the others."""
        for account in self.service.accounts:
            served = self.accounts.get(account.name)
            if served is None:
                self._serve(account)
                continue
            limits, tiers = granted(self.service, account)
            if limits is not None and served.assets.is_enabled:
                served.grant(limits, tiers)

    def _serve(self, account: Account) -> None:
        """Serve JetStream in one account, or the reply that it is disabled there."""
        limits, tiers = granted(self.service, account)
        assets = Assets(
            environment=self._environment(account),
            limits=limits or AccountLimits(),
            tiers=tiers,
            room=self.room,
            files=None if limits is None else self._files(account),
            policy=self._policy,
            in_flight=self._in_flight,
            is_enabled=limits is not None,
        )
        runtime = self.accounts[account.name] = AccountRuntime(self, account, assets)
        self._by_interest[account.interest] = runtime
        runtime.open()
        steps = self._recover(account, runtime)
        if self.is_started and limits is not None:
            self.recoveries.begin(steps)
        else:
            finish(steps)

    def _recover(self, account: Account, runtime: AccountRuntime) -> Sliced[None]:
        """Open the streams of an account, then serve them."""
        try:
            found = yield from recover_in_slices(runtime.assets, self.now_ns())
        except Exception as error:
            if not self.is_started:
                raise
            log.error("recovery of account %s: not all is served", account.name, exc_info=error)
            self.unserved.append(f"account {account.name}: {error}")
        else:
            self._report(account, found)
        yield from runtime.start()

    def _recover_soon(self, run: Callable[[], None]) -> None:
        def run_then_flush() -> None:
            run()
            self.run_and_flush()

        self._soon("the recovery of an account", run_then_flush)

    def _report(self, account: Account, found: AccountRecovery) -> None:
        self.unserved += [f"account {account.name}: {what}" for what in found.unserved]
        for what in found.unserved:
            log.error("recovery of account %s: not served: %s", account.name, what)
        for problem in found.problems:
            log.warning("recovery of account %s: %s", account.name, problem)
        if found.streams:
            log.info(
                "recovered account %s: %d streams, %d consumers, %d messages",
                account.name,
                found.streams,
                found.consumers,
                found.messages,
            )

    def _files(self, account: Account) -> AccountDirectory:
        name = file_name(account.name)
        try:
            disk = self._disk.subdir(name)
        except NotFound:
            self._disk.mkdir(name)
            self._disk.sync_dir()
            disk = self._disk.subdir(name)
        return AccountDirectory(disk, make_incarnation=self._seed)

    def _environment(self, account: Account) -> Environment:
        interest, account_imports = account.interest, self.service.account_imports

        def has_interest(subject: str, queue: str | None) -> bool:
            if subject.startswith(REPLY_PREFIX):
                return account_imports.has_interest(account.name, subject)
            if queue is None:
                return interest.has_interest(subject)
            groups = interest.match(subject).queues
            return any(group[0].queue == queue for group in groups)

        return Environment(
            nuid=self._nuids.next,
            noise=secrets.token_bytes,
            seed=self._seed,
            has_interest=has_interest,
            server_name=self.service.server_name,
            server_id=self.service.server_id,
            domain=self.options.domain,
            account=account.name,
            outlet=Outlet(self.service.router, interest),
        )

    def _seed(self) -> int:
        return secrets.randbits(SEED_BITS)

    def shut_down(self) -> None:
        """End the waiting pull requests with a status, while clients are still connected."""
        self.upkeep.stop()
        for timer in (self._timer, self._interval):
            if timer is not None:
                timer.cancel()
        for account in self.accounts.values():
            account.shut_down()

    def close(self) -> None:
        """Make everything durable, and release the directory."""
        self.recoveries.close()
        self.committer.close()
        for account in self.accounts.values():
            account.close()
        self._disk.close()

    # -- time

    def now_ns(self) -> int:
        """Return the time; it never decreases, even if the clock does."""
        self._last_ns = max(self._last_ns, time.time_ns())
        return self._last_ns

    def _arm(self) -> None:
        due_ns = self.deadline_queue.next_ns
        if due_ns is None or (self._timer is not None and self._timer_ns <= due_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = due_ns
        delay = max(0, due_ns - time.time_ns()) / SECOND_NS
        self._timer = self.loop.call_later(
            delay, self.service.watch.run, "deadlines of streams and consumers", self._due
        )

    def _due(self) -> None:
        self._timer = None
        for driver in self.deadline_queue.due(self.now_ns()):
            driver.tick()
        self.run_and_flush()

    def _arm_interval(self) -> None:
        self._interval = self.loop.call_later(
            self.options.sync_interval_ns / SECOND_NS, self._interval_due
        )

    def _interval_due(self) -> None:
        for account in self.accounts.values():
            for driver in account.drivers:
                driver.sync_now()
        self._arm_interval()

    def _soon(self, operation: str, call: Callable[[], None]) -> None:
        """Run a call after other clients had a turn; the loop watch records its duration."""
        self.loop.call_soon(self.service.watch.run, operation, call)

    # -- waiting requests

    def _wake_requests(self) -> None:
        if not self._requests_due:
            self._requests_due = True
            self._soon("queued API requests", self._serve_requests)

    def _serve_requests(self) -> None:
        self._requests_due = False
        if self.requests.run():
            self.run_and_flush()

    def advise_system(self, subject: str, event: Struct) -> None:
        """Publish an event in the system account."""
        account = self.accounts.get(self.service.system_account)
        if account is not None:
            account.performer.advise(Advise(subject, event))

    # -- space

    def look_at_space(self, now_ns: int) -> None:
        """Check from time to time whether the disk has space for more messages."""
        if self.is_ample and now_ns - self._looked_ns < SPACE_EVERY_NS:
            return
        self._looked_ns = now_ns
        is_low = self._disk.free_bytes() < self._spare_bytes
        if is_low != self.room.is_disk_low:
            self._space_changed(is_low)

    @property
    def is_ample(self) -> bool:
        """Whether the disk is so large that a check in every turn is unnecessary."""
        return self._spare_bytes == SPARE_BYTES

    def _space_changed(self, is_low: bool) -> None:
        self.room.is_disk_low = is_low
        for account in self.accounts.values():
            for driver in account.drivers:
                driver.recount()
        if is_low:
            log.error("%s: hardly any space left, messages are refused", self.store_dir)
        else:
            log.info("%s: there is space for messages again", self.store_dir)

    def count_assets(self) -> int:
        """Return the number of streams and consumers; may be called on any thread."""
        accounts = list(self.accounts.values())
        return sum(len(each.assets.hosts) + each.assets.consumers for each in accounts)

    # -- turns

    def calls_ended(self) -> None:
        """Run the hosts that changed in this turn."""
        self._interest_changed()
        self.service.router.notify_lanes()
        if self.dirty:
            self._run_hosts(time.monotonic_ns() + ROUNDS_BUDGET_NS)
        self._arm()

    def _run_hosts(self, until_ns: int) -> None:
        """Run the hosts that changed, and those they wake, within the budget."""
        began_ns = until_ns - ROUNDS_BUDGET_NS
        for _ in range(ROUNDS_MAX):
            dirty, self.dirty = self.dirty, {}
            while dirty:
                driver = next(iter(dirty))
                del dirty[driver]
                driver.run()
                now_ns = time.monotonic_ns()
                if now_ns - began_ns >= NOTED_NS:
                    self.service.watch.note(now_ns - began_ns, f"stream {driver.host.name}")
                began_ns = now_ns
                if now_ns >= until_ns:
                    break
            self.io_loop.remove_exhausted_subs()
            self._interest_changed()  # mirrors and sources have subscribed
            if dirty or time.monotonic_ns() >= until_ns:
                self.dirty = {**dirty, **self.dirty}
                break
            if not self.dirty:
                return
        if self.dirty:
            self._resume_later()

    def _interest_changed(self) -> None:
        for interest in self.io_loop.changed_interests():
            self._by_interest[interest].interest_changed()

    def run_and_flush(self) -> None:
        """Run changed hosts and flush, outside a turn."""
        self.calls_ended()
        self.io_loop.flush_and_close()

    def resume_soon(self, driver: StreamDriver) -> None:
        """Run a host again after other clients had a turn."""
        self._resuming[driver] = None
        self._resume_later()

    def _resume_later(self) -> None:
        if not self._resume_due:
            self._resume_due = True
            self._soon("streams with more to do", self._resume)

    def _resume(self) -> None:
        self._resume_due = False
        resuming, self._resuming = self._resuming, {}
        self.dirty.update(resuming)
        self.run_and_flush()

    def client_of(self, source: ClientLink | None) -> ClientSession | None:
        """Return the client that sent a message; None if this server sent it."""
        handler = None if source is None else source.handler
        return handler if isinstance(handler, ClientSession) else None


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Disable garbage collection while many long-lived objects are created: collections would find
    no garbage and take longer than the creation."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
