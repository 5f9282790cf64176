"""The API requests that wait: one bounded queue per account, served round robin within a budget.

A request is served at once if it follows no waiting request and the turn has time left. Otherwise
it waits, and `ServerQueue.run` serves it in a later turn: one request, or one step of a request,
of each account in rotation. Requests that share a key (a client, a stream) are served in the order
in which they came; a request of several keys waits until it is the first for each of them.

A handler that works in steps returns a generator (`endpoints.Steps`). The queue calls `next` on it
while the turn has time; its keys stay taken until it ends, so later requests on the same stream
and of the same client wait and all others go on.

Pure: the caller passes the clock. The server calls `run` from the event loop when `wake` was
called, `resume` when what a step waits for is there, and `close` when it stops.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from penstock.jetstream.endpoints import Pause, Request, Running

API_BUDGET_NS: Final = 3_000_000
"""How long API requests are served in one turn of the loop; then clients come first."""
REQUESTS_WAITING_MAX: Final = 10_000
"""Requests of one account that wait; with one more, all of them are dropped."""
CLIENT_REQUESTS_MAX: Final = 256
"""Requests of one client that wait before the server stops reading from it."""


class QueuePort(Protocol):
    """What an account's queue asks of the server."""

    def begin(self, request: Request) -> Running | None:
        """Serve a request; return its steps if it works in steps. Neither may raise."""

    def keys(self, request: Request) -> tuple[Hashable, ...]:
        """Return what the request must not overtake others on."""

    def wait_for(self, wait: Pause, resume: Callable[[], None]) -> None:
        """Call `resume` when a step has what it waits for."""

    def pause(self, client: object) -> None:
        """Read no more from a client that has many requests waiting."""

    def unpause(self, client: object) -> None:
        """Read from the client again."""

    def dropped(self, count: int) -> None:
        """Report that so many requests were dropped."""


class Entry:
    """One request that waits, or whose steps run."""

    __slots__ = ("first_for", "keys", "request", "steps", "wait")

    def __init__(self, request: Request, keys: tuple[Hashable, ...]) -> None:
        self.request = request
        self.keys = keys
        self.first_for = 0
        """For how many of its keys it is the first."""
        self.steps: Running | None = None
        self.wait: Pause = None


class ServerQueue:
    """The queues of all accounts, and the order in which they are served."""

    def __init__(
        self,
        clock_ns: Callable[[], int],
        wake: Callable[[], None],
        note: Callable[[int, str], None] = lambda span_ns, operation: None,
    ) -> None:
        self._clock_ns = clock_ns
        self._note = note
        self._wake = wake
        self._order: deque[AccountQueue] = deque()  # accounts with something ready, each once
        self._is_running = False

    def has_work(self, account: AccountQueue) -> None:
        """Put an account at the end of the rotation."""
        if not self._order and not self._is_running:
            self._wake()
        self._order.append(account)

    def run(self, budget_ns: int = API_BUDGET_NS) -> bool:
        """Serve requests until the budget is spent, at least one; return whether there was any."""
        if not self._order:
            return False
        began_ns = self._clock_ns()
        until_ns = began_ns + budget_ns
        longest_ns, slowest = 0, ""
        order = self._order
        self._is_running = True
        while order:
            account = order.popleft()
            account.is_listed = False
            subject = account.serve_next()
            account.list_if_ready()
            now_ns = self._clock_ns()
            if now_ns - began_ns > longest_ns:
                longest_ns, slowest = now_ns - began_ns, subject
            began_ns = now_ns
            if now_ns >= until_ns:
                break
        self._is_running = False
        if order:
            self._wake()
        self._note(longest_ns, f"request {slowest}")
        return True

    def forget(self, account: AccountQueue) -> None:
        """Take a closed account out of the rotation."""
        if account in self._order:
            self._order.remove(account)


