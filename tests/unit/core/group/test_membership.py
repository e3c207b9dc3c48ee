"""The group member: exact outputs for each stimulus, also for late and repeated ones."""

from __future__ import annotations

import copy

import pytest

from connectx.core.group.membership import Membership, MembershipState
from connectx.core.messages import (
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
    SetTimer,
    SyncGroupReplied,
    TimerFired,
)
from connectx.core.signals import (
    AssignmentReceived,
    CoordinatorUnknown,
    Elected,
    FatalGroupError,
    JoinPreparing,
    MembershipLost,
)
from connectx.core.timer_keys import GroupTimer, TimerKey
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion
from tests.support.core_parts import worker_of
from tests.support.histories import Because

pytestmark = pytest.mark.rule("always.7")

SETTINGS = worker_of(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, rebalance_timeout_ms=60_000)
PROTOCOLS = (MemberMetadata(ProtocolVersion.SESSIONED, "http://me/", 4),)
ASSIGNMENT = Assignment(ProtocolVersion.SESSIONED, 0, "m0", "http://lead/", 4)
HEARTBEAT, SESSION, RETRY, UNKNOWN = GroupTimer.HEARTBEAT, GroupTimer.SESSION, GroupTimer.RETRY, GroupTimer.UNKNOWN


def joined(request_id: int, leader: str = "m0", generation: int = 3, error: str | None = None) -> JoinGroupReplied:
    members = {"m1": PROTOCOLS[0]} if leader == "m1" else {}
    return JoinGroupReplied(request_id, error, generation, "m1", leader, "sessioned", members)


def refused_join(request_id: int, error: str, member_id: str = "") -> JoinGroupReplied:
    return JoinGroupReplied(request_id, error, -1, member_id, "", "", {})


def preparing() -> Membership:
    member = Membership(SETTINGS)
    member.start(0)
    member.handle(CoordinatorFound(1), 0)
    return member


def joining() -> Membership:
    """JoinGroup -2 is in flight."""
    member = preparing()
    member.prepared(PROTOCOLS, 0)
    return member


def syncing() -> Membership:
    """A follower; SyncGroup -3 is in flight."""
    member = joining()
    member.handle(joined(2), 0)
    return member


def elected() -> Membership:
    member = joining()
    member.handle(joined(2, leader="m1"), 0)
    return member


def stable() -> Membership:
    """A follower of generation 3 that synced at 0; its next request is -4, its next timer token 4."""
    member = syncing()
    member.handle(SyncGroupReplied(3, None, ASSIGNMENT), 0)
    return member


def fire(member: Membership, key: TimerKey) -> TimerFired:
    return TimerFired(key, member.timers.awaited[key])


# ------------------------------------------------------------------------------------------------------ joining


def test_a_member_looks_for_the_coordinator_first() -> None:
    member = Membership(SETTINGS)
    assert member.start(100) == [SetTimer(UNKNOWN, 1, 3_100), FindCoordinator(1)]
    assert member.state is MembershipState.FINDING
    assert member.start(101) == []


def test_a_found_coordinator_is_joined_with_the_metadata_of_the_herder() -> None:
    member = Membership(SETTINGS)
    member.start(0)
    assert member.handle(CoordinatorFound(1), 5) == [JoinPreparing(Because("the worker starts"))]
    assert member.prepared(PROTOCOLS, 6) == [SendJoinGroup(2, "", 10_000, 60_000, PROTOCOLS)]
    assert member.state is MembershipState.JOINING
    assert member.timers.awaited == {}


def test_the_member_id_that_the_coordinator_demands_is_joined_with_at_once() -> None:
    member = joining()
    assert member.handle(refused_join(2, "MEMBER_ID_REQUIRED", "m1"), 5) == [
        SendJoinGroup(3, "m1", 10_000, 60_000, PROTOCOLS)
    ]
    assert member.member_id == "m1"


def test_a_follower_syncs_without_assignments_and_begins_heartbeats() -> None:
    member = joining()
    assert member.handle(joined(2), 50) == [
        SetTimer(SESSION, 2, 10_050),
        SetTimer(HEARTBEAT, 3, 3_050),
        SendSyncGroup(3, 3, "m1", {}),
    ]
    assert (member.state, member.member_id, member.generation) == (MembershipState.SYNCING, "m1", 3)


