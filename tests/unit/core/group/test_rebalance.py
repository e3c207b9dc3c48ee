"""From assignment to running work: the exact order of revoking, reading, starting and joining again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectx.core.config_writer import Claim
from connectx.core.group.membership import MembershipState
from connectx.core.group.rebalance import RebalancePhase
from connectx.core.messages import (
    ConfigReadToEnd,
    ConnectorStopped,
    CoordinatorFound,
    Effect,
    FindCoordinator,
    GroupRequestFailed,
    JoinGroupReplied,
    PrepareTask,
    ReadConfigToEnd,
    SendJoinGroup,
    SendLeaveGroup,
    SendSyncGroup,
    SetTimer,
    ShutdownRequested,
    StartConnector,
    Step,
    StopConnector,
    StopTask,
    SyncGroupReplied,
    TaskStopped,
    TimerFired,
    WorkerShutDown,
)
from connectx.core.timer_keys import GroupTimer, TimerKey, WorkerTimer
from connectx.core.worker import WorkerCore
from connectx.model.config_records import ConnectorConfigRecord, TargetStateRecord
from connectx.model.events import EventKind
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from tests.support.core_parts import C0, C1, LEADER_URL, ME, a_core, configure, read
from tests.support.histories import Because, Recorded

ALL, NOTHING = WorkSet(("c",), (C0, C1)), WorkSet()
OFFSET = 6
SESSIONED, EAGER = ProtocolVersion.SESSIONED, ProtocolVersion.EAGER
HEARTBEATS = (GroupTimer.HEARTBEAT, GroupTimer.SESSION)


def working(**changes: Any) -> WorkerCore:
    """A settled follower that runs connector c (instance 1) and tasks c-0 and c-1 (instances 2 and 3)."""
    core = a_core(**({"leads": False} | changes))
    core.connectors.start("c", Because(""))
    core.tasks.start(C0, Because(""))
    core.tasks.start(C1, Because(""))
    return core


def fire(core: WorkerCore, key: TimerKey, at_ms: int = 2_000) -> Step:
    """The timer with that key."""
    timers = core.membership.timers if isinstance(key, GroupTimer) else core.context.timers
    return core.handle(TimerFired(key, timers.awaited[key]), at_ms)


def rejoin(core: WorkerCore, at_ms: int = 2_000) -> Step:
    """A join becomes due."""
    core.context.set_timer(WorkerTimer.REBALANCE_DELAY, 0)
    return fire(core, WorkerTimer.REBALANCE_DELAY, at_ms)


def joined(core: WorkerCore, members: Mapping[str, MemberMetadata] | None = None, protocol: str = "sessioned") -> Step:
    """The coordinator answers the join: generation 4, led by `other` unless members are given."""
    leader = "other" if members is None else "me"
    request_id = core.membership.request_id or 0
    return core.handle(JoinGroupReplied(request_id, None, 4, "me", leader, protocol, members or {}), 2_000)


def assigned(
    core: WorkerCore,
    work: WorkSet = NOTHING,
    revoked: WorkSet = NOTHING,
    *,
    offset: int = OFFSET,
    error: int = 0,
    delay_ms: int = 0,
    version: ProtocolVersion = SESSIONED,
    leader: str = "other",
) -> Step:
    """The coordinator answers SyncGroup."""
    url = LEADER_URL if leader == "other" else f"http://{ME}/"
    assignment = Assignment(version, error, leader, url, offset, work, revoked, delay_ms)
    return core.handle(SyncGroupReplied(core.membership.request_id or 0, None, assignment), 2_000)


def through(core: WorkerCore, **assignment: Any) -> list[Effect]:
    """A whole rebalance; what came of the assignment."""
    rejoin(core)
    joined(core)
    return assigned(core, **assignment).effects


def work_of(effects: list[Effect]) -> list[object]:
    """Starts and stops, and steps of the rebalance; no timers, no statuses."""
    kinds = (StopTask, StopConnector, PrepareTask, StartConnector, ReadConfigToEnd, SendJoinGroup, FindCoordinator)
    return [effect for effect in effects if isinstance(effect, (*kinds, SendLeaveGroup, SendSyncGroup))]


def claims(effects: list[Effect]) -> list[WorkSet | None]:
    """What joins among the effects say that this worker runs."""
    joins = [effect for effect in effects if isinstance(effect, SendJoinGroup)]
    allocations = [join.protocols[0].allocation for join in joins]
    return [None if allocation is None else allocation.assigned for allocation in allocations]


STOPS = [StopTask(C0, 2), StopTask(C1, 3), StopConnector("c", 1)]


# ------------------------------------------------------------------------------------------------------- joining


def test_a_join_offers_all_protocols_and_claims_what_is_assigned() -> None:
    core = working()
    step = rejoin(core)
    claim = Assignment(SESSIONED, 0, "other", LEADER_URL, OFFSET, ALL)
    compatible = Assignment(ProtocolVersion.COMPATIBLE, 0, "other", LEADER_URL, OFFSET, ALL)
    url = f"http://{ME}/"
    protocols = (
        MemberMetadata(SESSIONED, url, OFFSET, claim),
        MemberMetadata(ProtocolVersion.COMPATIBLE, url, OFFSET, compatible),
        MemberMetadata(EAGER, url, OFFSET),
    )
    assert step.effects == [SendJoinGroup(5, "me", 10_000, 60_000, protocols)]
    reason = "the scheduled rebalance delay has passed"
    assert step.transitions == [
        Recorded(EventKind.REBALANCE_STARTED, generation=3, cause=reason, data={"reason": reason})
    ]
    assert not core.context.group.settled


def test_cooperative_rebalancing_lets_work_run_while_the_group_is_joined() -> None:
    core = working()
    assert work_of([*rejoin(core).effects, *joined(core).effects]) == [
        SendJoinGroup(5, "me", 10_000, 60_000, core.membership.protocols),
        SendSyncGroup(6, 4, "me", {}),
    ]


def test_the_leader_sends_everyones_assignment() -> None:
    core = working(leads=True)
    rejoin(core)
    mine = core.membership.protocols[0]
    effects = joined(core, {"me": mine, "new": MemberMetadata(SESSIONED, "http://new/", OFFSET)}).effects
    (sync,) = [effect for effect in effects if isinstance(effect, SendSyncGroup)]
    assert sorted(sync.assignments) == ["me", "new"]
    assert sync.assignments["me"].revoked == WorkSet((), (C0,))


# ---------------------------------------------------------------------------------------------------- assignments


def test_assigned_work_starts_when_the_config_topic_is_as_far_as_the_leader_was() -> None:
    core = a_core(leads=False)
    core.context.group.assignment = None
    effects = through(core, work=WorkSet(("c",), (C1,)))
    started = [type(effect) for effect in work_of(effects)]
    assert started == [StartConnector, PrepareTask]
    assert core.context.group.assignment == WorkSet(("c",), (C1,))
    assert (core.rebalance.phase, core.context.group.settled) == (RebalancePhase.SETTLED, True)


def test_a_completed_rebalance_tells_what_runs_here_now() -> None:
    core = working()
    rejoin(core, at_ms=1_500)
    joined(core)
    (completed,) = [
        t
        for t in assigned(core, revoked=WorkSet((), (C1,)), delay_ms=5).transitions
        if t.kind is EventKind.REBALANCE_COMPLETED
    ]
    assert completed == Recorded(
        EventKind.REBALANCE_COMPLETED,
        generation=4,
        data={
            "leader": "other",
            "leader_url": LEADER_URL,
            "protocol": "sessioned",
            "connectors": ["c"],
            "tasks": ["c-0"],
            "revoked": ["c-1"],
            "delay_ms": 5,
            "error": 0,
            "took_ms": 500,
        },
    )


def test_running_work_is_not_touched_by_an_assignment_that_keeps_it() -> None:
    core = working()
    assert work_of(through(core)) == []


def test_revoked_work_stops_before_assigned_work_starts_and_the_group_is_joined_again_at_once() -> None:
    core = working()
    configure(core.context, "d", tasks=0)
    offset = core.context.config.offset
    effects = through(core, work=WorkSet(("d",)), revoked=WorkSet(("c",), (C1,)), offset=offset)
    assert work_of(effects) == [StopTask(C1, 3), StopConnector("c", 1)]
    assert work_of(core.handle(TaskStopped(C1, 3), 2_000).effects) == []
    effects = core.handle(ConnectorStopped("c", 1), 2_000).effects
    assert [type(effect) for effect in work_of(effects)] == [StartConnector, SendJoinGroup]
    assert claims(effects) == [WorkSet(("d",), (C0,))]
    assert not core.context.group.settled


def test_a_worker_that_is_behind_reads_the_config_topic_before_it_starts_anything() -> None:
    core = a_core(leads=False)
    effects = through(core, offset=OFFSET + 1)
    assert work_of(effects) == [ReadConfigToEnd(1, 3_000)]
    read(core.context, TargetStateRecord("c", TargetState.PAUSED))
    started = work_of(core.handle(ConfigReadToEnd(1), 2_000).effects)
    assert [type(effect) for effect in started] == [StartConnector, PrepareTask, PrepareTask]


def test_a_worker_that_ran_past_the_assignment_joins_again_and_starts_nothing() -> None:
    core = a_core(leads=False)
    effects = through(core, offset=OFFSET - 1)
    assert [type(effect) for effect in work_of(effects)] == [SendJoinGroup]
    assert claims(effects) == [ALL]


def test_an_answer_to_the_read_of_an_older_assignment_starts_nothing() -> None:
    core = a_core(leads=False)
    through(core, offset=OFFSET + 1)
    rejoin(core)
    read(core.context, TargetStateRecord("c", TargetState.PAUSED))
    assert core.handle(ConfigReadToEnd(1), 2_000).effects == []


def test_a_follower_of_a_leader_that_was_behind_joins_again_a_little_later() -> None:
    core = working()
    effects = through(core, error=1)
    assert [effect for effect in effects if isinstance(effect, SetTimer) and effect.key == WorkerTimer.MISMATCH] == [
        SetTimer(WorkerTimer.MISMATCH, 2, 2_100)
    ]
    assert work_of(effects) == []
    assert [type(effect) for effect in work_of(fire(core, WorkerTimer.MISMATCH).effects)] == [SendJoinGroup]


def test_a_leader_that_was_behind_reads_the_config_topic_to_its_end_and_joins_again() -> None:
    core = working(leads=True)
    rejoin(core)
    joined(core, {"me": MemberMetadata(SESSIONED, "http://me/", OFFSET + 1)})
    effects = assigned(core, error=1, offset=OFFSET + 1, leader="me").effects
    assert work_of(effects) == [ReadConfigToEnd(1, 3_000)]
    assert [type(e) for e in work_of(core.handle(ConfigReadToEnd(1), 2_000).effects)] == [SendJoinGroup]


def test_a_delay_sets_a_timer_to_join_again_and_no_delay_cancels_it() -> None:
    core = working()
    timers = [effect for effect in through(core, delay_ms=700) if isinstance(effect, SetTimer)]
    assert timers[-1] == SetTimer(WorkerTimer.REBALANCE_DELAY, 2, 2_700)
    assert [type(effect) for effect in work_of(fire(core, WorkerTimer.REBALANCE_DELAY).effects)] == [SendJoinGroup]
    joined(core)
    assigned(core)
    assert not core.context.timers.is_set(WorkerTimer.REBALANCE_DELAY)


def test_a_member_that_is_not_named_leader_steps_down() -> None:
    core = working(leads=True)
    through(core)
    assert (core.writer.claim, core.context.group.is_leader) == (Claim.NONE, False)


def test_a_member_that_is_named_leader_claims_the_config_topic() -> None:
    core = working()
    rejoin(core)
    joined(core, {"me": core.membership.protocols[0]})
    effects = assigned(core, leader="me").effects
    assert "ClaimConfigWrites" in [type(effect).__name__ for effect in effects]
    assert core.context.group.generation == 4


def test_deleted_work_that_no_leader_remembers_to_revoke_ends_when_the_group_is_settled() -> None:
    core = working()
    read(core.context, ConnectorConfigRecord("c", None))
    effects = through(core, offset=OFFSET + 1)
    assert work_of(effects) == STOPS
    assert core.context.group.assignment == WorkSet()


# ------------------------------------------------------------------------------ a rebalance in the middle of another


def test_a_join_that_comes_while_revoked_work_stops_waits_for_it() -> None:
    core = working()
    through(core, revoked=WorkSet((), (C1,)))
    assert work_of(rejoin(core).effects) == []
    effects = core.handle(TaskStopped(C1, 3), 2_000).effects
    assert [type(effect) for effect in work_of(effects)] == [SendJoinGroup]
    assert claims(effects) == [WorkSet(("c",), (C0,))]


def test_assigned_work_that_was_not_started_yet_is_claimed() -> None:
    core = a_core(leads=False)
    core.context.group.assignment = WorkSet()
    through(core, work=ALL, offset=OFFSET + 1)
    effects = rejoin(core).effects
    assert [type(effect) for effect in work_of(effects)] == [SendJoinGroup]
    assert claims(effects) == [ALL]


def test_revoked_work_that_comes_back_later_does_not_hold_the_next_join() -> None:
    core = working()
    through(core, revoked=WorkSet((), (C1,)))
    core.handle(TaskStopped(C1, 3), 2_000)
    joined(core)
    assigned(core, work=WorkSet((), (C1,)))
    assert C1 in core.tasks.lives
    assert [type(effect) for effect in work_of(rejoin(core).effects)] == [SendJoinGroup]


# ----------------------------------------------------------------------------------- a config topic that cannot be read


def test_a_worker_that_cannot_read_the_config_topic_leaves_the_group_and_its_work_goes_on() -> None:
    core = working()
    through(core, offset=OFFSET + 1)
    step = core.handle(ConfigReadToEnd(1, "timed out"), 2_000)
    assert step.effects == [SendLeaveGroup(7, "me"), SetTimer(WorkerTimer.CONFIG_READ, 2, 2_000 + 6_000)]
    assert [t.kind for t in step.transitions] == [EventKind.MEMBER_LOST]
    assert core.tasks.running() == (C0, C1)
    effects = fire(core, WorkerTimer.CONFIG_READ).effects
    assert effects == [ReadConfigToEnd(2, 3_000)]
    effects = core.handle(ConfigReadToEnd(2), 2_000).effects
    assert [type(effect) for effect in work_of(effects)] == [FindCoordinator]
    effects = core.handle(CoordinatorFound(core.membership.request_id or 0), 2_000).effects
    assert claims(effects) == [ALL]


def test_five_tries_a_little_later_each_then_all_work_stops_once_and_counting_starts_again() -> None:
    core = working()
    through(core, offset=OFFSET + 1)
    delays_ms: list[int] = []
    for _ in range(5):
        effects = core.handle(ConfigReadToEnd(core.rebalance.read_request or 0, "timed out"), 2_000).effects
        delays_ms += [e.at_ms - 2_000 for e in effects if isinstance(e, SetTimer) and e.key == WorkerTimer.CONFIG_READ]
        assert STOPS[0] not in effects
        fire(core, WorkerTimer.CONFIG_READ)
    assert delays_ms == [6_000, 7_500, 10_000, 15_000, 30_000]
    effects = core.handle(ConfigReadToEnd(core.rebalance.read_request or 0, "timed out"), 2_000).effects
    assert work_of(effects) == [*STOPS, ReadConfigToEnd(7, 3_000)]
    assert core.context.group.assignment is None
    effects = core.handle(ConfigReadToEnd(7, "timed out"), 2_000).effects
    assert effects == [SetTimer(WorkerTimer.CONFIG_READ, core.context.timers.last_token, 8_000)]


def test_an_eager_worker_backs_off_for_long() -> None:
    core = a_core(leads=False)
    core.context.group.protocol = EAGER
    core.context.group.assignment = None
    rejoin(core)
    joined(core, protocol="default")
    assigned(core, ALL, offset=OFFSET + 1, version=EAGER)
    effects = core.handle(ConfigReadToEnd(1, "timed out"), 2_000).effects
    assert SetTimer(WorkerTimer.CONFIG_READ, 2, 302_000) in effects


# ----------------------------------------------------------------------------------------------------------- eager


def test_eager_rebalancing_stops_everything_before_it_joins_and_claims_nothing() -> None:
    core = working()
    core.context.group.protocol = EAGER
    assert work_of(rejoin(core).effects) == STOPS
    core.handle(TaskStopped(C0, 2), 2_000)
    core.handle(TaskStopped(C1, 3), 2_000)
    effects = core.handle(ConnectorStopped("c", 1), 2_000).effects
    assert [type(effect) for effect in work_of(effects)] == [SendJoinGroup]
    assert claims(effects) == [WorkSet()]


def test_nothing_restarts_while_eager_rebalancing_stops_everything() -> None:
    core = working()
    core.context.group.protocol = EAGER
    rejoin(core)
    core.connectors.reconfigure("c")
    core.tasks.restart(C0, Because("asked"))
    for stimulus in (TaskStopped(C0, 2), TaskStopped(C1, 3), ConnectorStopped("c", 1)):
        effects = core.handle(stimulus, 2_000).effects
    assert [type(effect) for effect in work_of(effects)] == [SendJoinGroup]
    assert (core.connectors.running(), core.tasks.running()) == ((), ())


def test_when_the_group_falls_back_to_eager_what_is_not_assigned_goes() -> None:
    core = working()
    rejoin(core)
    joined(core, protocol="default")
    effects = assigned(core, WorkSet(("c",), (C0,)), version=EAGER).effects
    assert work_of(effects) == [StopTask(C1, 3)]
    assert core.context.group.assignment == WorkSet(("c",), (C0,))


# ------------------------------------------------------------------------------------------------- lost membership


def test_a_lost_membership_lets_work_go_on_but_nobody_leads_and_requests_wait() -> None:
    core = working(leads=True)
    core.membership.heartbeat_request_id = 4
    core.membership.timers.set(GroupTimer.SESSION, 0)
    step = fire(core, GroupTimer.SESSION)
    assert work_of(step.effects) == []
    assert [t.kind for t in step.transitions] == [EventKind.MEMBER_LOST]
    group = core.context.group
    assert (group.settled, group.is_leader, group.leader_url, core.writer.claim) == (False, False, "", Claim.NONE)
    assert group.assignment == ALL


def test_a_follower_that_loses_its_membership_still_knows_the_leader() -> None:
    core = working()
    core.membership.heartbeat_request_id = 4
    core.membership.timers.set(GroupTimer.SESSION, 0)
    fire(core, GroupTimer.SESSION)
    assert (core.context.group.leader_id, core.context.group.leader_url) == ("other", LEADER_URL)


def without_coordinator() -> WorkerCore:
    """The last group request failed, and looking for the coordinator takes too long."""
    core = working()
    core.membership.heartbeat_request_id = 4
    core.handle(GroupRequestFailed(4, "cut off"), 1_000)
    return core


def test_a_coordinator_that_stays_unknown_ends_all_work() -> None:
    core = without_coordinator()
    step = fire(core, GroupTimer.UNKNOWN)
    assert work_of(step.effects) == STOPS
    assert (core.context.group.assignment, core.context.group.settled) == (None, False)
    assert step.transitions[0].kind is EventKind.MEMBER_LOST


def test_after_that_the_worker_joins_again_when_its_work_has_stopped_and_claims_nothing() -> None:
    core = without_coordinator()
    fire(core, GroupTimer.UNKNOWN)
    fire(core, GroupTimer.RETRY)
    core.handle(CoordinatorFound(core.membership.request_id or 0), 2_000)
    assert core.membership.state is MembershipState.PREPARING
    core.handle(TaskStopped(C0, 2), 2_000)
    core.handle(TaskStopped(C1, 3), 2_000)
    effects = core.handle(ConnectorStopped("c", 1), 2_000).effects
    assert claims(effects) == [None]


def test_a_coordinator_found_in_time_changes_nothing() -> None:
    core = without_coordinator()
    fire(core, GroupTimer.RETRY, at_ms=1_200)
    effects = core.handle(CoordinatorFound(core.membership.request_id or 0), 1_500).effects
    assert work_of(effects) == []
    assert core.context.group.settled


# ---------------------------------------------------------------------------------------------------------- the end


def test_a_worker_that_shuts_down_neither_joins_nor_takes_an_assignment() -> None:
    core = working()
    rejoin(core)
    joined(core)
    assert work_of(core.handle(ShutdownRequested(), 2_000).effects) == STOPS
    step = assigned(core, work=WorkSet(("d",), (TaskId("d", 0),)))
    assert (work_of(step.effects), step.transitions) == ([], [])
    assert work_of(rejoin(core).effects) == []


def test_a_group_that_refuses_this_worker_for_good_ends_it_with_the_reason() -> None:
    core = working()
    rejoin(core)
    request_id = core.membership.request_id or 0
    refused = JoinGroupReplied(request_id, "GROUP_AUTHORIZATION_FAILED", -1, "me", "", "", {})
    assert work_of(core.handle(refused, 2_000).effects) == STOPS
    for stimulus in (TaskStopped(C0, 2), TaskStopped(C1, 3), ConnectorStopped("c", 1)):
        effects = core.handle(stimulus, 2_000).effects
    assert effects[-1] == WorkerShutDown("the group refuses this worker: GROUP_AUTHORIZATION_FAILED")
