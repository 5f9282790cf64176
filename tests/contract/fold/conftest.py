"""Folds of buckets on either server."""

from support_buckets import bucket, connection, jetstream, make, server

__all__ = ["bucket", "connection", "jetstream", "make", "server"]
