"""Tasks of this worker, each with its own life cycle.

Decides when a task is prepared, fenced, initialised, verified, begun, stopped, cancelled and restarted. Never talks to
Kafka or Spark. Mirrors Kafka Connect's Worker, WorkerTask and ExactlyOnceWorkerSourceTask (KIP-618 start-up order).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from connectx.core import messages
from connectx.core.context import Context, StartAgain, WorkerPhase
from connectx.core.fencing import FencingRounds
from connectx.core.ignored import InstanceGone, PhaseOver
from connectx.core.moves import Moves, moved
from connectx.core.pending import TaskFenced, TaskRead
from connectx.core.signals import LocalWaiter
from connectx.core.takeovers import Fenced, Takeovers
from connectx.core.timer_keys import TaskFencingRetry, TaskRestart, TaskStopLimit
from connectx.model import causes
from connectx.model.causes import Cause
from connectx.model.ids import TaskId
from connectx.model.payloads import StepName, TaskRefused, TaskStep
from connectx.model.states import State, TargetState
from connectx.model.status_records import Status, TopicStatusRecord
from connectx.views import gist


class TaskPhase(StrEnum):
    """Where a task instance is. Each line names the next phases.

    A failure in any phase but STOPPING leads to FAILED, a stop to STOPPING.
    """

    PREPARING = "preparing"  # plugins are made: FENCING for an exactly-once source, else STARTING
    FENCING = "fencing"  # the leader fences older producers: INITIALIZING
    INITIALIZING = "initializing"  # the producer's init fences an older instance of the same task: VERIFYING
    VERIFYING = "verifying"  # the config topic is read to its end: STARTING, or refused: STOPPING
    STARTING = "starting"  # the runner reads offsets and starts the plugin: ACTIVE
    ACTIVE = "active"  # running or paused
    FAILED = "failed"  # until it is restarted or revoked; its runner has ended
    STOPPING = "stopping"  # until the runner ends or the graceful time is over: forgotten, or PREPARING again


TASK_MOVES: Final[Moves[TaskPhase]] = {
    TaskPhase.PREPARING: frozenset({TaskPhase.FENCING, TaskPhase.STARTING, TaskPhase.FAILED, TaskPhase.STOPPING}),
    TaskPhase.FENCING: frozenset({TaskPhase.INITIALIZING, TaskPhase.FAILED, TaskPhase.STOPPING}),
    TaskPhase.INITIALIZING: frozenset({TaskPhase.VERIFYING, TaskPhase.FAILED, TaskPhase.STOPPING}),
    TaskPhase.VERIFYING: frozenset({TaskPhase.STARTING, TaskPhase.FAILED, TaskPhase.STOPPING}),
    TaskPhase.STARTING: frozenset({TaskPhase.ACTIVE, TaskPhase.FAILED, TaskPhase.STOPPING}),
    TaskPhase.ACTIVE: frozenset({TaskPhase.FAILED, TaskPhase.STOPPING}),
    TaskPhase.FAILED: frozenset(),
    TaskPhase.STOPPING: frozenset(),
}
"""A task that fails or stops leaves the table: it is forgotten, or begins again as another instance."""


BEFORE_ITS_START: Final = (TaskPhase.PREPARING, TaskPhase.FENCING, TaskPhase.INITIALIZING, TaskPhase.VERIFYING)
"""Phases in which an exactly-once task may still be refused."""


@dataclass(slots=True)
class TaskLife:
    task: TaskId
    instance: int
    phase: TaskPhase
    exactly_once: bool
    generation: int
    task_config_generation: int | None
    target_state: TargetState
    request_id: int | None = None
    attempts: int = 0
    refused_since_ms: int | None = None
    """Since when the leader has refused this worker's signature."""
    version: str | None = None
    reported: Status | None = None
    """Its latest status in the status topic."""
    again: StartAgain | None = None
    """Set while stopping when the task shall start again."""
    active_since_ms: int | None = None
    restart_cause: Cause | None = None
    """Set while it has failed and waits for its restart."""
    waiters: tuple[int, ...] = ()
    """Requests that are answered when its plugins are made."""
    fenced: bool = False
    """Set when it has failed because a newer producer fenced it."""


