"""The ports file: where a server that was given port -1 tells which ports it got.

Named after the reference whatever this program is called, because its readers look for that.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from penstock.server.file_modes import PORTS_FILE_MODE, opener
from penstock.server.server_log import log

if TYPE_CHECKING:
    from pathlib import Path


class PortsFile:
    """`nats-server_<pid>.ports` in a directory, for as long as the server runs."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"nats-server_{os.getpid()}.ports"

    def write(self, ports: dict[str, list[str]]) -> None:
        """Appears whole or not at all: readers poll for it."""
        fresh = self.path.with_suffix(".tmp")
        try:
            with open(fresh, "wb", opener=opener(PORTS_FILE_MODE)) as written:
                written.write(msgspec.json.encode(ports))
            fresh.replace(self.path)
        except OSError as error:
            log.error("Error writing ports file %s: %s", self.path, error)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
