"""Carries out an assignment: revokes work, reads the config topic, starts work, rejoins.

Decides the order of these steps and when the group must be joined again or left. The membership sends the group
requests. Mirrors Kafka Connect's DistributedHerder (handleRebalanceCompleted, RebalanceListener).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from connectx.core.connectors import Connectors
from connectx.core.context import Context, WorkerPhase
from connectx.core.fencing import FencingRounds
from connectx.core.group.leadership import Leadership
from connectx.core.group.membership import Membership
from connectx.core.messages import ConfigReadToEnd, ReadConfigToEnd
from connectx.core.moves import Moves, moved
from connectx.core.pending import Single
from connectx.core.signals import AssignmentReceived, FatalGroupError, JoinPreparing
from connectx.core.tasks import Tasks
from connectx.core.timer_keys import WorkerTimer
from connectx.model import causes, payloads
from connectx.model.causes import Cause
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet

_READ_RETRIES = 5
_MISMATCH_MS = 100


class RebalancePhase(StrEnum):
    """Where this worker is between two assignments. A join that becomes due leads from any phase to STOPPING."""

    JOINING = "joining"  # waits for an assignment: REVOKING
    STOPPING = "stopping"  # a join is due, `outgoing` work stops before it: JOINING
    REVOKING = "revoking"  # `outgoing` work stops, for it was revoked: SYNCING
    SYNCING = "syncing"  # the config topic is read up to the leader's view: SETTLED, JOINING or UNSYNCED
    UNSYNCED = "unsynced"  # it cannot be read, the group was left; read again and again: JOINING
    SETTLED = "settled"  # work was started


REBALANCE_MOVES: Final[Moves[RebalancePhase]] = {
    RebalancePhase.JOINING: frozenset({RebalancePhase.STOPPING, RebalancePhase.REVOKING}),
    RebalancePhase.STOPPING: frozenset({RebalancePhase.JOINING}),
    RebalancePhase.REVOKING: frozenset({RebalancePhase.JOINING, RebalancePhase.STOPPING, RebalancePhase.SYNCING}),
    RebalancePhase.SYNCING: frozenset(
        {RebalancePhase.JOINING, RebalancePhase.STOPPING, RebalancePhase.SETTLED, RebalancePhase.UNSYNCED}
    ),
    RebalancePhase.UNSYNCED: frozenset({RebalancePhase.JOINING}),
    RebalancePhase.SETTLED: frozenset({RebalancePhase.JOINING, RebalancePhase.STOPPING}),
}
"""A lost coordinator leads back to JOINING from every phase."""


@dataclass(slots=True)
class Rebalance:
    """The rebalance under way, or the last one."""

    context: Context
    membership: Membership
    fencing: FencingRounds
    leadership: Leadership
    connectors: Connectors
    tasks: Tasks
    phase: RebalancePhase = RebalancePhase.JOINING
    assignment: Assignment | None = None
    """The last one, as the leader sent it."""
    outgoing: WorkSet = field(default_factory=WorkSet)
    read_request: int | None = None
    read_retries_left: int = _READ_RETRIES
    started_ms: int | None = None
    fatal_error: causes.GroupRefusesWorker | None = None

    def request_rejoin(self, reason: Cause) -> None:
        """Join the group again as soon as possible; what was assigned but not started yet is claimed all the same."""
        self.context.group.settled = False
        self.membership.request_rejoin(reason)

    def on_delay_over(self) -> None:
        """The leader's delay for lost work has passed."""
        self.request_rejoin(causes.DelayOver())

    def on_config_read(self, stimulus: ConfigReadToEnd) -> None:
        """The config topic was read for an assignment that was ahead of this worker, or before joining again."""
        self.read_request = None
        if stimulus.error is not None:
            self._read_failed(stimulus.error)
            return
        self.read_retries_left = _READ_RETRIES
        if self.phase is RebalancePhase.UNSYNCED:
            self._move(RebalancePhase.JOINING)
            self.membership.start()
        else:
            self._after_read()

    def on_read_retry(self) -> None:
        """Time to read the config topic again."""
        if self.phase is RebalancePhase.UNSYNCED:
            self._read()

    def advance(self) -> None:
        """Called after every stimulus: continue when the work that had to stop has stopped."""
        if self.context.phase is not WorkerPhase.RUNNING or self._stops():
            return
        if self.phase is RebalancePhase.STOPPING:
            self._prepare()
        elif self.phase is RebalancePhase.REVOKING:
            self._catch_up()

    def on_join_preparing(self, signal: JoinPreparing) -> None:
        """A join is due: stop what may not run meanwhile, then hand the membership its metadata."""
        self.context.group.settled = False
        self.leadership.forget_owners()
        if self.context.phase is not WorkerPhase.RUNNING:
            return  # it leaves the group soon, and needs no work
        if self.started_ms is None:
            self.started_ms = self.context.now_ms
            self.context.record(payloads.RebalanceStarted(), why=signal.reason)
        group = self.context.group
        if group.protocol is ProtocolVersion.EAGER:
            self._stop_everything(causes.EagerRebalance())
            group.assignment = WorkSet()
        elif group.assignment is None:  # nothing is claimed, so nothing may run any more
            self._stop_everything(causes.NotAssigned())
        if self._stops():
            self._move(RebalancePhase.STOPPING)
            self._forget_read()
        else:
            self._prepare()

    def _prepare(self) -> None:
        self._move(RebalancePhase.JOINING)
        self.outgoing = WorkSet()
        self._forget_read()
        settings = self.context.settings
        protocols = tuple(
            MemberMetadata(version, settings.url, self.context.config.offset, self._allocation(version))
            for version in settings.worker.connect_protocol
        )
        self.membership.prepared(protocols)

    def _allocation(self, version: ProtocolVersion) -> Assignment | None:
        group = self.context.group
        if not version.is_cooperative or group.assignment is None:
            return None
        return Assignment(version, 0, group.leader_id, group.leader_url, self.context.config.offset, group.assignment)

    def on_assignment(self, signal: AssignmentReceived) -> None:
        """Carry out what the leader assigned: first, stop what it revoked."""
        if self.context.phase is not WorkerPhase.RUNNING:
            return
        group, assignment = self.context.group, signal.assignment
        group.member_id = signal.member_id
        group.generation = signal.generation
        group.protocol = signal.protocol
        group.leader_id = assignment.leader
        group.leader_url = assignment.leader_url
        self.assignment = assignment
        self._adopt(assignment)
        if assignment.delay_ms > 0:
            self.context.set_timer(WorkerTimer.REBALANCE_DELAY, assignment.delay_ms)
        else:
            self.context.timers.cancel(WorkerTimer.REBALANCE_DELAY)
        self._record_assignment(assignment)
        if group.is_leader:
            self.leadership.take_over()
        else:
            self.leadership.step_down()
            self.fencing.cancel_all("this worker does not lead the group any more")
        self._move(RebalancePhase.REVOKING)

    def _adopt(self, assignment: Assignment) -> None:
        """An increment with versions 1 and 2; with version 0 all there is, so what is not in it has to go."""
        group = self.context.group
        if assignment.version.is_cooperative:
            self.outgoing = assignment.revoked
            group.assignment = group.work.minus(assignment.revoked).plus(assignment.assigned)
        else:
            self.outgoing = self._running().minus(assignment.assigned)
            group.assignment = assignment.assigned
        self._stop(self.outgoing, causes.Revoked())

    def _record_assignment(self, assignment: Assignment) -> None:
        group = self.context.group
        took_ms = None if self.started_ms is None else self.context.now_ms - self.started_ms
        self.started_ms = None
        self.context.record(
            payloads.RebalanceCompleted(
                leader=group.leader_id,
                leader_url=group.leader_url,
                protocol=group.protocol.wire_name,
                connectors=group.work.connectors,
                tasks=tuple(str(task) for task in group.work.tasks),
                revoked=(*assignment.revoked.connectors, *(str(task) for task in assignment.revoked.tasks)),
                delay_ms=assignment.delay_ms,
                error=assignment.error,
                took_ms=took_ms,
            )
        )

    def _catch_up(self) -> None:
        """Start work only with the very config that the leader assigned with."""
        assert self.assignment is not None, "an assignment is being carried out"
        self._move(RebalancePhase.SYNCING)
        is_late = self.context.config.offset < self.assignment.config_offset
        mismatch = self.assignment.error != 0
        if is_late or (mismatch and self.context.group.is_leader):
            self._read()
        else:
            self._after_read()

    def _read(self) -> None:
        self.context.pending.drop(self.read_request)
        self.read_request = self.context.new_request_id(Single.ASSIGNMENT_READ)
        self.context.emit(ReadConfigToEnd(self.read_request, self.context.settings.worker.worker_sync_timeout_ms))

    def _forget_read(self) -> None:
        self.context.pending.drop(self.read_request)
        self.read_request = None
        self.context.timers.cancel(WorkerTimer.CONFIG_READ, WorkerTimer.MISMATCH)

    def _read_failed(self, error: str) -> None:
        """Leave the group, so that others may have the work, and read again and again before joining.

        Running work continues, because the next claim contains it, but not forever on an old config (KAFKA-9849).
        """
        group, settings = self.context.group, self.context.settings
        reason = causes.ConfigUnreadable(error)
        if self.phase is not RebalancePhase.UNSYNCED:
            self.on_lost(reason, None)
            self.membership.leave()
            self._move(RebalancePhase.UNSYNCED)
        if not group.protocol.is_cooperative:
            self.context.set_timer(WorkerTimer.CONFIG_READ, settings.worker.worker_unsync_backoff_ms)
        elif self.read_retries_left > 0:
            delay_ms = settings.worker.scheduled_rebalance_max_delay_ms // 10 // self.read_retries_left
            self.context.set_timer(WorkerTimer.CONFIG_READ, delay_ms)
            self.read_retries_left -= 1
        else:
            self.read_retries_left = _READ_RETRIES
            self.release_work(reason)
            self._read()

    def _after_read(self) -> None:
        assert self.assignment is not None, "an assignment is being carried out"
        config, group = self.context.config, self.context.group
        if self.assignment.error != 0 and not group.is_leader:
            # The leader has not read the config topic yet. Kafka Connect rejoins immediately and gets the same answer
            # repeatedly.
            self.context.set_timer(WorkerTimer.MISMATCH, _MISMATCH_MS)
        elif self.assignment.error != 0 or config.offset != self.assignment.config_offset:
            self._move(RebalancePhase.JOINING)
            self.request_rejoin(causes.ConfigMovedOn())
        else:
            self._start_work()
            if self.assignment.revoked:
                self.request_rejoin(causes.RevokedWorkStopped())

    def on_mismatch_timer(self) -> None:
        """Ask the leader for another assignment, unless there is one."""
        if self.phase is RebalancePhase.SYNCING:
            self.request_rejoin(causes.LeaderOutdated())

    def _start_work(self) -> None:
        group = self.context.group
        self._move(RebalancePhase.SETTLED)
        group.settled = True
        self._drop_ghosts()
        for connector in group.work.connectors:
            self.connectors.start(connector, causes.Assigned())
            self.connectors.remind(connector)
        for task in group.work.tasks:
            self.tasks.start(task, causes.Assigned())
            self.tasks.remind(task)

    def _drop_ghosts(self) -> None:
        """End work that was deleted and that no leader remembers to revoke; Kafka Connect keeps it for some rounds."""
        config, group = self.context.config, self.context.group
        ghosts = WorkSet(
            tuple(connector for connector in group.work.connectors if not config.contains(connector)),
            tuple(task for task in group.work.tasks if not config.has_task(task)),
        )
        self._stop(ghosts, causes.WorkDeleted())
        group.assignment = group.work.minus(ghosts)

    def release_work(self, reason: Cause) -> None:
        """Stop everything and forget the assignment, so that the next join claims nothing."""
        self._stop_everything(reason)
        self.context.group.assignment = None
        self.context.group.settled = False

    def on_lost(self, reason: Cause, error: str | None) -> None:
        """Not a member any more. Work continues: it is claimed when joining again (KIP-415)."""
        group = self.context.group
        self.context.record(payloads.MemberLost(error), why=reason)
        group.settled = False
        if group.is_leader:
            # Another worker may lead already. Kafka Connect continues leading until the next assignment; then a
            # zombie's new claim could fence its successor.
            group.leader_id = group.leader_url = ""
            self.leadership.suspend()
        self.fencing.cancel_all("this worker has lost its place in the group")

    def on_fatal_error(self, signal: FatalGroupError) -> causes.GroupRefusesWorker:
        """No retry will make this worker a member; returns why it ends."""
        self.fatal_error = causes.GroupRefusesWorker(signal.error)
        self.on_lost(self.fatal_error, signal.error)
        return self.fatal_error

    def on_coordinator_unknown(self) -> None:
        """The group may think that this worker is gone: nothing of it may continue (KAFKA-9184)."""
        reason = causes.CoordinatorUnreachable()
        if self.context.group.assignment is not None:
            self.on_lost(reason, None)
            self.release_work(reason)
        self._move(RebalancePhase.JOINING)
        self._forget_read()
        self.request_rejoin(reason)

    def _move(self, after: RebalancePhase) -> None:
        self.phase = moved(REBALANCE_MOVES, self.phase, after, "the rebalance")

    def _stop_everything(self, cause: Cause) -> None:
        self.outgoing = self._running()
        self._stop(self.outgoing, cause)

    def _stop(self, work: WorkSet, cause: Cause) -> None:
        for task in work.tasks:
            self.tasks.stop(task, cause)
        for connector in work.connectors:
            self.connectors.stop(connector, cause)

    def _running(self) -> WorkSet:
        return WorkSet(self.connectors.running(), self.tasks.running())

    def _stops(self) -> bool:
        """True while outgoing work is still here. It ends in about its order, so the last is looked at first."""
        return any(connector in self.connectors.lives for connector in reversed(self.outgoing.connectors)) or any(
            task in self.tasks.lives for task in reversed(self.outgoing.tasks)
        )
