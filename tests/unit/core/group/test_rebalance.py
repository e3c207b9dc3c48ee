"""From assignment to running work: the exact order of revoking, reading, starting and joining again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connectx.core import verbs
from connectx.core.group_messages import (
    FindCoordinator,
    GroupRequestFailed,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SendLeaveGroup,
    SendSyncGroup,
)
from connectx.core.messages import (
    ClaimConfigWrites,
    ConnectorStopped,
    PrepareTask,
    ReadConfigToEnd,
    Refused,
    SetTimer,
    ShutdownRequested,
    StartConnector,
    StopConnector,
    StopTask,
    TaskStopped,
    WorkerShutDown,
    WorkerStep,
)
from connectx.core.timer_keys import GroupTimer, WorkerTimer
from connectx.model.config_records import ConnectorConfigRecord
from connectx.model.events import EventKind
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from tests.support.histories import Recorded
from tests.support.worker_script import (
    ALL,
    C0,
    C1,
    EAGER,
    LEADER_URL,
    MY_URL,
    NOTHING,
    SESSIONED,
    SOURCE,
    WorkerScript,
    both,
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

STOPS = [StopTask(C0, 2), StopTask(C1, 3), StopConnector("c", 1)]
STOPPED = (TaskStopped(C0, 2), TaskStopped(C1, 3), ConnectorStopped("c", 1))
PAUSED = resting(TargetState.PAUSED)
OF_WORK = (StopTask, StopConnector, PrepareTask, StartConnector, ReadConfigToEnd)
OF_GROUP = (SendJoinGroup, FindCoordinator, SendLeaveGroup, SendSyncGroup)


def work_of(step: WorkerStep) -> list[object]:
    """Starts and stops, and steps of the rebalance; no timers, no statuses."""
    return [effect for effect in step.effects if isinstance(effect, (*OF_WORK, *OF_GROUP))]


def types_of(step: WorkerStep) -> list[type[object]]:
    return [type(effect) for effect in work_of(step)]


def claims(step: WorkerStep) -> list[WorkSet | None]:
    """What joins of the step say that this worker runs."""
    allocations = [join.protocols[0].allocation for join in of_kind(step, SendJoinGroup)]
    return [None if allocation is None else allocation.assigned for allocation in allocations]


def joined_eagerly(work: WorkSet = ALL) -> WorkerScript:
    """A settled follower of a group that rebalances eagerly."""
    script = starting()
    script.start()
    script.joined(protocol="default")
    script.assigned(work, version=EAGER)
    return script


def test_a_join_offers_all_protocols_and_claims_what_is_assigned() -> None:
    script = following()
    script.rebalance(delay_ms=700)
    compatible = ProtocolVersion.COMPATIBLE
    protocols = (
        MemberMetadata(SESSIONED, MY_URL, 6, Assignment(SESSIONED, 0, "other", LEADER_URL, 6, ALL)),
        MemberMetadata(compatible, MY_URL, 6, Assignment(compatible, 0, "other", LEADER_URL, 6, ALL)),
        MemberMetadata(EAGER, MY_URL, 6),
    )
    reason = "the scheduled rebalance delay has passed"
    started = Recorded(EventKind.REBALANCE_STARTED, generation=4, cause=reason, data={"reason": reason})
    assert both(script.fire(WorkerTimer.REBALANCE_DELAY)) == (
        [started],
        [SendJoinGroup(8, "me", 10_000, 60_000, protocols)],
    )
    assert script.place()["state"] == "joining"


def test_cooperative_rebalancing_lets_work_run_while_the_group_is_joined() -> None:
    script = following()
    assert types_of(script.rejoin()) == [SendJoinGroup]
    assert work_of(script.joined(4)) == [SendSyncGroup(7, 4, "me", {})]


def test_the_leader_sends_everyones_assignment() -> None:
    script = leading()
    script.rejoin()
    (sync,) = of_kind(script.joined(4, leads=True, others={"new": member("http://new/")}), SendSyncGroup)
    assert sorted(sync.assignments) == ["me", "new"]
    assert sync.assignments["me"].revoked == WorkSet((), (C0,))


def test_assigned_work_starts_when_the_config_topic_is_as_far_as_the_leader_was() -> None:
    script = starting()
    script.start()
    script.joined()
    assert types_of(script.assigned(WorkSet(("c",), (C1,)))) == [StartConnector, PrepareTask]
    place = script.place()
    assert (place["state"], place["connectors"]) == ("stable", ["c"])
    assert place["tasks"] == [{"connector": "c", "task": 1}]


def test_a_completed_rebalance_records_what_runs_here_now() -> None:
    script = following()
    script.rejoin()
    script.now_ms += 500
    script.joined(4)
    completed = script.assigned(revoked=WorkSet((), (C1,)), delay_ms=5).transitions
    data = {
        **{"leader": "other", "leader_url": LEADER_URL, "protocol": "sessioned", "connectors": ["c"]},
        **{"tasks": ["c-0"], "revoked": ["c-1"], "delay_ms": 5, "error": 0, "took_ms": 500},
    }
    assert Recorded(EventKind.REBALANCE_COMPLETED, generation=4, data=data) in completed


def test_running_work_is_not_touched_by_an_assignment_that_keeps_it() -> None:
    assert work_of(following().rebalance()) == []


def test_revoked_work_stops_before_assigned_work_starts_and_the_group_is_joined_again_at_once() -> None:
    script = following(records=(*configured(), *configured("d", 0)))
    revoked = script.rebalance(WorkSet(("d",)), WorkSet(("c",), (C1,)))
    assert work_of(revoked) == [StopTask(C1, 3), StopConnector("c", 1)]
    assert work_of(script.do(TaskStopped(C1, 3))) == []
    stopped = script.do(ConnectorStopped("c", 1))
    assert (types_of(stopped), claims(stopped)) == ([StartConnector, SendJoinGroup], [WorkSet(("d",), (C0,))])
    assert script.place()["state"] == "joining"


def test_a_worker_that_is_behind_reads_the_config_topic_before_it_starts_anything() -> None:
    script = starting()
    script.start()
    script.joined()
    assert work_of(script.assigned(ALL, ahead=1)) == [ReadConfigToEnd(1, 3_000)]
    assert types_of(script.read_to_end(PAUSED)) == [StartConnector, PrepareTask, PrepareTask]


def test_a_worker_that_is_past_the_assignment_joins_again_and_starts_nothing() -> None:
    script = starting()
    script.start()
    script.joined()
    step = script.assigned(ALL, ahead=-1)
    assert (types_of(step), claims(step)) == ([SendJoinGroup], [ALL])


def test_an_answer_to_the_read_of_an_older_assignment_starts_nothing() -> None:
    script = following(NOTHING)
    script.rebalance(ALL, ahead=1)
    script.rejoin()
    assert script.read_to_end(PAUSED).effects == []


def test_a_follower_of_a_leader_that_was_behind_joins_again_a_little_later() -> None:
    script = following()
    behind = script.rebalance(error=1)
    assert behind.effects == [SetTimer(WorkerTimer.MISMATCH, 1, script.now_ms + 100)]
    assert types_of(script.fire(WorkerTimer.MISMATCH)) == [SendJoinGroup]


def test_a_leader_that_was_behind_reads_the_config_topic_to_its_end_and_joins_again() -> None:
    script = leading()
    script.rejoin()
    script.joined(4, leads=True, others={"other": member(offset=7)})
    assert work_of(script.assigned()) == [ReadConfigToEnd(2, 3_000)]
    assert types_of(script.read_to_end(PAUSED)) == [SendJoinGroup]


def test_a_delay_sets_a_timer_to_join_again_and_no_delay_cancels_it() -> None:
    script = following()
    script.rebalance(delay_ms=7_000)
    timer = script.timers[WorkerTimer.REBALANCE_DELAY]
    assert timer.at_ms == script.now_ms + 7_000
    script.rebalance(generation=5)
    assert str(script.fire_late(timer).ignored) == "timer rebalance-delay was cancelled or set again"


def test_a_member_that_is_not_named_leader_steps_down() -> None:
    script = leading()
    script.rebalance()
    assert (script.place()["leader"], script.place()["leader_url"]) == ("other", LEADER_URL)


def test_a_member_that_is_named_leader_claims_the_config_topic() -> None:
    script = following()
    script.rejoin()
    script.joined(4, leads=True)
    assert of_kind(script.assigned(), ClaimConfigWrites) == [ClaimConfigWrites(1)]
    assert (script.place()["leader"], script.place()["generation"]) == ("me", 4)


def test_deleted_work_that_no_leader_remembers_to_revoke_ends_when_the_group_is_settled() -> None:
    script = following()
    script.see(ConnectorConfigRecord("c", None))
    assert work_of(script.rebalance()) == STOPS
    assert (script.place()["connectors"], script.place()["tasks"]) == ([], [])


def test_a_join_that_comes_while_revoked_work_stops_waits_for_it() -> None:
    script = following()
    script.rebalance(revoked=WorkSet((), (C1,)))
    assert work_of(script.rejoin()) == []
    stopped = script.do(TaskStopped(C1, 3))
    assert (types_of(stopped), claims(stopped)) == ([SendJoinGroup], [WorkSet(("c",), (C0,))])


def test_assigned_work_that_was_not_started_yet_is_claimed() -> None:
    script = following(NOTHING)
    script.rebalance(ALL, ahead=1)
    step = script.rejoin()
    assert (types_of(step), claims(step)) == ([SendJoinGroup], [ALL])


def test_work_that_was_stopped_for_new_task_configs_is_claimed_all_the_same() -> None:
    script = following()
    step = script.see(*committed(1))
    assert (of_kind(step, StopTask), claims(step)) == (STOPS[:2], [ALL])


def test_revoked_work_that_comes_back_later_does_not_hold_the_next_join() -> None:
    script = following()
    script.rebalance(revoked=WorkSet((), (C1,)))
    script.do(TaskStopped(C1, 3))
    assert types_of(script.rebalance(WorkSet((), (C1,)), generation=5)) == [PrepareTask]
    assert types_of(script.rejoin()) == [SendJoinGroup]


def test_a_worker_that_cannot_read_the_config_topic_leaves_the_group_and_its_work_goes_on() -> None:
    script = following()
    script.rebalance(ahead=1)
    unread = script.read_to_end(error="timed out")
    assert unread.effects == [SendLeaveGroup(8, "me"), SetTimer(WorkerTimer.CONFIG_READ, 1, script.now_ms + 6_000)]
    assert kinds(unread) == [EventKind.MEMBER_LOST]
    assert script.fire(WorkerTimer.CONFIG_READ).effects == [ReadConfigToEnd(2, 3_000)]
    assert work_of(script.read_to_end(PAUSED)) == [FindCoordinator(9)]
    assert claims(script.found()) == [ALL]


def test_five_tries_a_little_later_each_then_all_work_stops_once_and_counting_starts_again() -> None:
    script = following()
    script.rebalance(ahead=1)
    delays_ms: list[int] = []
    for _ in range(5):
        unread = script.read_to_end(error="timed out")
        delays_ms += [timer.at_ms - script.now_ms for timer in of_kind(unread, SetTimer)]
        assert of_kind(unread, StopTask, StopConnector) == []
        script.fire(WorkerTimer.CONFIG_READ)
    assert delays_ms == [6_000, 7_500, 10_000, 15_000, 30_000]
    assert work_of(script.read_to_end(error="timed out")) == [*STOPS, ReadConfigToEnd(7, 3_000)]
    again = script.read_to_end(error="timed out")
    assert [timer.at_ms - script.now_ms for timer in of_kind(again, SetTimer)] == [6_000]
    assert work_of(again) == []


def test_an_eager_worker_backs_off_for_five_minutes() -> None:
    script = joined_eagerly(NOTHING)
    script.rejoin()
    script.joined(4, protocol="default")
    script.assigned(ALL, ahead=1, version=EAGER)
    timer = SetTimer(WorkerTimer.CONFIG_READ, 1, script.now_ms + 300_000)
    assert of_kind(script.read_to_end(error="timed out"), SetTimer) == [timer]


def test_eager_rebalancing_stops_everything_before_it_joins_and_claims_nothing() -> None:
    script = joined_eagerly()
    assert work_of(script.rejoin()) == STOPS
    assert work_of(script.do(*STOPPED[:2])) == []
    stopped = script.do(STOPPED[2])
    assert (types_of(stopped), claims(stopped)) == ([SendJoinGroup], [WorkSet()])


def test_nothing_restarts_while_eager_rebalancing_stops_everything() -> None:
    script = joined_eagerly()
    script.ask(verbs.RestartTask("c", 0))
    script.rejoin()
    assert of_kind(script.read_to_end(), Refused)[0].status == 409
    script.see(ConnectorConfigRecord("c", SOURCE | {"x": "1"}))
    assert types_of(script.do(*STOPPED)) == [SendJoinGroup]


def test_when_the_group_falls_back_to_eager_what_is_not_assigned_goes() -> None:
    script = following()
    script.rejoin()
    script.joined(4, protocol="default")
    assert work_of(script.assigned(WorkSet(("c",), (C0,)), version=EAGER)) == [StopTask(C1, 3)]
    assert script.place()["tasks"] == [{"connector": "c", "task": 0}]


@pytest.mark.parametrize("make", [leading, following])
def test_a_lost_membership_lets_work_go_on_and_only_a_follower_still_knows_its_leader(
    make: Callable[[], WorkerScript],
) -> None:
    script = make()
    step = script.fire(GroupTimer.SESSION)
    assert (work_of(step), kinds(step)) == ([], [EventKind.MEMBER_LOST])
    place = script.place()
    assert (place["state"], place["leader"]) == ("joining", None if make is leading else "other")
    assert (place["connectors"], len(place["tasks"])) == (["c"], 2)


def without_coordinator() -> WorkerScript:
    """The last heartbeat failed, and the coordinator is looked for."""
    script = following()
    script.fire(GroupTimer.HEARTBEAT)
    script.do(GroupRequestFailed(script.take(SendHeartbeat).request_id, "cut off"))
    return script


def test_a_coordinator_that_stays_unknown_ends_all_work() -> None:
    script = without_coordinator()
    step = script.fire(GroupTimer.UNKNOWN)
    assert (work_of(step), kinds(step)[0]) == (STOPS, EventKind.MEMBER_LOST)
    assert (script.place()["state"], script.place()["tasks"]) == ("joining", [])


def test_after_that_the_worker_joins_again_when_its_work_has_stopped_and_claims_nothing() -> None:
    script = without_coordinator()
    script.fire(GroupTimer.UNKNOWN)
    script.fire(GroupTimer.RETRY)
    assert work_of(script.found()) == []
    assert claims(script.do(*STOPPED)) == [None]


def test_a_coordinator_found_in_time_changes_nothing() -> None:
    script = without_coordinator()
    script.fire(GroupTimer.RETRY)
    assert work_of(script.found()) == []
    assert script.place()["state"] == "stable"


def test_a_worker_that_shuts_down_neither_joins_nor_takes_an_assignment() -> None:
    script = following()
    script.rejoin()
    script.joined(4)
    assert work_of(script.do(ShutdownRequested())) == STOPS
    step = script.assigned(WorkSet(("d",), (TaskId("d", 0),)))
    assert (work_of(step), step.transitions) == ([], [])
    assert work_of(script.rejoin()) == []


def test_a_group_that_refuses_this_worker_for_good_ends_it_with_the_reason() -> None:
    script = following()
    script.rejoin()
    join = script.take(SendJoinGroup)
    refused = JoinGroupReplied(join.request_id, "GROUP_AUTHORIZATION_FAILED", -1, "me", "", "", {})
    assert work_of(script.do(refused)) == STOPS
    ended = WorkerShutDown("the group refuses this worker: GROUP_AUTHORIZATION_FAILED")
    assert script.do(*STOPPED).effects[-1] == ended
