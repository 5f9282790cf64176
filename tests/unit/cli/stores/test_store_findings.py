"""`penstock store` on the files of whole streams: descriptions, consumers, and locks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.stores import store_command as command
from penstock.jetstream.account.store_scan import ASIDE, find_places, held
from penstock.jetstream.host.asset_files import AccountDirectory, ConsumerMeta
from penstock.store.errors import Locked
from penstock.store.filestore import FileStore
from penstock.store.io.disk import RealDisk
from penstock.store.io.slots import PAGE_BYTES

if TYPE_CHECKING:
    from pathlib import Path

INCARNATION = 7
SLOT_BYTE = 20
"""A byte of a slot's header."""


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """A stream without messages, with a consumer that has delivered nothing and one that has."""
    directory = tmp_path / "jetstream" / "A" / "S"
    disk = RealDisk.at(directory.parent, create=True)
    account = AccountDirectory(disk, make_incarnation=lambda: INCARNATION)
    files = account.create_stream("S", b'{"name":"S"}', 1)
    for name in ("new", "used"):
        meta = ConsumerMeta(name=name, config=b"{}", created_ns=1)  # type: ignore[arg-type]
        consumer = files.create_consumer(meta)
        if name == "used":
            consumer.state.delivered(1, 1, 1)
        consumer.close()
    files.close()
    disk.close()
    return directory


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and the JSON of the only stream."""
    code = command.run([*words, "--json"])
    (found,) = json.loads(capsys.readouterr().out)["stores"]
    return code, found


def harm(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def test_consumers_that_have_delivered_nothing_are_counted(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not (stream / "obs" / "new.state").exists()
    code, found = told(capsys, "inspect", str(stream))
    assert code == 0
    assert [one["name"] for one in found["consumers"]] == ["new", "used"]
    assert told(capsys, "verify", str(stream))[0] == 0


@pytest.mark.parametrize("name", ["new", "used"])
@pytest.mark.parametrize("slot", [0, 1])
def test_damage_in_description_of_consumer_is_found_and_repaired(
    stream: Path, name: str, slot: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stream / "obs" / f"{name}.meta"
    harm(path, slot * PAGE_BYTES + SLOT_BYTE)
    code, found = told(capsys, "verify", str(stream))
    assert code == command.EXIT_DAMAGED
    assert any(
        line.startswith(f"consumer {name}: .meta: slot {slot}") for line in found["problems"]
    )
    code, found = told(capsys, "repair", str(stream))
    assert (code, found["left"]) == (0, [])
    assert any(f"{name}.meta{ASIDE}" in path for path in found["aside"])
    assert told(capsys, "verify", str(stream))[0] == 0


def test_consumer_without_description_that_holds_stays_damaged(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for slot in (0, 1):
        harm(stream / "obs" / "new.meta", slot * PAGE_BYTES + SLOT_BYTE)
    before = (stream / "obs" / "new.meta").read_bytes()
    assert told(capsys, "verify", str(stream))[0] == command.EXIT_DAMAGED
    assert told(capsys, "repair", str(stream))[0] == command.EXIT_DAMAGED
    assert (stream / "obs" / "new.meta").read_bytes() == before


def test_state_that_its_description_names_and_that_is_missing_is_damage(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stream / "obs" / "used.state").unlink()
    code, found = told(capsys, "verify", str(stream))
    assert code == command.EXIT_DAMAGED
    assert any(line.startswith("consumer used: ") for line in found["problems"])


def test_state_without_description_is_what_crash_leaves(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stream / "obs" / "used.meta").unlink()
    code, found = told(capsys, "verify", str(stream))
    assert code == 0
    assert any("used" in line and "deleted" in line for line in found["notes"])


@pytest.mark.parametrize("slot", [0, 1])
def test_damage_in_description_of_stream_without_blocks_is_found_and_repaired(
    stream: Path, slot: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not list((stream / "msgs").glob("*.blk"))
    harm(stream / "meta", slot * PAGE_BYTES + SLOT_BYTE)
    code, found = told(capsys, "verify", str(stream))
    assert code == command.EXIT_DAMAGED
    assert any(line.startswith(f"meta: slot {slot}") for line in found["problems"])
    assert told(capsys, "repair", str(stream))[0] == 0
    assert told(capsys, "verify", str(stream))[0] == 0


def test_without_any_description_consumers_are_counted_and_not_checked(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stream / "meta").write_bytes(b"nothing")
    code, found = told(capsys, "verify", str(stream))
    assert code == command.EXIT_DAMAGED
    assert [one["problems"] for one in found["consumers"]] == [[], []]
    assert len([line for line in found["notes"] if "not checked" in line]) == 2


def test_stream_that_lost_all_its_blocks_is_damaged(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = RealDisk.at(stream / "msgs")
    store = FileStore.open(disk, incarnation=INCARNATION, noise=bytes)
    store.append("s", b"", b"payload", 1)
    store.close()
    disk.close()
    assert told(capsys, "verify", str(stream))[0] == 0
    for block in (stream / "msgs").glob("*.blk"):
        block.unlink()
    code, found = told(capsys, "verify", str(stream))
    assert code == command.EXIT_DAMAGED
    assert any("the end" in line for line in found["problems"])


def test_stream_without_its_messages_is_damaged(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stream / "msgs").rmdir()
    code, found = told(capsys, "verify", str(stream.parent))
    assert (code, found["unreadable"]) == (command.EXIT_DAMAGED, ["msgs"])


# -- locks


HOLDER = """
import sys
from pathlib import Path
from penstock.jetstream.account.store_scan import find_places, held
with held(find_places(Path(sys.argv[1])), alone=sys.argv[2] == "alone"):
    print("held", flush=True)
    sys.stdin.read()
"""


def elsewhere(stream: Path, how: str) -> subprocess.Popen[str]:
    """Another process that holds the stream."""
    words = [sys.executable, "-c", HOLDER, str(stream), how]
    pipe = subprocess.PIPE
    holder = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.sockets
def test_readers_share_what_they_hold(stream: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two `verify` at once, of one stream or of neighbours, once took each other for a server."""
    with elsewhere(stream, "shared") as other:
        assert told(capsys, "verify", str(stream))[0] == 0
        other.communicate("")


def test_neighbours_are_no_servers(stream: Path, capsys: pytest.CaptureFixture[str]) -> None:
    neighbour = stream.with_name("T")
    stream.rename(stream.with_name("U"))
    (neighbour / "msgs").mkdir(parents=True)
    with held(find_places(neighbour), alone=True):
        assert told(capsys, "verify", str(stream.with_name("U")))[0] == 0


@pytest.mark.sockets
def test_tool_that_changes_stream_has_it_alone(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for how, action in (("alone", "verify"), ("shared", "compact"), ("alone", "repair")):
        with elsewhere(stream, how) as other:
            assert command.run([action, str(stream)]) == command.EXIT_UNUSABLE
            assert "stop it first" in capsys.readouterr().err
            other.communicate("")


@pytest.mark.parametrize("alone", [False, True])
def test_no_server_starts_on_files_that_tool_holds(stream: Path, alone: bool) -> None:
    server = RealDisk.at(stream.parents[1])
    with held(find_places(stream), alone=alone), pytest.raises(Locked):
        server.lock()
    server.lock()
    server.close()
