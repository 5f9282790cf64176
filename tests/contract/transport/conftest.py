"""The places the contract of the transport is held against; a new one joins in `PLACES`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.s3 import S3, s3_server
from support.transport import PLACES, Place, in_directory, in_memory, in_named_store, in_s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return in_directory(tmp_path)
    if request.param == "memory":
        return in_memory()
    if request.param == "named":
        return in_named_store()
    server: S3 = request.getfixturevalue("s3")
    return in_s3(server)
