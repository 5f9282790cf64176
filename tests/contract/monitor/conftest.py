"""Fixtures of the monitoring suites."""

from support.monitor import pair

__all__ = ["pair"]
