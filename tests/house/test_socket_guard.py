"""A test without the marker `sockets` opens no socket and starts no process."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading

import pytest

from support.socket_guard import EVENTS


def test_unmarked_test_cannot_bind_or_connect() -> None:
    with socket.socket() as one:
        with pytest.raises(pytest.fail.Exception, match=r"socket\.bind"):
            one.bind(("127.0.0.1", 0))
        with pytest.raises(pytest.fail.Exception, match=r"socket\.connect"):
            one.connect(("127.0.0.1", 9))


def test_unmarked_test_cannot_start_process() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"subprocess\.Popen"):
        subprocess.run([sys.executable, "-c", ""], check=False)


def test_thread_of_unmarked_test_is_watched() -> None:
    seen: list[str] = []

    def bind() -> None:
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", 0))
            except pytest.fail.Exception as error:
                seen.append(str(error))

    thread = threading.Thread(target=bind)
    thread.start()
    thread.join()
    assert [error.split()[0] for error in seen] == ["socket.bind"]


async def test_event_loop_needs_no_marker() -> None:
    assert await asyncio.to_thread(len, EVENTS) == len(EVENTS)


@pytest.mark.sockets
def test_marked_test_may_bind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert listener.getsockname()[1]
