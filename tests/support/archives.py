"""Accounts without a server, and transfers of archives without a network.

`account` makes the assets of one on any disk, `Wire` is the other side of a transfer: it runs its
steps and its disk work on the spot, and keeps what was sent.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from penstock.api.account_usage import AccountLimits
from penstock.api.advisories import AdvisoryClient
from penstock.api.rules.stream_defaults import StreamContext
from penstock.api.rules.stream_requests import check_restored, plan_create
from penstock.api.stream_config import StreamConfig
from penstock.base.effects import Advise, Send
from penstock.base.message import Inbound
from penstock.jetstream.account.asset_factory import make_stream
from penstock.jetstream.account.assets import Assets, ServerRoom
from penstock.jetstream.account.policy import Policy
from penstock.jetstream.archive.restore_session import Restore
from penstock.jetstream.environment import Environment
from penstock.jetstream.host.asset_files import AccountDirectory
from penstock.jetstream.streams.batches.staged_batches import InFlight
from penstock.store.contract import Cold
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from penstock.jetstream.archive.archive_transfer import Transfer
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.store.contract import Work
    from penstock.store.io.disk import Disk

START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
CLIENT = AdvisoryClient(acc="$G")
STEPS_MAX = 100_000


def account(disk: Disk | None = None, **limits: int) -> Assets:
    """An account whose files, if any, are on this disk."""
    numbers = itertools.count(1)
    return Assets(
        environment=Environment(
            nuid=lambda: f"N{next(numbers)}",
            noise=bytes,
            seed=lambda: next(numbers),
            has_interest=lambda subject, queue: True,
            server_name="T",
        ),
        limits=AccountLimits(**limits),
        room=ServerRoom(max_memory=-1, max_storage=-1),
        files=None
        if disk is None
        else AccountDirectory(disk, make_incarnation=lambda: next(numbers)),
        policy=Policy(),
        in_flight=InFlight(),
    )


def configured(name: str = "S", **config: Any) -> StreamConfig:
    """A configuration as it is stored."""
    given = StreamConfig(name=name, **{"subjects": (f"{name}.>",), **config})
    made = plan_create(name, given, StreamContext())
    assert isinstance(made, StreamConfig), made
    return made


def stream(assets: Assets, name: str = "S", **config: Any) -> StreamHost:
    """A new stream."""
    return make_stream(assets, configured(name, **config), START_NS)


def publish(host: StreamHost, rest: str, payload: bytes, header: bytes = b"", at: int = 1) -> None:
    """One message more, so many seconds after the start."""
    msg = Inbound(f"{host.name}.{rest}", "", header, payload)
    host.publish(msg, START_NS + at * SECOND_NS)


def settle(host: StreamHost) -> None:
    """Makes everything durable, and lets go of what was held for it."""
    while host.wants_commit:
        commits = host.commit()
        for commit in commits:
            commit.work.run()
        host.advance(commits, None)


def contents(host: StreamHost) -> list[tuple[Any, ...]]:
    """All messages, with everything about them."""
    store, found, seq = host.stream.store, [], 0
    while (record := store.next_match((), seq, unsynced=True)) is not None:
        if isinstance(record, Cold):
            work = store.fetch(record)
            work.run()
            store.fetched(work)
            continue
        found.append((record.seq, record.ts_ns, record.subject, record.header, record.payload))
        seq = record.seq + 1
    return found


def run_here(work: Work) -> Exception | None:
    """Runs disk work; answers what went wrong."""
    try:
        work.run()
    except StoreError as error:
        return error
    return None


class Wire:
    """The other side of a transfer."""

    def __init__(self, transfer: Transfer, now_ns: int = START_NS) -> None:
        self.transfer = transfer
        self.now_ns = now_ns
        self.sent: list[Send] = []
        self.told: list[Advise] = []
        self.works = 0

    def run(self) -> None:
        """Steps until the transfer waits, or is over."""
        for _ in range(STEPS_MAX):
            step = self.transfer.step(self.now_ns)
            self.sent += [effect for effect in step.effects if isinstance(effect, Send)]
            self.told += [effect for effect in step.effects if isinstance(effect, Advise)]
            if step.work is not None:
                self.works += 1
                self.transfer.worked(step.work, run_here(step.work))
            elif not step.more:
                return
        raise AssertionError("a transfer that does not end")

    def deliver(self, payload: bytes, reply: str = "reply") -> None:
        """A message from the other side."""
        self.transfer.received(reply, payload, self.now_ns)
        self.run()

    def wait(self) -> None:
        """Time passes until the deadline."""
        due_ns = self.transfer.next_deadline_ns()
        assert due_ns is not None
        self.now_ns = due_ns
        self.run()


def restoring(assets: Assets, cfg: StreamConfig, now_ns: int = START_NS) -> tuple[Restore, Wire]:
    """A restore that has begun, and the wire to it."""
    transfer = Restore(
        assets,
        cfg,
        inlet="to.restore",
        client=CLIENT,
        admit=lambda wanted: check_restored(wanted, StreamContext(streams=assets.configs)),
        serve=lambda host: None,
        now_ns=now_ns,
    )
    return transfer, Wire(transfer, now_ns)
