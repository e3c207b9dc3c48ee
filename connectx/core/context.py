"""Shared state of the parts of a worker's core: settings, logs, the group, and the current step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from connectx.core.config_log import ConfigLog
from connectx.core.messages import Effect, WriteStatus
from connectx.core.moves import Moves, moved
from connectx.core.pending import Pending, Waiting
from connectx.core.settings import CoreSettings
from connectx.core.signals import RestartOutcome, Signal
from connectx.core.status_log import StatusLog
from connectx.core.stepping import Stepping
from connectx.core.timer_keys import TimerKey
from connectx.core.timers import Timers
from connectx.model import payloads
from connectx.model.causes import Cause
from connectx.model.config_records import SessionKeyRecord
from connectx.model.events import Transition
from connectx.model.group import ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.model.payloads import Payload
from connectx.model.states import ConnectorType, State, TargetState
from connectx.model.status_records import ConnectorStatusRecord, Status, TaskStatusRecord
from connectx.values import Value


class WorkerPhase(StrEnum):
    STARTING = "starting"  # the internal topics are read, changes of the past are not acted on: RUNNING or STOPPING
    RUNNING = "running"  # a member of the group, or on its way there: STOPPING
    STOPPING = "stopping"  # its work ends, nothing new is begun: STOPPED
    STOPPED = "stopped"  # has left the group; only requests are answered, with a refusal


WORKER_MOVES: Final[Moves[WorkerPhase]] = {
    WorkerPhase.STARTING: frozenset({WorkerPhase.RUNNING, WorkerPhase.STOPPING}),
    WorkerPhase.RUNNING: frozenset({WorkerPhase.STOPPING}),
    WorkerPhase.STOPPING: frozenset({WorkerPhase.STOPPED}),
    WorkerPhase.STOPPED: frozenset(),
}
"""A worker starts, runs, stops, once."""


class StartAgain(Value):
    """What comes after an instance that stops: the same work again. RESTARTING is shown if a user asked for it.

    `waiters` are the requests that are answered when it has started.
    """

    cause: Cause
    is_restart: bool = False
    waiters: tuple[int, ...] = ()


@dataclass(slots=True)
class GroupView:
    """The worker group as this member last saw it.

    `assignment` is None until the first one arrives and after this worker had to give everything up. `settled` is
    False from the first sign of a rebalance until its work was started: requests that need settled state are refused.
    `leader_id` and `leader_url` are empty while the leader is unknown.
    """

    member_id: str = ""
    generation: int = -1
    protocol: ProtocolVersion = ProtocolVersion.SESSIONED
    leader_id: str = ""
    leader_url: str = ""
    assignment: WorkSet | None = None
    settled: bool = False

    @property
    def is_leader(self) -> bool:
        """True when the last assignment named this member the leader."""
        return bool(self.member_id) and self.member_id == self.leader_id

    @property
    def work(self) -> WorkSet:
        """The assignment, empty when there is none."""
        return self.assignment or WorkSet()


@dataclass(slots=True)
class Context(Stepping[Effect]):
    """Shared state of the core's parts, and the step that they build."""

    settings: CoreSettings
    config: ConfigLog = field(default_factory=ConfigLog)
    status: StatusLog = field(default_factory=StatusLog)
    timers: Timers = field(default_factory=Timers)
    group: GroupView = field(default_factory=GroupView)
    phase: WorkerPhase = WorkerPhase.STARTING
    pending: Pending = field(default_factory=Pending)
    signals: list[Signal] = field(default_factory=list)
    """What parts have reported and `WorkerCore` has not routed yet; none between two steps."""
    last_instance: int = 0

    def record(
        self,
        payload: Payload,
        connector: str | None = None,
        task: int | None = None,
        why: Cause | None = None,
        *,
        producer_epoch: int | None = None,
        generation: int | None = None,
    ) -> None:
        """Report a transition, under the present generation unless another is given."""
        if generation is None and self.group.generation >= 0:
            generation = self.group.generation
        self.add(Transition(payload, connector, task, generation, producer_epoch, why))

    def signal(self, *signals: Signal) -> None:
        """Report to the parts that a signal concerns, after the present call."""
        self.signals.extend(signals)

    def end_restarts(self, waiters: tuple[int, ...], error: str | None = None) -> None:
        """Report the outcome of a start to the requests that wait for it."""
        self.signal(*(RestartOutcome(request_id, error) for request_id in waiters))

    def start_again(self, planned: StartAgain | None, wanted: StartAgain | None, error: str) -> StartAgain | None:
        """What comes after an instance that stops, in place of what was planned. Requests wait on, or get the error."""
        if planned is None or not planned.waiters:
            return wanted
        if wanted is None:
            self.end_restarts(planned.waiters, error)
            return None
        return replace(wanted, waiters=(*planned.waiters, *wanted.waiters))

    def new_request_id(self, waiting: Waiting) -> int:
        """Id of the next request of the herder, whose answer goes to `waiting`."""
        return self.pending.begin(waiting)

    def new_instance(self) -> int:
        """Number of the next connector or task instance of this worker."""
        self.last_instance += 1
        return self.last_instance

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        """Fire `key` after `delay_ms`, replacing an earlier one."""
        self.emit(self.timers.set(key, self.now_ms + delay_ms))

    def move(self, after: WorkerPhase) -> None:
        self.phase = moved(WORKER_MOVES, self.phase, after, "the worker")

    def connector_type(self, connector: str) -> ConnectorType:
        config = self.config.connector_config(connector)
        return ConnectorType.UNKNOWN if config is None else self.settings.connector_type_of(config)

    def target_state(self, connector: str) -> TargetState:
        """What the user asked the connector to be; STARTED by default."""
        return self.config.target_state(connector) or TargetState.STARTED

    def runs_exactly_once(self, connector: str) -> bool:
        """True for source connectors of a worker with `exactly.once.source.support=enabled`."""
        enabled = self.settings.worker.exactly_once_source_enabled
        return enabled and self.connector_type(connector) is ConnectorType.SOURCE

    @property
    def session_key(self) -> SessionKeyRecord | None:
        """Key that signs internal requests; None before the leader wrote one."""
        return self.config.session_key

    @property
    def may_ask_leader(self) -> bool:
        """True when the leader is known, and so is the key that internal requests are signed with (KIP-507)."""
        has_key = self.session_key is not None or self.group.protocol is not ProtocolVersion.SESSIONED
        return bool(self.group.leader_url) and has_key

    def report_connector(
        self,
        connector: str,
        state: State,
        *,
        trace: str | None = None,
        version: str | None = None,
        why: Cause | None = None,
    ) -> Status:
        """A connector reached a state: history and status topic (Kafka Connect: ConnectorStatus.Listener)."""
        self.record(payloads.ConnectorState(state, trace), connector, why=why)
        status = Status(state, self.settings.worker_id, self.group.generation, trace, version)
        self._write_status(connector, status)
        return status

    def report_task(
        self,
        task: TaskId,
        instance: int,
        state: State,
        *,
        trace: str | None = None,
        version: str | None = None,
        why: Cause | None = None,
        generation: int | None = None,
    ) -> Status:
        """A task reached a state: history and status topic (Kafka Connect: TaskStatus.Listener).

        `generation` is the present one unless given: a zombie speaks for the generation that it was started under.
        """
        self.record(payloads.TaskState(state, trace, instance), task.connector, task.task, why)
        written_under = self.group.generation if generation is None else generation
        status = Status(state, self.settings.worker_id, written_under, trace, version)
        self._write_status(task, status)
        return status

    def remind(self, subject: str | TaskId, reported: Status) -> None:
        """Write a status again if the status topic shows something else from an earlier generation.

        A zombie may have written after this worker. Kafka Connect drops that for tasks when reading (KAFKA-12525).
        """
        if isinstance(subject, TaskId):
            shown = self.status.task_status(subject)
        else:
            shown = self.status.connector_status(subject)
        is_right = shown is not None and (shown.state, shown.worker_id) == (reported.state, reported.worker_id)
        if not is_right and (shown is None or shown.generation < self.group.generation):
            self._write_status(subject, replace(reported, generation=self.group.generation))

    def _write_status(self, subject: str | TaskId, status: Status) -> None:
        """UNASSIGNED and FAILED are "safe" writes: they never hide the status of a later generation elsewhere."""
        is_safe = status.state in (State.UNASSIGNED, State.FAILED)
        if is_safe and not self.status.may_write_safely(subject, status):
            return
        if isinstance(subject, TaskId):
            self.emit(WriteStatus(TaskStatusRecord(subject, status)))
        else:
            self.emit(WriteStatus(ConnectorStatusRecord(subject, status)))
