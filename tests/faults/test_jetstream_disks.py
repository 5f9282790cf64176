"""A server with JetStream on a disk that is full, fails, is damaged, read-only or taken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import JetStream
from support.patience import PATIENCE_SECONDS
from support.servers import OURS, ServerStartError, ServerUnderTest, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Path(__file__).with_name("faultydisk.c")
STORE_FAILED = 10077
NO_RESOURCES = 10023
SMALL_DISK = "24m"
PAYLOAD = b"x" * 50_000


class Faults:
    """Tells a server's disk when to fail."""

    def __init__(self, place: Path) -> None:
        self.path = place / "faults"
        self._library = place / "faultydisk.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no compiler, hence no failing disk")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", self._library, SOURCE, "-ldl"], check=True
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "FAULTY_DISK": str(self.path)}

    def strike(self, what: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(what + "\n")
        fresh.rename(self.path)

    def heal(self) -> None:
        self.path.unlink()


@contextmanager
def serving(place: Path, store: Path) -> Iterator[ServerUnderTest]:
    server = ServerUnderTest(OURS, place, flags=("-js", "-sd", str(store), "-m", "-1"))
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faults:
    made = Faults(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def faulty(tmp_path: Path, faults: Faults) -> Iterator[tuple[ServerUnderTest, Faults]]:
    with serving(tmp_path, tmp_path / "store") as server:
        yield server, faults


def health(server: ServerUnderTest) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(
            f"{server.http_url}/healthz", timeout=PATIENCE_SECONDS
        ) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def eventually(what: Callable[[], bool], text: str) -> None:
    until(what, text, PATIENCE_SECONDS)


def test_failed_sync_is_final_for_its_stream_and_reported(
    faulty: tuple[ServerUnderTest, Faults],
) -> None:
    server, faults = faulty
    with JetStream(server) as client:
        struck, other = client.stream("STRUCK"), client.stream("OTHER")
        struck.consumer("c", ack_policy="explicit")
        assert struck.publish("a", b"kept", Nats_Msg_Id="1")["seq"] == 1
        assert health(server)[0] == 200
        faults.strike("sync STRUCK/msgs")
        waiting = client.subscribe()
        client.publish("STRUCK.a", b"in doubt", reply=waiting.subject, headers={"Nats-Msg-Id": "2"})
        eventually(lambda: health(server)[0] == 503, "it is reported")
        for msg_id in ("2", "1", "3"):
            refused = struck.refused("a", b"more", {"Nats-Msg-Id": msg_id})
            assert (refused.code, refused.err_code) == (503, STORE_FAILED)
            assert "sync" in refused.description
        faults.heal()
        assert struck.refused("a").err_code == STORE_FAILED
        assert "error" in client.call("STREAM.PURGE.STRUCK")
        assert waiting.waiting() == [], "what was in doubt is never acknowledged"
        assert struck.get(seq=1)["seq"] == 1
        assert other.publish("a")["seq"] == 1
        code, told = health(server)
        assert (code, "STRUCK" in told["error"]) == (503, True)
        assert "STRUCK can not be written any more" in server.log
    server.restart()
    with JetStream(server) as client:
        assert client.publish_ack("STRUCK.a", b"again", {"Nats-Msg-Id": "1"})["duplicate"]
        assert client.publish_ack("STRUCK.a", b"again")["seq"] > 1
        assert health(server)[0] == 200


def test_ack_is_not_confirmed_by_disk_that_fails(
    faulty: tuple[ServerUnderTest, Faults],
) -> None:
    server, faults = faulty
    with JetStream(server) as client:
        stream = client.stream("S")
        consumer = stream.consumer("c", ack_policy="explicit")
        stream.fill("a", "b", "c")
        first, second, third = consumer.fetch(3)
        consumer.answer(first)
        faults.strike("sync S/obs")
        doubt = client.subscribe()
        client.publish(second.reply, b"+ACK", reply=doubt.subject)
        client.publish(third.reply, b"+ACK", reply=doubt.subject)
        eventually(lambda: health(server)[0] == 503, "it is reported")
        assert doubt.waiting() == []
        assert consumer.info()["name"] == "c"
    faults.heal()
    server.restart()
    with JetStream(server) as client:
        again = client.pull("S", "c", {"batch": 3, "expires": 10**9})
        assert first.payload not in [each.payload for each in again.until_status()[:-1]]


def test_full_disk_refuses_and_continues_by_itself(faulty: tuple[ServerUnderTest, Faults]) -> None:
    server, faults = faulty
    with JetStream(server) as client:
        stream, other = client.stream("FULL"), client.stream("OTHER")
        stream.publish("a", b"before")
        faults.strike("full FULL/msgs")
        late = client.subscribe()
        client.publish("FULL.a", b"late", reply=late.subject)
        eventually(lambda: health(server)[0] == 503, "it is reported")
        refused = stream.refused("a", b"more")
        assert refused.err_code == STORE_FAILED
        assert "No space left" in refused.description
        assert other.publish("a")["seq"] == 1
        assert stream.get(seq=1)["seq"] == 1
        assert late.waiting() == []
        faults.heal()
        assert late.next(PATIENCE_SECONDS).json["seq"] == 2
        assert stream.publish("a", b"after")["seq"] == 3
        assert health(server)[0] == 200
    server.restart()
    with JetStream(server) as client:
        assert client.done("STREAM.INFO.FULL")["state"]["messages"] == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is soon full."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no small file system: not root, or nothing can be mounted")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_disk_that_fills_up_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    with serving(tmp_path, small_disk / "store") as server:
        with JetStream(server) as client:
            stream = client.stream("S")
            acked = 0
            while "error" not in (answer := client.publish_ack("S.a", PAYLOAD)):
                acked = answer["seq"]
            assert answer["error"]["err_code"] == NO_RESOURCES
            assert acked > 10
            filler = small_disk / "filler"
            free = os.statvfs(small_disk)
            filler.write_bytes(b"x" * (free.f_bavail * free.f_frsize))
            assert stream.refused("a", PAYLOAD).err_code in (NO_RESOURCES, STORE_FAILED)
            assert client.call("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})["error"]
            assert stream.get(seq=acked)["seq"] == acked
            filler.unlink()
            assert stream.purge(seq=acked // 2) > 0
            eventually(lambda: "error" not in client.publish_ack("S.a", b"again"), "it goes on")
        server.restart()
        with JetStream(server) as client:
            state = client.done("STREAM.INFO.S")["state"]
            assert state["first_seq"] == acked // 2
            assert state["last_seq"] > acked


def test_damage_is_reported_and_the_rest_is_served(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(tmp_path, store) as server:
        with JetStream(server) as client:
            for name in ("SOUND", "LOST", "HALF"):
                stream = client.stream(name)
                stream.fill("a", "b")
                stream.consumer("c", ack_policy="explicit")
                stream.consumer("d", ack_policy="explicit").fetch(1)
        server.stop()
        account = next((store / "jetstream").glob("*/SOUND")).parent
        for damaged in (account / "LOST" / "meta", account / "HALF" / "obs" / "d.meta"):
            damaged.write_bytes(bytes(damaged.stat().st_size))
        server.restart()
        with JetStream(server) as client:
            assert client.done("STREAM.NAMES")["streams"] == ["HALF", "SOUND"]
            assert client.done("CONSUMER.NAMES.HALF")["consumers"] == ["c"]
            assert client.done("CONSUMER.NAMES.SOUND")["consumers"] == ["c", "d"]
            assert client.publish_ack("HALF.a")["seq"] == 3
        code, told = health(server)
        assert (code, "LOST" in told["error"]) == (503, True)
        assert "not served: stream directory LOST" in server.log
        assert "not served: stream HALF, consumer d" in server.log


def test_directory_that_is_taken_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(tmp_path / "first", store) as server:
        with pytest.raises(ServerStartError) as refused, serving(tmp_path / "second", store):
            pass
        assert "exit code 1" in str(refused.value)
        assert str(store) in str(refused.value)
        assert "Traceback" not in str(refused.value)
        with JetStream(server) as client:
            assert client.stream("S").publish("a")["seq"] == 1


def test_read_only_directory_is_refused_in_words(small_disk: Path, tmp_path: Path) -> None:
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True)
    with pytest.raises(ServerStartError) as refused, serving(tmp_path, small_disk / "store"):
        pass
    assert "storage directory is not writable" in str(refused.value)
    assert "Traceback" not in str(refused.value)
