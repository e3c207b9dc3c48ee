"""The group member: exact effects for each stimulus, also for late and repeated ones."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from connectx.core.group_messages import (
    CoordinatorFound,
    FindCoordinator,
    GroupRequestFailed,
    GroupStimulus,
    HeartbeatReplied,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SendLeaveGroup,
    SendSyncGroup,
    SyncGroupReplied,
)
from connectx.core.messages import (
    SetTimer,
    ShutdownRequested,
    Stimulus,
    StopConnector,
    TaskStopped,
    WorkerShutDown,
    WorkerStarted,
    WorkerStep,
)
from connectx.core.timer_keys import GroupTimer
from connectx.model.config_records import ConnectorConfigRecord
from connectx.model.events import EventKind
from tests.support.histories import Recorded
from tests.support.worker_script import (
    C0,
    CONNECTOR,
    EAGER,
    NOTHING,
    NOTHING_HAPPENED,
    SOURCE,
    TASK,
    WorkerScript,
    both,
    following,
    kinds,
    of_kind,
    starting,
)

pytestmark = pytest.mark.rule("always.7")

HEARTBEAT, SESSION, RETRY, UNKNOWN = GroupTimer.HEARTBEAT, GroupTimer.SESSION, GroupTimer.RETRY, GroupTimer.UNKNOWN
NEW_CONNECTOR = ConnectorConfigRecord("n", SOURCE)
CREATED = "connector n was created"
EXPIRED = "no heartbeat was answered for 10000 ms"


def finding() -> WorkerScript:
    """FindCoordinator 1 is in flight, since 1,000 ms."""
    script = starting()
    script.do(WorkerStarted())
    return script


def joining() -> WorkerScript:
    """JoinGroup 3 is in flight, with the id that the group gave."""
    script = starting()
    script.start()
    return script


def syncing() -> WorkerScript:
    """A follower; SyncGroup 4 is in flight."""
    script = joining()
    script.joined()
    return script


def stable() -> WorkerScript:
    """A follower of generation 3, assigned at 1,000 ms; its next request is 5, its next timer token 4."""
    return following(CONNECTOR)


def rejoining() -> WorkerScript:
    """A follower of generation 3 whose JoinGroup 5 is in flight, because connector n was created."""
    script = stable()
    assert len(of_kind(script.see(NEW_CONNECTOR), SendJoinGroup)) == 1
    return script


def preparing() -> WorkerScript:
    """A follower that joins when task c-0 has stopped, because its group rebalances eagerly."""
    script = joining()
    script.joined(protocol="default")
    script.assigned(TASK, version=EAGER)
    assert of_kind(script.rejoin(), SendJoinGroup) == []
    return script


def heartbeating() -> WorkerScript:
    """A follower whose heartbeat 5 is in flight, since 4,000 ms."""
    script = stable()
    script.fire(HEARTBEAT)
    return script


def joins(step: WorkerStep) -> list[tuple[int, str]]:
    """Number and member id of each join."""
    return [(join.request_id, join.member_id) for join in of_kind(step, SendJoinGroup)]


def reasons(step: WorkerStep) -> list[str]:
    """Why a rebalance began."""
    return [event.cause for event in step.transitions if event.kind is EventKind.REBALANCE_STARTED]


def lost(reason: str, error: str | None) -> Recorded:
    return Recorded(EventKind.MEMBER_LOST, generation=3, cause=reason, data={"error": error})


def synced(script: WorkerScript, error: str | None) -> WorkerStep:
    """SyncGroup is answered with an error, or without an assignment."""
    return script.do(SyncGroupReplied(script.take(SendSyncGroup).request_id, error, None))


def timers(step: WorkerStep) -> list[tuple[object, int]]:
    """Key and time of the timers that were set."""
    return [(timer.key, timer.at_ms) for timer in of_kind(step, SetTimer)]


def test_a_member_looks_for_the_coordinator_first() -> None:
    assert starting().do(WorkerStarted()).effects == [SetTimer(UNKNOWN, 1, 4_000), FindCoordinator(1)]


def test_a_found_coordinator_is_joined() -> None:
    script = finding()
    unknown = script.timers[UNKNOWN]
    found = script.found()
    assert (kinds(found), reasons(found)) == ([EventKind.REBALANCE_STARTED], ["the worker starts"])
    (join,) = found.effects
    assert isinstance(join, SendJoinGroup)
    assert (join.request_id, join.member_id) == (2, "")
    assert (join.session_timeout_ms, join.rebalance_timeout_ms) == (10_000, 60_000)
    assert str(script.fire_late(unknown).ignored) == "timer group.coordinator was cancelled or set again"


def test_the_member_id_that_the_coordinator_demands_is_joined_with_at_once() -> None:
    script = finding()
    script.found()
    assert script.join_refused("MEMBER_ID_REQUIRED").transitions == []
    assert script.take(SendJoinGroup).member_id == "me"


def test_a_follower_syncs_without_assignments_and_begins_heartbeats() -> None:
    assert joining().joined().effects == [
        SetTimer(SESSION, 2, 11_000),
        SetTimer(HEARTBEAT, 3, 4_000),
        SendSyncGroup(4, 3, "me", {}),
    ]


def test_a_leader_computes_then_syncs_with_assignments() -> None:
    computed = joining().joined(leads=True)
    assert kinds(computed) == [EventKind.ASSIGNMENT_COMPUTED]
    (sync,) = of_kind(computed, SendSyncGroup)
    assert (sync.request_id, sync.generation, list(sync.assignments)) == (4, 3, ["me"])


def test_an_answered_sync_makes_the_member_stable() -> None:
    script = syncing()
    assert script.place()["state"] == "joining"
    assert kinds(script.assigned()) == [EventKind.REBALANCE_COMPLETED]
    assert script.place()["state"] == "stable"


def test_a_stable_member_sends_heartbeats() -> None:
    script = stable()
    assert script.fire(HEARTBEAT).effects == [SendHeartbeat(5, 3, "me"), SetTimer(HEARTBEAT, 4, 7_000)]
    assert script.do(HeartbeatReplied(5, None)).effects == [SetTimer(SESSION, 5, 14_000)]


def test_a_heartbeat_waits_for_the_answer_to_the_one_before() -> None:
    assert heartbeating().fire(HEARTBEAT).effects == [SetTimer(HEARTBEAT, 5, 10_000)]


@pytest.mark.parametrize("make", [preparing, syncing], ids=["preparing", "syncing"])
@pytest.mark.parametrize("error", [None, "REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_heartbeats_go_on_while_work_stops_and_the_sync_is_in_flight(
    make: Callable[[], WorkerScript], error: str | None
) -> None:
    script = make()
    sent = script.fire(HEARTBEAT)
    assert isinstance(sent.effects[0], SendHeartbeat)
    answered = script.do(HeartbeatReplied(sent.effects[0].request_id, error))
    assert [type(effect) for effect in answered.effects] == ([] if error and "LOAD" in error else [SetTimer])
    assert answered.transitions == []


def test_no_heartbeats_before_the_first_join() -> None:
    assert HEARTBEAT not in joining().timers


def test_no_heartbeats_while_joining() -> None:
    script = heartbeating()
    late_timer = script.timers[HEARTBEAT]
    script.see(NEW_CONNECTOR)
    before = copy.deepcopy(script.core)
    for late in (HeartbeatReplied(5, "UNKNOWN_MEMBER_ID"), GroupRequestFailed(5, "cut")):
        assert str(script.do(late).ignored) == "request 5 is not pending"
    assert str(script.fire_late(late_timer).ignored) == "timer group.heartbeat was cancelled or set again"
    assert script.core == before


def test_a_rebalance_announced_by_a_heartbeat_keeps_the_id_and_rejoins() -> None:
    script = heartbeating()
    step = script.do(HeartbeatReplied(5, "REBALANCE_IN_PROGRESS"))
    assert (timers(step), joins(step), reasons(step)) == (
        [(SESSION, 14_000)],
        [(6, "me")],
        ["the group is rebalancing"],
    )


@pytest.mark.parametrize(("error", "member_id"), [("UNKNOWN_MEMBER_ID", ""), ("ILLEGAL_GENERATION", "me")])
def test_a_member_that_was_dropped_records_it_and_joins_again(error: str, member_id: str) -> None:
    script = heartbeating()
    step = script.do(HeartbeatReplied(5, error))
    reason = f"Heartbeat was refused: {error}"
    assert (step.transitions[0], reasons(step)) == (lost(reason, error), [reason])
    assert (joins(step), timers(step)) == ([(6, member_id)], [])
    for key in (HEARTBEAT, SESSION):
        assert script.fire_late(script.timers[key]).ignored is not None


def test_a_member_dropped_while_its_work_stops_joins_once_with_a_new_id() -> None:
    script = preparing()
    error = "UNKNOWN_MEMBER_ID"
    dropped = script.heartbeat(error)
    assert (dropped.transitions, joins(dropped)) == ([lost(f"Heartbeat was refused: {error}", error)], [])
    assert [member_id for _, member_id in joins(script.do(TaskStopped(C0, 1)))] == [""]


def test_a_session_that_ran_out_by_the_own_clock_is_lost() -> None:
    script = stable()
    expired = script.fire(SESSION)
    assert both(expired) == ([lost(EXPIRED, None)], [SetTimer(UNKNOWN, 4, 14_000), SetTimer(RETRY, 5, 11_100)])
    assert script.fire(RETRY).effects == [FindCoordinator(5)]
    found = script.found()
    assert (joins(found), reasons(found)) == ([(6, "me")], [EXPIRED])


def test_the_session_counts_from_when_the_answered_heartbeat_was_sent() -> None:
    script = heartbeating()
    script.now_ms = 10_000
    assert timers(script.do(HeartbeatReplied(5, None))) == [(SESSION, 14_000)]


@pytest.mark.parametrize(
    "stimulus",
    [
        HeartbeatReplied(5, "NOT_COORDINATOR"),
        HeartbeatReplied(5, "COORDINATOR_NOT_AVAILABLE"),
        GroupRequestFailed(5, "the connection was lost"),
    ],
)
def test_a_stable_member_goes_on_as_it_was_when_the_coordinator_is_found_in_time(stimulus: GroupStimulus) -> None:
    script = heartbeating()
    assert both(script.do(stimulus)) == ([], [SetTimer(UNKNOWN, 5, 7_000), SetTimer(RETRY, 6, 4_100)])
    unknown = script.timers[UNKNOWN]
    assert script.fire(RETRY).effects == [FindCoordinator(6)]
    assert both(script.found()) == ([], [SendHeartbeat(7, 3, "me"), SetTimer(HEARTBEAT, 7, 7_100)])
    assert script.place()["state"] == "stable"
    assert script.fire_late(unknown).ignored is not None


def test_the_search_backs_off_and_work_stops_once_when_it_takes_too_long() -> None:
    script = heartbeating()
    script.do(GroupRequestFailed(5, "cut"))
    waits_ms = []
    for request_id in range(6, 13):
        assert script.fire(RETRY).effects == [FindCoordinator(request_id)]
        again = script.do(GroupRequestFailed(request_id, "cut"))
        waits_ms += [at_ms - script.now_ms for _, at_ms in timers(again)]
    assert waits_ms == [200, 400, 800, 1_000, 1_000, 1_000, 1_000]
    unknown = script.timers[UNKNOWN]
    assert unknown.at_ms == 7_000
    given_up = script.fire(UNKNOWN)
    assert (kinds(given_up)[0], of_kind(given_up, StopConnector)) == (EventKind.MEMBER_LOST, [StopConnector("c", 1)])
    assert script.fire_late(unknown).ignored is not None


def test_the_session_ends_while_the_coordinator_is_unknown() -> None:
    script = heartbeating()
    script.do(GroupRequestFailed(5, "cut"))
    assert both(script.fire(SESSION)) == ([lost(EXPIRED, None)], [])
    script.fire(RETRY)
    assert reasons(script.found()) == [EXPIRED]


def test_a_coordinator_that_is_not_found_at_the_start_ends_nothing() -> None:
    script = finding()
    assert script.do(GroupRequestFailed(1, "no broker")).effects == [SetTimer(RETRY, 2, 1_100)]
    assert both(script.fire(UNKNOWN)) == NOTHING_HAPPENED
    script.fire(RETRY)
    assert reasons(script.found()) == ["the worker starts"]


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", None])
def test_a_join_that_meets_no_coordinator_is_sent_again_after_it_is_found(error: str | None) -> None:
    script = joining()
    failed = script.do(GroupRequestFailed(3, "cut")) if error is None else script.join_refused(error)
    assert timers(failed) == [(UNKNOWN, 4_000), (RETRY, 1_100)]
    script.fire(RETRY)
    assert joins(script.found()) == [(5, "me")]


def test_a_rejoin_that_fails_keeps_the_generation_and_its_session() -> None:
    script = rejoining()
    script.now_ms = 5_000
    failed = script.do(GroupRequestFailed(5, "cut"))
    assert timers(failed) == [(UNKNOWN, 8_000), (SESSION, 15_000), (RETRY, 5_100)]
    script.fire(RETRY)
    found = script.found()
    assert (found.effects[0], joins(found)) == (SendHeartbeat(7, 3, "me"), [(8, "me")])


def test_a_heartbeat_that_meets_no_coordinator_ends_a_sync_too() -> None:
    script = syncing()
    script.heartbeat("NOT_COORDINATOR")
    late = script.assigned()
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "request 4 is not pending")
    script.fire(RETRY)
    assert len(joins(script.found())) == 1


def test_a_join_that_was_called_off_while_work_stopped_is_sent_after_the_coordinator_is_found() -> None:
    script = preparing()
    script.heartbeat("NOT_COORDINATOR")
    assert joins(script.do(TaskStopped(C0, 1))) == []
    script.fire(RETRY)
    assert len(joins(script.found())) == 1


def test_a_loading_coordinator_is_asked_again_after_a_growing_pause() -> None:
    script = joining()
    for pause_ms in (100, 200, 400):
        assert timers(script.join_refused("COORDINATOR_LOAD_IN_PROGRESS")) == [(RETRY, script.now_ms + pause_ms)]
        assert len(joins(script.fire(RETRY))) == 1


def test_a_member_that_waits_to_rejoin_sends_heartbeats_of_its_old_generation() -> None:
    script = rejoining()
    refused = script.join_refused("COORDINATOR_LOAD_IN_PROGRESS")
    assert timers(refused) == [(SESSION, 11_000), (HEARTBEAT, 4_000), (RETRY, 1_100)]
    assert script.fire(HEARTBEAT).effects[0] == SendHeartbeat(6, 3, "me")


def test_a_rejoin_under_an_id_that_is_gone_is_a_loss_and_retried_at_once() -> None:
    script = rejoining()
    error = "UNKNOWN_MEMBER_ID"
    refused = script.join_refused(error)
    assert (refused.transitions, joins(refused)) == ([lost(f"JoinGroup was refused: {error}", error)], [(6, "")])


def test_a_loss_is_recorded_once() -> None:
    script = stable()
    script.fire(SESSION)
    script.fire(RETRY)
    script.found()
    assert script.join_refused("UNKNOWN_MEMBER_ID").transitions == []
    assert script.take(SendJoinGroup).member_id == ""


def test_a_sync_overtaken_by_another_rebalance_rejoins_with_its_id_and_keeps_its_session() -> None:
    script = syncing()
    overtaken = synced(script, "REBALANCE_IN_PROGRESS")
    assert (joins(overtaken), timers(overtaken)) == ([(5, "me")], [])


def test_a_sync_without_an_assignment_is_tried_again() -> None:
    script = syncing()
    assert timers(synced(script, None)) == [(RETRY, 1_100)]
    assert joins(script.fire(RETRY)) == [(5, "me")]


def test_a_sync_of_a_dropped_member_is_a_loss() -> None:
    script = stable()
    script.rejoin()
    script.joined(4)
    error = "UNKNOWN_MEMBER_ID"
    refused = synced(script, error)
    assert refused.transitions[0] == lost(f"SyncGroup was refused: {error}", error)
    assert [member_id for _, member_id in joins(refused)] == [""]


@pytest.mark.parametrize(
    "error",
    [
        "INCONSISTENT_GROUP_PROTOCOL",
        "GROUP_AUTHORIZATION_FAILED",
        "INVALID_SESSION_TIMEOUT",
        "GROUP_MAX_SIZE_REACHED",
        "INVALID_GROUP_ID",
        "FENCED_INSTANCE_ID",
        "UNSUPPORTED_VERSION",
    ],
)
def test_an_error_that_no_retry_heals_ends_the_worker_which_leaves_with_its_id(error: str) -> None:
    for ended in (joining().join_refused(error), synced(syncing(), error), following(NOTHING).heartbeat(error)):
        assert isinstance(ended.effects[-2], SendLeaveGroup)
        assert ended.effects[-1] == WorkerShutDown(f"the group refuses this worker: {error}")


def test_a_stable_member_rejoins_at_once_when_something_changed() -> None:
    script = stable()
    changed = script.see(NEW_CONNECTOR)
    assert (joins(changed), reasons(changed)) == ([(5, "me")], [CREATED])
    assert joins(script.see(ConnectorConfigRecord("o", SOURCE))) == []


@pytest.mark.parametrize("make", [joining, syncing], ids=["joining", "syncing"])
def test_a_rejoin_wanted_during_a_rebalance_follows_it(make: Callable[[], WorkerScript]) -> None:
    script = make()
    assert joins(script.see(NEW_CONNECTOR)) == []
    if make is joining:
        script.joined()
    followed = script.assigned()
    assert (len(joins(followed)), reasons(followed)) == (1, [CREATED])


def test_a_rejoin_wanted_while_the_coordinator_is_unknown_follows_its_discovery() -> None:
    script = heartbeating()
    script.do(GroupRequestFailed(5, "cut"))
    assert joins(script.see(NEW_CONNECTOR)) == []
    script.fire(RETRY)
    found = script.found()
    assert (len(joins(found)), reasons(found)) == (1, [CREATED])


def left() -> WorkerScript:
    """A worker that has left the group because it cannot read the config topic, until it can."""
    script = stable()
    script.rebalance(ahead=1)
    assert len(of_kind(script.read_to_end(error="timed out"), SendLeaveGroup)) == 1
    return script


def test_leaving_forgets_the_group() -> None:
    script = left()
    before = copy.deepcopy(script.core)
    for key in (HEARTBEAT, SESSION):
        assert script.fire_late(script.timers[key]).ignored is not None
    assert script.core == before


def test_a_worker_that_has_left_the_group_does_not_rejoin_for_a_change() -> None:
    assert left().see(NEW_CONNECTOR).effects == []


def test_leaving_sends_nothing_without_an_id_or_a_coordinator() -> None:
    nameless = finding()
    nameless.found()
    for script in (finding(), nameless):
        assert script.do(ShutdownRequested()).effects == [WorkerShutDown()]
    lonely = joining()
    lonely.do(GroupRequestFailed(3, "cut"))
    assert lonely.do(ShutdownRequested()).effects == [WorkerShutDown()]


def test_a_repeated_answer_changes_nothing() -> None:
    script = finding()
    answers: tuple[Stimulus, ...] = (
        CoordinatorFound(1),
        JoinGroupReplied(2, None, 3, "me", "other", "sessioned", {}),
        SyncGroupReplied(3, None, None),
    )
    for answer in answers:
        assert script.do(answer).ignored is None
        before = copy.deepcopy(script.core)
        assert str(script.do(answer).ignored) == f"request {answer.request_id} is not pending"  # type: ignore[union-attr]
        assert script.core == before
