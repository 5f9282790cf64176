"""`penstock store`: every damage is found and told, a repair loses nothing else and keeps what it
replaces, and looking never changes a byte."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.stores import store_command as command
from penstock.jetstream.account.store_scan import ASIDE, UNFINISHED
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from penstock.store.errors import StoreError
from penstock.store.filestore import FileStore
from penstock.store.format.compression import BlockCompression
from penstock.store.format.encryption import ServerKey
from penstock.store.io.disk import RealDisk

if TYPE_CHECKING:
    from pathlib import Path

INCARNATION = 5
MESSAGES = 300
TTL_NS = 10**15
SECRET = "a key for tests"
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compressed": {"compression": BlockCompression.ZSTD},
    "encrypted": {"key": ServerKey(SECRET)},
}


class Made:
    """A store in a directory, and how it is opened."""

    def __init__(self, directory: Path, options: dict[str, Any]) -> None:
        self.directory = directory
        self.options = options

    def open(self) -> tuple[FileStore, RealDisk]:
        disk = RealDisk.at(self.directory, create=True)
        given = {"incarnation": INCARNATION, "block_bytes": 6000, **self.options}
        return FileStore.open(disk, noise=os.urandom, **given), disk

    def payloads(self) -> dict[int, tuple[bytes, int]]:
        """Every message that can be read, and when it falls due."""
        store, disk = self.open()
        found = {}
        for seq in range(1, MESSAGES + 1):
            message = store.load(seq)
            if hasattr(message, "block"):
                work = store.fetch(message)
                work.run()
                store.fetched(work)
                message = store.load(seq)
            if hasattr(message, "payload"):
                found[seq] = (message.payload, store.ttl_ns(seq))
        store.close()
        disk.close()
        return found

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.directory.iterdir()}


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    if request.param == "encrypted":
        monkeypatch.setenv(command.KEY_VARIABLE, SECRET)
    return make(tmp_path / "store", KINDS[request.param])


@pytest.fixture
def plain(tmp_path: Path) -> Made:
    return make(tmp_path / "store", {})


def make(directory: Path, options: dict[str, Any]) -> Made:
    made = Made(directory, options)
    store, disk = made.open()
    for seq in range(1, MESSAGES + 1):
        ttl_ns = TTL_NS if seq % 50 == 0 else 0
        store.append(f"s.{seq % 7}", b"", b"%d " % seq * 15, seq, ttl_ns=ttl_ns)
        if seq % 100 == 0:
            work = store.pending_sync()
            assert work is not None
            work.run()
            store.synced(work)
    for seq in range(1, MESSAGES, 3):
        store.remove(seq)
    while (work := store.pending_compaction()) is not None:
        work.run()
        store.compacted(work)
    store.close()
    disk.close()
    return made


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and what JSON says of the only store."""
    code = command.run([*words, "--json"])
    output = capsys.readouterr().out
    return code, json.loads(output)["stores"][0] if output else {}


