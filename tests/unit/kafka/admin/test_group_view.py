"""A group from outside: the bytes that a Java leader and its follower were described with (Kafka Connect 4.3.0)."""

from __future__ import annotations

from connectx.kafka.admin.group_view import group_view, worker_id_of
from connectx.kafka.admin.groups import GroupMember
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.protocol.group import encode_assignment, encode_metadata

LEADER, URL = b"connect-127.0.0.1:29305-4892fd03-a82a-4d9b-9c1a-ae3b22559834", b"http://127.0.0.1:29305/"
OTHER = b"http://127.0.0.1:22252/"
HEAD = b"\x00\x02\x00\x00\x00<" + LEADER + b"\x00\x17" + URL
IDLE = GroupMember(
    LEADER.decode(),
    b"\x00\x02\x00\x17" + URL + b"\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00o" + HEAD
    + b"\x00\x00\x00\x00\x00\x00\x00\x03" + bytes(12),
    HEAD + b"\x00\x00\x00\x00\x00\x00\x00\x07" + bytes(12),
)  # fmt: skip
BUSY = GroupMember(
    "connect-127.0.0.1:22252-6be4ec6c",
    b"\x00\x02\x00\x17" + OTHER + b"\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00{" + HEAD
    + b"\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x01\x00\x02f1\x00\x00\x00\x01\xff\xff\xff\xff" + bytes(8),
    HEAD + b"\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x01\x00\x02f1\x00\x00\x00\x01\x00\x00\x00\x00" + bytes(8),
)  # fmt: skip


def test_what_a_member_runs_is_what_it_claimed_and_what_it_was_given() -> None:
    view = group_view("java", "sessioned", [IDLE, BUSY])
    assert view is not None
    assert (view.leader_url, view.worker_ids) == ("http://127.0.0.1:29305/", ("127.0.0.1:22252", "127.0.0.1:29305"))
    busy, idle = view.members
    assert busy.work == WorkSet(("f1",), (TaskId("f1", 0),)), "the connector was claimed, the task is new"
    assert not idle.work
    assert (busy.config_offset, busy.assigned_offset) == (7, 7)


def member(
    version: ProtocolVersion, claimed: WorkSet, assigned: WorkSet, revoked: WorkSet, delay_ms: int = 0
) -> GroupMember:
    claim = Assignment(version, 0, "m", "http://a:1/", 5, claimed)
    joined = encode_metadata(MemberMetadata(version, "http://a:1/", 5, claim))
    given = Assignment(version, 0, "m", "http://a:1/", 5, assigned, revoked, delay_ms)
    return GroupMember("m", joined, encode_assignment(given))


def test_what_was_revoked_is_not_run_any_more() -> None:
    claimed, revoked = WorkSet(("a", "b"), (TaskId("a", 0),)), WorkSet(("b",), ())
    view = group_view("g", "sessioned", [member(ProtocolVersion.SESSIONED, claimed, WorkSet(), revoked, 3000)])
    assert view is not None
    assert view.members[0].work == WorkSet(("a",), (TaskId("a", 0),))
    assert view.delay_ms == 3000


def test_an_eager_assignment_is_the_whole() -> None:
    given = WorkSet(("c",), ())
    view = group_view("g", "default", [member(ProtocolVersion.EAGER, WorkSet(("a",), ()), given, WorkSet())])
    assert view is not None
    assert view.members[0].work == given


def test_a_member_that_says_something_else_gives_no_view() -> None:
    assert group_view("g", "range", [GroupMember("m", b"\x00", b"")]) is None


def test_a_workers_id_is_the_address_without_a_login() -> None:
    assert worker_id_of("https://me:secret@host:8083/") == "host:8083"
