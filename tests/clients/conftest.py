"""Fixtures for real clients: the same servers as the contract suites, on both implementations."""

from __future__ import annotations

from support.cli import cli, command_line, jetstream_server, name
from support.servers import implementation, pool, server, start
from support.tls import certificates

__all__ = [
    "certificates",
    "cli",
    "command_line",
    "implementation",
    "jetstream_server",
    "name",
    "pool",
    "server",
    "start",
]
