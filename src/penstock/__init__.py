"""A NATS server for Python: embedded in a process, or standing alone."""

from penstock.base.version import VERSION as __version__
from penstock.server.app import Server
from penstock.server.options import Options
from penstock.server.threaded import ThreadedServer

__all__ = ["Options", "Server", "ThreadedServer", "__version__"]
