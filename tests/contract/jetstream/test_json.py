"""What a server says of JSON that is none, or does not fit, is what the codec says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.json_cases import Body, bodies

if TYPE_CHECKING:
    from support.assets import JetStream

INVALID_JSON = 10025


@pytest.mark.parametrize("body", bodies(), ids=lambda body: body.label)
def test_json_error_matches_recorded_one(jetstream: JetStream, body: Body) -> None:
    # Nothing here is called so: what is fine as JSON is refused for its name.
    answer = jetstream.refused("STREAM.CREATE.not-the-name-in-the-body", body.raw)
    if body.fault:
        assert answer == (400, INVALID_JSON, f"invalid JSON: {body.fault}")
    else:
        assert answer.err_code != INVALID_JSON
