"""Common parts of key-value buckets and object buckets: both are stored in streams."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.api.error_codes import STREAM_NOT_FOUND
from penstock.cli.argument_values import duration, positive, size
from penstock.cli.cli_errors import Failure, RequestRefused
from penstock.cli.command_spec import Argument, argument, confirm

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from penstock.api.api_client import Document
    from penstock.cli.command_session import CommandSession

BUCKET: Final = argument("bucket", help="name of the bucket")


def bucket_arguments() -> tuple[Argument, ...]:
    """Return the arguments for creating any bucket."""
    return (
        BUCKET,
        argument("--description", default="", help="for people"),
        argument("--ttl", type=duration, default=0, metavar="DURATION", help="older ones go"),
        argument("--max-bytes", type=size, default=-1, metavar="SIZE", help="bytes at most"),
        argument("--storage", choices=["file", "memory"], default="file", help="where it is kept"),
        argument("--replicas", type=positive, default=1, metavar="N", help="copies in the cluster"),
        argument("--compress", action="store_true", help="keep it compressed"),
    )


def bucket_config(stream: str, subjects: list[str], options: Namespace) -> Document:
    """Return the stream configuration of a new bucket."""
    config: Document = {
        "name": stream,
        "description": options.description,
        "subjects": subjects,
        "max_age": options.ttl,
        "max_bytes": options.max_bytes,
        "storage": options.storage,
        "num_replicas": options.replicas,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }
    return config | ({"compression": "s2"} if options.compress else {})


def bucket_status(info: Document, prefix: str) -> Document:
    """Return a bucket as a document."""
    config, state = info["config"], info["state"]
    return {
        "bucket": config["name"].removeprefix(prefix),
        "stream": config["name"],
        "description": config.get("description", ""),
        "bytes": state["bytes"],
        "ttl": config["max_age"],
        "max_bytes": config["max_bytes"],
        "storage": config["storage"],
        "replicas": config["num_replicas"],
        "compressed": config.get("compression", "none") != "none",
    }


@contextmanager
def named(bucket: str) -> Iterator[None]:
    """Report a missing stream as a missing bucket."""
    try:
        yield
    except RequestRefused as refused:
        if refused.err_code != STREAM_NOT_FOUND:
            raise
        raise Failure(f"there is no bucket {bucket} (error {refused.err_code})") from None


async def bucket_info(session: CommandSession, bucket: str, stream: str) -> Document:
    """Return the stream information of a bucket; raise Failure if it does not exist."""
    with named(bucket):
        return await session.api.call(f"STREAM.INFO.{stream}")


async def remove_bucket(session: CommandSession, options: Namespace, stream: str) -> None:
    """Remove a whole bucket."""
    confirm(f"Remove bucket {options.bucket} with all that is in it?", options)
    with named(options.bucket):
        answer = await session.api.call(f"STREAM.DELETE.{stream}")
    session.screen.answer(answer, f"Bucket {options.bucket} was deleted")