def test_a_leader_computes_then_syncs_with_assignments() -> None:
    member = joining()
    assert member.handle(joined(2, leader="m1"), 50)[2:] == [
        Elected(3, ProtocolVersion.SESSIONED, "m1", {"m1": PROTOCOLS[0]})
    ]
    assert member.assignments(3, {"m1": ASSIGNMENT}, 60) == [SendSyncGroup(3, 3, "m1", {"m1": ASSIGNMENT})]


def test_an_answered_sync_makes_the_member_stable() -> None:
    member = syncing()
    assert member.state is MembershipState.SYNCING
    assert member.handle(SyncGroupReplied(3, None, ASSIGNMENT), 60) == [
        AssignmentReceived(3, "m1", "m0", ProtocolVersion.SESSIONED, ASSIGNMENT)
    ]
    assert member.state is MembershipState.STABLE


def test_assignments_of_a_generation_that_was_given_up_are_not_sent() -> None:
    member = elected()
    assert member.assignments(2, {}, 1) == []
    assert member.state is MembershipState.ELECTED
    assert stable().assignments(3, {}, 1) == []


def test_metadata_is_taken_only_when_it_was_asked_for() -> None:
    for member in (Membership(SETTINGS), joining(), syncing(), elected(), stable()):
        before = copy.deepcopy(member)
        assert member.prepared(PROTOCOLS, 1) == []
        assert member == before


# --------------------------------------------------------------------------------------------------- heartbeats


def test_a_stable_member_sends_heartbeats() -> None:
    member = stable()
    assert member.handle(fire(member, HEARTBEAT), 3_000) == [
        SendHeartbeat(4, 3, "m1"),
        SetTimer(HEARTBEAT, 4, 6_000),
    ]
    assert member.handle(HeartbeatReplied(4, None), 3_010) == [SetTimer(SESSION, 5, 13_000)]


def test_a_heartbeat_waits_for_the_answer_to_the_one_before() -> None:
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    assert member.handle(fire(member, HEARTBEAT), 6_000) == [SetTimer(HEARTBEAT, 5, 9_000)]


def test_heartbeats_go_on_while_the_herder_prepares_the_leader_computes_and_the_sync_is_in_flight() -> None:
    preparing_again = stable()
    preparing_again.request_rejoin(Because("because"), 1)
    for member in (preparing_again, elected(), syncing()):
        sent = member.handle(fire(member, HEARTBEAT), 3_000)
        assert isinstance(sent[0], SendHeartbeat)
        before = member.state
        for error in (None, "REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"):
            waiting = copy.deepcopy(member)
            answered = waiting.handle(HeartbeatReplied(sent[0].request_id, error), 3_001)
            assert [type(output) for output in answered] in ([SetTimer], [])
            assert waiting.state is before


def test_no_heartbeats_before_the_first_join_and_while_joining() -> None:
    for member in (preparing(), joining()):
        assert not member.timers.is_set(HEARTBEAT)
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    late_timer = fire(member, HEARTBEAT)
    member.request_rejoin(Because("because"), 3_001)
    member.prepared(PROTOCOLS, 3_002)
    before = copy.deepcopy(member)
    assert member.handle(HeartbeatReplied(4, "UNKNOWN_MEMBER_ID"), 3_003) == []
    assert member.handle(GroupRequestFailed(4, "cut"), 3_003) == []
    assert member.handle(late_timer, 6_000) == []
    assert member == before


def test_a_rebalance_told_by_a_heartbeat_keeps_the_id_and_rejoins() -> None:
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    assert member.handle(HeartbeatReplied(4, "REBALANCE_IN_PROGRESS"), 3_005) == [
        SetTimer(SESSION, 5, 13_000),
        JoinPreparing(Because("the group is rebalancing")),
    ]
    assert member.prepared(PROTOCOLS, 3_006) == [SendJoinGroup(5, "m1", 10_000, 60_000, PROTOCOLS)]


