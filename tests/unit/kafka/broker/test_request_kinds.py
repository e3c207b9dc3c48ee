"""Requests are found in the bytes of a connection wherever those are cut."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.kafka.broker.request_kinds import RequestStarts, kind_name, request_kinds

KINDS = st.lists(st.tuples(st.integers(0, 92), st.binary(max_size=40)), max_size=8)


def encoded(requests: list[tuple[int, bytes]]) -> list[bytes]:
    return [struct.pack(">ih", len(rest) + 2, kind) + rest for kind, rest in requests]


@given(KINDS, st.data())
def test_each_request_is_found_once_wherever_the_bytes_are_cut(
    requests: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    frames = encoded(requests)
    whole = b"".join(frames)
    begins = [sum(map(len, frames[:number])) for number in range(len(frames))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    starts = RequestStarts()
    found: list[tuple[int, int]] = []
    for begin, end in pairwise([0, *cuts, len(whole)]):
        found += [(begin + position, kind) for position, kind in starts.read(memoryview(whole[begin:end]))]
        assert starts.between == (end in (*begins, len(whole)))
    assert [kind for _, kind in found] == [kind for kind, _ in requests]
    assert all(begin <= position < begin + 6 for (position, _), begin in zip(found, begins, strict=True))


def test_a_request_whose_first_bytes_come_alone_begins_with_the_read_that_tells_its_kind() -> None:
    (frame,) = encoded([(26, b"rest")])
    starts = RequestStarts()
    assert starts.read(memoryview(frame[:5])) == []
    assert starts.read(memoryview(frame[5:])) == [(0, 26)]


def test_kinds_are_named_as_in_kafkas_protocol() -> None:
    assert request_kinds(["EndTxn", "Produce"]) == {26, 0}
    assert {0, 1, 12, 26} <= request_kinds(None)
    assert (kind_name(26), kind_name(999)) == ("EndTxn", "999")


@pytest.mark.parametrize(
    ("names", "named"), [(["EndTxn", "Flood"], "not Flood"), ([], "not none"), ("EndTxn", "EndTxn")]
)
def test_unknown_kinds_are_refused(names: list[str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        request_kinds(names)
