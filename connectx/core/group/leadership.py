"""Duties of the group's leader.

Decides assignments, keeps a record of them, claims the right to write to the config topic, rotates the session key and
removes statuses of what is gone. Mirrors the leader's half of Kafka Connect's DistributedHerder and WorkerCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from connectx.core import messages
from connectx.core.config_writer import ANSWER_MS, Claim, ConfigWriter
from connectx.core.context import Context
from connectx.core.group.assignor import (
    CONFIG_MISMATCH,
    AssignorMemory,
    ClusterAssignment,
    IncrementalCooperativeAssignor,
    agree_on_offset,
    assign_eagerly,
    assignment_messages,
)
from connectx.core.pending import Single
from connectx.core.signals import Elected, StoppedOrigin
from connectx.core.timer_keys import WorkerTimer
from connectx.model import payloads, status_records
from connectx.model.causes import FormerLeaderFenced, LostWorkWaits, RevocationsFollow
from connectx.model.config_records import SessionKeyRecord
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import TargetState

_RECLAIM_MS = 250
_KEY_RETRY_MS = 250


@dataclass(slots=True)
class Leadership:
    """The leader's memory; it is lost, on purpose, when leadership moves."""

    context: Context
    writer: ConfigWriter
    memory: AssignorMemory = field(default_factory=AssignorMemory)
    owners: dict[str, WorkSet] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    claim_request: int | None = None
    key_request: int | None = None
    writes_key: bool = False
    """True from the moment a session key was created until it can be read back."""

    def assign(self, signal: Elected) -> Mapping[str, Assignment]:
        """Compute every member's assignment for this round."""
        context, members = self.context, signal.members
        offset = context.config.offset
        agreement = agree_on_offset([members[m].config_offset for m in sorted(members)], offset, offset)
        leader_url = members[signal.leader_id].url
        self.urls = {member: members[member].url for member in sorted(members)}
        send = partial(assignment_messages, signal.protocol, signal.leader_id, leader_url, agreement.config_offset)
        if not agreement.agreed:
            self.owners = {}
            return send({member: WorkSet() for member in sorted(members)}, error=CONFIG_MISMATCH)
        connectors = context.config.connectors()
        configured = WorkSet(connectors, tuple(task for c in connectors for task in context.config.tasks(c)))
        if signal.protocol is ProtocolVersion.EAGER:
            self.owners = assign_eagerly(configured, sorted(members))
            return send(self.owners)
        result = IncrementalCooperativeAssignor(context.settings.worker.scheduled_rebalance_max_delay_ms).assign(
            self.memory,
            configured,
            {member: _claims(metadata) for member, metadata in members.items()},
            last_completed_generation=context.group.generation,
            generation=signal.generation,
            now_ms=context.now_ms,
        )
        self.memory = result.memory
        self.owners = dict(result.owners)
        self._record_assignment(signal, result)
        return send(result.assigned, result.revoked, result.delay_ms)

    def _record_assignment(self, signal: Elected, result: ClusterAssignment) -> None:
        lost = _names(result.lost)
        members = {
            self.urls[member]: payloads.MemberWork(
                _names(result.assigned[member]), _names(result.revoked[member]), _names(result.owners[member])
            )
            for member in sorted(signal.members)
        }
        self.context.record(payloads.AssignmentComputed(members, lost, result.delay_ms), generation=signal.generation)
        if result.delay_ms > 0:
            self.context.record(
                payloads.RebalanceDelayed(lost, result.delay_ms),
                why=LostWorkWaits() if lost else RevocationsFollow(),
                generation=signal.generation,
            )

    def forget_owners(self) -> None:
        """A rebalance begins: who runs what is not known until it ends."""
        self.owners = {}

    def owner_url(self, work: str | TaskId) -> str | None:
        """URL of the worker that runs a connector or task, None while that is not known."""
        for member in sorted(self.owners):
            owned = self.owners[member]
            if work in owned.connectors or work in owned.tasks:
                return self.urls[member]
        return None

    def take_over(self) -> None:
        """This worker was named leader: clean up statuses and claim the config topic, if that is not done yet."""
        self._remove_stale_statuses()
        if self.writer.claim is Claim.HELD:
            self.check_session_key()
        elif self.claim_request is None:
            self._claim()

    def suspend(self) -> None:
        """Drop the leader's rights but keep its memory: the group may name this worker again."""
        self.writer.set_claim(Claim.NONE)
        self._abandon_claim()
        self.context.pending.drop(self.key_request)
        self.key_request = None
        self.writes_key = False
        self.context.timers.cancel(WorkerTimer.SESSION_KEY, WorkerTimer.RECLAIM, WorkerTimer.EMPTY_STOPPED)

    def step_down(self) -> None:
        """Another worker leads: forget everything that only a leader remembers."""
        self.suspend()
        self.owners = {}
        self.memory = AssignorMemory()

    def on_claimed(self, stimulus: messages.ConfigWritesClaimed) -> None:
        """The transactional producer is initialised, which fenced the former leader, or it has to be tried again."""
        self.claim_request = None
        self.context.timers.cancel(WorkerTimer.CLAIM_LIMIT)
        if stimulus.error is not None:
            self.context.set_timer(WorkerTimer.RECLAIM, _RECLAIM_MS)
            return
        self.context.record(
            payloads.LeadershipClaimed(self.context.settings.worker.config_transactional_id), why=FormerLeaderFenced()
        )
        self._may_write()

    def on_claim_limit(self) -> None:
        """Kafka has not answered the claim in time: claim again."""
        self._abandon_claim()
        self.context.set_timer(WorkerTimer.RECLAIM, _RECLAIM_MS)

    def on_claim_lost(self, error: str) -> None:
        """A privileged write failed, whatever the reason: claim again, but never spin."""
        self.context.record(payloads.LeadershipFenced(error))
        self.context.set_timer(WorkerTimer.RECLAIM, _RECLAIM_MS)

    def on_reclaim_timer(self, *, is_member: bool) -> None:
        """Try to claim again, once the group has confirmed this member: a zombie would fence the leader.

        Kafka Connect uses the group's last answer.
        """
        if self.writer.claim is not Claim.PENDING or self.claim_request is not None:
            return
        if is_member:
            self._claim()
        else:
            self.context.set_timer(WorkerTimer.RECLAIM, _RECLAIM_MS)

    def _claim(self) -> None:
        self.context.timers.cancel(WorkerTimer.RECLAIM)
        if not self.context.settings.worker.exactly_once_source_support.leader_is_transactional:
            self._may_write()
            return
        self.writer.set_claim(Claim.PENDING)
        self.claim_request = self.context.new_request_id(Single.LEADER_CLAIMED)
        self.context.emit(messages.ClaimConfigWrites(self.claim_request))
        self.context.set_timer(WorkerTimer.CLAIM_LIMIT, ANSWER_MS)

    def _abandon_claim(self) -> None:
        if self.claim_request is not None:
            self.context.pending.drop(self.claim_request)
            self.context.timers.cancel(WorkerTimer.CLAIM_LIMIT)
            self.context.emit(messages.AbandonConfigWrites(self.claim_request))
            self.claim_request = None

    def _may_write(self) -> None:
        self.writer.set_claim(Claim.HELD)
        self.check_session_key()
        self.empty_stopped()

    def empty_stopped(self, *connectors: str) -> None:
        """Take the tasks from stopped connectors (by default of all): none may have any (KIP-875).

        A former leader stops a connector in two writes; tasks that the next leader writes in between would run
        forever. Kafka Connect does not notice.
        """
        config = self.context.config
        for connector in connectors or config.connectors():
            stopped = config.target_state(connector) is TargetState.STOPPED
            if stopped and config.tasks(connector) and self.writer.claim is Claim.HELD:
                self.writer.put_task_configs(connector, (), StoppedOrigin(connector))

    def on_stopped_emptied(self, error: str | None) -> None:
        """Their tasks are gone, or it is tried again soon."""
        if error is not None and self.writer.claim is Claim.HELD:
            self.context.set_timer(WorkerTimer.EMPTY_STOPPED, _RECLAIM_MS)

    def check_session_key(self) -> None:
        """Rotate the key when there is none, it has expired, or it is not one that this worker would make (KIP-507)."""
        context, settings = self.context, self.context.settings
        if not context.group.is_leader or context.group.protocol is not ProtocolVersion.SESSIONED:
            return
        if self.writer.claim is not Claim.HELD or self.key_request is not None or self.writes_key:
            return
        key, ttl_ms = context.session_key, settings.worker.inter_worker_key_ttl_ms
        made_like_ours = settings.worker.inter_worker_key_generation_algorithm, settings.worker.inter_worker_key_bytes
        if key is not None and (key.algorithm, len(key.key)) == made_like_ours:
            due_in_ms = key.creation_timestamp_ms + ttl_ms - context.now_ms
            if ttl_ms == 0:  # the first key does not expire
                return
            if due_in_ms > 0:
                context.set_timer(WorkerTimer.SESSION_KEY, due_in_ms)
                return
        self.key_request = context.new_request_id(Single.LEADER_KEY_CREATED)
        context.emit(messages.CreateSessionKey(self.key_request, settings.worker.inter_worker_key_bytes))

    def on_session_key(self, stimulus: messages.SessionKeyCreated) -> None:
        self.key_request, self.writes_key = None, True
        algorithm = self.context.settings.worker.inter_worker_key_generation_algorithm
        self.writer.put_session_key(SessionKeyRecord(stimulus.key, algorithm, stimulus.creation_timestamp_ms))

    def on_session_key_written(self, error: str | None) -> None:
        """The key can be read back; or writing it failed: try again soon."""
        if not self.writes_key:
            return
        self.writes_key = False
        if error is None:
            self.check_session_key()
        else:
            self.context.set_timer(WorkerTimer.SESSION_KEY, _KEY_RETRY_MS)

    def on_status(self, record: status_records.StatusRecord) -> None:
        """A status was read: the leader removes it again if it came too late, after its work was deleted.

        Kafka Connect does so in the next rebalance only.
        """
        if self.context.group.is_leader:
            self._remove_if_stale(record)

    def _remove_stale_statuses(self) -> None:
        """Tombstones for deleted connectors, for tasks beyond the present number, and for topics of the deleted."""
        status = self.context.status
        for connector in status.connectors():
            if (shown := status.connector_status(connector)) is not None:
                self._remove_if_stale(status_records.ConnectorStatusRecord(connector, shown))
            for task, task_status in status.task_statuses(connector).items():
                self._remove_if_stale(status_records.TaskStatusRecord(task, task_status))
        for connector in status.topic_connectors():
            for topic in status.topics(connector):
                self._remove_if_stale(status_records.TopicStatusRecord(topic, connector, 0))

    def _remove_if_stale(self, record: status_records.StatusRecord) -> None:
        config, emit = self.context.config, self.context.emit
        match record:
            case status_records.ConnectorStatusRecord(connector, status_records.Status()) if not config.contains(
                connector
            ):
                emit(messages.WriteStatus(status_records.ConnectorStatusRecord(connector, None)))
            case status_records.TaskStatusRecord(task, status_records.Status()) if not config.has_task(task):
                emit(messages.WriteStatus(status_records.TaskStatusRecord(task, None)))
            case status_records.TopicStatusRecord(topic, connector, int()) if not config.contains(connector):
                emit(messages.WriteStatus(status_records.TopicStatusRecord(topic, connector, None)))


def _claims(metadata: MemberMetadata) -> WorkSet:
    return WorkSet() if metadata.allocation is None else metadata.allocation.assigned


def _names(work: WorkSet) -> tuple[str, ...]:
    return (*work.connectors, *(str(task) for task in work.tasks))
