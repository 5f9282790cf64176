"""Runs the snapshots and restores of an account: their steps, disk work, messages and deadlines.

Invariant: the steps of a transfer run one at a time from the event loop, so that clients are served
in between, and never while its disk work runs. Each transfer has its own subscription, which ends
with it. `AccountRuntime` owns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.base.units import SECOND_NS
from penstock.jetstream.archive.archive_transfer import TransferStep
from penstock.server.server_log import log
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.jetstream.archive.archive_transfer import Transfer
    from penstock.server.jetstream.account_runtime import AccountRuntime
    from penstock.server.net.client_link import ClientLink
    from penstock.store.contract import Work
    from penstock.subjects.trie import Subscription

FAILED: Final = "internal failure, the server's log has details"


class Transfers:
    """The transfers of one account."""

    def __init__(self, account: AccountRuntime) -> None:
        self._account = account
        self._runtime = account.runtime
        self._running: dict[Transfer, Running] = {}

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, transfer: Transfer) -> None:
        """Start a transfer."""
        running = self._running[transfer] = Running(transfer, self._account, self._ended)
        running.wake()

    def _ended(self, transfer: Transfer) -> None:
        self._running.pop(transfer, None)

    def interest_changed(self, subject: str, is_there: bool) -> None:
        """Report to the transfers that a watched subject gained or lost its subscribers."""
        for transfer, running in list(self._running.items()):
            if transfer.watched == subject:
                transfer.listening(is_there)
                running.wake()

    def abandon(self) -> None:
        """Release all transfers: the server stops, and no disk work runs any more."""
        for running in self._running.values():
            running.abandon()
        self._running.clear()


class Running:
    """One running transfer."""

    def __init__(
        self, transfer: Transfer, account: AccountRuntime, ended: Callable[[Transfer], None]
    ) -> None:
        self._transfer = transfer
        self._ended = ended
        self._account = account
        self._runtime = account.runtime
        self._interest = account.interest
        self._subscription: Subscription = account.listen(transfer.inlet, self._received)
        self._is_due = False
        self._is_working = False
        self._has_raised = False
        self._timer: asyncio.TimerHandle | None = None
        if transfer.watched:
            transfer.listening(self._interest.watch(transfer.watched, None))

    def wake(self) -> None:
        """Schedule a step."""
        if not (self._is_due or self._is_working or self._transfer.is_over):
            self._is_due = True
            self._runtime.loop.call_soon(self._go)

    def _received(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        self._transfer.received(reply, payload, self._runtime.now_ns())
        self.wake()

    def _go(self) -> None:
        self._is_due = False
        step = self._step()
        self._account.perform(list(step.effects))
        if self._transfer.is_over:
            self._finish()
        elif step.work is not None:
            self._work(step.work)
        elif step.more:
            self.wake()
        self._arm()
        self._runtime.run_and_flush()

    def _step(self) -> TransferStep:
        """Run one step. If it raises, the transfer fails and notifies the client; twice ends it."""
        try:
            return self._transfer.step(self._runtime.now_ns())
        except Exception as error:
            self._raised(error)
        return TransferStep(more=not self._transfer.is_over)

    def _raised(self, error: Exception) -> None:
        log.error("account %s: a snapshot or restore failed", self._account.name, exc_info=error)
        if self._has_raised:
            self._transfer.is_over = True
            self.abandon()
        self._has_raised = True
        self._transfer.fail(FAILED)

    def _work(self, work: Work) -> None:
        self._is_working = True
        self._runtime.committer.run(work, lambda failure: self._worked(work, failure))

    def _worked(self, work: Work, failure: Exception | None) -> None:
        self._is_working = False
        try:
            self._transfer.worked(work, failure)
        except Exception as error:
            self._raised(error)
        self.wake()

    # -- time

    def _arm(self) -> None:
        due_ns = self._transfer.next_deadline_ns()
        if due_ns is None or self._timer is not None or self._transfer.is_over:
            return
        delay = max(0, due_ns - self._runtime.now_ns()) / SECOND_NS
        self._timer = self._runtime.loop.call_later(delay, self._due)

    def _due(self) -> None:
        """Wake the transfer if its deadline has come; set the timer again if the deadline moved."""
        self._timer = None
        due_ns = self._transfer.next_deadline_ns()
        if due_ns is not None and due_ns <= self._runtime.now_ns():
            self.wake()
        else:
            self._arm()

    # -- the end

    def _finish(self) -> None:
        self._interest.remove(self._subscription)
        if self._transfer.watched:
            self._interest.unwatch(self._transfer.watched, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._transfer.problem:
            log.error("%s", self._transfer.problem)
        self._ended(self._transfer)

    def abandon(self) -> None:
        """Release everything."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._transfer.abandon()
        except StoreError as error:
            log.warning("a restore that was cut short could not be cleared away: %s", error)