@pytest.mark.parametrize(("error", "member_id"), [("UNKNOWN_MEMBER_ID", ""), ("ILLEGAL_GENERATION", "m1")])
def test_a_member_that_was_dropped_says_so_and_joins_anew(error: str, member_id: str) -> None:
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    reason = f"Heartbeat was refused: {error}"
    assert member.handle(HeartbeatReplied(4, error), 3_005) == [
        MembershipLost(Because(reason), error),
        JoinPreparing(Because(reason)),
    ]
    assert (member.generation, member.member_id) == (-1, member_id)
    assert member.timers.awaited == {}
    assert member.prepared(PROTOCOLS, 3_006) == [SendJoinGroup(5, member_id, 10_000, 60_000, PROTOCOLS)]


def test_a_member_dropped_while_it_prepares_is_not_asked_to_prepare_again() -> None:
    member = stable()
    member.request_rejoin(Because("because"), 1)
    member.handle(fire(member, HEARTBEAT), 3_000)
    error = "UNKNOWN_MEMBER_ID"
    assert member.handle(HeartbeatReplied(4, error), 3_005) == [
        MembershipLost(Because(f"Heartbeat was refused: {error}"), error)
    ]
    assert member.prepared(PROTOCOLS, 3_006) == [SendJoinGroup(5, "", 10_000, 60_000, PROTOCOLS)]


def test_a_leader_dropped_while_it_computes_starts_over() -> None:
    member = elected()
    member.handle(fire(member, HEARTBEAT), 3_000)
    error = "ILLEGAL_GENERATION"
    reason = f"Heartbeat was refused: {error}"
    assert member.handle(HeartbeatReplied(3, error), 3_005) == [
        MembershipLost(Because(reason), error),
        JoinPreparing(Because(reason)),
    ]
    assert member.assignments(3, {}, 3_006) == []


def test_a_session_that_ran_out_by_the_own_clock_is_lost() -> None:
    member = stable()
    reason = "no heartbeat was answered for 10000 ms"
    assert member.handle(fire(member, SESSION), 10_000) == [
        MembershipLost(Because(reason), None),
        SetTimer(UNKNOWN, 4, 13_000),
        SetTimer(RETRY, 5, 10_100),
    ]
    assert (member.state, member.generation, member.member_id) == (MembershipState.FINDING, -1, "m1")
    assert member.handle(fire(member, RETRY), 10_100) == [FindCoordinator(4)]
    assert member.handle(CoordinatorFound(4), 10_101) == [JoinPreparing(Because(reason))]


def test_the_session_counts_from_when_the_answered_heartbeat_was_sent() -> None:
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    assert member.handle(HeartbeatReplied(4, None), 9_000) == [SetTimer(SESSION, 5, 13_000)]


# ------------------------------------------------------------------------------------- the coordinator goes away


@pytest.mark.parametrize(
    "stimulus",
    [
        HeartbeatReplied(4, "NOT_COORDINATOR"),
        HeartbeatReplied(4, "COORDINATOR_NOT_AVAILABLE"),
        GroupRequestFailed(4, "the connection was lost"),
    ],
)
def test_a_stable_member_goes_on_as_it_was_when_the_coordinator_is_found_in_time(stimulus: GroupStimulus) -> None:
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    assert member.handle(stimulus, 3_010) == [SetTimer(UNKNOWN, 5, 6_010), SetTimer(RETRY, 6, 3_110)]
    assert (member.state, member.generation, member.is_confirmed) == (MembershipState.FINDING, 3, False)
    assert member.handle(fire(member, RETRY), 3_110) == [FindCoordinator(5)]
    assert member.handle(CoordinatorFound(5), 3_120) == [SendHeartbeat(6, 3, "m1"), SetTimer(HEARTBEAT, 7, 6_120)]
    assert member.state is MembershipState.STABLE
    assert list(member.timers.awaited) == [SESSION, HEARTBEAT]


