"""Encoded batches are what a server would read back as the declared messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.load.load_frames import (
    HEADER_BLOCK,
    TOKEN_DIGITS,
    SubjectPlan,
    encode_batch,
    encode_publish,
    encode_request,
    make_payload,
)


def read_frames(data: bytes) -> list[tuple[str, int, bytes]]:
    """(subject, header length, payload) of every frame."""
    frames = []
    while data:
        line, _, rest = data.partition(b"\r\n")
        verb, subject, *sizes = line.split(b" ")
        total = int(sizes[-1])
        header = int(sizes[0]) if verb == b"HPUB" else 0
        assert rest[total : total + 2] == b"\r\n"
        frames.append((subject.decode(), header, rest[header:total]))
        data = rest[total + 2 :]
    return frames


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("subjects", [1, 7])
def test_batch_holds_equal_frames_round_robin_with_rising_stamps(
    subjects: int, headers: bool
) -> None:
    plan = SubjectPlan("load", subjects)
    batch = encode_batch(plan, 1024, headers=headers)
    frames = read_frames(batch.data)
    assert len(frames) == batch.count
    assert batch.count % subjects == 0
    assert len(batch.data) == batch.count * batch.frame_bytes
    assert [subject for subject, _, _ in frames[:subjects]] == plan.names()
    assert [int(payload[:8]) for _, _, payload in frames] == list(range(batch.count))
    assert {header for _, header, _ in frames} == {len(HEADER_BLOCK) if headers else 0}


def test_subjects_of_plan_are_distinct_equally_long_and_under_its_pattern() -> None:
    plan = SubjectPlan("load", 10_000)
    names = plan.names()
    assert len(set(names)) == 10_000
    assert {len(name) for name in names} == {len("load.0000")}
    assert plan.pattern == "load.*"
    assert SubjectPlan("load").pattern == "load"


@given(st.integers(0, 99_999_999), st.integers(0, 4096))
def test_payload_has_its_size_and_stamp_if_one_fits(place: int, size: int) -> None:
    payload = make_payload(place, size)
    assert len(payload) == size
    assert size < 8 or int(payload[:8]) == place


def test_empty_payload_is_valid_frame() -> None:
    assert encode_publish(b"a", b"", headers=False) == b"PUB a 0\r\n\r\n"


def test_token_of_request_stands_at_the_end_of_its_reply_subject() -> None:
    frame, token_at = encode_request("ask", "_INBOX.me", 3)
    frame[token_at : token_at + TOKEN_DIGITS] = b"1234567890"
    assert bytes(frame) == b"PUB ask _INBOX.me.1234567890 3\r\nxxx\r\n"
