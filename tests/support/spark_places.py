"""Spark in other processes: a standalone cluster, a Connect server, submitted programs.

All of it listens on loopback, in a directory of its own, and is stopped with its whole family. Java
starts quickly and computes slowly here: these programs are short.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.java import java_home
from penstock.spark.spark_session import LIGHT_JAVA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LOOPBACK = "127.0.0.1"
HOSTS = "127.0.0."
SECONDS = 900  # not how long it takes: six Java machines may share two busy cores
POLL_SECONDS = 0.05
EXECUTOR_MEMORY = "512m"
DAEMON_MEMORY = "512m"  # the least that a Connect server starts with
EXAMPLES = Path(__file__).parents[2] / "examples"


def environment(place: Path) -> dict[str, str]:
    """What programs of Spark are started with. Nothing of the tests or the sources is on a path."""
    wanted = ("PATH", "HOME", "LANG", "JAVA_TOOL_OPTIONS")
    inherited = {name: os.environ[name] for name in wanted if name in os.environ}
    return {
        **inherited,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": spark_home(),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(place / "local"),
        "SPARK_LOG_DIR": str(place),
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": LIGHT_JAVA,
        "SPARK_WORKER_MEMORY": EXECUTOR_MEMORY,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def spark_home() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent)


def command(name: str) -> str:
    return str(Path(spark_home(), "bin", name))


def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True)
class Program:
    """A program in the background, and the file that holds what it says."""

    process: subprocess.Popen[bytes]
    said: Path

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Fails with what it said if that takes too long, or if it ends before."""
        deadline = time.monotonic() + SECONDS
        while not is_reached():
            is_well = self.process.poll() is None and time.monotonic() < deadline
            assert is_well, self.said.read_text(errors="replace")
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def running(words: Sequence[str], place: Path, name: str) -> Iterator[Program]:
    """A program, ended with all that it started."""
    said = place / f"{name}.log"
    with said.open("wb") as out:
        process = subprocess.Popen(
            words,
            cwd=place,
            env=environment(place),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Program(process, said)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port)):
        return True
    return False


def has_registered(worker: Program) -> bool:
    return "Successfully registered" in worker.said.read_text(errors="replace")


@contextlib.contextmanager
def cluster(place: Path, workers: int) -> Iterator[str]:
    """A standalone cluster: the URL of its master. Worker n works in `place/worker-n`.

    Each worker has a loopback address of its own: Spark gives no second attempt to the host that
    has the first, and hosts are addresses to it.
    """
    port = free_port()
    url = f"spark://{LOOPBACK}:{port}"
    spark_class, deploy = command("spark-class"), "org.apache.spark.deploy"
    ports = ("--webui-port", "0", "--port")
    with contextlib.ExitStack() as stack:
        master = [spark_class, f"{deploy}.master.Master", "--host", LOOPBACK, *ports, str(port)]
        started = stack.enter_context(running(master, place, "master"))
        started.wait_until(partial(is_listening, port))
        members = []
        for number in range(workers):
            name = f"worker-{number}"
            words = [spark_class, f"{deploy}.worker.Worker", *ports, "0", "--cores", "1"]
            words += ["--host", f"{HOSTS}{number + 1}", "--work-dir", str(place / name), url]
            members.append(stack.enter_context(running(words, place, name)))
        for member in members:
            member.wait_until(partial(has_registered, member))
        yield url


@contextlib.contextmanager
def connect_server(place: Path) -> Iterator[str]:
    """A Spark Connect server: the URL for its clients."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
    }
    words = [
        *submitting("local[2]", conf),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]
    with running(words, place, "connect") as started:
        started.wait_until(partial(is_listening, port))
        yield f"sc://{LOOPBACK}:{port}"


def submitting(master: str, conf: Mapping[str, str]) -> list[str]:
    """The words of `spark-submit` up to the program."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.extraJavaOptions": LIGHT_JAVA,
        "spark.executor.extraJavaOptions": LIGHT_JAVA,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.sql.shuffle.partitions": "2",
        **conf,
    }
    words = [command("spark-submit"), "--master", master]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    return words


def run(words: Sequence[str], place: Path, **variables: str) -> str:
    """Run a program to its end; what it printed. It must end well."""
    done = subprocess.run(
        words,
        cwd=place,
        env=environment(place) | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
