"""Options of object stores, in the forms that libraries want."""

from __future__ import annotations

import pytest

from penstock.spark.files.archive_storage import StorageError, storage_for
from penstock.spark.files.storage_options import flat, nested
from penstock.spark.jobs.iceberg_io import TableName, catalog_properties
from penstock.spark.jobs.parquet_table import ArchiveError


def test_options_of_http_client_go_apart() -> None:
    given = {"region": "r", "allow_http": "true", "timeout": "30s", "client.user_agent": "me"}
    client = {"allow_http": True, "timeout": "30s", "user_agent": "me"}
    assert nested(given) == {"region": "r", "client_options": client}
    assert nested(nested(given)) == nested(given)
    assert flat(given) == {
        "region": "r",
        "allow_http": "true",
        "timeout": "30s",
        "user_agent": "me",
    }


def test_plain_endpoint_allows_plain_http() -> None:
    found = nested({"endpoint": "http://minio:9000"})
    assert found["client_options"] == {"allow_http": True}
    refused = nested({"endpoint": "http://minio:9000", "allow_http": "false"})
    assert refused["client_options"] == {"allow_http": False}
    assert "client_options" not in nested({"endpoint": "https://minio:9000"})


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("s3://b/x", {"endpoint": "http://minio:9000", "access_key_id": "a",
                      "secret_access_key": "b", "allow_http": "true"}),
        ("az://c/x", {"account_name": "a", "account_key": "YQ=="}),
        ("az://c/x", {"azure_storage_account_name": "a", "azure_storage_sas_key": "se=x&sig=y"}),
    ],
)  # fmt: skip
def test_documented_options_are_taken(place: str, options: dict[str, str]) -> None:
    assert storage_for(place, options).store() is not None  # type: ignore[attr-defined]


def test_unknown_option_is_named() -> None:
    with pytest.raises(StorageError, match="'foo' is not valid"):
        storage_for("s3://b/x", {"foo": "y"}).read("z")


def test_catalogs_get_their_own_names() -> None:
    found = catalog_properties({"type": "rest", "endpoint": "http://m:9000", "account_key": "k"})
    assert found["s3.endpoint"] == "http://m:9000"
    assert (found["type"], found["adls.account-key"]) == ("rest", "k")
    assert "allow_http" not in found


def test_tables_are_named_by_catalog_and_namespace() -> None:
    assert TableName.of("iceberg://lake/a.b") == ("lake", "a.b")
    assert TableName.of("a.b.c") == ("default", "a.b.c")
    for wrong in ("iceberg://lake/b", "iceberg://x/y/a.b", "b"):
        with pytest.raises(ArchiveError, match="is named"):
            TableName.of(wrong)
