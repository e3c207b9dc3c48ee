"""Bytes of member metadata and assignments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.errors.plugins import MalformedDataError
from connectx.model.decoding import Unreadable
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.protocol.group import decode_assignment, decode_metadata, encode_assignment, encode_metadata

URL = "http://127.0.0.1:8083/"
URL_HEX = "0016 687474703a2f2f3132372e302e302e313a383038332f"
WORK = WorkSet(("a", "b"), (TaskId("a", 0), TaskId("a", 1), TaskId("c-0", 3)))

METADATA_V2_WITHOUT_ASSIGNMENT = bytes.fromhex(f"0002 {URL_HEX} 0000000000000007 ffffffff")
MISMATCH_V2 = bytes.fromhex(f"0002 0001 0008 6d656d6265722d31 {URL_HEX} 0000000000000009 00000000 00000000 00000000")


def test_metadata_without_assignment_has_the_bytes_of_java() -> None:
    metadata = MemberMetadata(ProtocolVersion.SESSIONED, URL, 7)
    assert encode_metadata(metadata) == METADATA_V2_WITHOUT_ASSIGNMENT
    assert decode_metadata(METADATA_V2_WITHOUT_ASSIGNMENT) == metadata


def test_a_config_mismatch_has_the_bytes_of_java() -> None:
    assignment = Assignment(ProtocolVersion.SESSIONED, 1, "member-1", URL, 9)
    assert encode_assignment(assignment) == MISMATCH_V2
    assert decode_assignment(MISMATCH_V2) == assignment


def test_work_is_one_item_per_connector_with_minus_one_first() -> None:
    assignment = Assignment(ProtocolVersion.EAGER, 0, "m", "u", -1, WORK)
    assert encode_assignment(assignment).hex(" ", 2) == bytes.fromhex(
        "0000 0000 0001 6d 0001 75 ffffffffffffffff 00000003"
        "0001 61 00000003 ffffffff 00000000 00000001"
        "0001 62 00000001 ffffffff"
        "0003 632d30 00000001 00000003"
    ).hex(" ", 2)


def test_version_0_has_neither_allocation_nor_increments() -> None:
    running = Assignment(ProtocolVersion.COMPATIBLE, 0, "m", URL, 7, WORK, WORK, 5)
    joined = encode_metadata(MemberMetadata(ProtocolVersion.EAGER, URL, 7, running))
    assert decode_metadata(joined) == MemberMetadata(ProtocolVersion.EAGER, URL, 7)
    assigned = encode_assignment(Assignment(ProtocolVersion.EAGER, 0, "m", URL, 7, WORK, WORK, 5))
    assert decode_assignment(assigned) == Assignment(ProtocolVersion.EAGER, 0, "m", URL, 7, WORK)


def test_trailing_fields_of_versions_1_and_2_may_be_missing() -> None:
    assert decode_metadata(METADATA_V2_WITHOUT_ASSIGNMENT[:-4]) == MemberMetadata(ProtocolVersion.SESSIONED, URL, 7)
    whole = Assignment(ProtocolVersion.COMPATIBLE, 0, "m", URL, 9)
    data = encode_assignment(whole)
    for missing in (4, 8, 12):
        assert decode_assignment(data[:-missing]) == whole


def test_null_work_is_no_work() -> None:
    data = MISMATCH_V2[:-12] + bytes.fromhex("ffffffff ffffffff 00000000")
    assert decode_assignment(data) == decode_assignment(MISMATCH_V2)


def test_a_newer_version_is_read_like_the_newest_known() -> None:
    newer = decode_metadata(b"\x00\x07" + METADATA_V2_WITHOUT_ASSIGNMENT[2:])
    assert newer == decode_metadata(METADATA_V2_WITHOUT_ASSIGNMENT)


def test_work_is_read_in_the_order_of_the_wire() -> None:
    items = bytes.fromhex("00000002  0001 62 00000002 00000001 ffffffff  0001 61 00000001 ffffffff")
    data = MISMATCH_V2[:-12] + items + bytes(8)
    decoded = decode_assignment(data)
    assert isinstance(decoded, Assignment)
    assert decoded.assigned == WorkSet(("b", "a"), (TaskId("b", 1),))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xff\xff" + METADATA_V2_WITHOUT_ASSIGNMENT[2:],
        METADATA_V2_WITHOUT_ASSIGNMENT[:-5],
        METADATA_V2_WITHOUT_ASSIGNMENT[:-4] + bytes.fromhex("00000005 0002"),
        bytes.fromhex("0002 0002 fffe 0000000000000007 ffffffff"),
        bytes.fromhex("0002 ffff 0000000000000007 ffffffff"),
    ],
)
def test_garbage_is_unreadable(data: bytes) -> None:
    assert isinstance(decode_metadata(data), Unreadable)


def test_every_cut_assignment_is_an_error_or_lacks_whole_fields() -> None:
    whole = encode_assignment(Assignment(ProtocolVersion.SESSIONED, 0, "m", URL, 9, WORK, WORK, 77))
    readable = []
    for end in range(len(whole)):
        decoded = decode_assignment(whole[:end])
        if not isinstance(decoded, Unreadable):
            readable.append((end - len(whole), decoded))
    revoked_bytes = (len(whole) - 4 - 2 - 2 - 3 - len(URL) - 2 - 8) // 2
    assert [cut for cut, _ in readable] == [-4 - 2 * revoked_bytes, -4 - revoked_bytes, -4]


def test_a_name_too_long_for_the_protocol_is_refused() -> None:
    with pytest.raises(MalformedDataError):
        encode_metadata(MemberMetadata(ProtocolVersion.SESSIONED, "u" * 40_000, 1))


names = st.text(min_size=1, max_size=8)
tasks = st.builds(TaskId, names, st.integers(0, 2**31 - 1))
work = st.builds(
    lambda connectors, tasks: WorkSet(tuple(sorted(connectors)), tuple(sorted(tasks))),
    st.sets(names, max_size=5),
    st.sets(tasks, max_size=8),
)


@st.composite
def assignments(draw: st.DrawFn, version: ProtocolVersion) -> Assignment:
    increment = () if version is ProtocolVersion.EAGER else (draw(work), draw(st.integers(0, 2**31 - 1)))
    fixed = (draw(st.sampled_from([0, 1])), draw(names), draw(names), draw(st.integers(-1, 2**63 - 1)), draw(work))
    return Assignment(version, *fixed, *increment)


@given(st.sampled_from(ProtocolVersion).flatmap(assignments))
def test_decoding_inverts_encoding_of_assignments(assignment: Assignment) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment


@given(st.data(), st.sampled_from(ProtocolVersion), names, st.integers(-1, 2**63 - 1))
def test_decoding_inverts_encoding_of_metadata(
    data: st.DataObject, version: ProtocolVersion, url: str, config_offset: int
) -> None:
    allocation = None if version is ProtocolVersion.EAGER else data.draw(st.none() | assignments(version))
    metadata = MemberMetadata(version, url, config_offset, allocation)
    assert decode_metadata(encode_metadata(metadata)) == metadata
