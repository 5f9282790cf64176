"""The ports file: reports which ports a server got that was started with port -1.

It has the reference's file name, because its readers look for that name.
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
    """`nats-server_<pid>.ports` in a directory, while the server runs."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"nats-server_{os.getpid()}.ports"

    def write(self, ports: dict[str, list[str]]) -> None:
        """Write the file atomically: readers poll for it."""
        fresh = self.path.with_suffix(".tmp")
        try:
            with open(fresh, "wb", opener=opener(PORTS_FILE_MODE)) as written:
                written.write(msgspec.json.encode(ports))
            fresh.replace(self.path)
        except OSError as error:
            log.error("Error writing ports file %s: %s", self.path, error)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
