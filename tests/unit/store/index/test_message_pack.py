"""Packed messages: what goes in comes out, and half a message is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.index.message_log import MessageLog
from penstock.store.index.message_pack import Packer, append_packed, holds_subject, unpacked

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
messages = st.lists(st.tuples(texts, st.binary(max_size=20), st.binary(max_size=5000)), max_size=8)


def packed(some: list[tuple[str, bytes, bytes]]) -> bytes:
    packer = Packer()
    for subject, header, payload in some:
        packer.add(subject.encode(), header, payload)
    assert packer.count == len(some)
    return packer.packed()


@given(messages, texts)
def test_messages_come_out_as_they_went_in(
    some: list[tuple[str, bytes, bytes]], other: str
) -> None:
    assert unpacked(packed(some)) == some
    subjects = {subject for subject, _, _ in some}
    for subject in {*subjects, other}:
        assert holds_subject(packed(some), subject) is (subject in subjects)


@given(messages.filter(len), st.data())
def test_half_message_is_refused(some: list[tuple[str, bytes, bytes]], data: st.DataObject) -> None:
    whole, before = packed(some), packed(some[:-1])
    cut = whole[: data.draw(st.integers(len(before) + 1, len(whole) - 1))]
    with pytest.raises(ValueError, match="not whole"):
        unpacked(cut)
    with pytest.raises(ValueError, match="not whole"):
        append_packed(MessageLog(), cut, 1)
