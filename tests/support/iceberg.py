"""An Iceberg catalog of a test: SQLite and a warehouse in one directory."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLACE = "iceberg://lake/kept.stream"


def catalog_options(directory: Path) -> dict[str, str]:
    """What `storage_options` says of it."""
    (directory / "warehouse").mkdir(parents=True, exist_ok=True)
    return {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"file://{directory}/warehouse",
    }


class _Rest(BaseHTTPRequestHandler):
    """The part of Iceberg's REST protocol that archives need, over a catalog in SQLite."""

    catalog: Any

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path).path.strip("/").split("/")
        if parts[-1] == "config":
            return self._reply(200, {"defaults": {}, "overrides": {}})
        return self._table(parts)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parts = urlsplit(self.path).path.strip("/").split("/")
        if parts[-1] == "namespaces":
            self.catalog.create_namespace_if_not_exists(json.loads(body)["namespace"][0])
            return self._reply(200, {"namespace": json.loads(body)["namespace"], "properties": {}})
        if parts[-1] == "tables":
            return self._create(parts[-2], json.loads(body))
        return self._commit(parts, body)

    def _create(self, namespace: str, told: dict[str, Any]) -> None:
        from pyiceberg.schema import Schema

        schema = Schema.model_validate(told["schema"])
        name, properties = f"{namespace}.{told['name']}", told.get("properties", {})
        if told.get("stage-create"):
            staged = self.catalog._create_staged_table(name, schema, properties=properties)
            return self._reply(200, _described(staged))
        return self._reply(
            200, _described(self.catalog.create_table(name, schema, properties=properties))
        )

    def _commit(self, parts: list[str], body: bytes) -> None:
        from pyiceberg.catalog.rest import CommitTableRequest
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

        asked = CommitTableRequest.model_validate_json(body)
        identifier = f"{parts[-3]}.{parts[-1]}"
        try:
            table = self.catalog.load_table(identifier)
        except NoSuchTableError:
            table = self.catalog._create_staged_table(identifier, _no_schema())
        try:
            done = self.catalog.commit_table(table, asked.requirements, asked.updates)
        except CommitFailedException as error:
            return self._reply(409, _error(409, "CommitFailedException", str(error)))
        return self._reply(200, json.loads(done.model_dump_json()))

    def _table(self, parts: list[str]) -> None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            found = self.catalog.load_table(f"{parts[-3]}.{parts[-1]}")
        except NoSuchTableError as error:
            return self._reply(404, _error(404, "NoSuchTableException", str(error)))
        return self._reply(200, _described(found))

    def _reply(self, status: int, told: dict[str, Any]) -> None:
        data = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _no_schema() -> Any:
    from pyiceberg.schema import Schema

    return Schema()


def _error(code: int, kind: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}


def _described(table: Any) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


@contextmanager
def rest_catalog(directory: Path) -> Iterator[str]:
    """A REST catalog on loopback; its URL."""
    from pyiceberg.catalog import load_catalog

    served = type("Served", (_Rest,), {})
    served.catalog = load_catalog("served", **catalog_options(directory))  # type: ignore[attr-defined]
    server = HTTPServer(("127.0.0.1", 0), served)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
