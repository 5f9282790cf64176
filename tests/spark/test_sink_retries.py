"""Sinks in a Spark that repeats failed tasks: a repetition hides no loss, and doubles nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from support.spark_sinks import make_stream, stored

if TYPE_CHECKING:
    from support.servers import ServerUnderTest

PROGRAM = Path(__file__).with_name("retry_program.py")
SECONDS = 600
STREAMS = ("SHARED", "LATE", "LOST", "NAMELESS", "NAMED", "FAILING", "LETTERS")


def test_repeated_task_hides_no_loss_and_doubles_nothing(
    server: ServerUnderTest, tmp_path: Path
) -> None:
    for name in STREAMS:
        make_stream(server, name, duplicate_window=600 * 10**9)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), server.url, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    told = dict(json.loads(line) for line in lines)
    for name in ("SHARED", "LATE", "LOST"):
        assert "message id" in told[name], (name, told[name])
        assert "keeps one" in told[name] or "was not stored" in told[name], (name, told[name])
    assert "give both a writeId" in told["NAMELESS"]
    assert len(stored(server, "NAMELESS")) == 40
    assert (told["NAMED"], len(stored(server, "NAMED"))) == ("done", 40)
    assert told["FAILING"] == "done"
    assert len(stored(server, "FAILING")) == 3000
    assert told["LETTERS"] == "done"
    assert len(stored(server, "LETTERS")) == 2970
    assert (told["letters"], told["rows of letters"]) == (30, 30)
