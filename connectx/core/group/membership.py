"""One member of the worker group: finds the coordinator, joins, syncs, sends heartbeats, rejoins.

It decides when to send which group request and what an answer means for membership. It never decides what work runs: it
signals the herder, which hands in metadata (`prepared`) and, as leader, `assignments`.

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

from connectx.core import group_messages, signals
from connectx.core.context import Context
from connectx.core.messages import TimerFired
from connectx.core.moves import Moves, moved
from connectx.core.timer_keys import GroupTimer
from connectx.core.timers import Timers
from connectx.model import causes
from connectx.model.causes import Cause
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion

NO_GENERATION = -1

FIND_AGAIN = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"})
RETRIABLE = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "REBALANCE_IN_PROGRESS", "UNKNOWN_SERVER_ERROR"})
MEMBERSHIP_LOST = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"})


class MembershipState(StrEnum):
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


@dataclass(slots=True)
class Membership:
    """The state machine. Change it only through its methods.

    Its requests have their own numbers, 1, 2, ...: only answers of the coordinator carry them. An answer to a request
    that is no longer awaited, and a timer of an old token, change nothing.
    """

    context: Context
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
        """True if the group has not been asked since it last confirmed this membership."""
        return self.state is not MembershipState.FINDING and self.heartbeat_request_id is None

    def awaits(self, stimulus: group_messages.GroupStimulus | TimerFired) -> bool:
        """True for an answer to a request that is not answered yet, and for a timer that is set."""
        if isinstance(stimulus, TimerFired):
            return self.timers.expects(stimulus)
        return stimulus.request_id in (self.request_id, self.heartbeat_request_id)

    def start(self) -> None:
        """Begin to join the group, from STOPPED or FAILED; nothing otherwise."""
        if self.state not in (MembershipState.STOPPED, MembershipState.FAILED):
            return
        self.failures = 0
        self.rejoin_reason = causes.WorkerStarts()
        self._move(MembershipState.FINDING)
        self._limit_search()
        self._find_coordinator()

    def request_rejoin(self, reason: Cause) -> None:
        """Rejoin: immediately when stable, else as soon as possible; nothing when a join is being prepared already."""
        if self.state is MembershipState.STABLE:
            self._prepare_join(reason)
        elif self.state not in (MembershipState.STOPPED, MembershipState.FAILED):
            self.rejoin_reason = self.rejoin_reason or reason

    def confirm(self) -> None:
        """Send a heartbeat now, to learn whether this is still a member."""
        if self.state is MembershipState.STABLE:
            self._send_heartbeat()

    def prepared(self, protocols: tuple[MemberMetadata, ...]) -> None:
        """Answer to JoinPreparing: metadata by preference. Nothing in another state (the join was called off)."""
        if self.state is MembershipState.PREPARING:
            self.protocols = protocols
            self._send_join()

    def assignments(self, generation: int, assignments: Mapping[str, Assignment]) -> None:
        """Answer to Elected: member id to assignment. Nothing when that generation has been given up meanwhile."""
        if self.state is MembershipState.ELECTED and generation == self.generation:
            self._send_sync(dict(assignments))

    def leave(self) -> None:
        """Leave the group and forget everything about it; LeaveGroup is sent if there is an id to leave with."""
        member_id, reachable = self.member_id, self.state is not MembershipState.FINDING
        self._stop(MembershipState.STOPPED)
        self.member_id = ""
        if member_id and reachable:
            self.context.emit(group_messages.SendLeaveGroup(self._next_id(), member_id))

    def on_timer(self, stimulus: TimerFired) -> None:
        if not self.timers.accept(stimulus):
            return
        match stimulus.key:
            case GroupTimer.HEARTBEAT:
                self._send_heartbeat()
            case GroupTimer.UNKNOWN:
                self.context.signal(signals.CoordinatorUnknown(self.unknown_since_ms))
            case GroupTimer.SESSION:
                self._session_expired()
            case GroupTimer.RETRY if self.state is MembershipState.FINDING:
                self._find_coordinator()
            case GroupTimer.RETRY:
                self._prepare_join(self.rejoin_reason or causes.GroupRebalances())
            case _:
                raise AssertionError(f"{stimulus.key} is no timer of the member")

    def on_answer(self, answer: group_messages.GroupStimulus) -> None:
        """The coordinator has answered a request, or the request failed."""
        if answer.request_id == self.heartbeat_request_id:
            self._on_heartbeat(answer)
        elif answer.request_id == self.request_id:
            self._on_request(answer)

    def _on_heartbeat(self, answer: group_messages.GroupStimulus) -> None:
        self.heartbeat_request_id = None
        match answer:
            case group_messages.HeartbeatReplied():
                self._heartbeat_replied(answer.error)
            case group_messages.GroupRequestFailed():
                self._lose_coordinator(causes.CoordinatorLost(answer.reason))
            case (
                group_messages.CoordinatorFound()
                | group_messages.JoinGroupReplied()
                | group_messages.SyncGroupReplied()
            ):
                raise AssertionError(f"a heartbeat was answered by {type(answer).__name__}")
            case _:
                assert_never(answer)

    def _on_request(self, answer: group_messages.GroupStimulus) -> None:
        self.request_id = None
        match answer:
            case group_messages.CoordinatorFound():
                self._coordinator_found()
            case group_messages.JoinGroupReplied():
                self._join_replied(answer)
            case group_messages.SyncGroupReplied():
                self._sync_replied(answer)
            case group_messages.GroupRequestFailed() if self.state is MembershipState.FINDING:
                self._back_off()
            case group_messages.GroupRequestFailed():
                self._lose_coordinator(causes.CoordinatorLost(answer.reason))
            case group_messages.HeartbeatReplied():
                raise AssertionError("heartbeats have their own number")
            case _:
                assert_never(answer)

    def _session_expired(self) -> None:
        reason = causes.SessionExpired(self.context.settings.worker.session_timeout_ms)
        self._forget_generation(reason, None)
        self.rejoin_reason = self.rejoin_reason or reason
        if self.state is not MembershipState.FINDING:
            self._lose_coordinator(reason)

    def _coordinator_found(self) -> None:
        self.timers.cancel(GroupTimer.UNKNOWN)
        if self.generation != NO_GENERATION:
            self._send_heartbeat()
        if self.rejoin_reason is None:
            self._move(MembershipState.STABLE)
        else:
            self._prepare_join(self.rejoin_reason)

    def _join_replied(self, reply: group_messages.JoinGroupReplied) -> None:
        if reply.error == "MEMBER_ID_REQUIRED":
            self.member_id = reply.member_id
            self._send_join()
        elif reply.error is not None:
            self._request_refused("JoinGroup", reply.error)
        else:
            self._joined(reply)

    def _joined(self, reply: group_messages.JoinGroupReplied) -> None:
        self.failures = 0
        self.member_id, self.generation, self.leader_id = reply.member_id, reply.generation, reply.leader_id
        self.protocol = ProtocolVersion.of_wire_name(reply.protocol)
        self._begin_heartbeats()
        if self.member_id != self.leader_id:
            self._send_sync({})
        else:
            self._move(MembershipState.ELECTED)
            self.context.signal(signals.Elected(self.generation, self.protocol, self.leader_id, dict(reply.members)))

    def _sync_replied(self, reply: group_messages.SyncGroupReplied) -> None:
        if reply.error == "REBALANCE_IN_PROGRESS":
            self._prepare_join(self.rejoin_reason or causes.RebalanceSuperseded())
        elif reply.error is not None:
            self._request_refused("SyncGroup", reply.error)
        elif reply.assignment is None or self.protocol is None:
            self._wait(causes.AssignmentMissing())
        else:
            self._move(MembershipState.STABLE)
            self.context.signal(
                signals.AssignmentReceived(
                    self.generation, self.member_id, self.leader_id, self.protocol, reply.assignment
                )
            )
            if self.rejoin_reason is not None:
                self._prepare_join(self.rejoin_reason)

    def _heartbeat_replied(self, error: str | None) -> None:
        if error is None or error == "REBALANCE_IN_PROGRESS":
            self._limit_session(self.heartbeat_sent_ms)
            if self.state is not MembershipState.STABLE:  # a join is in progress, and its responses decide
                return
            self.failures = 0
            if error is not None:
                self._prepare_join(causes.GroupRebalances())
        elif error not in RETRIABLE:
            self._request_refused("Heartbeat", error)

    def _request_refused(self, request: str, error: str) -> None:
        """What an error means that is the same for all requests."""
        reason = causes.GroupRequestRefused(request, error)
        if error in MEMBERSHIP_LOST:
            self._forget_generation(reason, error)
            if self.state not in (MembershipState.PREPARING, MembershipState.WAITING):  # a join is due in those
                self._prepare_join(self.rejoin_reason or reason)
        elif error in FIND_AGAIN:
            self._lose_coordinator(reason)
        elif error in RETRIABLE:
            self._wait(reason)
        else:
            self._stop(MembershipState.FAILED)
            self.context.signal(signals.FatalGroupError(error))

    def _find_coordinator(self) -> None:
        self.context.emit(group_messages.FindCoordinator(self._new_request()))

    def _prepare_join(self, reason: Cause) -> None:
        self._move(MembershipState.PREPARING)
        self.rejoin_reason = reason
        self.request_id = None
        self.context.signal(signals.JoinPreparing(reason))

    def _send_join(self) -> None:
        self._move(MembershipState.JOINING)
        self.rejoin_reason = None
        self.heartbeat_request_id = None
        self.timers.cancel(GroupTimer.HEARTBEAT, GroupTimer.SESSION)
        settings = self.context.settings.worker
        timeouts_ms = settings.session_timeout_ms, settings.rebalance_timeout_ms
        self.context.emit(
            group_messages.SendJoinGroup(self._new_request(), self.member_id, *timeouts_ms, self.protocols)
        )

    def _send_sync(self, assignments: Mapping[str, Assignment]) -> None:
        self._move(MembershipState.SYNCING)
        self.context.emit(
            group_messages.SendSyncGroup(self._new_request(), self.generation, self.member_id, assignments)
        )

    def _send_heartbeat(self) -> None:
        """Send a heartbeat, unless one is unanswered, and set the time of the next."""
        if self.heartbeat_request_id is None:
            self.heartbeat_request_id = self._next_id()
            self.heartbeat_sent_ms = self.context.now_ms
            self.context.emit(group_messages.SendHeartbeat(self.heartbeat_request_id, self.generation, self.member_id))
        self._set_timer(GroupTimer.HEARTBEAT, self.context.settings.worker.heartbeat_interval_ms)

    def _begin_heartbeats(self) -> None:
        self._limit_session(self.context.now_ms)
        self._set_timer(GroupTimer.HEARTBEAT, self.context.settings.worker.heartbeat_interval_ms)

    def _wait(self, reason: Cause) -> None:
        """Join again after the back-off; a member that was joining goes back to heartbeats of its old generation."""
        was_joining = self.state is MembershipState.JOINING
        self._move(MembershipState.WAITING)
        self.rejoin_reason = self.rejoin_reason or reason
        if was_joining and self.generation != NO_GENERATION:
            self._begin_heartbeats()
        self._back_off()

    def _lose_coordinator(self, reason: Cause) -> None:
        was_joining = self.state is MembershipState.JOINING
        if self.state is not MembershipState.STABLE:
            self.rejoin_reason = self.rejoin_reason or reason
        self._move(MembershipState.FINDING)
        self.request_id = self.heartbeat_request_id = None
        self.timers.cancel(GroupTimer.HEARTBEAT)
        self._limit_search()
        if was_joining and self.generation != NO_GENERATION:
            self._limit_session(self.context.now_ms)
        self._back_off()

    def _forget_generation(self, reason: Cause, error: str | None) -> None:
        """Not a member any more. The id goes only when the coordinator does not know it, as in Kafka's client."""
        if self.generation != NO_GENERATION:
            self.context.signal(signals.MembershipLost(reason, error))
        self.generation = NO_GENERATION
        self.heartbeat_request_id = None
        self.timers.cancel(GroupTimer.HEARTBEAT, GroupTimer.SESSION)
        if error == "UNKNOWN_MEMBER_ID":
            self.member_id = ""

    def _stop(self, state: MembershipState) -> None:
        self._move(state)
        self.generation = NO_GENERATION
        self.leader_id = ""
        self.protocol = self.rejoin_reason = self.request_id = self.heartbeat_request_id = None
        self.protocols = ()
        self.timers.cancel(GroupTimer.HEARTBEAT, GroupTimer.SESSION, GroupTimer.RETRY, GroupTimer.UNKNOWN)

    def _move(self, after: MembershipState) -> None:
        self.state = moved(MEMBERSHIP_MOVES, self.state, after, "the member")

    def _limit_search(self) -> None:
        """Report a coordinator that is still unknown after `heartbeat.interval.ms` (KAFKA-9184)."""
        self.unknown_since_ms = self.context.now_ms
        self._set_timer(GroupTimer.UNKNOWN, self.context.settings.worker.heartbeat_interval_ms)

    def _limit_session(self, from_ms: int) -> None:
        at_ms = from_ms + self.context.settings.worker.session_timeout_ms
        self.context.emit(self.timers.set(GroupTimer.SESSION, at_ms))

    def _back_off(self) -> None:
        settings = self.context.settings.worker
        backoff_ms = settings.retry_backoff_ms * 2 ** min(self.failures, 30)
        self.failures += 1
        self._set_timer(GroupTimer.RETRY, min(backoff_ms, settings.retry_backoff_max_ms))

    def _set_timer(self, key: GroupTimer, delay_ms: int) -> None:
        self.context.emit(self.timers.set(key, self.context.now_ms + delay_ms))

    def _next_id(self) -> int:
        self.last_request_id += 1
        return self.last_request_id

    def _new_request(self) -> int:
        self.request_id = self._next_id()
        return self.request_id
