"""The waiting API requests: one bounded queue per account, served round robin within a time budget.

A request is served at once if no earlier request with one of its keys waits or runs and the turn
has time left. Otherwise it waits, and `ServerQueue.run` serves it in a later turn: one request, or
one step of a request, of each account in rotation. Invariant: requests that share a key (a client,
a stream) are served in arrival order; a request with several keys waits until it has all of them.

A request owns a key exclusively until it ends. It may own some of its keys only until it waits for
the disk (`Keys.brief`): its change is in memory by then, and from there on it shares these keys
with other such requests. So consumers are created one after the other and written to disk together,
while a request that must see the result of all of them waits until they end.

A handler that works in steps returns a generator (`endpoints.Steps`). The queue calls `next` on it
while the turn has time; it keeps its keys until it ends, so later requests on the same stream and
of the same client wait and all others proceed.

Pure: the caller passes the clock. The server calls `run` from the event loop after `wake` was
called, the `resume` callback when the event a step waits for has happened, and `close` when it
stops.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from penstock.jetstream.account.endpoints import Pause, Request, Running

API_BUDGET_NS: Final = 3_000_000
"""How long one turn of the loop serves API requests before it returns to clients."""
REQUESTS_WAITING_MAX: Final = 10_000
"""Waiting requests per account; one more drops all of them."""
CLIENT_REQUESTS_MAX: Final = 256
"""Waiting requests per client; beyond this the server stops reading from the client."""


class Keys(NamedTuple):
    """The keys on which a request must not overtake earlier requests."""

    alone: tuple[Hashable, ...] = ()
    """Owned from start to end; no other request has them meanwhile."""
    brief: tuple[Hashable, ...] = ()
    """Owned until the request waits for the disk, then shared with others that list them here."""


class QueuePort(Protocol):
    """What an account's queue requires from the server."""

    def begin(self, request: Request) -> Running | None:
        """Serve a request; return its steps if it works in steps. Neither may raise."""

    def keys(self, request: Request) -> Keys:
        """Return the keys on which the request must not overtake earlier requests."""

    def wait_for(self, wait: Pause, resume: Callable[[], None]) -> None:
        """Call `resume` when the event that a step waits for has happened."""

    def pause(self, client: object) -> None:
        """Stop reading from a client that has too many waiting requests."""

    def unpause(self, client: object) -> None:
        """Read from the client again."""

    def dropped(self, count: int) -> None:
        """Report that `count` requests were dropped."""


class Entry:
    """One request that waits, or whose steps run."""

    __slots__ = ("is_sharing", "keys", "missing", "request", "steps", "wait")

    def __init__(self, request: Request, keys: Keys) -> None:
        self.request = request
        self.keys = keys
        self.missing = 0
        """How many of its keys it still waits for."""
        self.is_sharing = False
        """Whether it shares its brief keys, because it has waited for the disk."""
        self.steps: Running | None = None
        self.wait: Pause = None


class Line:
    """The requests that hold a key, and those that wait for it, in order."""

    __slots__ = ("owner", "sharers", "waiting")

    def __init__(self) -> None:
        self.owner: Entry | None = None
        self.sharers = 0
        self.waiting: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self.waiting) + self.sharers + (self.owner is not None)

    def admits(self, *, is_brief: bool) -> bool:
        """Return whether the next request may have the key now."""
        return self.owner is None and (is_brief or not self.sharers)


