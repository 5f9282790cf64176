"""The pointer in a directory: one of many processes wins, and a dead one delays no other."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.fold import TransportError
from penstock.fold.ship.local_objects import LocalObjects
from penstock.fold.ship.object_store import Bounds, Seen, unheard

if TYPE_CHECKING:
    from pathlib import Path

PROCESSES = 3
ADDED = 20
#: Adds one to a number, many times, by reading and swapping it.
COUNTER = """
import asyncio, sys
from pathlib import Path
from penstock.fold.ship.local_objects import LocalObjects

async def main():
    objects = LocalObjects(Path(sys.argv[1]))
    left = int(sys.argv[2])
    while left:
        seen = await objects.read("count", 100)
        number = 0 if seen is None else int(seen.body)
        left -= await objects.swap("count", b"%d" % (number + 1), seen)

asyncio.run(main())
"""
#: Holds the lock until it is killed.
HOLDER = """
import sys, time
from pathlib import Path
from penstock.fold.ship.local_objects import LocalObjects

with LocalObjects(Path(sys.argv[1]))._locked(Path(sys.argv[1]) / "p"):
    print("held", flush=True)
    time.sleep(600)
"""


def program(text: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.sockets
def test_no_swap_of_several_processes_is_lost(tmp_path: Path) -> None:
    running = [program(COUNTER, tmp_path, ADDED) for _ in range(PROCESSES)]
    for process in running:
        with process:
            assert process.wait() == 0
    assert (tmp_path / "count").read_bytes() == b"%d" % (PROCESSES * ADDED)


@pytest.mark.sockets
async def test_killed_process_holds_no_lock(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path, bounds=Bounds(request=0.05))
    with program(HOLDER, tmp_path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TransportError, match="holds the lock"):
            await objects.swap("p", b"1", None)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert await objects.swap("p", b"1", None)


async def test_swap_needs_what_was_seen(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path / "not" / "yet")
    assert await objects.read("p", 10) is None
    assert not await objects.swap("p", b"1", Seen(b"0"))
    assert await objects.swap("p", b"1", None)
    assert not await objects.swap("p", b"2", None)
    assert not await objects.swap("p", b"2", Seen(b"0"))
    assert await objects.swap("p", b"2", Seen(b"1"))
    assert await objects.read("p", 10) == Seen(b"2")


async def test_of_those_that_saw_the_same_one_wins(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path)
    won = await asyncio.gather(*(objects.swap("p", b"%d" % n, None) for n in range(10)))
    assert won.count(True) == 1
    assert await objects.read("p", 10) == Seen(b"%d" % won.index(True))


async def test_upload_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "root" / "a.tar").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"x")
    objects = LocalObjects(tmp_path / "root")
    with pytest.raises(Exception, match="directory"):
        await objects.upload("a.tar", tmp_path / "file", unheard)
    assert [one.name async for one in objects.listed("")] == ["a.tar"]
