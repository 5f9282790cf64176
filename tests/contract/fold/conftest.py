"""Folds of buckets on either server."""

from support.buckets import bucket, connection, jetstream, make, server

__all__ = ["bucket", "connection", "jetstream", "make", "server"]