class ServerQueue:
    """The queues of all accounts, and the rotation in which they are served."""

    def __init__(
        self,
        clock_ns: Callable[[], int],
        wake: Callable[[], None],
        note: Callable[[int, str], None] = lambda span_ns, operation: None,
    ) -> None:
        self._clock_ns = clock_ns
        self._note = note
        self._wake = wake
        self._order: deque[AccountQueue] = deque()  # accounts with ready requests, each once
        self._is_running = False

    def has_work(self, account: AccountQueue) -> None:
        """Append an account to the rotation."""
        if not self._order and not self._is_running:
            self._wake()
        self._order.append(account)

    def run(self, budget_ns: int = API_BUDGET_NS) -> bool:
        """Serve at least one request, until the budget is spent; return whether there was any."""
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
        """Remove a closed account from the rotation."""
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
        self.lines: dict[Hashable, Line] = {}
        """The requests that wait or run, in order, by key; only the queue changes it."""
        self._ready: deque[Entry] = deque()
        self._stepping: dict[Entry, None] = {}
        self._paused: set[object] = set()
        self._is_closed = False
        self.waiting = 0
        """Requests whose handler has not started."""
        self.is_listed = False
        self.is_held = False
        """Whether all requests wait because the account's streams are still being opened."""

    def __len__(self) -> int:
        """Return the number of requests that wait or whose steps run."""
        return self.waiting + len(self._stepping)

    def hold(self) -> None:
        """Serve no request until `release`; the limits on waiting requests still apply."""
        self.is_held = True

    def release(self) -> None:
        """Serve the waiting requests, in order."""
        self.is_held = False
        self.list_if_ready()

    def submit(self, request: Request, *, is_late: bool) -> None:
        """Serve a request now, or when its turn comes; with `is_late`, not in this turn."""
        if self._is_closed:
            return
        keys = self._port.keys(request)
        if is_late or self.is_held or not self._are_free(keys):
            self._add(Entry(request, keys))
            return
        steps = self._port.begin(request)
        if steps is None:
            return
        entry = Entry(request, keys)
        entry.steps = steps
        if self._takes_step(entry):
            self._enqueue(entry)

    def run_steps(self, request: Request, keys: Keys, steps: Running) -> None:
        """Run the server's own steps, in order with requests; they are never dropped."""
        if self._is_closed:
            steps.close()
            return
        entry = Entry(request, keys)
        entry.steps = steps
        self._stepping[entry] = None
        self._enqueue(entry)

    def _are_free(self, keys: Keys) -> bool:
        """Return whether a request with these keys can start without waiting for another one."""
        lines = self.lines
        if not lines:
            return True
        if any(key in lines for key in keys.alone):
            return False
        brief = [lines[key] for key in keys.brief if key in lines]
        return all(line.admits(is_brief=True) and not line.waiting for line in brief)

    def _add(self, entry: Entry) -> None:
        self.waiting += 1
        self._enqueue(entry)
        if self.waiting > self._waiting_max:
            self._drop_waiting()
            return
        client = entry.request.client
        if client is not None and client not in self._paused:
            line = self.lines.get(client)
            if line is not None and len(line) > CLIENT_REQUESTS_MAX:
                self._paused.add(client)
                self._port.pause(client)

    def _enqueue(self, entry: Entry) -> None:
        entry.missing = 0
        for key in entry.keys.alone:
            self._enqueue_key(key, entry, is_brief=False)
        for key in entry.keys.brief:
            self._enqueue_key(key, entry, is_brief=True)
        if entry.missing:
            return
        if entry.wait is None:
            self._ready.append(entry)
            self.list_if_ready()
        else:
            self._share(entry)

    def _enqueue_key(self, key: Hashable, entry: Entry, *, is_brief: bool) -> None:
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Line()
        if is_brief and entry.is_sharing:
            line.sharers += 1
        elif line.admits(is_brief=is_brief) and not line.waiting:
            line.owner = entry
        else:
            line.waiting.append(entry)
            entry.missing += 1

    def _share(self, entry: Entry) -> None:
        """Share the brief keys of a request that waits for the disk."""
        if entry.is_sharing or not entry.keys.brief:
            return
        entry.is_sharing = True
        for key in entry.keys.brief:
            line = self.lines[key]
            line.owner = None
            line.sharers += 1
            self._admit_next(key, line)
        self.list_if_ready()

    def _admit_next(self, key: Hashable, line: Line) -> None:
        """Give the key to the next waiting request, if it may have it now."""
        if not line.waiting:
            if not len(line):
                del self.lines[key]
            return
        following = line.waiting[0]
        if line.admits(is_brief=key in following.keys.brief):
            line.owner = line.waiting.popleft()
            following.missing -= 1
            if not following.missing:
                self._ready.append(following)

    def list_if_ready(self) -> None:
        """Enter the server's rotation if a request is ready."""
        if self._ready and not self.is_listed and not self.is_held:
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
        else:
            self._share(entry)
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
        """Resume the steps that wait for a block of a closed stream, so that they see the close."""
        for entry in list(self._stepping):
            if entry.wait is not None and entry.wait.host is host:
                self._resume(entry)

    def _end(self, entry: Entry) -> None:
        """Release the keys of a finished request to the requests after it."""
        for key in (*entry.keys.alone, *entry.keys.brief):
            line = self.lines[key]
            if line.owner is entry:
                line.owner = None
            else:
                line.sharers -= 1
            self._admit_next(key, line)
        client = entry.request.client
        if client in self._paused and len(self.lines.get(client, ())) <= CLIENT_REQUESTS_MAX // 2:
            self._paused.discard(client)
            self._port.unpause(client)

    def _drop_waiting(self) -> None:
        """Drop every request whose handler has not started, as the reference does."""
        count, self.waiting = self.waiting, 0
        self.lines.clear()
        self._ready.clear()
        for entry in sorted(self._stepping, key=lambda entry: entry.missing):
            self._enqueue(entry)  # running requests first: they own their keys
        self._unpause_all()
        self._port.dropped(count)

    def _unpause_all(self) -> None:
        paused, self._paused = self._paused, set()
        for client in paused:
            self._port.unpause(client)

    def close(self) -> None:
        """Drop everything: close running steps without a reply."""
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
