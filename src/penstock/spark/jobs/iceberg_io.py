"""Iceberg catalogs and file access: resolves the catalog and table of a URL, and opens its files.

An archive is named `iceberg://<catalog>/<namespace>.<table>`. Options are PyIceberg's catalog
properties (`type`, `uri`, `warehouse`, `s3.endpoint`, …); the option names of object stores in the
other jobs are translated. Files are accessed with the properties that the catalog returns for the
table, so that credentials it vends reach the tasks too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.spark.files.archive_storage import ListedFile
from penstock.spark.files.storage_options import flat
from penstock.spark.jobs.parquet_table import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEME: Final = "iceberg://"
CATALOG: Final = "default"
FILE_IO: Final = "py-io-impl"
ARROW_IO: Final = "pyiceberg.io.pyarrow.PyArrowFileIO"
NAMES: Final = {
    "endpoint": "s3.endpoint",
    "endpoint_url": "s3.endpoint",
    "aws_endpoint": "s3.endpoint",
    "aws_endpoint_url": "s3.endpoint",
    "region": "s3.region",
    "aws_region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "aws_access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "aws_secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "aws_session_token": "s3.session-token",
    "virtual_hosted_style_request": "s3.force-virtual-addressing",
    "account_name": "adls.account-name",
    "azure_storage_account_name": "adls.account-name",
    "account_key": "adls.account-key",
    "azure_storage_account_key": "adls.account-key",
    "sas_key": "adls.sas-token",
    "azure_storage_sas_key": "adls.sas-token",
}
"""Setting names of object stores, and their names in PyIceberg."""
DROPPED: Final = frozenset({"allow_http"})
"""Settings without a counterpart: the endpoint's URL implies them."""


class TableName(NamedTuple):
    """A table of a catalog."""

    catalog: str
    identifier: str

    @classmethod
    def of(cls, dest: str) -> TableName:
        """Parse `iceberg://<catalog>/<namespace>.<table>`; the catalog is optional."""
        catalog, _, identifier = dest.removeprefix(SCHEME).rpartition("/")
        if "." not in identifier.strip(".") or "/" in catalog:
            raise ArchiveError(
                f"{dest}: an Iceberg table is named {SCHEME}<catalog>/<namespace>.<table>"
            )
        return cls(catalog or CATALOG, identifier)


def catalog_properties(options: Mapping[str, Any]) -> dict[str, str]:
    """Convert options of a job to PyIceberg properties."""
    plain = flat(options)
    found = {NAMES.get(name, name): value for name, value in plain.items() if name not in DROPPED}
    return {FILE_IO: ARROW_IO} | found


def open_catalog(name: str, options: Mapping[str, Any]) -> Any:
    """Open the catalog; PyIceberg's configuration file and environment supply missing options."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise ArchiveError("Iceberg needs PyIceberg: install penstock[spark,iceberg]") from error
    try:
        return load_catalog(name, **catalog_properties(options))
    except (ValueError, ImportError) as error:
        raise ArchiveError(
            f"catalog {name} cannot be opened: {error}. Give its properties, such as type and uri"
        ) from error


@dataclass(frozen=True, slots=True)
class FileIOStorage:
    """The files of an Iceberg table, accessed by PyIceberg's `FileIO`. Paths are full locations."""

    location: str
    properties: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def root(self) -> str:
        return self.location

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return bytes(file.read())

    def open(self, path: str) -> Any:
        return self.io().new_input(path).open()

    def write(self, path: str, data: bytes | memoryview) -> None:
        with self.io().new_output(path).create(overwrite=False) as stream:
            stream.write(bytes(data))

    def create(self, path: str, data: bytes) -> bool:
        raise NotImplementedError("the catalog commits, not a file")

    def listed(self, directory: str) -> Iterator[ListedFile]:
        from pyarrow.fs import FileSelector, FileType

        io = self.io()
        scheme, host, path = io.parse_location(directory, io.properties)
        files = io.fs_by_scheme(scheme, host)
        for one in files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True)):
            if one.type == FileType.File:
                tail = one.path.removeprefix(path.rstrip("/"))
                modified = one.mtime_ns / 1e9 if one.mtime_ns else 0.0
                yield ListedFile(directory.rstrip("/") + tail, one.size, modified)

    def delete(self, path: str) -> None:
        try:
            self.io().delete(path)
        except FileNotFoundError:
            return

    def io(self) -> Any:
        """Return the PyIceberg `FileIO`."""
        from pyiceberg.io import load_file_io

        return load_file_io(self.properties, self.location)
