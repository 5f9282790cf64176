"""The API requests that wait: one bounded queue per account, served round robin within a budget.

A request is served at once if it follows no waiting request and the turn has time left. Otherwise
it waits, and `ServerQueue.run` serves it in a later turn: one request, or one step of a request,
of each account in rotation. Requests that share a key (a client, a stream) are served in the order
in which they came; a request of several keys waits until it has each of them.

A request has a key alone until it ends. It may have some of its keys only until it waits for the
disk (`Keys.brief`): its change is in memory then, and from there on it shares these keys with other
such requests. So consumers are created one after the other and written to disk together, while a
request that must see the outcome of all of them waits for their end.

A handler that works in steps returns a generator (`endpoints.Steps`). The queue calls `next` on it
while the turn has time; its keys stay taken until it ends, so later requests on the same stream
and of the same client wait and all others go on.

Pure: the caller passes the clock. The server calls `run` from the event loop when `wake` was
called, `resume` when what a step waits for is there, and `close` when it stops.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from penstock.jetstream.account.endpoints import Pause, Request, Running

API_BUDGET_NS: Final = 3_000_000
"""How long API requests are served in one turn of the loop; then clients come first."""
REQUESTS_WAITING_MAX: Final = 10_000
"""Requests of one account that wait; with one more, all of them are dropped."""
CLIENT_REQUESTS_MAX: Final = 256
"""Requests of one client that wait before the server stops reading from it."""


class Keys(NamedTuple):
    """What a request must not overtake others on."""

    alone: tuple[Hashable, ...] = ()
    """Kept from its beginning to its end; no other request has them meanwhile."""
    brief: tuple[Hashable, ...] = ()
    """Kept until it waits for the disk, then shared with requests that have them briefly, too."""


class QueuePort(Protocol):
    """What an account's queue asks of the server."""

    def begin(self, request: Request) -> Running | None:
        """Serve a request; return its steps if it works in steps. Neither may raise."""

    def keys(self, request: Request) -> Keys:
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

    __slots__ = ("is_sharing", "keys", "missing", "request", "steps", "wait")

    def __init__(self, request: Request, keys: Keys) -> None:
        self.request = request
        self.keys = keys
        self.missing = 0
        """How many of its keys it waits for."""
        self.is_sharing = False
        """Whether it shares its brief keys: it has waited for the disk."""
        self.steps: Running | None = None
        self.wait: Pause = None


class Line:
    """The requests that have a key, and those that wait for it, in order."""

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
        self.lines: dict[Hashable, Line] = {}
        """By key, the requests that wait or run, in order; only the queue changes it."""
        self._ready: deque[Entry] = deque()
        self._stepping: dict[Entry, None] = {}
        self._paused: set[object] = set()
        self._is_closed = False
        self.waiting = 0
        """Requests that nothing was done for yet."""
        self.is_listed = False
        self.is_held = False
        """Whether everything waits: the account's streams are still being opened."""

    def __len__(self) -> int:
        """Requests that wait or whose steps run."""
        return self.waiting + len(self._stepping)

    def hold(self) -> None:
        """Serve nothing until `release`; the bounds on what waits are the same."""
        self.is_held = True

    def release(self) -> None:
        """Serve what waits, in order."""
        self.is_held = False
        self.list_if_ready()

    def submit(self, request: Request, *, is_late: bool) -> None:
        """Serve a request now, or as soon as its turn comes; `is_late`: not in this turn."""
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
            self._line_up(entry)

    def run_steps(self, request: Request, keys: Keys, steps: Running) -> None:
        """Run steps of the server's own, in order with requests; they are never dropped."""
        if self._is_closed:
            steps.close()
            return
        entry = Entry(request, keys)
        entry.steps = steps
        self._stepping[entry] = None
        self._line_up(entry)

    def _are_free(self, keys: Keys) -> bool:
        """Return whether a request with these keys need not wait for another one."""
        lines = self.lines
        if not lines:
            return True
        if any(key in lines for key in keys.alone):
            return False
        brief = [lines[key] for key in keys.brief if key in lines]
        return all(line.admits(is_brief=True) and not line.waiting for line in brief)

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
        entry.missing = 0
        for key in entry.keys.alone:
            self._stand_in(key, entry, is_brief=False)
        for key in entry.keys.brief:
            self._stand_in(key, entry, is_brief=True)
        if entry.missing:
            return
        if entry.wait is None:
            self._ready.append(entry)
            self.list_if_ready()
        else:
            self._share(entry)

    def _stand_in(self, key: Hashable, entry: Entry, *, is_brief: bool) -> None:
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
        """The request waits for the disk: others may have its brief keys, too."""
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
        """Give the key to the request that waits for it next, if it may have it now."""
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
        """Enter the rotation of the server if there is something to do."""
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
        """A stream is closed: the steps that wait for one of its blocks must see that."""
        for entry in list(self._stepping):
            if entry.wait is not None and entry.wait.host is host:
                self._resume(entry)

    def _end(self, entry: Entry) -> None:
        """Let those go on that came after the request."""
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
        """Drop every request that nothing was done for yet, as the reference does."""
        count, self.waiting = self.waiting, 0
        self.lines.clear()
        self._ready.clear()
        for entry in sorted(self._stepping, key=lambda entry: entry.missing):
            self._line_up(entry)  # those that run first: they have their keys
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
