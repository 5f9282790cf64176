"""Fixtures for real clients: the same servers as the contract suites, on both implementations."""

from __future__ import annotations

from support_servers import implementation, pool, server, start
from support_tls import certificates

__all__ = ["certificates", "implementation", "pool", "server", "start"]