def test_the_search_backs_off_and_tells_once_when_it_takes_too_long() -> None:
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    member.handle(GroupRequestFailed(4, "cut"), 3_000)
    waits_ms = []
    for request_id in range(5, 12):
        assert member.handle(fire(member, RETRY), 4_000) == [FindCoordinator(request_id)]
        (again,) = member.handle(GroupRequestFailed(request_id, "cut"), 4_000)
        assert isinstance(again, SetTimer)
        waits_ms.append(again.at_ms - 4_000)
    assert waits_ms == [200, 400, 800, 1_000, 1_000, 1_000, 1_000]
    unknown = fire(member, UNKNOWN)
    assert member.handle(unknown, 6_000) == [CoordinatorUnknown(3_000)]
    assert member.handle(unknown, 6_001) == []
    assert member.state is MembershipState.FINDING


def test_the_session_ends_while_the_coordinator_is_unknown() -> None:
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    member.handle(GroupRequestFailed(4, "cut"), 3_000)
    reason = "no heartbeat was answered for 10000 ms"
    assert member.handle(fire(member, SESSION), 10_000) == [MembershipLost(Because(reason), None)]
    member.handle(fire(member, RETRY), 10_001)
    assert member.handle(CoordinatorFound(5), 10_002) == [JoinPreparing(Because(reason))]


def test_a_coordinator_found_at_start_late_is_told_too() -> None:
    member = Membership(SETTINGS)
    member.start(0)
    assert member.handle(GroupRequestFailed(1, "no broker"), 20) == [SetTimer(RETRY, 2, 120)]
    assert member.handle(fire(member, UNKNOWN), 3_000) == [CoordinatorUnknown(0)]


@pytest.mark.parametrize("stimulus", [refused_join(2, "NOT_COORDINATOR"), GroupRequestFailed(2, "cut")])
def test_a_join_that_meets_no_coordinator_is_prepared_again_after_it_is_found(stimulus: GroupStimulus) -> None:
    member = joining()
    assert member.handle(stimulus, 10) == [SetTimer(UNKNOWN, 2, 3_010), SetTimer(RETRY, 3, 110)]
    member.handle(fire(member, RETRY), 110)
    (signal,) = member.handle(CoordinatorFound(3), 120)
    assert isinstance(signal, JoinPreparing)


def test_a_rejoin_that_fails_keeps_the_generation_and_its_session() -> None:
    member = stable()
    member.request_rejoin(Because("because"), 1)
    member.prepared(PROTOCOLS, 2)
    assert member.handle(GroupRequestFailed(4, "cut"), 5_000) == [
        SetTimer(UNKNOWN, 4, 8_000),
        SetTimer(SESSION, 5, 15_000),
        SetTimer(RETRY, 6, 5_100),
    ]
    member.handle(fire(member, RETRY), 5_100)
    assert member.handle(CoordinatorFound(5), 5_101) == [
        SendHeartbeat(6, 3, "m1"),
        SetTimer(HEARTBEAT, 7, 8_101),
        JoinPreparing(Because("cut")),
    ]


def test_a_heartbeat_that_meets_no_coordinator_ends_a_sync_too() -> None:
    member = syncing()
    member.handle(fire(member, HEARTBEAT), 3_000)
    member.handle(HeartbeatReplied(4, "NOT_COORDINATOR"), 3_001)
    assert member.state is MembershipState.FINDING
    assert member.handle(SyncGroupReplied(3, None, ASSIGNMENT), 3_002) == []
    member.handle(fire(member, RETRY), 3_101)
    assert JoinPreparing(Because("Heartbeat was refused: NOT_COORDINATOR")) in member.handle(CoordinatorFound(5), 3_102)


# ------------------------------------------------------------------------------------------------ refused requests


def test_a_loading_coordinator_is_asked_again_after_a_growing_pause() -> None:
    member = joining()
    assert member.handle(refused_join(2, "COORDINATOR_LOAD_IN_PROGRESS"), 10) == [SetTimer(RETRY, 2, 110)]
    assert member.state is MembershipState.WAITING
    reason = "JoinGroup was refused: COORDINATOR_LOAD_IN_PROGRESS"
    assert member.handle(fire(member, RETRY), 110) == [JoinPreparing(Because(reason))]
    member.prepared(PROTOCOLS, 111)
    assert member.handle(refused_join(3, "COORDINATOR_LOAD_IN_PROGRESS"), 120) == [SetTimer(RETRY, 3, 320)]


