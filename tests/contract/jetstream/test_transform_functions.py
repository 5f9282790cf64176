"""Subject transforms on a running server: what it refuses, and what it makes of subjects.

Every function, well and badly used, behind every kind of source: the server and
`penstock.subjects.transform` say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.subjects.transform import Transform, TransformFault, check_mapping
from support.assets import unique

if TYPE_CHECKING:
    from support.assets import JetStream

#: Sources behind the stream's own name, with subjects they match.
SOURCES = {
    "*": ["abcdefg", "-a--b-c-", "ab"],
    "*.*": ["abcdef.xyz"],
    ">": ["abc.def", "q"],
    "*.>": ["abcde.f.g"],
    "literal": ["literal"],
}
CALLS = """
    $1 $2 $0 $x {{wildcard(1)}} {{Wildcard(2)}} {{wildcard(3)}} {{wildcard()}} {{wildcard(1,2)}}
    {{wildcard(x)}} {{partition(10,1)}} {{partition(10,1,2)}} {{partition(5)}} {{partition(0,1)}}
    {{Partition(-3)}} {{partition()}} {{partition(99999999999)}} {{split(1,-)}} {{split(1,)}}
    {{split(1)}} {{split(1,-,2)}} {{splitFromLeft(1,2)}} {{SplitFromRight(1,2)}}
    {{splitfromright(1,0)}} {{sliceFromLeft(1,2)}} {{sliceFromRight(1,2)}} {{SliceFromRight(1,3)}}
    {{left(1,3)}} {{right(1,3)}} {{left(1,-3)}} {{left(1,x)}} {{left(1)}} {{random(1)}}
    {{random(1,2)}} {{random(x)}} {{foo(1)}} {{}} {{x}} a{{wildcard(1)}} * plain x..y > x.>.y
"""


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("token", CALLS.split())
def test_transform_result_or_refusal_matches_reference(
    jetstream: JetStream, source: str, token: str
) -> None:
    name = unique("T")
    src, dest = f"{name}.{source}", f"out.{token}" + (".>" if ">" in source else "")
    transform = {"src": src, "dest": dest}
    body = {"name": name, "subjects": [src], "storage": "memory", "subject_transform": transform}
    answer = jetstream.call(f"STREAM.CREATE.{name}", body)
    fault = fault_of(src, dest)
    if fault:
        assert answer["error"]["description"] == f"stream transform: {fault}"
        return
    assert "error" not in answer
    rule = Transform(src, dest)
    for rest in SOURCES[source]:
        jetstream.publish_ack(f"{name}.{rest}")
        last = jetstream.done(f"STREAM.MSG.GET.{name}", {"last_by_subj": ">"})["message"]
        assert last["subject"] == rule.match(f"{name}.{rest}")
    jetstream.done(f"STREAM.DELETE.{name}")


def fault_of(src: str, dest: str) -> str:
    try:
        check_mapping(src, dest)
    except TransformFault as fault:
        return str(fault)
    return ""
