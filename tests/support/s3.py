"""S3 over HTTP on loopback, in a process of its own: moto's, made as strict as S3 is.

moto checks a condition and writes in two steps, so requests are served one at a time here: of two
conditional puts one is refused, as S3 promises. Run as a program, it says its port and serves until
its standard input ends.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fold.ship.object_store import Bounds, Objects

_buckets = itertools.count(1)


class S3:
    """A server that speaks S3, and its buckets."""

    def __init__(self, port: int) -> None:
        self.port = port

    def new_bucket(self) -> str:
        name = f"bucket{next(_buckets)}"
        url = f"http://127.0.0.1:{self.port}/{name}"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT")):
            return name

    def options(self, port: int | None = None) -> dict[str, Any]:
        """What `transport_for` receives besides the URL."""
        return {
            "endpoint": f"http://127.0.0.1:{port or self.port}",
            "region": "us-east-1",
            "access_key_id": "who",
            "secret_access_key": "cares",
            "client_options": {"allow_http": True},
        }

    def objects(
        self,
        bucket: str,
        *,
        port: int | None = None,
        bounds: Bounds | None = None,
        patient: bool = True,
    ) -> Objects:
        """A client of a bucket; one that is not patient gives up after a second try."""
        from obstore.store import from_url

        from penstock.fold.ship.remote_objects import RemoteObjects

        options = self.options(port) | ({} if patient else {"retry_config": {"max_retries": 1}})
        store = from_url(f"s3://{bucket}/some/prefix", **options)
        return RemoteObjects(store, bounds=bounds)


@contextmanager
def s3_server() -> Iterator[S3]:
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline()
        assert port, "the server did not start"
        yield S3(int(port))
        process.stdin.close()


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_: object) -> None:
            pass

    inner = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def application(environ: Any, start_response: Any) -> Any:
        with one_at_a_time:
            return inner(environ, start_response)

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    server.log = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
