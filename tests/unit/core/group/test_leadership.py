"""What only the leader does: claim, assign, rotate the key, clean statuses; and how it stops to lead."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from connectx.core import verbs
from connectx.core.config_writer import Claim, ConfigWriter
from connectx.core.context import Context
from connectx.core.group.assignor import CONFIG_MISMATCH
from connectx.core.group.leadership import Leadership
from connectx.core.messages import (
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    CreateSessionKey,
    HeartbeatReplied,
    ReadConfigToEnd,
    Refused,
    Request,
    SendHeartbeat,
    SessionKeyCreated,
    SetTimer,
    Step,
    TimerFired,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.core.signals import Elected, StoppedOrigin
from connectx.core.timer_keys import WorkerTimer
from connectx.core.worker import WorkerCore
from connectx.model.config_records import ConnectorConfigRecord, SessionKeyRecord, TaskCommitRecord
from connectx.model.events import EventKind
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import ExactlyOnceSupport, State, TargetState
from connectx.model.status_records import ConnectorStatusRecord, Status, TaskStatusRecord, TopicStatusRecord
from tests.support.core_parts import (
    C0,
    C1,
    KEY,
    ME,
    a_context,
    a_core,
    both,
    commit,
    effects,
    follow,
    read,
    shown,
    target,
    transitions,
)
from tests.support.histories import Recorded

HOUR_MS = 3_600_000
CLAIMED = Recorded(
    EventKind.LEADERSHIP_CLAIMED,
    generation=3,
    cause="the former leader's producer is fenced",
    data={"transactional_id": "connect-cluster-g"},
)
KEY_TIMER = SetTimer(WorkerTimer.SESSION_KEY, 1, KEY.creation_timestamp_ms + HOUR_MS)


def a_leader(claim: Claim = Claim.NONE, **changes: Any) -> tuple[Context, Leadership]:
    context = a_context(**changes)
    return context, Leadership(context, ConfigWriter(context, claim))


# ------------------------------------------------------------------------------------------------------- the claim


def test_a_new_leader_claims_the_config_topic_before_it_writes() -> None:
    context, leadership = a_leader()
    leadership.take_over()
    assert both(context) == ([], [ClaimConfigWrites(1)])
    leadership.on_claimed(ConfigWritesClaimed(1))
    assert both(context) == ([CLAIMED], [KEY_TIMER])
    assert leadership.writer.claim is Claim.HELD


def test_a_leader_that_holds_the_claim_does_not_claim_again() -> None:
    context, leadership = a_leader(Claim.HELD)
    leadership.take_over()
    assert both(context) == ([], [KEY_TIMER])


def test_a_claim_under_way_is_not_repeated() -> None:
    context, leadership = a_leader()
    leadership.take_over()
    effects(context)
    leadership.take_over()
    assert both(context) == ([], [])


@pytest.mark.rule("618.1.2")
def test_without_exactly_once_there_is_nothing_to_claim() -> None:
    context, leadership = a_leader(exactly_once_source_support=ExactlyOnceSupport.DISABLED)
    leadership.take_over()
    assert both(context) == ([], [KEY_TIMER])
    assert leadership.writer.claim is Claim.HELD


def test_a_claim_that_fails_is_tried_again_after_250_ms() -> None:
    context, leadership = a_leader()
    leadership.take_over()
    effects(context)
    leadership.on_claimed(ConfigWritesClaimed(1, "timed out"))
    assert both(context) == ([], [SetTimer(WorkerTimer.RECLAIM, 1, 1_250)])
    leadership.on_reclaim_timer(is_member=True)
    assert effects(context) == [ClaimConfigWrites(2)]


def a_fenced_leader() -> tuple[WorkerCore, Step]:
    """A leader whose write was answered as fenced, and the step of that answer."""
    core = a_core()
    core.handle(Request(7, verbs.Delete("c")), 1_000)
    return core, core.handle(ConfigRecordsWritten(1, "fenced", fenced=True), 1_000)


def test_a_fenced_leader_claims_again_and_its_writes_wait() -> None:
    core, step = a_fenced_leader()
    fenced = Recorded(
        EventKind.LEADERSHIP_FENCED,
        generation=3,
        data={
            "error": "Failed to write to the config topic: fenced; "
            "this may be due to a transient error and the request can be safely retried"
        },
    )
    assert step.transitions == [fenced]
    assert SetTimer(WorkerTimer.RECLAIM, 1, 1_250) in step.effects
    assert core.writer.claim is Claim.PENDING
    assert core.handle(Request(8, verbs.Delete("c")), 1_100).effects == []
    core.handle(HeartbeatReplied(5, None), 1_200)
    assert core.handle(TimerFired(WorkerTimer.RECLAIM, 1), 1_250).effects == [ClaimConfigWrites(2)]


def test_a_fenced_leader_does_not_claim_again_before_the_group_has_said_that_it_is_a_member() -> None:
    core, step = a_fenced_leader()
    assert SendHeartbeat(5, 3, "me") in step.effects
    assert core.handle(TimerFired(WorkerTimer.RECLAIM, 1), 1_250).effects == [SetTimer(WorkerTimer.RECLAIM, 2, 1_500)]
    core.handle(HeartbeatReplied(5, None), 1_300)
    assert core.handle(TimerFired(WorkerTimer.RECLAIM, 2), 1_500).effects == [ClaimConfigWrites(2)]


def test_a_write_that_fails_after_the_claim_was_taken_away_loses_nothing_more() -> None:
    core = a_core()
    core.handle(Request(7, verbs.Delete("c")), 1_000)
    follow(core)
    step = core.handle(ConfigRecordsWritten(1, "fenced", fenced=True), 1_000)
    assert step.transitions == []
    assert [type(effect) for effect in step.effects] == [Refused]
    assert core.writer.claim is Claim.NONE


def test_an_answer_to_an_older_claim_gives_no_rights() -> None:
    context, leadership = a_leader()
    leadership.take_over()
    leadership.step_down()
    assert context.pending.waiting == {}
    assert leadership.writer.claim is Claim.NONE


def test_a_stopped_connector_that_has_tasks_loses_them_once_more() -> None:
    context, leadership = a_leader(Claim.HELD)
    leadership.empty_stopped("c")
    assert effects(context) == [], "it is not stopped"
    target(context, TargetState.STOPPED)
    leadership.empty_stopped("c")
    [read_first] = effects(context)
    assert isinstance(read_first, ReadConfigToEnd)
    leadership.writer.on_read(ConfigReadToEnd(read_first.request_id))
    [written] = effects(context)
    assert isinstance(written, WriteConfigRecords)
    assert (written.records, written.privileged) == ((TaskCommitRecord("c", 0),), True)
    commit(context, tasks=0)
    leadership.empty_stopped("c")
    assert effects(context) == [], "it has none"


def test_a_leader_looks_at_all_stopped_connectors_when_it_may_write_and_again_when_a_write_failed() -> None:
    context, leadership = a_leader()
    target(context, TargetState.STOPPED)
    leadership.empty_stopped()
    assert effects(context) == [], "it may not write"
    leadership.take_over()
    effects(context)
    leadership.on_claimed(ConfigWritesClaimed(1))
    assert [write.origin for write in leadership.writer.queue] == [StoppedOrigin("c")]
    effects(context)
    leadership.on_stopped_emptied("timed out")
    assert effects(context) == [SetTimer(WorkerTimer.EMPTY_STOPPED, 2, 1_250)]


def test_a_worker_that_falls_out_of_the_group_leads_no_more_until_it_is_named_again() -> None:
    core, _ = a_fenced_leader()
    memory = core.leadership.memory
    core.handle(HeartbeatReplied(5, "UNKNOWN_MEMBER_ID"), 1_100)
    assert core.handle(TimerFired(WorkerTimer.RECLAIM, 1), 1_250).effects == []
    group = core.context.group
    assert (core.writer.claim, group.is_leader, group.leader_url) == (Claim.NONE, False, "")
    assert core.leadership.memory is memory  # it may be named again, and then knows what it assigned


# ------------------------------------------------------------------------------------------------------ the key


@pytest.mark.parametrize(
    "key",
    [
        None,
        SessionKeyRecord(b"k" * 32, "HmacSHA256", 1_000 - HOUR_MS),
        SessionKeyRecord(b"k" * 16, "HmacSHA256", 1_000),
        SessionKeyRecord(b"k" * 32, "HmacSHA512", 1_000),
    ],
    ids=["missing", "expired", "of another length", "of another algorithm"],
)
def test_the_leader_makes_a_key_when_there_is_none_that_it_would_make_itself(key: SessionKeyRecord | None) -> None:
    context, leadership = a_leader(Claim.HELD)
    context.config.session_key = key
    leadership.check_session_key()
    assert effects(context) == [CreateSessionKey(1, 32)]
    leadership.on_session_key(SessionKeyCreated(1, b"n" * 32, 1_001))
    record = SessionKeyRecord(b"n" * 32, "HmacSHA256", 1_001)
    assert effects(context) == [WriteConfigRecords(2, (record,), privileged=True)]


def test_a_key_of_the_configured_kind_is_made() -> None:
    context, leadership = a_leader(
        Claim.HELD, inter_worker_key_generation_algorithm="HmacSHA512", inter_worker_key_size=512
    )
    leadership.check_session_key()
    assert effects(context) == [CreateSessionKey(1, 64)]
    leadership.on_session_key(SessionKeyCreated(1, b"n" * 64, 1_001))
    assert effects(context)[-1] == WriteConfigRecords(
        2, (SessionKeyRecord(b"n" * 64, "HmacSHA512", 1_001),), privileged=True
    )


def test_a_key_is_rotated_when_its_time_is_over() -> None:
    context, leadership = a_leader(Claim.HELD)
    leadership.check_session_key()
    assert effects(context) == [KEY_TIMER]
    context.now_ms = KEY_TIMER.at_ms
    leadership.check_session_key()
    assert effects(context) == [CreateSessionKey(1, 32)]


def test_a_life_time_of_zero_keeps_the_first_key_for_ever() -> None:
    context, leadership = a_leader(Claim.HELD, inter_worker_key_ttl_ms=0)
    leadership.check_session_key()
    assert effects(context) == []


@pytest.mark.parametrize("why_not", ["follower", "no claim", "protocol without sessions", "under way"])
def test_no_key_is_made(why_not: str) -> None:
    context, leadership = a_leader(Claim.PENDING if why_not == "no claim" else Claim.HELD, leads=why_not != "follower")
    context.config.session_key = None
    if why_not == "protocol without sessions":
        context.group.protocol = ProtocolVersion.COMPATIBLE
    elif why_not == "under way":
        leadership.key_request = 9
    leadership.check_session_key()
    assert effects(context) == []


def test_a_key_that_could_not_be_written_is_made_again_soon() -> None:
    context, leadership = a_leader(Claim.HELD)
    context.config.session_key = None
    leadership.check_session_key()
    leadership.on_session_key(SessionKeyCreated(1, b"n" * 32, 1_001))
    effects(context)
    leadership.on_session_key_written("timed out")
    assert effects(context) == [SetTimer(WorkerTimer.SESSION_KEY, 1, 1_250)]


def test_a_key_that_comes_after_leadership_moved_is_not_written() -> None:
    context, leadership = a_leader(Claim.HELD)
    context.config.session_key = None
    leadership.check_session_key()
    leadership.step_down()
    effects(context)
    assert context.pending.waiting == {}


# ----------------------------------------------------------------------------------------------------- assignment


def metadata(url: str = "http://me/", offset: int | None = None, claims: WorkSet | None = None) -> MemberMetadata:
    offset = 6 if offset is None else offset
    version = ProtocolVersion.SESSIONED
    allocation = None if claims is None else Assignment(version, 0, "", "", offset, claims)
    return MemberMetadata(version, url, offset, allocation)


def test_the_leader_assigns_what_the_config_topic_holds_and_knows_then_who_runs_it() -> None:
    _, leadership = a_leader()
    members = {"me": metadata(), "other": metadata("http://other/")}
    assigned = leadership.assign(Elected(4, ProtocolVersion.SESSIONED, "me", members))
    send = partial(Assignment, ProtocolVersion.SESSIONED, error=0, leader="me", leader_url="http://me/")
    assert assigned == {
        "me": send(config_offset=6, assigned=WorkSet(("c",), (C0,))),
        "other": send(config_offset=6, assigned=WorkSet((), (C1,))),
    }
    assert (leadership.owner_url("c"), leadership.owner_url(C1)) == ("http://me/", "http://other/")
    assert leadership.owner_url(TaskId("c", 9)) is None
    leadership.forget_owners()
    assert leadership.owner_url("c") is None


def test_the_tasks_of_a_partly_written_set_are_assigned_to_nobody() -> None:
    context, leadership = a_leader()
    read(context, TaskCommitRecord("c", 3))
    members = {"me": metadata(offset=7)}
    assigned = leadership.assign(Elected(4, ProtocolVersion.SESSIONED, "me", members))
    assert assigned["me"].assigned == WorkSet(("c",))


def test_a_leader_that_is_behind_a_member_assigns_nothing() -> None:
    context, leadership = a_leader()
    members = {"me": metadata(), "other": metadata("http://other/", offset=7)}
    assigned = leadership.assign(Elected(4, ProtocolVersion.SESSIONED, "me", members))
    assert {assignment.error for assignment in assigned.values()} == {CONFIG_MISMATCH}
    assert {assignment.assigned for assignment in assigned.values()} == {WorkSet()}
    assert leadership.owner_url("c") is None
    assert transitions(context) == []


def test_lost_work_waits_for_its_worker_and_is_told() -> None:
    context, leadership = a_leader()
    members = {"me": metadata(), "other": metadata("http://other/")}
    leadership.assign(Elected(4, ProtocolVersion.SESSIONED, "me", members))
    context.group.generation = 4
    transitions(context)
    alone = {"me": metadata(claims=WorkSet(("c",), (C0,)))}
    assigned = leadership.assign(Elected(5, ProtocolVersion.SESSIONED, "me", alone))
    assert assigned["me"].delay_ms == 300_000
    computed, delayed = transitions(context)
    assert (computed.kind, computed.data["lost"]) == (EventKind.ASSIGNMENT_COMPUTED, ["c-1"])
    assert (delayed.kind, delayed.data) == (EventKind.REBALANCE_DELAYED, {"lost": ["c-1"], "delay_ms": 300_000})


def test_a_leader_that_stepped_down_has_forgotten_what_it_assigned() -> None:
    context, leadership = a_leader(Claim.HELD)
    members = {"me": metadata(), "other": metadata("http://other/")}
    leadership.assign(Elected(4, ProtocolVersion.SESSIONED, "me", members))
    leadership.step_down()
    context.group.generation = 4
    alone = {"me": metadata(claims=WorkSet(("c",), (C0,)))}
    assigned = leadership.assign(Elected(5, ProtocolVersion.SESSIONED, "me", alone))
    assert (assigned["me"].assigned, assigned["me"].delay_ms) == (WorkSet((), (C1,)), 0)
    assert leadership.writer.claim is Claim.NONE


def test_the_eager_protocol_gives_everything_out_anew() -> None:
    _, leadership = a_leader()
    eager = {m: MemberMetadata(ProtocolVersion.EAGER, f"http://{m}/", 6) for m in ("a", "b")}
    assigned = leadership.assign(Elected(4, ProtocolVersion.EAGER, "a", eager))
    assert {m: a.assigned for m, a in assigned.items()} == {"a": WorkSet(("c",), (C1,)), "b": WorkSet((), (C0,))}
    assert leadership.owner_url(C0) == "http://b/"


# -------------------------------------------------------------------------------------------------------- statuses


def test_a_new_leader_removes_statuses_of_what_is_gone() -> None:
    context, leadership = a_leader(Claim.HELD)
    for connector in ("c", "gone"):
        shown(context, connector, State.RUNNING)
        context.status.apply(TopicStatusRecord("t", connector, 0, 1))
    for task in (C0, C1, TaskId("gone", 0)):
        shown(context, task, State.RUNNING)
    commit(context, tasks=1)
    leadership.take_over()
    assert [effect for effect in effects(context) if isinstance(effect, WriteStatus)] == [
        WriteStatus(TaskStatusRecord(C1, None)),
        WriteStatus(ConnectorStatusRecord("gone", None)),
        WriteStatus(TaskStatusRecord(TaskId("gone", 0), None)),
        WriteStatus(TopicStatusRecord("t", "gone", None)),
    ]


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_leader_removes_a_status_that_comes_after_its_work_is_gone(leads: bool) -> None:
    context, leadership = a_leader(leads=leads)
    read(context, ConnectorConfigRecord("c", None))
    late = Status(State.UNASSIGNED, ME, 3)
    leadership.on_status(ConnectorStatusRecord("c", late))
    leadership.on_status(TaskStatusRecord(C0, late))
    leadership.on_status(TopicStatusRecord("t", "c", 0, 1))
    removed = [
        WriteStatus(ConnectorStatusRecord("c", None)),
        WriteStatus(TaskStatusRecord(C0, None)),
        WriteStatus(TopicStatusRecord("t", "c", None)),
    ]
    assert effects(context) == (removed if leads else [])


def test_tombstones_and_statuses_of_living_work_are_left_alone() -> None:
    context, leadership = a_leader()
    leadership.on_status(ConnectorStatusRecord("c", Status(State.RUNNING, ME, 3)))
    leadership.on_status(ConnectorStatusRecord("gone", None))
    leadership.on_status(TaskStatusRecord(TaskId("gone", 0), None))
    leadership.on_status(TopicStatusRecord("t", "gone", None))
    assert effects(context) == []
