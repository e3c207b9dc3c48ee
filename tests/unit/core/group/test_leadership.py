"""What only the leader does: claim, assign, rotate the key, clean statuses; and how it stops to lead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from connectx.core import verbs
from connectx.core.group.assignor import CONFIG_MISMATCH
from connectx.core.group_messages import HeartbeatReplied, SendHeartbeat, SendJoinGroup, SendSyncGroup
from connectx.core.ignored import NotPending, TimerReplaced
from connectx.core.messages import (
    AbandonConfigWrites,
    ClaimConfigWrites,
    CreateSessionKey,
    Forwarded,
    ReadConfigToEnd,
    Refused,
    SessionKeyCreated,
    SetTimer,
    WorkerStep,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.core.timer_keys import WorkerTimer
from connectx.model.config_records import ConnectorConfigRecord, SessionKeyRecord, TargetStateRecord, TaskCommitRecord
from connectx.model.events import EventKind
from connectx.model.group import Assignment, MemberMetadata, WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import ExactlyOnceSupport, State, TargetState
from connectx.model.status_records import ConnectorStatusRecord, Status, TaskStatusRecord, TopicStatusRecord
from tests.support.histories import Recorded
from tests.support.worker_script import (
    C0,
    C1,
    EAGER,
    KEY,
    ME,
    MY_URL,
    NOTHING_HAPPENED,
    SESSIONED,
    WorkerScript,
    both,
    claiming,
    committed,
    configured,
    following,
    kinds,
    leading,
    member,
    of_kind,
    resting,
    starting,
)

HOUR_MS = 3_600_000
CLAIMED = Recorded(
    EventKind.LEADERSHIP_CLAIMED,
    generation=3,
    cause="the former leader's producer is fenced",
    data={"transactional_id": "connect-cluster-g"},
)
KEY_TIMER = SetTimer(WorkerTimer.SESSION_KEY, 1, KEY.creation_timestamp_ms + HOUR_MS)
WITHOUT_KEY = configured()[:-1]
STOPPED = resting(TargetState.STOPPED)


def sync(step: WorkerStep) -> SendSyncGroup:
    (sent,) = of_kind(step, SendSyncGroup)
    return sent


def lost(script: WorkerScript) -> WorkerStep:
    """The group has dropped this worker."""
    return script.heartbeat("UNKNOWN_MEMBER_ID")


def led_again(script: WorkerScript, generation: int = 4) -> WorkerStep:
    """The group rebalances and names this worker its leader again."""
    script.rejoin()
    script.joined(generation, leads=True)
    return script.assigned()


def test_a_new_leader_claims_the_config_topic_before_it_writes() -> None:
    script = claiming()
    assert script.ask(verbs.Delete("c")).effects == []
    claimed = script.claimed()
    deleted = (ConnectorConfigRecord("c", None), TargetStateRecord("c", None), TaskCommitRecord("c", 0))
    assert both(claimed) == (
        [CLAIMED],
        [
            WriteConfigRecords(2, deleted, privileged=True),
            SetTimer(WorkerTimer.WRITE_LIMIT, 2, 31_000),
            SetTimer(WorkerTimer.SESSION_KEY, 3, KEY_TIMER.at_ms),
        ],
    )


def test_a_leader_that_holds_the_claim_does_not_claim_again() -> None:
    assert of_kind(led_again(leading()), ClaimConfigWrites, SetTimer) == [
        SetTimer(WorkerTimer.SESSION_KEY, 3, KEY_TIMER.at_ms)
    ]


def test_a_claim_under_way_is_not_repeated() -> None:
    assert of_kind(led_again(claiming()), ClaimConfigWrites) == []


@pytest.mark.rule("618.1.2")
def test_without_exactly_once_there_is_nothing_to_claim() -> None:
    script = claiming(exactly_once_source_support=ExactlyOnceSupport.DISABLED)
    assert not script.waits_for(ClaimConfigWrites)
    assert len(of_kind(script.ask(verbs.Delete("c")), WriteConfigRecords)) == 1


def test_a_claim_that_fails_is_tried_again_after_250_ms() -> None:
    script = claiming()
    assert both(script.claimed("timed out")) == ([], [SetTimer(WorkerTimer.RECLAIM, 2, 1_250)])
    assert script.fire(WorkerTimer.RECLAIM).effects == [ClaimConfigWrites(2), script.timers[WorkerTimer.CLAIM_LIMIT]]


def test_a_claim_that_kafka_does_not_answer_fails_after_30_s_and_its_late_answer_is_ignored() -> None:
    script = claiming()
    assert script.timers[WorkerTimer.CLAIM_LIMIT] == SetTimer(WorkerTimer.CLAIM_LIMIT, 1, script.now_ms + 30_000)
    over = script.fire(WorkerTimer.CLAIM_LIMIT)
    reclaim = script.timers[WorkerTimer.RECLAIM]
    assert both(over) == ([], [AbandonConfigWrites(1), reclaim])
    assert reclaim.at_ms == script.now_ms + 250
    assert script.claimed() == WorkerStep(ignored=NotPending(1))
    again = script.fire(WorkerTimer.RECLAIM)
    assert again.effects == [ClaimConfigWrites(2), script.timers[WorkerTimer.CLAIM_LIMIT]]


def test_an_answer_in_time_ends_the_limit_of_a_claim() -> None:
    script = claiming()
    limit = script.timers[WorkerTimer.CLAIM_LIMIT]
    script.claimed()
    assert script.fire_late(limit) == WorkerStep(ignored=TimerReplaced(WorkerTimer.CLAIM_LIMIT))


def test_a_worker_that_falls_out_of_the_group_abandons_its_claim() -> None:
    script = claiming()
    limit = script.timers[WorkerTimer.CLAIM_LIMIT]
    assert of_kind(lost(script), AbandonConfigWrites) == [AbandonConfigWrites(1)]
    assert script.fire_late(limit) == WorkerStep(ignored=TimerReplaced(WorkerTimer.CLAIM_LIMIT))


def a_fenced_leader() -> tuple[WorkerScript, WorkerStep]:
    """A leader whose write was answered as fenced, and the step of that answer."""
    script = leading()
    script.ask(verbs.Delete("c"))
    return script, script.written("fenced", fenced=True)


def test_a_fenced_leader_asks_the_group_who_leads_and_claims_again_when_it_is_a_member() -> None:
    script, step = a_fenced_leader()
    error = (
        "Failed to write to the config topic: fenced; "
        "this may be due to a transient error and the request can be safely retried"
    )
    assert step.transitions == [Recorded(EventKind.LEADERSHIP_FENCED, generation=3, data={"error": error})]
    assert of_kind(step, SendHeartbeat) == [SendHeartbeat(5, 3, "me")]
    assert script.timers[WorkerTimer.RECLAIM] == SetTimer(WorkerTimer.RECLAIM, 4, 1_250)
    assert script.fire(WorkerTimer.RECLAIM).effects == [SetTimer(WorkerTimer.RECLAIM, 5, 1_500)], "it may be a zombie"
    script.do(HeartbeatReplied(5, None))
    assert script.fire(WorkerTimer.RECLAIM).effects == [ClaimConfigWrites(3), script.timers[WorkerTimer.CLAIM_LIMIT]]


@pytest.mark.rule("618.1.6")
def test_a_fenced_leader_that_the_group_has_dropped_joins_again_and_claims_nothing() -> None:
    script, _ = a_fenced_leader()
    reclaim = script.timers[WorkerTimer.RECLAIM]
    dropped = script.do(HeartbeatReplied(5, "UNKNOWN_MEMBER_ID"))
    assert kinds(dropped) == [EventKind.MEMBER_LOST, EventKind.REBALANCE_STARTED]
    assert [type(effect) for effect in dropped.effects] == [SendJoinGroup]
    late = script.fire_late(reclaim)
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "timer reclaim was cancelled or set again")
    assert (script.place()["leader"], script.place()["leader_url"]) == (None, None)


def test_a_write_that_fails_after_leadership_moved_loses_nothing_more() -> None:
    script = leading()
    script.ask(verbs.Delete("c"))
    script.rebalance()
    failed = script.written("fenced", fenced=True)
    assert (failed.transitions, len(of_kind(failed, Refused)), of_kind(failed, ClaimConfigWrites)) == ([], 1, [])
    assert WorkerTimer.RECLAIM not in script.timers


def test_an_answer_to_an_older_claim_gives_no_rights() -> None:
    script = claiming()
    lost(script)
    late = script.claimed()
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "request 1 is not pending")


def test_a_leader_that_is_named_again_knows_what_it_assigned() -> None:
    script = leading(others={"other": member()})
    lost(script)
    assert sync(script.joined(4, leads=True)).assignments["me"].delay_ms == 300_000


def test_a_follower_that_falls_out_of_the_group_still_knows_its_leader() -> None:
    script = following()
    lost(script)
    assert script.place()["leader"] == "other"


def test_a_stopped_connector_that_has_tasks_loses_them_once_more() -> None:
    script = leading()
    script.connector_runs()
    assert of_kind(script.see(resting(TargetState.PAUSED)), ReadConfigToEnd) == [], "it is not stopped"
    assert of_kind(script.see(STOPPED), ReadConfigToEnd) == [ReadConfigToEnd(2, 30_000)]
    emptied = WriteConfigRecords(3, (TaskCommitRecord("c", 0),), privileged=True)
    assert script.read_to_end().effects == [emptied, script.timers[WorkerTimer.WRITE_LIMIT]]
    script.carry_out()
    assert of_kind(script.see(STOPPED), ReadConfigToEnd) == [], "it has none"


def test_a_leader_empties_stopped_connectors_when_it_may_write_and_again_when_a_write_failed() -> None:
    script = claiming((*configured(), STOPPED))
    assert not script.waits_for(ReadConfigToEnd), "it may not write"
    assert of_kind(script.claimed(), ReadConfigToEnd) == [ReadConfigToEnd(2, 30_000)]
    script.read_to_end()
    assert script.written("timed out").effects == [SetTimer(WorkerTimer.EMPTY_STOPPED, 4, 1_250)]
    assert script.fire(WorkerTimer.EMPTY_STOPPED).effects == [ReadConfigToEnd(4, 30_000)]


def test_a_worker_that_leads_no_more_does_not_try_again_to_empty_stopped_connectors() -> None:
    script = leading((*configured(), STOPPED))
    script.read_to_end()
    lost(script)
    assert script.written("timed out").effects == []


def test_a_follower_does_not_empty_stopped_connectors() -> None:
    script = following()
    script.see(STOPPED)
    assert not script.waits_for(ReadConfigToEnd)


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
    script = claiming((*WITHOUT_KEY, *([] if key is None else [key])))
    assert script.claimed().effects == [CreateSessionKey(2, 32)]
    record = SessionKeyRecord(b"n" * 32, "HmacSHA256", 1_001)
    created = script.do(SessionKeyCreated(2, record.key, 1_001))
    assert created.effects == [
        WriteConfigRecords(3, (record,), privileged=True),
        SetTimer(WorkerTimer.WRITE_LIMIT, 2, 31_000),
    ]
    written = script.carry_out()
    rotated = SetTimer(WorkerTimer.SESSION_KEY, script.timers[WorkerTimer.SESSION_KEY].token, 1_001 + HOUR_MS)
    assert of_kind(written, SetTimer) == [rotated]


def test_a_key_of_the_configured_kind_is_made() -> None:
    script = claiming(inter_worker_key_generation_algorithm="HmacSHA512", inter_worker_key_size=512)
    assert script.claimed().effects == [CreateSessionKey(2, 64)]
    record = SessionKeyRecord(b"n" * 64, "HmacSHA512", 1_001)
    created = script.do(SessionKeyCreated(2, record.key, 1_001))
    assert created.effects == [
        WriteConfigRecords(3, (record,), privileged=True),
        SetTimer(WorkerTimer.WRITE_LIMIT, 2, 31_000),
    ]


def test_a_key_is_rotated_when_its_time_is_over() -> None:
    script = leading()
    assert script.fire(WorkerTimer.SESSION_KEY).effects == [CreateSessionKey(2, 32)]
    assert script.now_ms == 1_000 + HOUR_MS


def test_a_life_time_of_zero_keeps_the_first_key_forever() -> None:
    assert claiming(inter_worker_key_ttl_ms=0).claimed().effects == []


@pytest.mark.parametrize("make", [following, claiming])
def test_only_a_leader_that_may_write_makes_a_key(make: Callable[..., WorkerScript]) -> None:
    script = make(records=WITHOUT_KEY)
    assert not script.waits_for(CreateSessionKey)


def test_no_key_is_made_for_a_protocol_without_sessions() -> None:
    script = starting(WITHOUT_KEY)
    script.start()
    script.joined(leads=True, protocol="compatible")
    script.assigned()
    assert script.claimed().effects == []


def test_a_key_under_way_is_not_made_twice() -> None:
    script = leading(WITHOUT_KEY)
    assert of_kind(led_again(script), CreateSessionKey) == []
    script.do(SessionKeyCreated(2, b"n" * 32, 1_001))
    assert of_kind(led_again(script, 5), CreateSessionKey) == []


def test_a_key_that_could_not_be_written_is_made_again_soon() -> None:
    script = leading(WITHOUT_KEY)
    script.do(SessionKeyCreated(2, b"n" * 32, 1_001))
    assert script.written("timed out").effects == [SetTimer(WorkerTimer.SESSION_KEY, 3, 1_250)]
    assert script.fire(WorkerTimer.SESSION_KEY).effects == [CreateSessionKey(4, 32)]


def test_a_key_that_comes_after_leadership_moved_is_not_written() -> None:
    script = leading(WITHOUT_KEY)
    lost(script)
    late = script.do(SessionKeyCreated(2, b"n" * 32, 1_001))
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "request 2 is not pending")


def test_a_key_whose_write_failed_after_leadership_moved_is_not_made_again() -> None:
    script = leading(WITHOUT_KEY)
    script.do(SessionKeyCreated(2, b"n" * 32, 1_001))
    lost(script)
    assert script.written("timed out").effects == []


def test_the_leader_assigns_what_the_config_topic_holds_and_knows_then_who_runs_it() -> None:
    script = starting()
    script.start()
    send = partial(Assignment, SESSIONED, error=0, leader="me", leader_url=MY_URL)
    assert sync(script.joined(leads=True, others={"other": member()})).assignments == {
        "me": send(config_offset=6, assigned=WorkSet(("c",), (C0,))),
        "other": send(config_offset=6, assigned=WorkSet((), (C1,))),
    }
    script.assigned()
    assert script.ask(verbs.RestartTask("c", 1)).effects == [Forwarded(77, "http://other/")]


def test_the_tasks_of_a_partly_written_set_are_assigned_to_no_worker() -> None:
    script = starting((*configured(), TaskCommitRecord("c", 3)))
    script.start()
    assert sync(script.joined(leads=True)).assignments["me"].assigned == WorkSet(("c",))


def test_a_leader_that_is_behind_a_member_assigns_nothing() -> None:
    script = starting()
    script.start()
    joined = script.joined(leads=True, others={"other": member(offset=7)})
    assigned = sync(joined).assignments.values()
    assert {(assignment.error, assignment.assigned) for assignment in assigned} == {(CONFIG_MISMATCH, WorkSet())}
    assert joined.transitions == []


def test_lost_work_waits_for_its_worker_and_is_recorded() -> None:
    script = leading(others={"other": member()})
    script.rejoin()
    joined = script.joined(4, leads=True)
    assert sync(joined).assignments["me"].delay_ms == 300_000
    computed, delayed = joined.transitions
    assert (computed.kind, computed.data["lost"]) == (EventKind.ASSIGNMENT_COMPUTED, ["c-1"])
    assert (delayed.kind, delayed.data) == (EventKind.REBALANCE_DELAYED, {"lost": ["c-1"], "delay_ms": 300_000})
    script.assigned()
    unknown = "The worker that runs c-1 is not known at the moment; try again"
    assert script.ask(verbs.RestartTask("c", 1)).effects == [Refused(77, 409, unknown)]


def test_a_leader_that_stepped_down_has_forgotten_what_it_assigned_and_may_not_write() -> None:
    script = leading(others={"other": member()})
    script.ask(verbs.Pause("c"))
    script.ask(verbs.Delete("c"), 78)
    script.rebalance()
    assert [reply.status for reply in of_kind(script.carry_out(), Refused)] == [409]
    script.rejoin()
    mine = sync(script.joined(5, leads=True)).assignments["me"]
    assert (mine.assigned, mine.delay_ms) == (WorkSet((), (C1,)), 0)


def test_the_eager_protocol_assigns_everything_again() -> None:
    script = starting()
    script.start()
    other = MemberMetadata(EAGER, "http://other/", 6)
    assigned = sync(script.joined(leads=True, others={"other": other}, protocol="default")).assignments
    work = {member: assignment.assigned for member, assignment in assigned.items()}
    assert work == {"me": WorkSet(("c",), (C1,)), "other": WorkSet((), (C0,))}
    script.assigned()
    assert script.ask(verbs.RestartTask("c", 0)).effects == [Forwarded(77, "http://other/")]


def test_a_new_leader_removes_statuses_of_what_is_gone() -> None:
    script = starting((*configured(), *committed(1)))
    for connector in ("c", "gone"):
        script.show(connector, State.RUNNING)
        script.topic_used("t", connector)
    for task in (C0, C1, TaskId("gone", 0)):
        script.show(task, State.RUNNING)
    script.start()
    script.joined(leads=True)
    assert of_kind(script.assigned(), WriteStatus) == [
        WriteStatus(TaskStatusRecord(C1, None)),
        WriteStatus(ConnectorStatusRecord("gone", None)),
        WriteStatus(TaskStatusRecord(TaskId("gone", 0), None)),
        WriteStatus(TopicStatusRecord("t", "gone", None)),
    ]


@pytest.mark.parametrize("make", [leading, following])
def test_only_the_leader_removes_a_status_that_comes_after_its_work_is_gone(make: Callable[..., WorkerScript]) -> None:
    script = make()
    script.see(ConnectorConfigRecord("c", None))
    late = Status(State.UNASSIGNED, ME, 3)
    read = (
        script.status(ConnectorStatusRecord("c", late)),
        script.status(TaskStatusRecord(C0, late)),
        script.status(TopicStatusRecord("t", "c", 0, 1)),
    )
    removed = [
        WriteStatus(ConnectorStatusRecord("c", None)),
        WriteStatus(TaskStatusRecord(C0, None)),
        WriteStatus(TopicStatusRecord("t", "c", None)),
    ]
    assert [effect for step in read for effect in step.effects] == (removed if make is leading else [])


def test_tombstones_and_statuses_of_living_work_are_left_alone() -> None:
    script = leading()
    assert script.show("c", State.RUNNING).effects == []
    for record in (
        ConnectorStatusRecord("gone", None),
        TaskStatusRecord(TaskId("gone", 0), None),
        TopicStatusRecord("t", "gone", None),
    ):
        assert script.status(record).effects == []
