"""Servers for the load generator's tests: the reference, and one that sends a script."""

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from penstock.bench.bench_error import BenchError
from penstock.bench.load.raw_client import ServerEndpoint
from penstock.bench.server_process import RunningServer, ServerCommand, reference_command, running
from support.patience import PATIENCE_SECONDS

GREETING = b'INFO {"version":"0.0.0","max_payload":1048576} \r\n'


@dataclass
class Script:
    """A scripted server's address, and all it was told after it had said its part."""

    endpoint: ServerEndpoint
    heard: bytearray = field(default_factory=bytearray)
    over: threading.Event = field(default_factory=threading.Event)


@pytest.fixture(scope="session")
def reference() -> ServerCommand:
    try:
        return reference_command()
    except BenchError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server(reference: ServerCommand) -> Iterator[RunningServer]:
    with running(reference) as found:
        yield found


@pytest.fixture
def scripted() -> Iterator[Callable[[bytes], Script]]:
    """A server that greets, answers the first PING, waits to be asked, says its bytes and ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_SECONDS)
        threads: list[threading.Thread] = []

        def start(answer: bytes) -> Script:
            script = Script(ServerEndpoint(*listener.getsockname()))
            thread = threading.Thread(target=_play, args=(listener, script, answer))
            thread.start()
            threads.append(thread)
            return script

        yield start
        for thread in threads:
            thread.join()


def _play(listener: socket.socket, script: Script, answer: bytes) -> None:
    peer, _ = listener.accept()
    with peer:
        peer.settimeout(PATIENCE_SECONDS)
        peer.sendall(GREETING)
        heard = b""
        while b"PING\r\n" not in heard:
            heard += peer.recv(4096)
        peer.sendall(b"PONG\r\n")
        peer.recv(4096)
        peer.sendall(answer)
        peer.shutdown(socket.SHUT_WR)
        while part := peer.recv(4096):
            script.heard += part
    script.over.set()