def test_a_member_that_waits_to_rejoin_sends_heartbeats_of_its_old_generation() -> None:
    member = stable()
    member.request_rejoin(Because("because"), 1)
    member.prepared(PROTOCOLS, 2)
    assert member.handle(refused_join(4, "COORDINATOR_LOAD_IN_PROGRESS"), 10) == [
        SetTimer(SESSION, 4, 10_010),
        SetTimer(HEARTBEAT, 5, 3_010),
        SetTimer(RETRY, 6, 110),
    ]


def test_a_rejoin_under_an_id_that_is_gone_is_a_loss_and_retried_at_once() -> None:
    member = stable()
    member.request_rejoin(Because("because"), 1)
    member.prepared(PROTOCOLS, 2)
    error = "UNKNOWN_MEMBER_ID"
    reason = f"JoinGroup was refused: {error}"
    assert member.handle(refused_join(4, error), 3) == [
        MembershipLost(Because(reason), error),
        JoinPreparing(Because(reason)),
    ]
    assert member.member_id == ""


def test_a_loss_is_told_once() -> None:
    member = stable()
    member.handle(fire(member, SESSION), 10_000)
    member.handle(fire(member, RETRY), 10_100)
    member.handle(CoordinatorFound(4), 10_101)
    member.prepared(PROTOCOLS, 10_102)
    assert member.handle(refused_join(5, "UNKNOWN_MEMBER_ID"), 10_103) == [
        JoinPreparing(Because("JoinGroup was refused: UNKNOWN_MEMBER_ID"))
    ]


def test_a_sync_overtaken_by_another_rebalance_rejoins_with_its_generation() -> None:
    member = syncing()
    (signal,) = member.handle(SyncGroupReplied(3, "REBALANCE_IN_PROGRESS", None), 5)
    assert isinstance(signal, JoinPreparing)
    assert (member.state, member.generation, member.member_id) == (MembershipState.PREPARING, 3, "m1")
    assert list(member.timers.awaited) == [SESSION, HEARTBEAT]


def test_a_sync_without_an_assignment_is_tried_again() -> None:
    member = syncing()
    assert member.handle(SyncGroupReplied(3, None, None), 5) == [SetTimer(RETRY, 4, 105)]
    assert member.handle(fire(member, RETRY), 105) == [JoinPreparing(Because("the leader sent no assignment"))]


def test_a_sync_of_a_dropped_member_is_a_loss() -> None:
    member = syncing()
    error = "UNKNOWN_MEMBER_ID"
    reason = f"SyncGroup was refused: {error}"
    assert member.handle(SyncGroupReplied(3, error, None), 5) == [
        MembershipLost(Because(reason), error),
        JoinPreparing(Because(reason)),
    ]


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
def test_an_error_that_no_retry_heals_ends_membership(error: str) -> None:
    heartbeating = stable()
    heartbeating.handle(fire(heartbeating, HEARTBEAT), 3_000)
    for member, stimulus in (
        (joining(), refused_join(2, error)),
        (syncing(), SyncGroupReplied(3, error, None)),
        (heartbeating, HeartbeatReplied(4, error)),
    ):
        assert member.handle(stimulus, 3_001) == [FatalGroupError(error)]
        assert (member.state, member.timers.awaited) == (MembershipState.FAILED, {})
        assert isinstance(member.start(9_000)[-1], FindCoordinator)


# ------------------------------------------------------------------------------------------------ own requests


def test_a_stable_member_rejoins_at_once_when_asked() -> None:
    member = stable()
    assert member.request_rejoin(Because("the delay is over"), 7) == [JoinPreparing(Because("the delay is over"))]
    assert member.request_rejoin(Because("again"), 8) == []
    assert member.rejoin_reason == Because("the delay is over")