def harm(path: Path, at: int | None = None) -> None:
    """One bit: in a message that is live, if it can be seen, else in the middle."""
    data = bytearray(path.read_bytes())
    seen = data.find(b"33 33 33 ")
    data[at if at is not None else seen if seen > 0 else len(data) // 2] ^= 0x40
    path.write_bytes(data)


# -- looking


def test_sound_store_verifies_and_is_described(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made.files()
    code, store = told(capsys, "verify", str(made.directory))
    assert (code, store["problems"]) == (0, [])
    assert (store["messages"], store["last_seq"], store["subjects"]) == (200, MESSAGES, 7)
    assert any(block["sealed"] for block in store["blocks"])
    assert any(block["encrypted"] for block in store["blocks"]) == ("key" in made.options)
    assert made.files() == before


def test_tables_show_blocks_subjects_and_state(
    plain: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(["inspect", str(plain.directory)]) == 0
    shown = capsys.readouterr().out
    for word in ("sound", "1.blk", "s.3", "sealed"):
        assert word in shown


def test_every_damaged_byte_of_block_is_found(
    plain: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plain.directory / "1.blk"
    size = path.stat().st_size
    for at in range(0, size, 97):
        harm(path, at)
        code, store = told(capsys, "verify", str(plain.directory))
        assert code == command.EXIT_DAMAGED, f"byte {at} of {size}: {store['problems']}"
        assert any(line.startswith("1.blk") for line in store["problems"])
        harm(path, at)


def test_looking_at_damaged_store_changes_nothing(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(made.directory / "1.blk")
    before = made.files()
    for action in ("inspect", "verify"):
        told(capsys, action, str(made.directory))
    assert made.files() == before


def test_missing_block_is_found(plain: Made, capsys: pytest.CaptureFixture[str]) -> None:
    (plain.directory / "2.blk").unlink()
    code, store = told(capsys, "verify", str(plain.directory))
    assert code == command.EXIT_DAMAGED
    assert store["damaged"] != []


def test_missing_end_is_found(plain: Made, capsys: pytest.CaptureFixture[str]) -> None:
    newest = max(plain.directory.glob("*.blk"), key=lambda path: int(path.stem))
    newest.unlink()
    code, store = told(capsys, "verify", str(plain.directory))
    assert code == command.EXIT_DAMAGED
    assert any("the end" in line for line in store["problems"])


# -- refusing


def test_without_key_nothing_is_called_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(tmp_path / "store", KINDS["encrypted"])
    code, store = told(capsys, "verify", str(made.directory))
    assert (code, store["problems"]) == (command.EXIT_UNUSABLE, [])
    assert "no key" in store["failure"]


def test_key_from_file_opens_and_wrong_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(tmp_path / "store", KINDS["encrypted"])
    (tmp_path / "right").write_text(SECRET + "\n")
    (tmp_path / "wrong").write_text("something else")
    words = ("verify", str(made.directory), "--key-file")
    assert told(capsys, *words, str(tmp_path / "right"))[0] == 0
    assert told(capsys, *words, str(tmp_path / "wrong"))[0] == command.EXIT_UNUSABLE


def test_store_that_server_holds_is_refused(
    plain: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    for held in (plain.directory, plain.directory.parent):
        server = RealDisk.at(held)
        server.lock()
        try:
            for asked in (plain.directory, plain.directory.parent):
                assert command.run(["verify", str(asked)]) == command.EXIT_UNUSABLE
                assert "running server" in capsys.readouterr().err
        finally:
            server.close()


@pytest.mark.parametrize("words", [[], ["burn", "x"], ["verify"]])
def test_wrong_command_line_is_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(words) == command.EXIT_USAGE
    assert "usage" in capsys.readouterr().err


def test_missing_store_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["verify", str(tmp_path)]) == command.EXIT_UNUSABLE
    assert "no store" in capsys.readouterr().err
    assert command.run(["verify", str(tmp_path / "x")]) == command.EXIT_UNUSABLE


# -- repairing


def test_repair_loses_only_what_was_damaged_and_keeps_old_files(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = made.payloads()
    harm(made.directory / "1.blk")
    before = made.files()
    code, store = told(capsys, "repair", str(made.directory))
    assert (code, store["left"]) == (0, [])
    lost = {seq for first, last in store["damaged"] for seq in range(first, last + 1)}
    assert lost
    assert made.payloads() == {seq: one for seq, one in whole.items() if seq not in lost}
    (aside,) = made.directory.parent.glob(f"*{ASIDE}*")
    assert store["aside"] == [str(aside)]
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == before
    assert told(capsys, "verify", str(made.directory))[0] == 0


def test_sound_store_is_left_alone_by_repair(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made.files()
    code, store = told(capsys, "repair", str(made.directory))
    assert (code, store["repaired"]) == (0, False)
    assert made.files() == before


def test_swap_that_crash_cut_short_is_finished(
    plain: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = plain.payloads()
    ready = plain.directory.with_name(f"store{UNFINISHED}1")
    plain.directory.rename(ready)
    plain.directory.with_name(f"store{ASIDE}1").mkdir()
    assert told(capsys, "verify", str(plain.directory))[0] == 0
    assert plain.payloads() == whole


def test_damaged_consumers_are_found_repaired_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = tmp_path / "stream"
    make(stream / "msgs", {})
    (stream / "meta").write_bytes(b"no description at all")
    disk = RealDisk.at(stream / "obs", create=True)
    consumer = ConsumerStateStore.create(disk, "worker", incarnation=INCARNATION)
    for seq in (1, 2):  # what lies before something durable cannot be a write cut short
        consumer.delivered(seq, seq, seq)
        consumer.sync_all()
    consumer.close()
    harm(stream / "obs" / "worker.log0", 70)
    code, store = told(capsys, "verify", str(stream))
    assert code == command.EXIT_DAMAGED
    assert store["consumers"][0]["problems"] != []
    _, repaired = told(capsys, "repair", str(tmp_path))
    assert any("worker.log0" + ASIDE in path for path in repaired["aside"])
    _, after = told(capsys, "verify", str(stream))
    assert after["consumers"][0]["problems"] == []
    assert any(line.startswith("meta") for line in after["problems"])


# -- compacting


def test_compacting_gives_space_back_and_keeps_every_message(
    plain: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    store, disk = plain.open()
    for seq in range(2, MESSAGES - 60):
        store.remove(seq)
    store.close()
    disk.close()
    whole = plain.payloads()
    code, result = told(capsys, "compact", str(plain.directory))
    assert code == 0
    assert result["bytes_after"] < result["bytes_before"]
    assert plain.payloads() == whole
    assert told(capsys, "verify", str(plain.directory))[0] == 0


def test_damaged_store_is_not_compacted(plain: Made, capsys: pytest.CaptureFixture[str]) -> None:
    harm(plain.directory / "1.blk")
    assert command.run(["compact", str(plain.directory)]) == command.EXIT_UNUSABLE
    assert "repair it first" in capsys.readouterr().err


# -- keys


def test_store_is_reencrypted_under_another_key(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = made.payloads()
    before = made.files()
    (tmp_path / "new").write_text("another key\n")
    words = ("rekey", str(made.directory), "--new-key-file", str(tmp_path / "new"))
    code, store = told(capsys, *words)
    assert (code, store["messages"]) == (0, len(whole))
    assert not list(made.directory.parent.glob(f"*{ASIDE}*"))
    after = made.files()
    assert not any(b"33 33 33 " in data for data in after.values())
    assert not {data for name, data in before.items() if name.endswith(".blk")} & {*after.values()}
    with pytest.raises(StoreError, match="key"):
        made.open()
    made.options = {"key": ServerKey("another key")}
    assert made.payloads() == whole


def test_data_key_is_replaced_while_servers_key_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(command.KEY_VARIABLE, SECRET)
    made = make(tmp_path / "store", KINDS["encrypted"])
    whole = made.payloads()
    old_keys = (made.directory / "keys").read_bytes()
    assert told(capsys, "rekey", str(made.directory))[0] == 0
    assert made.payloads() == whole
    (made.directory / "keys").write_bytes(old_keys)  # who held the old data key reads nothing
    assert told(capsys, "verify", str(made.directory))[0] != 0


def test_without_any_key_nothing_is_encrypted(
    plain: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    before = plain.files()
    assert command.run(["rekey", str(plain.directory)]) == command.EXIT_UNUSABLE
    assert "--new-key-file" in capsys.readouterr().err
    assert plain.files() == before


def test_damaged_store_is_not_reencrypted(
    plain: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(plain.directory / "1.blk")
    before = plain.files()
    (tmp_path / "new").write_text("another key")
    words = ["rekey", str(plain.directory), "--new-key-file", str(tmp_path / "new")]
    assert command.run(words) == command.EXIT_UNUSABLE
    assert "repair it first" in capsys.readouterr().err
    assert plain.files() == before


def test_unencrypted_blocks_of_store_with_key_are_reported(
    plain: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(capsys, "verify", str(plain.directory))[1]["notes"] == []
    monkeypatch.setenv(command.KEY_VARIABLE, SECRET)
    plain.options = KINDS["encrypted"]
    plain.payloads()  # opens it with the key
    code, store = told(capsys, "verify", str(plain.directory))
    (note,) = [line for line in store["notes"] if "not encrypted" in line]
    assert (code, "1.blk" in note) == (0, True)
    assert told(capsys, "rekey", str(plain.directory))[0] == 0
    _, store = told(capsys, "verify", str(plain.directory))
    assert not any("not encrypted" in line for line in store["notes"])
