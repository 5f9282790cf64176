"""Direct gets of one account: replies in pieces; simple ones go through the direct-get lane.

The first read of a stream opens it in the lane, unless a mirror may reply in its place. The server
clears the lane before every API request that could change this, so the lane never has to follow
configuration changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.api_subjects import DIRECT_GET_PREFIX
from penstock.base.effects import Fetch, Send
from penstock.broker.router import LaneListener
from penstock.jetstream.account.direct_get import MISSING_STATUS, direct_get
from penstock.jetstream.account.get_lane import GetLane
from penstock.store.indexed_store import IndexedStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from penstock.base.message import Inbound
    from penstock.jetstream.account.direct_get import Reading
    from penstock.server.jetstream.account_runtime import AccountRuntime
    from penstock.server.jetstream.stream_driver import StreamDriver
    from penstock.server.net.client_link import ClientLink

    Receive: TypeAlias = Callable[[str, str, bytes, bytes, ClientLink | None], None]


class DirectReads(LaneListener):
    """Serves direct gets. `call` gets every request that the lane leaves, which is most of the
    API."""

    def __init__(self, account: AccountRuntime, call: Receive) -> None:
        self._account = account
        self._call = call
        self.lane = GetLane(
            router=account.runtime.service.router, interest=account.interest, listener=self
        )

    def received(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        """Pass on a request that the lane left."""
        self._call(subject, reply, header, payload, source)

    def read(self, msg: Inbound, *, may_open: bool) -> bool:
        """Serve a read; return False if the stream does not exist or allows no direct reads.

        With `may_open`, the lane serves later reads of the stream; no request may wait before them.
        """
        account = self._account
        name = msg.subject.removeprefix(DIRECT_GET_PREFIX).split(".", 1)[0]
        host = account.copying.reader_of(name)
        if host is None:
            return False
        store = host.stream.store
        if may_open and isinstance(store, IndexedStore) and not account.copying.may_stand_in(name):
            self.lane.open(name, store.lane_parts()["log"])
        self._send(account.driver(host), msg.reply, direct_get(store, host.name, msg))
        return True

    def _send(self, driver: StreamDriver, reply: str, reading: Reading) -> None:
        """Send one piece; send the next when its block is loaded, or after others had a turn."""
        self._account.performer.perform(reading.effects)
        more = reading.again
        if more is None:
            return
        last = reading.effects[-1] if reading.effects else None
        if isinstance(last, Fetch):
            read = last.cold
            driver.fetch(read, lambda: self._send_next(driver, reply, more))  # type: ignore[arg-type]
        else:
            self._account.runtime.loop.call_soon(self._send_on, driver, reply, more)

    def _send_on(self, driver: StreamDriver, reply: str, more: Callable[[], Reading]) -> None:
        self._send_next(driver, reply, more)
        self._account.runtime.run_and_flush()

    def _send_next(self, driver: StreamDriver, reply: str, more: Callable[[], Reading]) -> None:
        """Send the next piece, or a final status if the stream was deleted meanwhile."""
        if driver.host.is_closed:
            self._account.performer.perform([Send(reply, b"", MISSING_STATUS)])
        else:
            self._send(driver, reply, more())
