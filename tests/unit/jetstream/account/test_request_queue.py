"""Requests that wait: in order where order counts, in rotation otherwise, never for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.jetstream.account import request_queue
from penstock.jetstream.account.endpoints import Request, Wait
from penstock.jetstream.account.request_queue import AccountQueue, Keys, ServerQueue
from penstock.jetstream.host.disk_work import DiskWork

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from penstock.jetstream.account.endpoints import Pause, Running

STEP_NS = 1_000_000


class Scene:
    """A server's queue on a clock that each request and each step moves by a millisecond."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.wakes = 0
        self.log: list[str] = []
        self.server = ServerQueue(lambda: self.now_ns, self.woken)

    def woken(self) -> None:
        self.wakes += 1

    def account(self, name: str = "A", waiting_max: int = 100) -> Account:
        return Account(self, name, waiting_max)

    def run(self, budget_ns: int = STEP_NS) -> list[str]:
        """One turn; what was done in it."""
        self.log.clear()
        self.server.run(budget_ns)
        return list(self.log)


class Account:
    """Serves requests named `stream:what`; `what` may be a number of steps. `stream/consumer:save`
    changes a consumer in memory and then waits for the disk."""

    def __init__(self, scene: Scene, name: str, waiting_max: int) -> None:
        self.scene = scene
        self.name = name
        self.paused: list[object] = []
        self.drops: list[int] = []
        self.closed: list[str] = []
        self.resume: list[Callable[[], None]] = []
        self.queue = AccountQueue(scene.server, self, waiting_max=waiting_max)

    def ask(self, subject: str, client: object = "c", *, is_late: bool = True) -> None:
        self.queue.submit(Request(subject, "", b"", b"", client), is_late=is_late)

    def begin(self, request: Request) -> Running | None:
        what = request.subject.partition(":")[2]
        if what.isdigit() or what in ("cold", "save"):
            return self._steps(request.subject, what)
        self._done(request.subject)
        return None

    def _done(self, what: str) -> None:
        self.scene.now_ns += STEP_NS
        self.scene.log.append(f"{self.name} {what}")

    def _steps(self, subject: str, what: str) -> Running:
        try:
            if what == "cold":
                host: Any = subject
                cold: Any = "block"
                yield Wait(host, cold)
            elif what == "save":
                self._done(subject)
                yield DiskWork(lambda: None)
            else:
                for number in range(int(what)):
                    self._done(f"{subject}#{number}")
                    yield None
            self._done(f"{subject}.")
        finally:
            self.closed.append(subject)

    def keys(self, request: Request) -> Keys:
        named = request.subject.partition(":")[0]
        stream, _, consumer = named.partition("/")
        keys: tuple[Hashable, ...] = (stream,) if stream else ()
        if request.client is not None:
            keys = (str(request.client), *keys)
        return Keys((named,), keys) if consumer else Keys(keys)

    def wait_for(self, wait: Pause, resume: Callable[[], None]) -> None:
        self.resume.append(resume)

    def pause(self, client: object) -> None:
        self.paused.append(client)

    def unpause(self, client: object) -> None:
        self.paused.remove(client)

    def dropped(self, count: int) -> None:
        self.drops.append(count)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_request_that_follows_nothing_is_served_at_once(scene: Scene) -> None:
    account = scene.account()
    account.ask("S:get", is_late=False)
    assert scene.log == ["A S:get"]
    assert (len(account.queue), scene.wakes) == (0, 0)


def test_late_requests_wait_and_are_served_in_order(scene: Scene) -> None:
    account = scene.account()
    for name in ("S:1st", "T:2nd", "S:3rd"):
        account.ask(name)
    assert (scene.log, scene.wakes) == ([], 1)
    assert scene.run() == ["A S:1st"]
    assert scene.wakes == 2
    assert scene.run(2 * STEP_NS) == ["A T:2nd", "A S:3rd"]
    assert (len(account.queue), scene.wakes) == (0, 2)


def test_accounts_are_served_in_rotation(scene: Scene) -> None:
    first, second = scene.account("A"), scene.account("B")
    for number in range(4):
        first.ask(f"S:a{number}")
    second.ask("S:b0")
    second.ask("S:b1")
    assert scene.run(4 * STEP_NS) == ["A S:a0", "B S:b0", "A S:a1", "B S:b1"]


def test_turn_ends_when_its_budget_is_spent(scene: Scene) -> None:
    account = scene.account()
    for number in range(10):
        account.ask(f"S:{'x' * number}!")
    assert len(scene.run(3 * STEP_NS)) == 3
    assert account.queue.waiting == 7


def test_while_steps_run_the_same_stream_and_client_wait_and_others_continue(scene: Scene) -> None:
    account = scene.account()
    account.ask("S:2", "c", is_late=False)
    assert scene.log == ["A S:2#0"]
    account.ask("S:info", "d", is_late=False)
    account.ask("T:info", "c", is_late=False)
    account.ask("T:info", "d", is_late=False)  # after the one of the same client that waits
    account.ask("U:info", "e", is_late=False)
    assert scene.log == ["A S:2#0", "A U:info"]
    assert scene.run(9 * STEP_NS) == ["A S:2#1", "A S:2.", "A T:info", "A S:info", "A T:info"]
    assert len(account.queue) == 0


def test_other_requests_are_served_between_two_steps(scene: Scene) -> None:
    account = scene.account()
    account.ask("S:3", "c")
    account.ask("T:info", "d")
    assert scene.run(3 * STEP_NS) == ["A S:3#0", "A T:info", "A S:3#1"]


