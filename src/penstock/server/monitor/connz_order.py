"""The sort orders of /connz.

Each order is a pair of keys, one for a live session and one for the record of a closed one, so that
both sort together without a record of every session. Ties keep the order of connection ids. Keys of
descending orders are numbers.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from penstock.server.net.client_record import ClientRecord, last_activity_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any, TypeAlias

    from penstock.server.net.client_record import Now
    from penstock.server.net.client_session import ClientSession

    Key = Any  # each order compares one type only: int or str
    Client: TypeAlias = ClientSession | ClientRecord

CLIENTS_PER_STEP: Final = 512


@dataclass(frozen=True, slots=True)
class Sort:
    """How to compare clients; most orders are descending."""

    live: Callable[[ClientSession, Now], Key]
    closed: Callable[[ClientRecord], Key]
    descending: bool = True

    def steps(
        self, clients: Sequence[Client], now: Now, start: int, stop: int
    ) -> Generator[None, None, list[Client]]:
        """Return the clients from `start` to `stop` in this order; yield between steps."""
        runs = []
        for at in range(0, len(clients), CLIENTS_PER_STEP):
            runs.append(
                sorted(self._keyed(client, now) for client in clients[at : at + CLIENTS_PER_STEP])
            )
            yield
        chosen: list[Client] = []
        for place, (_, _, client) in enumerate(itertools.islice(heapq.merge(*runs), stop)):
            if place >= start:
                chosen.append(client)
            if place % CLIENTS_PER_STEP == 0:
                yield
        return chosen

    def _keyed(self, client: Client, now: Now) -> tuple[Key, int, Client]:
        """Return a sortable tuple; ids are unique, so clients themselves are never compared."""
        key = self.closed(client) if isinstance(client, ClientRecord) else self.live(client, now)
        return -key if self.descending else key, client.cid, client


def _of_link(name: str, kept: str = "") -> Sort:
    """Sort by a counter of the link, which the record keeps under `kept` or the same name."""
    counter = attrgetter(name)
    return Sort(lambda session, _: counter(session.link), attrgetter(kept or name))


SORTS: Final = {
    "cid": Sort(lambda session, _: session.cid, lambda record: record.cid, descending=False),
    "start": Sort(
        lambda session, _: session.start_ns, lambda record: record.start_ns, descending=False
    ),
    "subs": _of_link("subscriptions", "num_subscriptions"),
    "pending": _of_link("pending_bytes"),
    "msgs_to": _of_link("out_msgs"),
    "msgs_from": _of_link("in_msgs"),
    "bytes_to": _of_link("out_bytes"),
    "bytes_from": _of_link("in_bytes"),
    "last": Sort(last_activity_ns, lambda record: record.last_activity_ns),
    "idle": Sort(last_activity_ns, lambda record: record.last_activity_ns, descending=False),
    # As in the reference, the shortest first.
    "uptime": Sort(
        lambda session, now: now.wall_ns - session.start_ns,
        lambda record: record.stop_ns - record.start_ns,
        descending=False,
    ),
    "stop": Sort(lambda session, _: 0, lambda record: record.stop_ns),
    "reason": Sort(lambda session, _: "", lambda record: record.reason, descending=False),
    "rtt": Sort(lambda session, _: session.rtt_ns, lambda record: record.rtt_ns),
}
#: Orders for which live clients have no key.
CLOSED_ONLY: Final = frozenset(("stop", "reason"))
