"""The JSON schemas of the JetStream API, where they are available.

`PENSTOCK_SCHEMAS` names a directory with `api/v1`, `advisory/v1` and `metric/v1`, as published with
the NATS tools. Without it answers go unchecked and one test of the suite is skipped to say so. A
document is checked against the schema that its own `type` names, and must name one that exists.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft7Validator

NAMED = os.environ.get("PENSTOCK_SCHEMAS", "")
SCHEMAS = Path(NAMED) if NAMED else None
PREFIX = "io.nats.jetstream."
#: What the server says that the published schemas do not know.
UNPUBLISHED = {
    "api.v1.system_response",
    "api.v1.stream_cancel_move_response",
    "api.v1.stream_evacuate_peer_response",
}
#: Schemas that no server fits: an error one level too deep, numbers as text, fields never sent.
MISTAKEN = {
    "api.v1.consumer_unpin_response",
    "advisory.v1.nak",
    "advisory.v1.snapshot_create",
    "advisory.v1.terminated",
    "advisory.v1.consumer_group_pinned",
    "advisory.v1.consumer_group_unpinned",
}
PUB_ACK = "api.v1.pub_ack_response"


def check_answer(answer: dict[str, Any]) -> None:
    """An answer, advisory or metric has the shape its type promises."""
    kind = answer.get("type", "")
    assert kind.startswith(PREFIX), f"no type: {answer}"
    check_shape(kind.removeprefix(PREFIX), answer)


def check_shape(kind: str, document: dict[str, Any]) -> None:
    """A document fits the schema of a kind such as `api.v1.stream_info_response`."""
    if SCHEMAS is None or kind in UNPUBLISHED | MISTAKEN:
        return
    problems = [
        f"{error.json_path}: {error.message}" for error in _schema(kind).iter_errors(document)
    ]
    assert not problems, f"{kind}: {problems}\n{json.dumps(document, indent=1)}"


@functools.cache
def _schema(kind: str) -> Draft7Validator:
    from jsonschema import Draft7Validator

    assert SCHEMAS is not None
    path = SCHEMAS.joinpath(*kind.split(".")).with_suffix(".json")
    schema = json.loads(path.read_text())
    # A refusal that carries its kind's fields as well is both a refusal and an answer.
    if "oneOf" in schema:
        schema["anyOf"] = schema.pop("oneOf")
    return Draft7Validator(schema)
