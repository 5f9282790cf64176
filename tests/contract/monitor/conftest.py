"""Fixtures of the monitoring suites."""

from support_monitor import pair

__all__ = ["pair"]
