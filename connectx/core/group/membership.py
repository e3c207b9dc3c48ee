"""One member of the worker group: finds the coordinator, joins, syncs, sends heartbeats, rejoins.

It decides when to send which group request and what an answer means for membership. It never decides what work runs,
waits or reads a clock: it signals the herder, which hands in metadata (`prepared`) and, as leader, `assignments`.

Mirrors Kafka's AbstractCoordinator (classic group protocol) and the coordinator handling of Kafka Connect's
WorkerCoordinator (KAFKA-9184). Two differences, both on the safe side: the session also ends by the member's own
clock, counted from the moment the last answered heartbeat was sent; and a rejoin that is requested while one is under
way is done after it instead of being forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, assert_never

from connectx.core.messages import (
    CoordinatorFound,
    FindCoordinator,
    GroupEffect,
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
from connectx.core.moves import Moves, moved
from connectx.core.signals import (
    AssignmentReceived,
    CoordinatorUnknown,
    Elected,
    FatalGroupError,
    JoinPreparing,
    MembershipLost,
    MemberSignal,
)
from connectx.core.timer_keys import GroupTimer, TimerKey
from connectx.core.timers import Timers
from connectx.model import causes
from connectx.model.causes import Cause
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion
from connectx.model.worker_config import WorkerConfig

NO_GENERATION = -1

FIND_AGAIN = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"})
RETRIABLE = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "REBALANCE_IN_PROGRESS", "UNKNOWN_SERVER_ERROR"})
MEMBERSHIP_LOST = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"})


class MembershipState(StrEnum):
    """Where a member stands."""

    # Not a member. Answers nothing; goes to FINDING by start().
    STOPPED = "stopped"
    # The coordinator is unknown: asked for, or waiting for RETRY; no heartbeats. Goes to STABLE, PREPARING (to rejoin).
    FINDING = "finding"
    # JoinPreparing was signalled; heartbeats continue. Goes to JOINING by prepared(), or FINDING.
    PREPARING = "preparing"
    # JoinGroup is in flight, no heartbeats. Goes to ELECTED, SYNCING, WAITING, PREPARING (id reset), FINDING, FAILED.
    JOINING = "joining"
    # A retriable error was answered; heartbeats continue. Goes to PREPARING when RETRY fires, FINDING.
    WAITING = "waiting"
    # Elected was signalled; heartbeats continue. Goes to SYNCING by assignments(), PREPARING, FINDING.
    ELECTED = "elected"
    # SyncGroup is in flight; heartbeats. Goes to STABLE, PREPARING (rebalance, id reset), WAITING, FINDING, FAILED.
    SYNCING = "syncing"
    # Holds an assignment; heartbeats. Goes to PREPARING (rebalance, own request, id reset), FINDING, FAILED.
    STABLE = "stable"
    # A group error that no retry heals. Answers nothing; goes to FINDING by start().
    FAILED = "failed"


MEMBERSHIP_MOVES: Final[Moves[MembershipState]] = {
    MembershipState.STOPPED: frozenset({MembershipState.FINDING}),
    MembershipState.FINDING: frozenset({MembershipState.STABLE, MembershipState.PREPARING, MembershipState.STOPPED}),
    MembershipState.PREPARING: frozenset(
        {MembershipState.JOINING, MembershipState.FINDING, MembershipState.FAILED, MembershipState.STOPPED}
    ),
    MembershipState.JOINING: frozenset(
        {
            MembershipState.ELECTED,
            MembershipState.SYNCING,
            MembershipState.WAITING,
            MembershipState.PREPARING,
            MembershipState.FINDING,
            MembershipState.FAILED,
            MembershipState.STOPPED,
        }
    ),
    MembershipState.WAITING: frozenset(
        {MembershipState.PREPARING, MembershipState.FINDING, MembershipState.FAILED, MembershipState.STOPPED}
    ),
    MembershipState.ELECTED: frozenset(
        {
            MembershipState.SYNCING,
            MembershipState.PREPARING,
            MembershipState.FINDING,
            MembershipState.FAILED,
            MembershipState.STOPPED,
        }
    ),
    MembershipState.SYNCING: frozenset(
        {
            MembershipState.STABLE,
            MembershipState.PREPARING,
            MembershipState.WAITING,
            MembershipState.FINDING,
            MembershipState.FAILED,
            MembershipState.STOPPED,
        }
    ),
    MembershipState.STABLE: frozenset(
        {MembershipState.PREPARING, MembershipState.FINDING, MembershipState.FAILED, MembershipState.STOPPED}
    ),
    MembershipState.FAILED: frozenset({MembershipState.FINDING, MembershipState.STOPPED}),
}
"""`leave` leads to STOPPED from every state."""


Output = GroupEffect | SetTimer | MemberSignal


@dataclass(slots=True)
class Membership:
    """The state machine. Change it only through its methods; each returns what to do, in order.

    Its requests have their own numbers, 1, 2, ...: only answers of the coordinator carry them. An answer to a request
    that is no longer awaited, and a timer of an old token, change nothing.
    """

    settings: WorkerConfig
    state: MembershipState = MembershipState.STOPPED
    member_id: str = ""
    generation: int = NO_GENERATION
    leader_id: str = ""
    protocol: ProtocolVersion | None = None
    protocols: tuple[MemberMetadata, ...] = ()  # of the join under way
    rejoin_reason: Cause | None = None  # why a join is wanted that has not been sent yet
    request_id: int | None = None  # the FindCoordinator, JoinGroup or SyncGroup in flight
    heartbeat_request_id: int | None = None
    heartbeat_sent_ms: int = 0
    last_request_id: int = 0
    failures: int = 0  # in a row, for the back-off
    unknown_since_ms: int = 0
    timers: Timers = field(default_factory=Timers)

    @property
    def is_confirmed(self) -> bool:
        """True when the group was not asked since it last said that this is a member."""
        return self.state is not MembershipState.FINDING and self.heartbeat_request_id is None

    def awaits(self, stimulus: GroupStimulus | TimerFired) -> bool:
        """True for an answer to a request that is not answered yet, and for a timer that is set."""
        if isinstance(stimulus, TimerFired):
            return self.timers.expects(stimulus)
        return stimulus.request_id in (self.request_id, self.heartbeat_request_id)

    # ---------------------------------------------------------------------------------------- the herder's calls

    def start(self, now_ms: int) -> list[Output]:
        """Begin to join the group, from STOPPED or FAILED; nothing otherwise."""
        if self.state not in (MembershipState.STOPPED, MembershipState.FAILED):
            return []
        self.failures = 0
        self.rejoin_reason = causes.WorkerStarts()
        self._move(MembershipState.FINDING)
        self.unknown_since_ms = now_ms
        deadline = self.timers.set(GroupTimer.UNKNOWN, now_ms + self.settings.heartbeat_interval_ms)
        return [deadline, FindCoordinator(self._new_request())]

    def request_rejoin(self, reason: Cause, now_ms: int) -> list[Output]:
        """Rejoin: immediately when stable, else as soon as possible; nothing when a join is being prepared already."""
        if self.state is MembershipState.STABLE:
            return self._prepare_join(reason)
        if self.state not in (MembershipState.STOPPED, MembershipState.FAILED):
            self.rejoin_reason = self.rejoin_reason or reason
        return []

    def confirm(self, now_ms: int) -> list[Output]:
        """Send a heartbeat now, to learn whether this is still a member."""
        return self._send_heartbeat(now_ms) if self.state is MembershipState.STABLE else []

    def prepared(self, protocols: tuple[MemberMetadata, ...], now_ms: int) -> list[Output]:
        """Answer to JoinPreparing: metadata by preference. Nothing in another state (the join was called off)."""
        if self.state is not MembershipState.PREPARING:
            return []
        self.protocols = protocols
        return self._send_join()

    def assignments(self, generation: int, assignments: Mapping[str, Assignment], now_ms: int) -> list[Output]:
        """Answer to Elected: member id to assignment. Nothing when that generation has been given up meanwhile."""
        if self.state is not MembershipState.ELECTED or generation != self.generation:
            return []
        return self._send_sync(dict(assignments))

    def leave(self) -> list[Output]:
        """Leave the group and forget everything about it; LeaveGroup is sent if there is an id to leave with."""
        member_id, reachable = self.member_id, self.state is not MembershipState.FINDING
        self._stop(MembershipState.STOPPED)
        self.member_id = ""
        return [SendLeaveGroup(self._next_id(), member_id)] if member_id and reachable else []

    # ------------------------------------------------------------------------------------------------- stimuli

    def handle(self, stimulus: GroupStimulus | TimerFired, now_ms: int) -> list[Output]:
        """Take in an answer of the coordinator or one of its timers."""
        if isinstance(stimulus, TimerFired):
            return self._timer_fired(stimulus.key, now_ms) if self.timers.accept(stimulus) else []
        if stimulus.request_id == self.heartbeat_request_id:
            self.heartbeat_request_id = None
            if isinstance(stimulus, HeartbeatReplied):
                return self._heartbeat_replied(stimulus.error, now_ms)
            if isinstance(stimulus, GroupRequestFailed):
                return self._lose_coordinator(causes.CoordinatorLost(stimulus.reason), now_ms)
        if stimulus.request_id != self.request_id:
            return []
        self.request_id = None
        match stimulus:
            case CoordinatorFound():
                return self._coordinator_found(now_ms)
            case JoinGroupReplied():
                return self._join_replied(stimulus, now_ms)
            case SyncGroupReplied():
                return self._sync_replied(stimulus, now_ms)
            case GroupRequestFailed(_, reason):
                is_finding = self.state is MembershipState.FINDING
                return (
                    [self._back_off(now_ms)]
                    if is_finding
                    else self._lose_coordinator(causes.CoordinatorLost(reason), now_ms)
                )
            case HeartbeatReplied():  # heartbeats have a number of their own
                return []
            case _:
                assert_never(stimulus)

    def _timer_fired(self, key: TimerKey, now_ms: int) -> list[Output]:
        if key is GroupTimer.HEARTBEAT:
            return self._send_heartbeat(now_ms)
        if key is GroupTimer.UNKNOWN:
            return [CoordinatorUnknown(self.unknown_since_ms)]
        if key is GroupTimer.SESSION:
            reason = causes.SessionExpired(self.settings.session_timeout_ms)
            lost = self._forget_generation(reason, None)
            self.rejoin_reason = self.rejoin_reason or reason
            is_finding = self.state is MembershipState.FINDING
            return lost if is_finding else [*lost, *self._lose_coordinator(reason, now_ms)]
        if self.state is MembershipState.FINDING:
            return [FindCoordinator(self._new_request())]
        return self._prepare_join(self.rejoin_reason or causes.GroupRebalances())

    def _coordinator_found(self, now_ms: int) -> list[Output]:
        self.timers.cancel(GroupTimer.UNKNOWN)
        heartbeats = [] if self.generation == NO_GENERATION else self._send_heartbeat(now_ms)
        if self.rejoin_reason is None:
            self._move(MembershipState.STABLE)
            return heartbeats
        return [*heartbeats, *self._prepare_join(self.rejoin_reason)]

    def _join_replied(self, reply: JoinGroupReplied, now_ms: int) -> list[Output]:
        if reply.error == "MEMBER_ID_REQUIRED":
            self.member_id = reply.member_id
            return self._send_join()
        if reply.error is not None:
            return self._request_refused("JoinGroup", reply.error, now_ms)
        self.failures = 0
        self.member_id, self.generation, self.leader_id = reply.member_id, reply.generation, reply.leader_id
        self.protocol = ProtocolVersion.of_wire_name(reply.protocol)
        heartbeats = self._begin_heartbeats(now_ms)
        if self.member_id != self.leader_id:
            return [*heartbeats, *self._send_sync({})]
        self._move(MembershipState.ELECTED)
        return [*heartbeats, Elected(self.generation, self.protocol, self.leader_id, dict(reply.members))]

    def _sync_replied(self, reply: SyncGroupReplied, now_ms: int) -> list[Output]:
        if reply.error == "REBALANCE_IN_PROGRESS":
            return self._prepare_join(self.rejoin_reason or causes.RebalanceSuperseded())
        if reply.error is not None:
            return self._request_refused("SyncGroup", reply.error, now_ms)
        if reply.assignment is None or self.protocol is None:
            return self._wait(causes.AssignmentMissing(), now_ms)
        self._move(MembershipState.STABLE)
        received = AssignmentReceived(self.generation, self.member_id, self.leader_id, self.protocol, reply.assignment)
        return [received, *(self._prepare_join(self.rejoin_reason) if self.rejoin_reason is not None else ())]

    def _heartbeat_replied(self, error: str | None, now_ms: int) -> list[Output]:
        if error is None or error == "REBALANCE_IN_PROGRESS":
            session = self._session_timer(self.heartbeat_sent_ms)
            if self.state is not MembershipState.STABLE:  # a join is in progress, and its responses decide
                return [session]
            self.failures = 0
            return [session, *(self._prepare_join(causes.GroupRebalances()) if error else ())]
        if error in RETRIABLE:
            return []
        return self._request_refused("Heartbeat", error, now_ms)

    def _request_refused(self, request: str, error: str, now_ms: int) -> list[Output]:
        """What an error means that is the same for all requests."""
        reason = causes.GroupRequestRefused(request, error)
        if error in MEMBERSHIP_LOST:
            lost = self._forget_generation(reason, error)
            join_is_due = self.state in (MembershipState.PREPARING, MembershipState.WAITING)
            return lost if join_is_due else [*lost, *self._prepare_join(self.rejoin_reason or reason)]
        if error in FIND_AGAIN:
            return self._lose_coordinator(reason, now_ms)
        if error in RETRIABLE:
            return self._wait(reason, now_ms)
        self._stop(MembershipState.FAILED)
        return [FatalGroupError(error)]

    # --------------------------------------------------------------------------------------------------- moves

    def _prepare_join(self, reason: Cause) -> list[Output]:
        self._move(MembershipState.PREPARING)
        self.rejoin_reason = reason
        self.request_id = None
        return [JoinPreparing(reason)]

    def _send_join(self) -> list[Output]:
        self._move(MembershipState.JOINING)
        self.rejoin_reason = None
        self.heartbeat_request_id = None
        self.timers.cancel(GroupTimer.HEARTBEAT, GroupTimer.SESSION)
        timeouts_ms = self.settings.session_timeout_ms, self.settings.rebalance_timeout_ms
        return [SendJoinGroup(self._new_request(), self.member_id, *timeouts_ms, self.protocols)]

    def _send_sync(self, assignments: Mapping[str, Assignment]) -> list[Output]:
        self._move(MembershipState.SYNCING)
        return [SendSyncGroup(self._new_request(), self.generation, self.member_id, assignments)]

    def _send_heartbeat(self, now_ms: int) -> list[Output]:
        """Send a heartbeat, unless one is unanswered, and set the time of the next."""
        next_one = self.timers.set(GroupTimer.HEARTBEAT, now_ms + self.settings.heartbeat_interval_ms)
        if self.heartbeat_request_id is not None:
            return [next_one]
        self.heartbeat_request_id = self._next_id()
        self.heartbeat_sent_ms = now_ms
        return [SendHeartbeat(self.heartbeat_request_id, self.generation, self.member_id), next_one]

    def _begin_heartbeats(self, now_ms: int) -> list[Output]:
        session = self._session_timer(now_ms)
        return [session, self.timers.set(GroupTimer.HEARTBEAT, now_ms + self.settings.heartbeat_interval_ms)]

    def _wait(self, reason: Cause, now_ms: int) -> list[Output]:
        """Join again after the back-off; a member that was joining goes back to heartbeats of its old generation."""
        was_joining = self.state is MembershipState.JOINING
        self._move(MembershipState.WAITING)
        self.rejoin_reason = self.rejoin_reason or reason
        heartbeats = self._begin_heartbeats(now_ms) if was_joining and self.generation != NO_GENERATION else []
        return [*heartbeats, self._back_off(now_ms)]

    def _lose_coordinator(self, reason: Cause, now_ms: int) -> list[Output]:
        was_joining = self.state is MembershipState.JOINING
        if self.state is not MembershipState.STABLE:
            self.rejoin_reason = self.rejoin_reason or reason
        self._move(MembershipState.FINDING)
        self.request_id = self.heartbeat_request_id = None
        self.timers.cancel(GroupTimer.HEARTBEAT)
        self.unknown_since_ms = now_ms
        deadline = self.timers.set(GroupTimer.UNKNOWN, now_ms + self.settings.heartbeat_interval_ms)
        session = [self._session_timer(now_ms)] if was_joining and self.generation != NO_GENERATION else []
        return [deadline, *session, self._back_off(now_ms)]

    def _forget_generation(self, reason: Cause, error: str | None) -> list[Output]:
        """Not a member any more. The id goes only when the coordinator does not know it, as in Kafka's client."""
        lost: list[Output] = [] if self.generation == NO_GENERATION else [MembershipLost(reason, error)]
        self.generation = NO_GENERATION
        self.heartbeat_request_id = None
        self.timers.cancel(GroupTimer.HEARTBEAT, GroupTimer.SESSION)
        if error == "UNKNOWN_MEMBER_ID":
            self.member_id = ""
        return lost

    def _stop(self, state: MembershipState) -> None:
        self._move(state)
        self.generation = NO_GENERATION
        self.leader_id = ""
        self.protocol = self.rejoin_reason = self.request_id = self.heartbeat_request_id = None
        self.protocols = ()
        self.timers.cancel(GroupTimer.HEARTBEAT, GroupTimer.SESSION, GroupTimer.RETRY, GroupTimer.UNKNOWN)

    def _move(self, after: MembershipState) -> None:
        self.state = moved(MEMBERSHIP_MOVES, self.state, after, "the member")

    def _session_timer(self, from_ms: int) -> SetTimer:
        return self.timers.set(GroupTimer.SESSION, from_ms + self.settings.session_timeout_ms)

    def _back_off(self, now_ms: int) -> SetTimer:
        backoff_ms = self.settings.retry_backoff_ms * 2 ** min(self.failures, 30)
        self.failures += 1
        return self.timers.set(GroupTimer.RETRY, now_ms + min(backoff_ms, self.settings.retry_backoff_max_ms))

    def _next_id(self) -> int:
        self.last_request_id += 1
        return self.last_request_id

    def _new_request(self) -> int:
        self.request_id = self._next_id()
        return self.request_id