_LONGEST_PAUSE_MS = 300_000
"""Longest pause before a restart; a task that ran for as long has recovered, and its restarts count from 0 again."""
_FENCE_RETRY_MS = 250
_FENCE_RETRY_MAX_MS = 5_000
_KEY_ROTATION_MS = 60_000
"""How long a leader may refuse signatures: Kafka Connect takes that for a session key on its way for a minute, too."""


@dataclass(slots=True)
class Tasks:
    """All task instances of this worker; at most one per task, besides cancelled ones that the core has forgotten."""

    context: Context
    fencing: FencingRounds
    lives: dict[TaskId, TaskLife] = field(default_factory=dict)
    restarts: dict[TaskId, int] = field(default_factory=dict)
    takeovers: Takeovers = field(init=False)

    def __post_init__(self) -> None:
        self.takeovers = Takeovers(self.context)

    def start(self, task: TaskId, cause: Cause, waiters: tuple[int, ...] = ()) -> None:
        """Start an assigned task that is not there yet; one that is stopping starts when it has stopped.

        A fenced one starts again, too. It had a successor elsewhere, but this worker claimed the task when it came
        back. If it then missed the assignment that revoked the task from both, no other worker has the task. The same
        holds for one that has yet to learn that it is fenced.

        The requests `waiters` are answered when its plugins are made, or it has failed (Kafka Connect: startTask).
        """
        life = self.lives.get(task)
        if life is not None:
            assert not waiters, "a request restarts what is there"
            if life.phase is TaskPhase.STOPPING:
                life.again = life.again or StartAgain(cause)
            elif life.fenced or self._had_a_successor(life):
                self._stop(task, cause, StartAgain(cause))
            return
        config = self.context.config
        connector_config, task_config = config.connector_config(task.connector), config.task_config(task)
        is_due = self.context.phase is WorkerPhase.RUNNING and config.has_task(task)
        if is_due and connector_config is not None and task_config is not None:  # missing, not empty (KAFKA-17719)
            self._prepare(task, cause, connector_config, task_config)
            self.lives[task].waiters = waiters
        else:
            self.context.end_restarts(waiters, _not_started(task))

    def stop(self, task: TaskId, cause: Cause) -> None:
        """Stop a task, and cancel the start that would follow."""
        self._stop(task, cause, None)

    def restart(self, task: TaskId, cause: Cause, waiters: tuple[int, ...] = ()) -> None:
        """Stop a task and start it again because a user asked for it; `waiters` as in `start`."""
        self.restarts.pop(task, None)
        self._stop(task, cause, StartAgain(cause, is_restart=True, waiters=waiters))

    def on_new_task_configs(self, connector: str) -> None:
        """Newer task configs were read: what runs with older ones stops, what is about to start does not (KIP-618)."""
        self.takeovers.explain_tasks(connector)
        self.restarts = {task: count for task, count in self.restarts.items() if task.connector != connector}
        for life in self._of(connector):
            if life.exactly_once and life.phase in BEFORE_ITS_START:
                self._refuse(life, causes.NewerTaskConfigs())
            else:
                self.stop(life.task, causes.NewTaskConfigs())

    def set_target_state(self, connector: str) -> None:
        """Pause or resume the connector's tasks here; STOPPED comes as an empty set of task configs."""
        target_state = self.context.target_state(connector)
        if target_state is TargetState.STOPPED:
            return
        for life in self._of(connector):
            over = life.phase in (TaskPhase.FAILED, TaskPhase.STOPPING)
            if life.target_state is not target_state and not over:
                life.target_state = target_state
                self.context.emit(messages.SetTaskTargetState(life.task, life.instance, target_state))

    def on_status(self, task: TaskId) -> None:
        """The status topic shows something about a task, of this worker or another."""
        self.takeovers.explain(task)
        self.remind(task)

    def remind(self, task: TaskId) -> None:
        """Write its status again, if it runs here and the status topic has another one."""
        life = self.lives.get(task)
        if life is not None and life.reported is not None and life.phase is not TaskPhase.STOPPING:
            self.context.remind(task, life.reported)

    def running(self) -> tuple[TaskId, ...]:
        """Tasks that occupy a place here, failed and stopping ones included, sorted."""
        return tuple(sorted(self.lives))

    def is_failed(self, task: TaskId) -> bool:
        life = self.lives.get(task)
        return life is not None and life.phase is TaskPhase.FAILED

    def on_prepared(self, stimulus: messages.TaskPrepared) -> None:
        """Plugins are sound: an exactly-once source task asks for a fencing round, any other begins."""
        life = self._reported(stimulus.task, stimulus.instance, TaskPhase.PREPARING)
        if life is None:
            return
        life.version = stimulus.version
        self._end_restarts(life)
        if life.exactly_once:
            life.phase = moved(TASK_MOVES, life.phase, TaskPhase.FENCING, life.task)
            self._ask_for_fencing(life)
        else:
            self._begin(life)

    def on_fence_timer(self, key: TaskFencingRetry) -> None:
        """Time to ask for the fencing round again."""
        life = self._reported(key.task, key.instance, TaskPhase.FENCING)
        if life is not None:
            self._ask_for_fencing(life)

    def on_fenced(self, waiter: LocalWaiter, error: str | None, *, retriable: bool = False) -> None:
        """The round that this task waited for has ended."""
        life = self.lives.get(waiter.task)
        if life is None or life.instance != waiter.instance or life.phase is not TaskPhase.FENCING:
            return
        if error is None:
            life.phase = moved(TASK_MOVES, life.phase, TaskPhase.INITIALIZING, life.task)
            self._step(life, StepName.INIT_PRODUCER, causes.ProducersFenced())
            self.context.emit(messages.InitTaskProducer(life.task, life.instance))
        elif retriable:
            self._retry_fencing(life, causes.FencingNotDone(error))
        else:
            self._fail(life, f"Fencing of older producers of {life.task.connector} failed: {error}")

    def on_fence_request_answered(self, task: TaskId, stimulus: messages.FenceRequestAnswered) -> None:
        life = self.lives[task]
        life.request_id = None
        retriable = stimulus.retriable and not self._is_refused_finally(life, stimulus)
        self.on_fenced(LocalWaiter(task, life.instance), stimulus.error, retriable=retriable)

    def on_producer_ready(self, stimulus: messages.TaskProducerReady) -> None:
        """Transactions are initialised; now make sure that this worker did not miss newer task configs."""
        life = self._reported(stimulus.task, stimulus.instance, TaskPhase.INITIALIZING)
        if life is None:
            return
        life.phase = moved(TASK_MOVES, life.phase, TaskPhase.VERIFYING, life.task)
        life.request_id = self.context.new_request_id(TaskRead(life.task))
        self._step(life, StepName.READ_CONFIG_TO_END, causes.ProducerInitialized(), stimulus.producer_epoch)
        self.context.emit(messages.ReadConfigToEnd(life.request_id, timeout_ms=None))

    def on_config_read(self, task: TaskId, stimulus: messages.ConfigReadToEnd) -> None:
        """The config topic was read to its end for a task that verifies its start."""
        life = self.lives[task]
        life.request_id = None
        if stimulus.error is not None:
            self._fail(life, f"Could not read the config topic before the start of {task}: {stimulus.error}")
        elif (reason := self._reason_to_refuse(life)) is not None:
            self._refuse(life, reason)
        else:
            self._begin(life)

    def on_state_reached(self, stimulus: messages.TaskStateReached) -> None:
        life = self._reported(stimulus.task, stimulus.instance, TaskPhase.STARTING, TaskPhase.ACTIVE)
        if life is None:
            return
        life.phase = moved(TASK_MOVES, life.phase, TaskPhase.ACTIVE, life.task)
        life.active_since_ms = self.context.now_ms if life.active_since_ms is None else life.active_since_ms
        state = State.PAUSED if stimulus.paused else State.RUNNING
        life.reported = self.context.report_task(life.task, life.instance, state, version=life.version)

    def on_failed(self, stimulus: messages.TaskFailed) -> None:
        life = self.lives.get(stimulus.task)
        if life is None or life.instance != stimulus.instance:
            if stimulus.fenced:  # a cancelled instance shows no status any more, but the history records it
                self.takeovers.record(self._fenced(stimulus, None), None if life is None else life.instance)
            else:
                self._reported(stimulus.task, stimulus.instance)
            return
        if life.phase is TaskPhase.FAILED:
            self.context.ignore(PhaseOver(str(life.task), life.instance, life.phase))
            return
        trace = stimulus.trace
        if stimulus.fenced:
            takeover = self.takeovers.record(self._fenced(stimulus, life))
            trace = f"{trace.rstrip()}\n{life.task} was fenced: {takeover}"
        if life.phase is TaskPhase.STOPPING:
            self._report_failure(life, trace, fenced=stimulus.fenced)
            self._forget(life)
        else:
            self._fail(life, trace, runner_ended=True, fenced=stimulus.fenced)

    def on_stopped(self, stimulus: messages.TaskStopped) -> None:
        life = self._reported(stimulus.task, stimulus.instance, TaskPhase.STOPPING)
        if life is not None:
            self.context.report_task(life.task, life.instance, State.UNASSIGNED, version=life.version)
            self._forget(life)

    def on_topic_used(self, stimulus: messages.TopicUsed) -> None:
        """Remember a topic once (KIP-558); not for a task that is gone, whose connector may be deleted."""
        context, task = self.context, stimulus.task
        known = stimulus.topic in context.status.topics(task.connector)
        if context.settings.worker.topic_tracking_enable and not known and task in self.lives:
            record = TopicStatusRecord(stimulus.topic, task.connector, task.task, context.now_ms)
            context.emit(messages.WriteStatus(record))

    def on_stop_timer(self, key: TaskStopLimit) -> None:
        """The graceful time is over: cancel. A cancelled instance reports nothing any more (it may be a zombie)."""
        life = self._reported(key.task, key.instance, TaskPhase.STOPPING)
        if life is not None:
            self._step(life, StepName.CANCEL, causes.GracefulTimeOver())
            self.context.emit(messages.CancelTask(life.task, life.instance))
            self._forget(life)

    def on_restart_timer(self, key: TaskRestart) -> None:
        """The pause of a failed task is over."""
        life = self._reported(key.task, key.instance, TaskPhase.FAILED)
        if life is not None and life.restart_cause is not None:
            self._stop(life.task, life.restart_cause, StartAgain(life.restart_cause, is_restart=True))

    def _prepare(
        self,
        task: TaskId,
        cause: Cause,
        connector_config: Mapping[str, str | None],
        task_config: Mapping[str, str | None],
    ) -> None:
        context = self.context
        life = TaskLife(
            task=task,
            instance=context.new_instance(),
            phase=TaskPhase.PREPARING,
            exactly_once=context.runs_exactly_once(task.connector),
            generation=context.group.generation,
            task_config_generation=context.config.task_config_generation(task.connector),
            target_state=context.target_state(task.connector),
        )
        self.lives[task] = life
        self._step(life, StepName.PREPARE, cause)
        context.emit(
            messages.PrepareTask(
                task=task,
                instance=life.instance,
                connector_config=dict(connector_config),
                task_config=dict(task_config),
                target_state=life.target_state,
                generation=context.group.generation,
                exactly_once=life.exactly_once,
                task_count=context.config.task_count(task.connector),
            )
        )

    def _stop(self, task: TaskId, cause: Cause, again: StartAgain | None) -> None:
        life = self.lives.get(task)
        if life is None:
            return
        again = self.context.start_again(life.again, again, _not_started(task))
        life.again = again
        self._end_restarts(life, _not_started(task))
        if life.phase is TaskPhase.STOPPING:
            return
        if life.phase is TaskPhase.FAILED:  # its runner has ended
            self._forget(life)
            return
        life.phase = moved(TASK_MOVES, life.phase, TaskPhase.STOPPING, life.task)
        self._drop_request(life)
        self._step(life, StepName.STOP, cause)
        self.context.emit(messages.StopTask(task, life.instance))
        self.context.set_timer(_stop_timer(life), self.context.settings.worker.task_shutdown_graceful_timeout_ms)

    def _ask_for_fencing(self, life: TaskLife) -> None:
        group = self.context.group
        self._step(life, StepName.REQUEST_FENCING)
        if group.is_leader:
            self.fencing.request(life.task.connector, LocalWaiter(life.task, life.instance))
        elif self.context.may_ask_leader:
            life.request_id = self.context.new_request_id(TaskFenced(life.task))
            self.context.emit(messages.SendFenceRequest(life.request_id, group.leader_url, life.task.connector))
        else:
            self._retry_fencing(life, causes.LeaderUnknown())

    def _retry_fencing(self, life: TaskLife, cause: Cause) -> None:
        self._step(life, StepName.RETRY_FENCING, cause)
        delay_ms = min(_FENCE_RETRY_MAX_MS, _FENCE_RETRY_MS * 2 ** min(life.attempts, 5))
        life.attempts += 1
        self.context.set_timer(_fence_timer(life), delay_ms)

    def _had_a_successor(self, life: TaskLife) -> bool:
        """Whether another worker has run an exactly-once task since: then this instance's producer is fenced."""
        status = self.context.status.task_status(life.task)
        if not life.exactly_once or status is None or status.worker_id == self.context.settings.worker_id:
            return False
        return status.generation > life.generation

    def _reason_to_refuse(self, life: TaskLife) -> Cause | None:
        """A deleted connector keeps its task config generation. Kafka Connect starts the task until it is revoked."""
        config = self.context.config
        if not config.contains(life.task.connector):
            return causes.WorkDeleted()
        if config.task_config_generation(life.task.connector) != life.task_config_generation:
            return causes.NewerTaskConfigs()
        if life.task not in self.context.group.work.tasks:
            return causes.TaskReassigned()
        if config.pending_fencing(life.task.connector):
            return causes.TaskCountMissing()
        return None

    def _is_refused_finally(self, life: TaskLife, stimulus: messages.FenceRequestAnswered) -> bool:
        """A signature is refused while a new session key is on its way, but not forever."""
        if not stimulus.refused:
            life.refused_since_ms = None
            return False
        now_ms = self.context.now_ms
        life.refused_since_ms = now_ms if life.refused_since_ms is None else life.refused_since_ms
        return now_ms - life.refused_since_ms >= _KEY_ROTATION_MS

    def _refuse(self, life: TaskLife, reason: Cause) -> None:
        """Abort the start (KIP-618): the next rebalance starts the task where it belongs."""
        self.context.record(TaskRefused(life.instance), life.task.connector, life.task.task, reason)
        self.stop(life.task, reason)

    def _begin(self, life: TaskLife) -> None:
        life.phase = moved(TASK_MOVES, life.phase, TaskPhase.STARTING, life.task)
        self._step(life, StepName.BEGIN)
        self.context.emit(messages.BeginTask(life.task, life.instance))

    def _fail(self, life: TaskLife, trace: str, *, runner_ended: bool = False, fenced: bool = False) -> None:
        life.phase = moved(TASK_MOVES, life.phase, TaskPhase.FAILED, life.task)
        life.fenced = fenced
        self._drop_request(life)
        if not runner_ended:
            self.context.emit(messages.StopTask(life.task, life.instance))
        self._report_failure(life, trace, fenced=fenced)
        self._end_restarts(life, _not_started(life.task))
        if not fenced:  # a zombie has a successor
            self._plan_restart(life, trace)

    def _plan_restart(self, life: TaskLife, trace: str) -> None:
        """Restart a failed task after a growing pause, task.restart.max times in a row (off by default)."""
        most, backoff_ms = restart_policy(self.context.config.connector_config(life.task.connector) or {})
        now_ms = self.context.now_ms
        recovered = life.active_since_ms is not None and now_ms - life.active_since_ms >= _LONGEST_PAUSE_MS
        count = 0 if recovered else self.restarts.get(life.task, 0)
        if 0 <= most <= count:
            return
        self.restarts[life.task] = count + 1
        pause_ms = min(backoff_ms * 2 ** min(count, 30), _LONGEST_PAUSE_MS)
        error = gist(trace) or "no reason is known"
        life.restart_cause = causes.AutomaticRestart(count + 1, most if most >= 0 else None, pause_ms, error)
        self.context.set_timer(_restart_timer(life), pause_ms)

    def _report_failure(self, life: TaskLife, trace: str, *, fenced: bool = False) -> None:
        """A zombie reports once, under the generation of its start, so that its successor's status stays visible."""
        generation = life.generation if fenced else None
        status = self.context.report_task(
            life.task, life.instance, State.FAILED, trace=trace, version=life.version, generation=generation
        )
        life.reported = None if fenced else status

    def _fenced(self, stimulus: messages.TaskFailed, life: TaskLife | None) -> Fenced:
        generation, config_generation = -1, self.context.config.task_config_generation(stimulus.task.connector)
        if life is not None:
            generation, config_generation = life.generation, life.task_config_generation
        now_ms = self.context.now_ms
        return Fenced(stimulus.task, stimulus.instance, generation, config_generation, stimulus.newer_epoch, now_ms)

    def _forget(self, life: TaskLife) -> None:
        del self.lives[life.task]
        self.context.timers.cancel(_stop_timer(life), _fence_timer(life), _restart_timer(life))
        again = life.again
        if again is None:
            return
        if life.task not in self.context.group.work.tasks:
            self.context.end_restarts(again.waiters, _not_started(life.task))
            return
        if again.is_restart:
            self.context.report_task(life.task, life.instance, State.RESTARTING, why=again.cause)
        self.start(life.task, again.cause, again.waiters)

    def _end_restarts(self, life: TaskLife, error: str | None = None) -> None:
        """Report to the requests that wait for its start."""
        self.context.end_restarts(life.waiters, error)
        life.waiters = ()

    def _step(
        self, life: TaskLife, step: StepName, why: Cause | None = None, producer_epoch: int | None = None
    ) -> None:
        task, payload = life.task, TaskStep(step, life.instance)
        self.context.record(payload, task.connector, task.task, why, producer_epoch=producer_epoch)

    def _drop_request(self, life: TaskLife) -> None:
        self.context.pending.drop(life.request_id)
        life.request_id = None

    def _reported(self, task: TaskId, instance: int, *phases: TaskPhase) -> TaskLife | None:
        """Return the instance that a report or a timer is about; one in another phase, or gone, ignores it."""
        life = self.lives.get(task)
        if life is None or life.instance != instance:
            self.context.ignore(InstanceGone(str(task), instance, None if life is None else life.instance))
            return None
        if life.phase not in phases:
            self.context.ignore(PhaseOver(str(task), instance, life.phase))
            return None
        return life

    def _of(self, connector: str) -> list[TaskLife]:
        return [self.lives[task] for task in sorted(self.lives) if task.connector == connector]


def _not_started(task: TaskId) -> str:
    return f"Failed to start task: {task}"


def _stop_timer(life: TaskLife) -> TaskStopLimit:
    return TaskStopLimit(life.task, life.instance)


def restart_policy(config: Mapping[str, str | None]) -> tuple[int, int]:
    """(task.restart.max, task.restart.backoff.ms) of a connector; no restarts where a value cannot be read."""
    try:
        return int(config.get("task.restart.max") or 0), int(config.get("task.restart.backoff.ms") or 10_000)
    except ValueError:  # the task has failed for it, with a sentence
        return 0, 0


def _restart_timer(life: TaskLife) -> TaskRestart:
    return TaskRestart(life.task, life.instance)


def _fence_timer(life: TaskLife) -> TaskFencingRetry:
    return TaskFencingRetry(life.task, life.instance)
