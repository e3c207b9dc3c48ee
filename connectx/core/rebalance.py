"""From an assignment to running work: revoke, catch up with the config topic, start, rejoin.

Decides the order of these steps and when the group must be joined again. Never sends a group request itself: it talks
to the membership. Mirrors Kafka Connect's DistributedHerder (handleRebalanceCompleted, RebalanceListener).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from connectx.core.connectors import Connectors
from connectx.core.context import Context
from connectx.core.leadership import Leadership
from connectx.core.membership import (
    AssignmentReceived,
    CoordinatorUnknown,
    Elected,
    FatalGroupError,
    JoinPreparing,
    Membership,
    MembershipLost,
    Signal,
)
from connectx.core.messages import ConfigReadToEnd, GroupEffect, ReadConfigToEnd, SetTimer
from connectx.core.tasks import Tasks
from connectx.model.events import EventKind
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet

_SYNC_TRIES = 5


class RebalancePhase(StrEnum):
    """Where this worker is between two assignments."""

    JOINING = "joining"  # waits for an assignment: REVOKING
    PREPARING = "preparing"  # eager only: everything stops before the group is joined again: JOINING
    REVOKING = "revoking"  # revoked work stops: SYNCING or SETTLED
    SYNCING = "syncing"  # the config topic is read up to the leader's view: SETTLED, or JOINING again
    SETTLED = "settled"  # work was started


@dataclass(slots=True)
class Rebalance:
    """The rebalance under way, or the last one."""

    context: Context
    membership: Membership
    leadership: Leadership
    connectors: Connectors
    tasks: Tasks
    phase: RebalancePhase = RebalancePhase.JOINING
    assignment: Assignment | None = None
    revoking: WorkSet = field(default_factory=WorkSet)
    join_wanted: bool = False
    read_request: int | None = None
    read_tries: int = 0
    started_ms: int | None = None
    fatal_error: str | None = None

    # ------------------------------------------------------------------------------------------- what comes in

    def take(self, outputs: list[GroupEffect | SetTimer | Signal]) -> None:
        """Pass the membership's effects on and act on its signals, until there are none."""
        waiting = list(outputs)
        while waiting:
            output = waiting.pop(0)
            match output:
                case JoinPreparing():
                    waiting.extend(self._on_join_preparing(output))
                case Elected():
                    assignments = self.leadership.assign(output)
                    waiting.extend(self.membership.assignments(output.generation, assignments, self.context.now_ms))
                case AssignmentReceived():
                    self._on_assignment(output)
                case MembershipLost():
                    self.context.record(EventKind.MEMBER_LOST, cause=output.reason, error=output.error)
                case CoordinatorUnknown():
                    self._on_coordinator_unknown()
                case FatalGroupError():
                    self.fatal_error = output.error
                    self.context.record(EventKind.WORKER_FAILED, cause=output.error, error=output.error)
                case _:
                    self.context.emit(output)

    def request_rejoin(self, reason: str) -> None:
        """Join the group again soon; an assignment that is being worked on is finished first."""
        self.context.group.settled = False
        self.take(self.membership.request_rejoin(reason, self.context.now_ms))

    def on_delay_over(self) -> None:
        """The leader's delay for lost work has passed."""
        self.request_rejoin("the scheduled rebalance delay has passed")

    def on_config_read(self, stimulus: ConfigReadToEnd) -> None:
        """The config topic was read for an assignment that was ahead of this worker."""
        if stimulus.request_id != self.read_request:
            return
        self.read_request = None
        if stimulus.error is None:
            self.read_tries = 0
            self._after_read()
        else:
            self._read_failed(stimulus.error)

    def on_read_retry(self) -> None:
        """Time to read the config topic again."""
        if self.phase is RebalancePhase.SYNCING:
            self._read()

    def advance(self) -> None:
        """Called after every stimulus: go on when the work that had to stop has stopped."""
        if self.phase is RebalancePhase.REVOKING and not self._occupied(self.revoking):
            if self.join_wanted:
                self._join()
            else:
                self._catch_up()
        elif self.phase is RebalancePhase.PREPARING and not self._occupied(self.context.group.work):
            self.context.group.assignment = WorkSet()
            self._join()

    # --------------------------------------------------------------------------------------------------- joining

    def _on_join_preparing(self, signal: JoinPreparing) -> list[GroupEffect | SetTimer | Signal]:
        self.context.group.settled = False
        self.leadership.forget_owners()
        if self.started_ms is None:
            self.started_ms = self.context.now_ms
            self.context.record(EventKind.REBALANCE_STARTED, cause=signal.reason, reason=signal.reason)
        eager = self.context.group.protocol is ProtocolVersion.EAGER
        if eager and self.context.group.work:
            self.phase = RebalancePhase.PREPARING
            self._stop(self.context.group.work, "eager rebalancing stops everything first")
            return []
        if self.phase is RebalancePhase.REVOKING and self._occupied(self.revoking):
            self.join_wanted = True
            return []
        return self._prepared()

    def _join(self) -> None:
        self.take(self._prepared())

    def _prepared(self) -> list[GroupEffect | SetTimer | Signal]:
        self.phase = RebalancePhase.JOINING
        self.join_wanted = False
        self.read_request = None
        self.context.timers.cancel("config-read-retry")
        settings = self.context.settings
        protocols = tuple(
            MemberMetadata(version, settings.url, self.context.config.offset, self._allocation(version))
            for version in settings.offered
        )
        return self.membership.prepared(protocols, self.context.now_ms)

    def _allocation(self, version: ProtocolVersion) -> Assignment | None:
        group = self.context.group
        if not version.is_cooperative or group.assignment is None:
            return None
        return Assignment(version, 0, group.leader_id, group.leader_url, self.context.config.offset, group.assignment)

    # ------------------------------------------------------------------------------------------------ assignment

    def _on_assignment(self, signal: AssignmentReceived) -> None:
        group, assignment = self.context.group, signal.assignment
        group.member_id = signal.member_id
        group.generation = signal.generation
        group.protocol = signal.protocol
        group.leader_id = assignment.leader
        group.leader_url = assignment.leader_url
        self.assignment = assignment
        self.leadership.last_completed_generation = signal.generation
        self._adopt(assignment)
        if assignment.delay_ms > 0:
            self.context.set_timer("rebalance-delay", assignment.delay_ms)
        else:
            self.context.timers.cancel("rebalance-delay")
        self._tell(assignment)
        if group.is_leader:
            self.leadership.take_over()
        else:
            self.leadership.step_down()
            self.tasks.fencing.cancel_all("this worker does not lead the group any more")
        self.phase = RebalancePhase.REVOKING
        self.join_wanted = False

    def _adopt(self, assignment: Assignment) -> None:
        group = self.context.group
        if assignment.version.is_cooperative:
            self.revoking = assignment.revoked
            group.assignment = group.work.minus(assignment.revoked).plus(assignment.assigned)
            self._stop(assignment.revoked, "the leader revoked it")
        elif assignment.error == 0:
            self.revoking = WorkSet()
            group.assignment = assignment.assigned

    def _tell(self, assignment: Assignment) -> None:
        group = self.context.group
        took_ms = None if self.started_ms is None else self.context.now_ms - self.started_ms
        self.started_ms = None
        self.context.record(
            EventKind.REBALANCE_COMPLETED,
            leader=group.leader_id,
            leader_url=group.leader_url,
            protocol=group.protocol.wire_name,
            connectors=list(group.work.connectors),
            tasks=[str(task) for task in group.work.tasks],
            revoked=[*assignment.revoked.connectors, *(str(task) for task in assignment.revoked.tasks)],
            delay_ms=assignment.delay_ms,
            error=assignment.error,
            took_ms=took_ms,
        )

    def _catch_up(self) -> None:
        """Start work only with the very config that the leader assigned with."""
        assert self.assignment is not None
        self.phase = RebalancePhase.SYNCING
        behind = self.context.config.offset < self.assignment.config_offset
        mismatch = self.assignment.error != 0
        if behind or (mismatch and self.context.group.is_leader):
            self._read()
        else:
            self._after_read()

    def _read(self) -> None:
        self.read_request = self.context.new_request_id()
        self.context.emit(ReadConfigToEnd(self.read_request, self.context.settings.worker_sync_timeout_ms))

    def _read_failed(self, error: str) -> None:
        """Five tries, each a little later; then nothing may run on an old config (KAFKA-9849)."""
        settings = self.context.settings
        if not self.context.group.protocol.is_cooperative:
            self.context.set_timer("config-read-retry", settings.worker_unsync_backoff_ms)
            return
        self.read_tries += 1
        if self.read_tries >= _SYNC_TRIES:
            self.read_tries = 0
            self.give_up_work(f"the config topic cannot be read: {error}")
        tries_left = _SYNC_TRIES - self.read_tries
        self.context.set_timer("config-read-retry", settings.scheduled_rebalance_max_delay_ms // 10 // tries_left)

    def _after_read(self) -> None:
        assert self.assignment is not None
        if self.assignment.error != 0 or self.context.config.offset != self.assignment.config_offset:
            self.phase = RebalancePhase.JOINING
            self.request_rejoin("the config topic has moved on since the assignment")
            return
        self.phase = RebalancePhase.SETTLED
        self.context.group.settled = True
        for connector in self.context.group.work.connectors:
            self.connectors.start(connector, "it was assigned to this worker")
        for task in self.context.group.work.tasks:
            self.tasks.start(task, "it was assigned to this worker")
        if self.assignment.revoked:
            self.request_rejoin("revoked work has stopped and can be assigned anew")

    # -------------------------------------------------------------------------------------------------- stopping

    def give_up_work(self, reason: str) -> None:
        """Stop everything and forget the assignment, so that the next join claims nothing."""
        self._stop(WorkSet(self.connectors.running(), self.tasks.running()), reason)
        self.context.group.assignment = None

    def _on_coordinator_unknown(self) -> None:
        if self.context.group.assignment is not None:
            reason = "the group coordinator cannot be reached"
            self.context.record(EventKind.MEMBER_LOST, cause=reason, error=reason)
            self.give_up_work(reason)

    def _stop(self, work: WorkSet, cause: str) -> None:
        for task in work.tasks:
            self.tasks.stop(task, cause)
        for connector in work.connectors:
            self.connectors.stop(connector, cause)

    def _occupied(self, work: WorkSet) -> bool:
        running_connectors, running_tasks = self.connectors.running(), self.tasks.running()
        return any(c in running_connectors for c in work.connectors) or any(t in running_tasks for t in work.tasks)
