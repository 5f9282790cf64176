"""`penstock fold` on this machine alone: reading, copying, comparing, taking apart."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from penstock.fold import AppendLogSnapshot, KvUpdate, Op, SqliteSnapshot, WatchCursor
from penstock.fold.store.registry import store_named
from support.cli import command_line
from support.s3 import s3_server

if TYPE_CHECKING:
    from pathlib import Path

    from support.cli import Cli

__all__ = ["command_line"]

STORES = ("append-log", "sqlite", "lmdb", "rocksdb")
VALUES = {"a.1": b"one", "a.2": b"\xff\x00", "b.1": b"\x1b[2Jthree"}


def fill(path: Path, store: str) -> None:
    updates = [
        KvUpdate(Op.PUT, key, value, at) for at, (key, value) in enumerate(VALUES.items(), 1)
    ]
    with store_named(store).open(path) as fold:
        fold.apply(updates, WatchCursor.of(3))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, command_line: Cli) -> str:
    fill(command_line.directory / "fold", request.param)
    name: str = request.param
    return name


@pytest.fixture
def sqlite(command_line: Cli) -> None:
    fill(command_line.directory / "fold", "sqlite")


# -- reading


def test_fold_of_any_store_is_read(command_line: Cli, store: str) -> None:
    told = command_line.done("fold", "status", "fold", "--json").json
    assert (told["backend"], told["cursor"], told["entries"]) == (store, 3, 3)
    assert command_line.done("fold", "get", "fold", "a.2", "--raw").raw == b"\xff\x00"
    assert command_line.done("fold", "scan", "fold", "a.", "--json").lines == [
        {"key": "a.1", "revision": 1, "data": "one", "encoding": "utf-8"},
        {"key": "a.2", "revision": 2, "data": "/wA=", "encoding": "base64"},
    ]
    assert command_line.done("fold", "ls", "fold", "--after", "a.1", "--limit", "1").out == "a.2\n"


@pytest.mark.usefixtures("sqlite")
def test_values_cannot_drive_terminal(command_line: Cli) -> None:
    for words in (
        ("get", "fold", "b.1"),
        ("scan", "fold"),
        ("sql", "fold", "SELECT * FROM entries"),
    ):
        assert "\x1b" not in command_line.done("fold", *words).out


@pytest.mark.usefixtures("sqlite")
def test_sql_reads_and_never_writes(command_line: Cli) -> None:
    asked = "SELECT key, revision, value FROM entries WHERE revision < 3 ORDER BY key DESC"
    assert command_line.done("fold", "sql", "fold", asked, "--json").json == [
        {"key": "a.2", "revision": 2, "value": "/wA="},
        {"key": "a.1", "revision": 1, "value": "one"},
    ]
    assert "a.2" in command_line.done("fold", "sql", "fold", asked).out
    assert "0 rows" in command_line.done("fold", "sql", "fold", f"{asked} LIMIT 0").out
    command_line.refused("fold", "sql", "fold", "DELETE FROM data")
    reason = command_line.refused("fold", "sql", "fold", "SELECT 1 FROM nowhere")
    assert reason.endswith("no such table: nowhere")
    fill(command_line.directory / "log", "append-log")
    assert "in append-log" in command_line.refused("fold", "sql", "log", "SELECT 1")


@pytest.mark.usefixtures("sqlite")
def test_not_there_is_reported_in_one_line(command_line: Cli) -> None:
    assert "no key zz" in command_line.refused("fold", "get", "fold", "zz")
    for word in ("status", "ls", "scan", "compact"):
        assert "no such fold" in command_line.refused("fold", word, "missing")
    (command_line.directory / "text").write_text("text")
    assert "this is no fold" in command_line.refused("fold", "status", "text")


# -- copies


def test_artifact_makes_the_same_fold_in_any_store(command_line: Cli, store: str) -> None:
    told = command_line.done(
        "fold", "export", "fold", "copy", "--form", "append-log", "--json"
    ).json
    assert (told["outcome"], told["cursor"], told["backend"]) == ("exported", 3, "append-log")
    for number, other in enumerate(STORES):
        made = f"made-{number}"
        told = command_line.done("fold", "import", "copy", made, "--backend", other, "--json").json
        assert (told["backend"], told["cursor"], told["entries"]) == (other, 3, 3)
        ran = command_line.done("fold", "verify", made, "--artifact", "copy", "--json")
        assert ran.json["agree"] is True


def test_object_store_keeps_the_newest(command_line: Cli, store: str) -> None:
    place = f"file://{command_line.directory}/far/folds"
    assert (
        command_line.done("fold", "export", "fold", place, "--json").json["outcome"] == "published"
    )
    with store_named(store).open(command_line.directory / "older") as older:
        older.apply([], WatchCursor.of(2))
    told = command_line.done("fold", "export", "older", place, "--json").json
    assert told["outcome"] == "a newer one is there"
    assert command_line.done("fold", "import", place, "back", "--json").json["entries"] == 3


@pytest.mark.sockets
@pytest.mark.usefixtures("sqlite")
def test_settings_of_object_store_are_taken_from_command_line(command_line: Cli) -> None:
    with s3_server() as s3:
        options = s3.options()
        options["client.allow_http"] = str(options.pop("client_options")["allow_http"]).lower()
        flags = [f"--storage-option={name}={value}" for name, value in options.items()]
        place = f"s3://{s3.new_bucket()}/folds/config"
        told = command_line.done("fold", "export", "fold", place, *flags, "--json").json
        assert told["outcome"] == "published"
        told = command_line.done("fold", "import", place, "back", *flags, "--json").json
        assert told["entries"] == 3
        assert "no artifact" in command_line.refused("fold", "import", f"{place}2", "x", *flags)
    assert "key=value" in command_line("fold", "export", "fold", place, "--storage-option=x").err


def test_fold_is_converted(command_line: Cli, store: str) -> None:
    for number, other in enumerate(STORES):
        dest = f"made-{number}"
        command_line.done("fold", "convert", "fold", dest, "--backend", other)
        assert command_line.done("fold", "get", dest, "a.1", "--raw").raw == b"one"
    reason = command_line.refused("fold", "convert", "fold", "made-0", "--backend", store)
    assert "exists" in reason


def test_copies_that_differ_are_reported(command_line: Cli, store: str) -> None:
    command_line.done("fold", "export", "fold", "copy")
    with store_named(store).open(command_line.directory / "fold") as fold:
        fold.apply([KvUpdate(Op.PUT, "a.1", b"other", 1)], WatchCursor.of(3))
    assert "differ" in command_line.refused("fold", "verify", "fold", "--artifact", "copy")
    with store_named(store).open(command_line.directory / "fold") as fold:
        fold.apply([], WatchCursor.of(4))
    reason = command_line.refused("fold", "verify", "fold", "--artifact", "copy")
    assert "at one revision only" in reason


@pytest.mark.usefixtures("sqlite")
def test_damaged_artifacts_are_refused(command_line: Cli) -> None:
    command_line.done("fold", "export", "fold", "copy", "--form", "append-log")
    assert command_line.done("fold", "verify", "copy", "--json").json["cursor"] == 3
    payload = command_line.directory / "copy" / "data" / "fold.snap"
    data = payload.read_bytes()
    payload.write_bytes(data[:-1] + bytes((data[-1] ^ 1,)))
    for words in (("import", "copy", "made"), ("verify", "copy")):
        assert "not what the manifest says" in command_line.refused("fold", *words)
    assert not (command_line.directory / "made").exists()


@pytest.mark.usefixtures("sqlite")
def test_places_that_name_nothing_are_refused(command_line: Cli) -> None:
    assert "names no artifact" in command_line.refused("fold", "export", "fold", "s3://", code=2)
    assert "no such directory" in command_line.refused("fold", "import", "missing", "made")
    (command_line.directory / "empty").mkdir()
    assert "no artifact" in command_line.refused("fold", "import", "empty", "made")
    place = f"file://{command_line.directory}/empty/key"
    assert "no artifact" in command_line.refused("fold", "import", place, "made")


# -- files


def test_compacting_gives_space_back_and_keeps_everything(command_line: Cli, store: str) -> None:
    path = command_line.directory / "fold"
    with store_named(store).open(path) as fold:
        for lap in range(4, 44):
            fold.apply([KvUpdate(Op.PUT, "big", os.urandom(100_000), lap)], WatchCursor.of(lap))
        fold.apply([KvUpdate(Op.DELETE, "big", revision=44)], WatchCursor.of(44))
    told = command_line.done("fold", "compact", "fold", "--json").json
    if store in ("append-log", "sqlite"):  # LMDB keeps its file, RocksDB has no garbage so small
        assert told["bytes"] < told["bytes_before"]
    assert command_line.done("fold", "ls", "fold").out.split() == list(VALUES)
    assert "now" in command_line.done("fold", "compact", "fold").out


def test_log_is_shown_record_by_record(command_line: Cli) -> None:
    path = command_line.directory / "log"
    with AppendLogSnapshot.open(path) as fold:
        fold.apply([KvUpdate(Op.PUT, "a", b"v", 1)], WatchCursor.of(1))
        fold.apply([KvUpdate(Op.DELETE, "a", revision=2)], WatchCursor.of(2))
    lines = command_line.done("fold", "dump", "log", "--json").lines
    assert [line["record"] for line in lines] == ["put", "cursor", "delete", "cursor"]
    assert lines[0]["offset"] == 6
    assert (lines[0]["key"], lines[0]["data"], lines[0]["version"]) == ("a", "v", "1")
    assert lines[3]["cursor"] == "2"
    assert "put a @ 1: v" in command_line.done("fold", "dump", "log").out


def test_log_that_ends_badly_is_shown_up_to_there(command_line: Cli) -> None:
    path = command_line.directory / "log"
    with AppendLogSnapshot.open(path) as fold:
        fold.apply([KvUpdate(Op.PUT, "a", b"v", 1)], WatchCursor.of(1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    ran = command_line("fold", "dump", "log", "--json")
    assert (ran.code, [json.loads(line)["record"] for line in ran.out.splitlines()]) == (1, ["put"])
    assert "torn at byte" in ran.err
    path.write_bytes(whole[:6] + b"\xff" + whole[7:])
    assert "damaged" in command_line.refused("fold", "dump", "log")
    SqliteSnapshot.open(command_line.directory / "db").close()
    refusal = command_line.refused("fold", "dump", "db")
    assert "a fold in sqlite, not an append log" in refusal
    assert "delete" not in refusal  # it is a good fold
    assert "no such fold" in command_line.refused("fold", "dump", "missing")
