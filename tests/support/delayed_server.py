"""Our server with a replicator that applies entries some turns of the event loop later.

    PENSTOCK_TEST_DELAY=5 python -m pytest tests/contract/jetstream

The variable makes every server of ours that a test starts run this program. Entries go through
their bytes. No compiled lane takes messages, as in a replicated stream.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from penstock.cli.main import main
from penstock.jetstream.streams.entry_codec import decode_entry, encode_entry
from penstock.server.jetstream.runtime import JetStreamRuntime

if TYPE_CHECKING:
    from penstock.jetstream.environment import Environment
    from penstock.jetstream.host.proposals import Proposals
    from penstock.jetstream.streams.entries import Entry
    from penstock.server.system.server_accounts import Account

VARIABLE = "PENSTOCK_TEST_DELAY"


class LateReplicator:
    """Applies each entry so many turns of the event loop after it was proposed."""

    def __init__(self, runtime: JetStreamRuntime, account: str, turns: int, replica: Proposals):
        self._runtime = runtime
        self._account = account
        self._turns = turns
        self._replica = replica
        self._waiting: deque[tuple[bytes, object]] = deque()

    def propose(self, entry: Entry, token: object) -> None:
        self._waiting.append((encode_entry(entry), token))
        self._runtime.loop.call_soon(self._pass, self._turns)

    def _pass(self, turns: int) -> None:
        if turns:
            self._runtime.loop.call_soon(self._pass, turns - 1)
            return
        data, token = self._waiting.popleft()
        if self._replica._host.is_closed:
            return
        self._replica.applied(decode_entry(data), token, self._runtime.now_ns())
        self._runtime.accounts[self._account].mark(self._replica._host)
        self._runtime.run_and_flush()


def delay(turns: int) -> None:
    """Make every stream of this process apply its entries later."""
    at_once = JetStreamRuntime._environment

    def environment(runtime: JetStreamRuntime, account: Account) -> Environment:
        replicate = partial(LateReplicator, runtime, account.name, turns)
        return dataclasses.replace(at_once(runtime, account), replicate=replicate)

    JetStreamRuntime._environment = environment  # type: ignore[method-assign]


if __name__ == "__main__":
    delay(int(os.environ[VARIABLE]))
    sys.exit(main())