def test_step_that_waits_for_block_is_resumed_once_it_is_there(scene: Scene) -> None:
    account = scene.account()
    account.ask("S:cold", is_late=False)
    account.ask("S:next", is_late=False)
    assert scene.run() == []
    (resume,) = account.resume
    resume()
    resume()
    assert scene.run(9 * STEP_NS) == ["A S:cold.", "A S:next"]


def test_closed_stream_resumes_steps_that_wait_for_its_blocks(scene: Scene) -> None:
    account = scene.account()
    account.ask("S:cold", "c", is_late=False)
    account.ask("T:cold", "d", is_late=False)
    account.queue.resume_all("S:cold")
    assert scene.run(9 * STEP_NS) == ["A S:cold."]


def test_one_request_too_many_drops_all_that_wait_but_not_what_runs(scene: Scene) -> None:
    account = scene.account(waiting_max=3)
    account.ask("S:1", is_late=False)
    for number in range(4):
        account.ask(f"S:n{number}")
    assert account.drops == [4]
    assert len(account.queue) == 1
    account.ask("S:later")
    assert scene.run(9 * STEP_NS) == ["A S:1.", "A S:later"]


def test_dropped_requests_leave_waiting_step_to_its_block(scene: Scene) -> None:
    account = scene.account(waiting_max=1)
    account.ask("S:cold", is_late=False)
    account.ask("S:a")
    account.ask("S:b")
    assert account.drops == [2]
    assert scene.run() == []
    account.resume[0]()
    assert scene.run() == ["A S:cold."]


def test_client_with_many_requests_waiting_is_paused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_queue, "CLIENT_REQUESTS_MAX", 4)
    account = scene.account()
    for _ in range(4):
        account.ask("S:x", "c")
        account.ask("T:x", "d")
    assert account.paused == []
    account.ask("S:x", "c")
    assert account.paused == ["c"]
    scene.run(3 * STEP_NS)
    assert account.paused == ["c"]
    scene.run(2 * STEP_NS)
    assert account.paused == []


def test_closing_ends_steps_that_run_and_drops_the_rest(scene: Scene) -> None:
    account = scene.account()
    account.ask("S:5", is_late=False)
    account.ask("S:x")
    account.queue.close()
    assert account.closed == ["S:5"]
    assert scene.run(9 * STEP_NS) == []
    account.ask("S:y", is_late=False)
    assert scene.run(9 * STEP_NS) == []


def test_changes_of_several_consumers_wait_for_disk_together(scene: Scene) -> None:
    account = scene.account()
    for name in "ab":
        account.ask(f"S/{name}:save", is_late=False)
    account.ask("S/c:save")
    assert scene.log == ["A S/a:save", "A S/b:save"]
    assert scene.run(9 * STEP_NS) == ["A S/c:save"]
    for resume in reversed(account.resume):
        resume()
    assert scene.run(9 * STEP_NS) == ["A S/c:save.", "A S/b:save.", "A S/a:save."]
    assert (len(account.queue), account.queue.lines) == (0, {})


def test_same_consumer_is_not_changed_again_before_disk_has_the_first_change(
    scene: Scene,
) -> None:
    account = scene.account()
    account.ask("S/a:save", is_late=False)
    account.ask("S/a:save", "other", is_late=False)
    account.ask("S/b:save", "third", is_late=False)
    assert scene.log == ["A S/a:save"]
    assert scene.run(9 * STEP_NS) == []  # the third came after the second, on the same stream
    account.resume[0]()
    assert scene.run(9 * STEP_NS) == ["A S/a:save.", "A S/a:save", "A S/b:save"]


def test_request_about_stream_waits_until_disk_has_all_changes(scene: Scene) -> None:
    account = scene.account()
    account.ask("S/a:save", "c", is_late=False)
    account.ask("S/b:save", "d", is_late=False)
    account.ask("S:list", "e", is_late=False)
    account.ask("S/c:save", "f", is_late=False)
    account.ask("T:list", "g", is_late=False)
    assert scene.log == ["A S/a:save", "A S/b:save", "A T:list"]
    account.resume[1]()
    assert scene.run(9 * STEP_NS) == ["A S/b:save."]
    account.resume[0]()
    assert scene.run(9 * STEP_NS) == ["A S/a:save.", "A S:list", "A S/c:save"]


def test_dropped_requests_leave_changes_that_wait_for_disk(scene: Scene) -> None:
    account = scene.account(waiting_max=1)
    account.ask("S/a:save", "c", is_late=False)
    account.ask("S/b:save", "d", is_late=False)
    account.ask("S:x")
    account.ask("S:y")
    assert account.drops == [2]
    account.ask("S:list", "e", is_late=False)
    for resume in account.resume:
        resume()
    assert scene.run(9 * STEP_NS) == ["A S/a:save.", "A S/b:save.", "A S:list"]
    assert account.queue.lines == {}


def test_steps_of_server_wait_for_their_keys_and_are_not_dropped(scene: Scene) -> None:
    account = scene.account(waiting_max=1)

    def steps() -> Running:
        scene.log.append("own")
        yield None
        scene.log.append("own.")

    account.ask("S:1", is_late=False)
    account.queue.run_steps(Request("own", "", b"", b""), Keys(("S",)), steps())
    account.ask("S:x")
    account.ask("S:y")
    assert account.drops == [2]
    assert scene.run(9 * STEP_NS) == ["A S:1.", "own", "own."]
    assert (len(account.queue), account.queue.lines) == (0, {})
