"""The same artifact gives the same tar, and nothing comes out of one but what is declared."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from penstock.fold import ArtifactInvalid, read_manifest
from penstock.fold.artifact.tarball import pack, unpack
from support.transport import artifact

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONTENT = b"something"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    artifact(tmp_path / "a", 5)
    return tmp_path / "a"


def packed(made: Path, target: Path) -> bytes:
    pack(made, read_manifest(made), target)
    return target.read_bytes()


def pointer(made: Path) -> bytes:
    return (made / "MANIFEST.json").read_bytes()


def changed(tar: bytes, target: Path, change: Callable[[tarfile.TarInfo], None]) -> Path:
    """A tar in which every member was changed."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as before, tarfile.open(target, "w") as after:
        for member in before:
            content = before.extractfile(member)
            change(member)
            after.addfile(member, content)
    return target


def with_more(tar: bytes, target: Path, member: tarfile.TarInfo) -> Path:
    """A tar with one member more."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as before, tarfile.open(target, "w") as after:
        for one in before:
            after.addfile(one, before.extractfile(one))
        member.size = len(CONTENT) if member.isreg() else 0
        after.addfile(member, io.BytesIO(CONTENT))
    return target


def test_tar_has_no_path_or_time_of_its_machine(made: Path, tmp_path: Path) -> None:
    first = packed(made, tmp_path / "1")
    for path in made.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    assert packed(made, tmp_path / "2") == first
    with tarfile.open(tmp_path / "1") as tar:
        names = [member.name for member in tar]
    assert names == ["MANIFEST.json", "EXTRA.json", "data", "data/fold.snap"]


def test_packed_messages_unpack(made: Path, tmp_path: Path) -> None:
    packed(made, tmp_path / "tar")
    unpack(tmp_path / "tar", pointer(made), tmp_path / "out")
    for name in ("MANIFEST.json", "EXTRA.json", "data/fold.snap"):
        assert (tmp_path / "out" / name).read_bytes() == (made / name).read_bytes()


def test_names_may_begin_with_dot_and_modes_are_not_taken_over(made: Path, tmp_path: Path) -> None:
    def spell(member: tarfile.TarInfo) -> None:
        member.name = f"./{member.name}"
        member.mode = 0o6777
        member.uid = member.gid = 12345

    tar = changed(packed(made, tmp_path / "tar"), tmp_path / "theirs", spell)
    unpack(tar, pointer(made), tmp_path / "out")
    status = (tmp_path / "out" / "data" / "fold.snap").stat()
    assert status.st_mode & 0o7000 == 0
    assert status.st_uid == os.getuid()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    made.linkname = link
    return made


@pytest.mark.parametrize(
    "more",
    [
        member("data/more"),
        member("more"),
        member("../escaped"),
        member("/tmp/escaped"),
        member("data/../../escaped"),
        member("data/fold.snap"),
        member("MANIFEST.json"),
        member("data/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("data/link", tarfile.LNKTYPE, "data/fold.snap"),
        member("data/pipe", tarfile.FIFOTYPE),
        member("data/null", tarfile.CHRTYPE),
    ],
    ids=lambda more: f"{more.type.decode()} {more.name}",
)
def test_not_declared_is_refused(made: Path, tmp_path: Path, more: tarfile.TarInfo) -> None:
    tar = with_more(packed(made, tmp_path / "tar"), tmp_path / "theirs", more)
    with pytest.raises(ArtifactInvalid):
        unpack(tar, pointer(made), tmp_path / "inner" / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "inner", "tar", "theirs"]


def test_link_in_place_of_declared_file_is_refused(made: Path, tmp_path: Path) -> None:
    def link(member: tarfile.TarInfo) -> None:
        if member.name == "data/fold.snap":
            member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0

    tar = changed(packed(made, tmp_path / "tar"), tmp_path / "theirs", link)
    with pytest.raises(ArtifactInvalid):
        unpack(tar, pointer(made), tmp_path / "out")


@pytest.mark.parametrize("name", ["MANIFEST.json", "data/fold.snap"])
def test_declared_entries_exist(made: Path, tmp_path: Path, name: str) -> None:
    def hide(member: tarfile.TarInfo) -> None:
        if member.name == name:
            member.name, member.size = "EXTRA.json", 0
        elif member.name == "EXTRA.json":
            member.name, member.type = "data", tarfile.DIRTYPE

    tar = changed(packed(made, tmp_path / "tar"), tmp_path / "theirs", hide)
    with pytest.raises(ArtifactInvalid, match="is not in the payload"):
        unpack(tar, pointer(made), tmp_path / "out")


def test_every_changed_byte_is_found_or_does_not_matter(made: Path, tmp_path: Path) -> None:
    tar = packed(made, tmp_path / "tar")
    used = tar.rstrip(b"\0")
    refused = 0
    for at in range(0, len(used), 17):
        (tmp_path / "theirs").write_bytes(tar[:at] + bytes([tar[at] ^ 0x41]) + tar[at + 1 :])
        out = tmp_path / f"out{at}"
        try:
            unpack(tmp_path / "theirs", pointer(made), out)
        except ArtifactInvalid:
            refused += 1
            continue
        assert (out / "data" / "fold.snap").read_bytes() == (made / "data/fold.snap").read_bytes()
        assert (out / "MANIFEST.json").read_bytes() == pointer(made)
    assert refused > 50


def test_bytes_that_are_no_tar_are_refused(made: Path, tmp_path: Path) -> None:
    for number, junk in enumerate((b"", b"x", b"x" * 5000, b"\0" * 10240)):
        (tmp_path / "tar").write_bytes(junk)
        with pytest.raises(ArtifactInvalid):
            unpack(tmp_path / "tar", pointer(made), tmp_path / f"out{number}")
