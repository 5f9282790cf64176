"""A connection to either server, and a bucket of a test's own on it."""

from support.buckets import bucket, connection, jetstream, make, server

__all__ = ["bucket", "connection", "jetstream", "make", "server"]
