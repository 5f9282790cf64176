"""A NATS/JetStream server you can embed in Python, KV bucket replicas, and Spark connectors.

The names below import the server on first use, so that client-side parts (`penstock.bench`, the
command line) do not load it.
"""

from typing import TYPE_CHECKING

from penstock.base.version import VERSION as __version__

if TYPE_CHECKING:
    from penstock.server.config.options import Options
    from penstock.server.server_app import Server
    from penstock.server.threaded_server import ThreadedServer
    from penstock.spark.read.stream_rows import read

__all__ = ["Options", "Server", "ThreadedServer", "__version__", "read"]

_HOMES = {
    "Options": "penstock.server.config.options",
    "Server": "penstock.server.server_app",
    "ThreadedServer": "penstock.server.threaded_server",
    "read": "penstock.spark.read.stream_rows",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
