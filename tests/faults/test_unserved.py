"""Assets that cannot be opened: the others are served, and the files of the bad ones stay.

Descriptions are rewritten under right checksums, and steps of recovery are made to raise.
"""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import penstock
from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.account import asset_recovery
from penstock.jetstream.host import asset_files as asset_files
from penstock.server.jetstream.account_runtime import AccountRuntime
from penstock.store.io.disk import RealDisk
from penstock.store.io.slots import SlotFile, state_key
from support.assets import JetStream, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OFFLINE, CONSUMER_OFFLINE = 10194, 10195
ERRORS = [OverflowError("too large"), KeyError("x"), MemoryError(), AssertionError("no")]


class Lives:
    """Servers over the same files, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._server: penstock.ThreadedServer | None = None
        self._client: JetStream | None = None

    def start(self) -> JetStream:
        self.stop()
        self._server = penstock.ThreadedServer(
            port=-1, jetstream=True, store_dir=str(self.path), http_port=-1
        )
        self._server.start()
        self.address = ("127.0.0.1", self._server.port)
        place: Any = self
        self._client = JetStream(place)
        return self._client

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._server is not None:
            self._server.stop()
        self._client = self._server = None

    def health(self) -> tuple[int, dict[str, Any]]:
        assert self._server is not None
        try:
            with urllib.request.urlopen(f"{self._server.monitor_url}/healthz") as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    @property
    def account(self) -> Path:
        return self.path / "jetstream" / asset_files.file_name("$G")

    def contents(self, *parts: str) -> dict[str, str]:
        """What the files below a directory hold."""
        root = self.account.joinpath(*parts)
        return {
            str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(root.rglob("*"))
            if file.is_file()
        }


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(tmp_path)
    yield lives
    lives.stop()


def make(client: JetStream) -> None:
    """Two streams with a message and a consumer each."""
    for name in ("BAD", "GOOD"):
        stream = client.stream(name, retention="interest")
        stream.consumer("C", ack_policy="explicit")
        stream.consumer("D", ack_policy="explicit")
        stream.fill("a")


def rewritten(directory: Path, name: str, key: bytes, change: Callable[[Any], None]) -> None:
    """Changes the value of a slot file, as an owner of the key would."""
    disk = RealDisk.at(directory)
    slots, reading = SlotFile.open(disk, name, key, value_bytes_max=asset_files.META_BYTES_MAX)
    value = msgspec.json.decode(reading.value)
    change(value)
    encoded = msgspec.json.encode(value)
    slots.write(encoded)
    slots.write(encoded)
    slots.close()
    disk.close()


def change_stream(directory: Path, change: Callable[[Any], None]) -> None:
    key = state_key("stream-meta", asset_files.META_INCARNATION)
    rewritten(directory, asset_files.META_NAME, key, change)


def incarnation_of(directory: Path) -> int:
    disk = RealDisk.at(directory)
    key = state_key("stream-meta", asset_files.META_INCARNATION)
    slots, reading = SlotFile.open(disk, "meta", key, value_bytes_max=asset_files.META_BYTES_MAX)
    slots.close()
    disk.close()
    number: int = msgspec.json.decode(reading.value)["incarnation"]
    return number


def set_config(**fields: Any) -> Callable[[Any], None]:
    return lambda value: value["config"].update(fields)


BAD_STREAMS: list[Callable[[Any], None]] = [
    set_config(republish={"src": "BAD.1", "dest": ">"}),
    set_config(subject_transform={"src": "BAD.*", "dest": "{{wildcard(9)}}"}),
    set_config(first_seq=2**64 - 1),
    set_config(first_seq=SEQ_MAX + 2),
    set_config(first_seq=-1),
    set_config(name="GOOD"),
    set_config(max_age="soon"),
    set_config(subjects="BAD.>"),
    lambda value: value.update(incarnation=2**70),
    lambda value: value.update(created_ns="now"),
    lambda value: value.pop("config"),
]


def check_bad_stream(lives: Lives, client: JetStream) -> None:
    """Whatever is asked of the stream that is not served, its files stay."""
    before = lives.contents("BAD")
    for subject, body in (
        ("STREAM.INFO.BAD", None),
        ("STREAM.CREATE.BAD", {"name": "BAD", "subjects": ["BAD.>"]}),
        ("STREAM.PURGE.BAD", None),
        ("STREAM.DELETE.BAD", None),
        ("CONSUMER.CREATE.BAD.C", {"stream_name": "BAD", "config": {"name": "C"}}),
        ("CONSUMER.INFO.BAD.C", None),
    ):
        assert client.refused(subject, body).err_code == OFFLINE, subject
    code, health = lives.health()
    assert code == 503
    assert "BAD" in health["error"]
    good = Stream(client, "GOOD", {})
    assert good.sequences() == [1]
    assert good.publish("b")["seq"] == 2
    assert client.done("CONSUMER.INFO.GOOD.C")["num_pending"] == 2
    lives.stop()
    assert lives.contents("BAD") == before


@pytest.mark.parametrize("change", BAD_STREAMS, ids=range(len(BAD_STREAMS)))
def test_one_bad_stream_does_not_stop_server(lives: Lives, change: Callable[[Any], None]) -> None:
    make(lives.start())
    lives.stop()
    change_stream(lives.account / "BAD", change)
    check_bad_stream(lives, lives.start())


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", ["open", "host", "serve"])
def test_any_error_in_recovery_costs_one_stream(
    lives: Lives, monkeypatch: pytest.MonkeyPatch, error: Exception, place: str
) -> None:
    make(lives.start())
    lives.stop()
    owner: Any = {
        "open": asset_files.AccountDirectory,
        "host": asset_recovery,
        "serve": AccountRuntime,
    }[place]
    name = {"open": "_open_stream", "host": "_recover_stream", "serve": "serve"}[place]
    whole = getattr(owner, name)

    def fail(*arguments: Any) -> Any:
        named = [getattr(each, "name", each) for each in arguments]
        if "BAD" in named:
            raise error
        return whole(*arguments)

    monkeypatch.setattr(owner, name, fail)
    check_bad_stream(lives, lives.start())
    monkeypatch.undo()
    client = lives.start()  # nothing was wrong with its files
    assert Stream(client, "BAD", {}).sequences() == [1]
    assert client.done("CONSUMER.INFO.BAD.C")["num_pending"] == 1


BAD_CONSUMERS: list[Callable[[Any], None]] = [
    set_config(ack_wait="soon"),
    set_config(ack_policy="maybe"),
    set_config(backoff=[1, 2, "x"]),
    lambda value: value.update(state="AAAA"),
    lambda value: value.pop("name"),
    lambda value: value.update(created_ns=1.5),
]


@pytest.mark.parametrize("change", BAD_CONSUMERS, ids=range(len(BAD_CONSUMERS)))
def test_one_bad_consumer_costs_no_other_and_no_message(
    lives: Lives, change: Callable[[Any], None]
) -> None:
    make(lives.start())
    lives.stop()
    directory = lives.account / "BAD"
    key = state_key("consumer-meta/C", incarnation_of(directory))
    rewritten(directory / "obs", "C.meta", key, change)
    before = {name: kept for name, kept in lives.contents("BAD", "obs").items() if name[0] == "C"}
    client = lives.start()
    for subject, body in (
        ("CONSUMER.INFO.BAD.C", None),
        ("CONSUMER.CREATE.BAD.C", {"stream_name": "BAD", "config": {"durable_name": "C"}}),
        ("CONSUMER.DELETE.BAD.C", None),
    ):
        assert client.refused(subject, body).err_code == CONSUMER_OFFLINE, subject
    stream = Stream(client, "BAD", {})
    code, health = lives.health()
    assert code == 503
    assert "consumer C" in health["error"]
    (message,) = client.pull("BAD", "D", {"batch": 1}).take(1)
    client.request(message.reply, b"+ACK")
    assert stream.publish("b")["seq"] == 2
    assert stream.sequences() == [1, 2]  # the consumer that is not served may want them
    lives.stop()
    after = {name: kept for name, kept in lives.contents("BAD", "obs").items() if name[0] == "C"}
    assert after == before
