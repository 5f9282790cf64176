"""Strategies for what is applied to a fold: few keys, odd versions, batches, cursors."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.kv.kv_types import KvUpdate, Op, WatchCursor

keys = st.sampled_from(["a", "a.b", "a.b.c", "ab", "b", "ü", "k" * 511, "k" * 512, "k" * 700])
values = st.sampled_from([b"", b"v", b"w" * 300]) | st.binary(max_size=20)
revisions = st.integers(0, 2**64 - 1) | st.sampled_from([-1, 1, 2**63 - 1, 2**63])
tokens = st.sampled_from([b"", b"t", b"12345678", b"0123456789"])


@st.composite
def updates(draw: st.DrawFn) -> KvUpdate:
    op, revision = draw(st.sampled_from(Op)), draw(revisions)
    value = draw(values) if op is Op.PUT else b""
    token = draw(tokens) if revision < 0 else b""
    return KvUpdate(op, draw(keys), value, revision, token=token)


cursors = st.just(WatchCursor.NONE) | st.integers(0, 2**64 - 1).map(WatchCursor.of)
batches = st.lists(updates(), max_size=12)