class AccountQueue:
    """The requests of one account."""

    def __init__(
        self, server: ServerQueue, port: QueuePort, *, waiting_max: int = REQUESTS_WAITING_MAX
    ) -> None:
        self._server = server
        self._port = port
        self._waiting_max = waiting_max
        self.lines: dict[Hashable, deque[Entry]] = {}
        """By key, the requests that wait or run, in order; only the queue changes it."""
        self._ready: deque[Entry] = deque()
        self._stepping: dict[Entry, None] = {}
        self._paused: set[object] = set()
        self._is_closed = False
        self.waiting = 0
        """Requests that nothing was done for yet."""
        self.is_listed = False

    def __len__(self) -> int:
        """Requests that wait or whose steps run."""
        return self.waiting + len(self._stepping)

    def submit(self, request: Request, *, is_late: bool) -> None:
        """Serve a request now, or as soon as its turn comes; `is_late`: not in this turn."""
        if self._is_closed:
            return
        keys = self._port.keys(request)
        if is_late or any(key in self.lines for key in keys):
            self._add(Entry(request, keys))
            return
        steps = self._port.begin(request)
        if steps is None:
            return
        entry = Entry(request, keys)
        entry.steps = steps
        if self._takes_step(entry):
            self._line_up(entry)

    def _add(self, entry: Entry) -> None:
        self.waiting += 1
        self._line_up(entry)
        if self.waiting > self._waiting_max:
            self._drop_waiting()
            return
        client = entry.request.client
        if client is not None and client not in self._paused:
            line = self.lines.get(client)
            if line is not None and len(line) > CLIENT_REQUESTS_MAX:
                self._paused.add(client)
                self._port.pause(client)

    def _line_up(self, entry: Entry) -> None:
        for key in entry.keys:
            line = self.lines.get(key)
            if line is None:
                self.lines[key] = deque((entry,))
                entry.first_for += 1
            else:
                line.append(entry)
        if entry.first_for == len(entry.keys) and entry.wait is None:
            self._ready.append(entry)
            self.list_if_ready()

    def list_if_ready(self) -> None:
        """Enter the rotation of the server if there is something to do."""
        if self._ready and not self.is_listed:
            self.is_listed = True
            self._server.has_work(self)

    def serve_next(self) -> str:
        """Serve the next request, or the next step of one; return its subject."""
        if not self._ready:
            return ""
        entry = self._ready.popleft()
        if entry.steps is None:
            self.waiting -= 1
            entry.steps = self._port.begin(entry.request)
            if entry.steps is None:
                self._end(entry)
                return entry.request.subject
        if not self._takes_step(entry):
            self._end(entry)
        elif entry.wait is None:
            self._ready.append(entry)
        return entry.request.subject

    def _takes_step(self, entry: Entry) -> bool:
        """Run one step; return whether more follow."""
        assert entry.steps is not None
        self._stepping[entry] = None
        try:
            entry.wait = next(entry.steps)
        except StopIteration:
            del self._stepping[entry]
            return False
        if entry.wait is not None:
            self._port.wait_for(entry.wait, lambda: self._resume(entry))
        return True

    def _resume(self, entry: Entry) -> None:
        if entry.wait is not None and entry in self._stepping:
            entry.wait = None
            self._ready.append(entry)
            self.list_if_ready()

    def resume_all(self, host: object) -> None:
        """A stream is closed: the steps that wait for one of its blocks must see that."""
        for entry in list(self._stepping):
            if entry.wait is not None and entry.wait.host is host:
                self._resume(entry)

    def _end(self, entry: Entry) -> None:
        """Let those go on that came after the request."""
        for key in entry.keys:
            line = self.lines[key]
            line.popleft()
            if not line:
                del self.lines[key]
                continue
            following = line[0]
            following.first_for += 1
            if following.first_for == len(following.keys):
                self._ready.append(following)
        client = entry.request.client
        if client in self._paused and len(self.lines.get(client, ())) <= CLIENT_REQUESTS_MAX // 2:
            self._paused.discard(client)
            self._port.unpause(client)

    def _drop_waiting(self) -> None:
        """Drop every request that nothing was done for yet, as the reference does."""
        count, self.waiting = self.waiting, 0
        self.lines.clear()
        self._ready.clear()
        for entry in self._stepping:
            entry.first_for = 0
            self._line_up(entry)
        self._unpause_all()
        self._port.dropped(count)

    def _unpause_all(self) -> None:
        paused, self._paused = self._paused, set()
        for client in paused:
            self._port.unpause(client)

    def close(self) -> None:
        """Drop everything: steps that run end where they are, without an answer."""
        self._is_closed = True
        self.waiting = 0
        self.lines.clear()
        self._ready.clear()
        stepping, self._stepping = self._stepping, {}
        for entry in stepping:
            if entry.steps is not None:
                entry.steps.close()
        self._unpause_all()
        self._server.forget(self)
