"""Fails a test of the quick tier that opens a socket or starts a process.

`make check` runs the tests of QUICK that are not marked `sockets`. The guard keeps the marker true:
in every tier an unmarked test fails at the call that binds, connects or starts a process. Threads
that started before the test, such as those of a server that tests share, are not watched. Pairs of
connected sockets, which every event loop makes, are allowed.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

QUICK = ("unit", "property", "house")
"""The folders below tests/ whose unmarked tests are guarded."""
EVENTS = frozenset(
    {
        "socket.bind",
        "socket.connect",
        "socket.sendto",
        "subprocess.Popen",
        "os.exec",
        "os.fork",
        "os.posix_spawn",
        "os.system",
    }
)


class SocketGuard:
    """A plugin of pytest; watches the audit events of Python."""

    def __init__(self) -> None:
        self._others: frozenset[int] | None = None
        """The threads that run already, while a guarded test runs."""
        sys.addaudithook(self._check)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, bool, bool]:
        if is_guarded(item):
            idents = {thread.ident or 0 for thread in threading.enumerate()}
            self._others = frozenset(idents - {threading.get_ident()})
        try:
            return (yield)
        finally:
            self._others = None

    def _check(self, event: str, _: tuple[object, ...]) -> None:
        others = self._others
        if event in EVENTS and others is not None and threading.get_ident() not in others:
            pytest.fail(f"{event} in a test without pytest.mark.sockets: make check runs it")


def is_guarded(item: pytest.Item) -> bool:
    folder = item.nodeid.split("/")[1:2]
    return folder != [] and folder[0] in QUICK and item.get_closest_marker("sockets") is None
