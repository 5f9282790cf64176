"""Options of SQL tables: kept in the schema, without secrets, which are refused."""

from __future__ import annotations

import pytest

from penstock.spark.message_rows import message_schema
from penstock.spark.options import OptionError
from penstock.spark.read.source_options import ReadOptions
from penstock.spark.table_options import check_secrets, with_options, with_remembered

PLAIN = {"url": "nats://h:1", "stream": "S", "credsFile": "/c"}


def of_table(options: dict[str, str]) -> dict[str, str]:
    """What Spark hands to a source for `CREATE TABLE`."""
    return options | {f"option.{name}": value for name, value in options.items()}


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        ({"url": "nats://bob:hunter2@h:1"}, "url with credentials"),
        ({"url": "nats://h:1,hunter2@h:2"}, "url with credentials"),
        ({"PASSWORD": "hunter2"}, "password"),
        ({"token": "hunter2"}, "token"),
        ({"creds": "hunter2"}, "creds"),
        ({"nkeySeed": "hunter2"}, "nkeySeed"),
    ],
)
def test_table_with_secret_is_refused(secret: dict[str, str], told: str) -> None:
    options = PLAIN | secret
    with pytest.raises(OptionError, match=f"CREATE TABLE with {told}: .*credsFile") as caught:
        check_secrets(of_table(options), ReadOptions)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(OptionError, match="CREATE TABLE"):
        check_secrets({f"option.{k}": v for k, v in options.items()}, ReadOptions)
    check_secrets(options, ReadOptions)  # of a DataFrame


def test_table_without_secrets_keeps_its_options() -> None:
    check_secrets(of_table(PLAIN), ReadOptions)
    schema = with_options(message_schema(headers=False), of_table(PLAIN))
    assert with_remembered({"STREAM": "T"}, schema) == {
        "url": "nats://h:1", "credsFile": "/c", "STREAM": "T"
    }  # fmt: skip
