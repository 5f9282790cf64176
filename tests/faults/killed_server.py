"""A server with JetStream that a test may kill as often as it likes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.servers import OURS, ServerUnderTest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def serving(workdir: Path, options: str) -> Iterator[ServerUnderTest]:
    """`options` are lines of its `jetstream` block."""
    config = f'jetstream {{ store_dir: "{workdir / "store"}"\n{options} }}'
    server = ServerUnderTest(OURS, workdir, config=config)
    try:
        yield server
    finally:
        server.kill()