@pytest.mark.parametrize("make", [joining, syncing, elected])
def test_a_rejoin_asked_for_during_a_rebalance_follows_it(make: object) -> None:
    member: Membership = make()  # type: ignore[operator]
    assert member.request_rejoin(Because("new tasks"), 1) == []
    if make is joining:
        member.handle(joined(2), 2)
    if make is elected:
        member.assignments(3, {}, 2)
    assert member.handle(SyncGroupReplied(3, None, ASSIGNMENT), 3)[1:] == [JoinPreparing(Because("new tasks"))]


def test_a_rejoin_asked_for_while_the_coordinator_is_unknown_follows_its_discovery() -> None:
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    member.handle(GroupRequestFailed(4, "cut"), 3_000)
    assert member.request_rejoin(Because("new tasks"), 3_001) == []
    member.handle(fire(member, RETRY), 3_100)
    assert member.handle(CoordinatorFound(5), 3_101)[-1] == JoinPreparing(Because("new tasks"))


def test_who_is_not_in_the_group_does_not_rejoin() -> None:
    member = Membership(SETTINGS)
    assert member.request_rejoin(Because("because"), 1) == []
    assert member == Membership(SETTINGS)


def test_leaving_forgets_the_group() -> None:
    member = stable()
    late = [fire(member, HEARTBEAT), fire(member, SESSION)]
    assert member.leave() == [SendLeaveGroup(4, "m1")]
    assert (member.state, member.member_id, member.generation) == (MembershipState.STOPPED, "", -1)
    before = copy.deepcopy(member)
    for timer in late:
        assert member.handle(timer, 9_000) == []
    assert member.handle(GroupRequestFailed(4, "cut"), 9_000) == []
    assert member.leave() == []
    assert member == before
    assert member.start(9_001)[-1] == FindCoordinator(5)


def test_leaving_sends_nothing_without_an_id_or_a_coordinator() -> None:
    for member in (Membership(SETTINGS), preparing(), joining()):
        assert member.leave() == []
    member = stable()
    member.handle(fire(member, HEARTBEAT), 3_000)
    member.handle(GroupRequestFailed(4, "cut"), 3_000)
    assert member.leave() == []


def test_a_member_that_failed_can_still_leave_with_its_id() -> None:
    member = syncing()
    member.handle(SyncGroupReplied(3, "GROUP_AUTHORIZATION_FAILED", None), 1)
    assert member.leave() == [SendLeaveGroup(4, "m1")]


# ---------------------------------------------------------------------------------------------------- late answers


def test_answers_to_requests_that_are_no_longer_awaited_change_nothing() -> None:
    late: list[GroupStimulus | TimerFired] = [
        CoordinatorFound(1),
        joined(2, generation=9),
        SyncGroupReplied(3, None, ASSIGNMENT),
        SyncGroupReplied(3, "UNKNOWN_MEMBER_ID", None),
        HeartbeatReplied(77, "UNKNOWN_MEMBER_ID"),
        GroupRequestFailed(2, "cut"),
        TimerFired(HEARTBEAT, 99),
        TimerFired(RETRY, 1),
    ]
    for member in (stable(), Membership(SETTINGS)):
        before = copy.deepcopy(member)
        for stimulus in late:
            assert member.handle(stimulus, 1) == []
        assert member == before


def test_a_repeated_answer_changes_nothing() -> None:
    member = Membership(SETTINGS)
    member.start(0)
    for stimulus in (CoordinatorFound(1), joined(2), SyncGroupReplied(3, None, ASSIGNMENT)):
        assert member.handle(stimulus, 0) != []
        before = copy.deepcopy(member)
        assert member.handle(stimulus, 1) == []
        assert member == before
        member.prepared(PROTOCOLS, 0)


def test_a_member_may_ask_before_its_next_heartbeat_is_due_whether_it_still_is_one() -> None:
    member = stable()
    assert member.is_confirmed
    assert member.confirm(100) == [SendHeartbeat(4, 3, "m1"), SetTimer(HEARTBEAT, 4, 3_100)]
    assert not member.is_confirmed
    assert [type(effect) for effect in member.confirm(110)] == [SetTimer], "one unanswered heartbeat is enough"
    member.handle(HeartbeatReplied(4, None), 120)
    assert member.is_confirmed
    assert preparing().confirm(100) == [], "a join under way tells by its own answers"
