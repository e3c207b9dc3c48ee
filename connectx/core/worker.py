"""The core of one worker: a state machine from stimuli to transitions and effects.

`WorkerCore.handle` is the only way to change state. It reads no clock, draws nothing at random and does no I/O, so the
live driver, a simulation and a replay can run it alike. Mirrors Kafka Connect's DistributedHerder as one state machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, TypeVar, assert_never

from connectx.core import config_log, group_messages, messages, pending, signals, timer_keys
from connectx.core.config_events import event_of
from connectx.core.config_writer import ConfigWriter
from connectx.core.connectors import Connectors
from connectx.core.context import Context, WorkerPhase
from connectx.core.fencing import FencingRounds
from connectx.core.group.leadership import Leadership
from connectx.core.group.membership import Membership
from connectx.core.group.rebalance import Rebalance
from connectx.core.ignored import NotPending, TimerReplaced, WorkerIsOver
from connectx.core.invariants import broken_by, marks_of
from connectx.core.requests import RequestHandler
from connectx.core.rest_views import worker as worker_view
from connectx.core.rules import BrokenRule, Marks
from connectx.core.settings import CoreSettings
from connectx.core.tasks import Tasks
from connectx.model import causes, payloads
from connectx.model.causes import Cause
from connectx.model.status_records import (
    ConnectorStatusRecord,
    Status,
    TaskStatusRecord,
    TopicStatusRecord,
)

_REFERENCES = frozenset(
    {"settings", "context", "membership", "writer", "fencing", "leadership", "connectors", "tasks", "takeovers"}
)
"""Fields of parts that are settings or another part."""

_MOST_SIGNALS = 100_000
"""Signals that a step may route: one that ends needs a few for each operation and task that it ends."""

_Answer = TypeVar("_Answer", bound=messages.Answer)
_WorkStimulus = (
    messages.ConnectorStarted
    | messages.ConnectorStateReached
    | messages.ConnectorFailed
    | messages.ConnectorStopped
    | messages.TaskReconfigurationRequested
    | messages.TaskConfigsGenerated
    | messages.TaskPrepared
    | messages.TaskProducerReady
    | messages.TaskStateReached
    | messages.TaskFailed
    | messages.TaskStopped
    | messages.TopicUsed
)
"""Reports of connectors and tasks."""


class WorkerCore:
    """One worker's decisions. Copy it with `copy.deepcopy`; nothing in it is shared with the driver.

    Cores with equal settings and equal `state` are equal, and decide alike from then on.
    """

    def __init__(self, settings: CoreSettings) -> None:
        self.context = Context(settings)
        self.membership = Membership(self.context)
        self.writer = ConfigWriter(self.context)
        self.fencing = FencingRounds(self.context, self.writer)
        self.leadership = Leadership(self.context, self.writer)
        self.connectors = Connectors(self.context, self.writer)
        self.tasks = Tasks(self.context, self.fencing)
        self.rebalance = Rebalance(
            self.context, self.membership, self.fencing, self.leadership, self.connectors, self.tasks
        )
        self.requests = RequestHandler(
            self.context, self.writer, self.fencing, self.leadership, self.connectors, self.tasks
        )

    def handle(self, stimulus: messages.Stimulus, now_ms: int) -> messages.WorkerStep:
        """Apply one stimulus; return transitions and effects. `now_ms` never goes back."""
        step = self.context.take(stimulus, now_ms, self._on_stimulus)
        step.shown = messages.WorkerShown(worker_view(self.context), self.context.session_key, self.requests.stages())
        return step

    def state(self) -> dict[str, dict[str, Any]]:
        """Return all that changes in the core, by part and field. The values are the core's own: do not change them."""
        return {
            name: {item.name: getattr(part, item.name) for item in fields(part) if _is_state(item)}
            for name, part in self._parts().items()
        }

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over the `state` of another core, with its values; KeyError if a part or field is missing."""
        for name, part in self._parts().items():
            for item in fields(part):
                if _is_state(item):
                    setattr(part, item.name, state[name][item.name])

    def _parts(self) -> dict[str, Any]:
        """The parts by name, each after those that it may order."""
        return {
            "context": self.context,
            "membership": self.membership,
            "writer": self.writer,
            "fencing": self.fencing,
            "leadership": self.leadership,
            "connectors": self.connectors,
            "takeovers": self.tasks.takeovers,
            "tasks": self.tasks,
            "rebalance": self.rebalance,
            "requests": self.requests,
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WorkerCore):
            return NotImplemented
        return self.context.settings == other.context.settings and self.state() == other.state()

    __hash__ = None  # type: ignore[assignment]

    def check(self, before: Marks | None = None) -> tuple[BrokenRule, ...]:
        """Return the rules of `connectx.core.invariants` that do not hold between two steps; none is sound."""
        return broken_by(self, before)

    def marks(self) -> Marks:
        return marks_of(self)

    def _on_stimulus(self, stimulus: messages.Stimulus) -> None:
        if self.context.phase is not WorkerPhase.STOPPED or isinstance(stimulus, messages.Request):
            self._dispatch(stimulus)
            self._settle()
        else:
            self.context.ignore(WorkerIsOver())

    def _dispatch(self, stimulus: messages.Stimulus) -> None:  # one line per stimulus: a table
        match stimulus:
            case messages.ConfigRecordRead():
                self._on_config_record(stimulus)
            case messages.StatusRecordRead():
                self._on_status_record(stimulus)
            case messages.TimerFired():
                self._on_timer(stimulus)
            case (
                group_messages.CoordinatorFound()
                | group_messages.GroupRequestFailed()
                | group_messages.JoinGroupReplied()
                | group_messages.SyncGroupReplied()
                | group_messages.HeartbeatReplied()
            ):
                self._on_group(stimulus)
            case (
                messages.ConfigReadToEnd()
                | messages.ConfigRecordsWritten()
                | messages.ConfigWritesClaimed()
                | messages.SessionKeyCreated()
                | messages.ProducersFenced()
                | messages.FenceRequestAnswered()
                | messages.TaskConfigsSent()
            ):
                self._on_answer(stimulus)
            case messages.Request():
                self.requests.on_request(stimulus)
            case messages.WorkerStarted():
                self._on_worker_started()
            case messages.ShutdownRequested():
                self._begin_shutdown(causes.WorkerShutsDown())
            case _:
                self._dispatch_work(stimulus)

    def _on_group(self, answer: group_messages.GroupStimulus) -> None:
        if self.membership.awaits(answer):
            self.membership.on_answer(answer)
        else:
            self.context.ignore(NotPending(answer.request_id))

    def _on_answer(self, answer: messages.Answer) -> None:  # one line per request that is answered: a table
        match waiting := self.context.pending.waiting.pop(answer.request_id, None):
            case pending.Single.OPERATION_WRITTEN:
                self.writer.on_written(_require(answer, messages.ConfigRecordsWritten))
            case pending.Single.OPERATION_READ_BACK:
                self.writer.on_read(_require(answer, messages.ConfigReadToEnd))
            case pending.RoundRead(connector):
                self.fencing.on_read(connector, _require(answer, messages.ConfigReadToEnd))
            case pending.RoundFenced(connector):
                self.fencing.on_producers_fenced(connector, _require(answer, messages.ProducersFenced))
            case pending.Single.ASSIGNMENT_READ:
                self.rebalance.on_config_read(_require(answer, messages.ConfigReadToEnd))
            case pending.Single.LEADER_CLAIMED:
                self.leadership.on_claimed(_require(answer, messages.ConfigWritesClaimed))
            case pending.Single.LEADER_KEY_CREATED:
                self.leadership.on_session_key(_require(answer, messages.SessionKeyCreated))
            case pending.TaskFenced(task):
                self.tasks.on_fence_request_answered(task, _require(answer, messages.FenceRequestAnswered))
            case pending.TaskRead(task):
                self.tasks.on_config_read(task, _require(answer, messages.ConfigReadToEnd))
            case pending.ConnectorConfigsSent(connector):
                self.connectors.on_task_configs_sent(connector, _require(answer, messages.TaskConfigsSent))
            case pending.RequestRead():
                self.requests.on_config_read(waiting, _require(answer, messages.ConfigReadToEnd))
            case None:
                self.context.ignore(NotPending(answer.request_id))
            case _:
                assert_never(waiting)

    def _dispatch_work(self, stimulus: _WorkStimulus) -> None:
        match stimulus:
            case messages.ConnectorStarted():
                self.connectors.on_started(stimulus)
            case messages.ConnectorStateReached():
                self.connectors.on_state_reached(stimulus)
            case messages.ConnectorFailed():
                self.connectors.on_failed(stimulus)
            case messages.ConnectorStopped():
                self.connectors.on_stopped(stimulus)
            case messages.TaskReconfigurationRequested():
                self.connectors.on_reconfiguration_requested(stimulus)
            case messages.TaskConfigsGenerated():
                self.connectors.on_task_configs(stimulus)
            case messages.TaskPrepared():
                self.tasks.on_prepared(stimulus)
            case messages.TaskProducerReady():
                self.tasks.on_producer_ready(stimulus)
            case messages.TaskStateReached():
                self.tasks.on_state_reached(stimulus)
            case messages.TaskFailed():
                self.tasks.on_failed(stimulus)
            case messages.TaskStopped():
                self.tasks.on_stopped(stimulus)
            case messages.TopicUsed():
                self.tasks.on_topic_used(stimulus)
            case _:
                assert_never(stimulus)

    def _settle(self) -> None:
        """Continue with what the stimulus has made possible."""
        self._route()
        self.rebalance.advance()
        self._route()
        if self.context.phase is WorkerPhase.STOPPING and not self.connectors.lives and not self.tasks.lives:
            self._finish_shutdown()

    def _route(self) -> None:
        """Take each signal to the parts that it concerns, until none is left: a written record may start a task."""
        for _ in range(_MOST_SIGNALS):
            if not self.context.signals:
                return
            self._on_signal(self.context.signals.pop(0))
        raise AssertionError(f"signals do not end in one step; the next is {self.context.signals[0]}")

    def _on_signal(self, signal: signals.Signal) -> None:  # one line per signal: a table
        match signal:
            case signals.WriteOutcome():
                self._on_written(signal)
            case signals.FencingOutcome():
                self._on_fencing_outcome(signal)
            case signals.RestartOutcome():
                self.requests.on_restarted(signal)
            case signals.JoinPreparing():
                self.rebalance.on_join_preparing(signal)
            case signals.Elected():
                self.membership.assignments(signal.generation, self.leadership.assign(signal))
            case signals.AssignmentReceived():
                self.rebalance.on_assignment(signal)
            case signals.MembershipLost(reason, error):
                self.rebalance.on_lost(reason, error)
            case signals.CoordinatorUnknown():
                self.rebalance.on_coordinator_unknown()
            case signals.FatalGroupError():
                self._begin_shutdown(self.rebalance.on_fatal_error(signal))
            case _:
                assert_never(signal)

    def _on_worker_started(self) -> None:
        if self.context.phase is WorkerPhase.STARTING:
            self.context.move(WorkerPhase.RUNNING)
            self.context.record(payloads.WorkerStarted(self.context.settings.url))
            self.membership.start()

    def _begin_shutdown(self, reason: Cause) -> None:
        if self.context.phase in (WorkerPhase.STARTING, WorkerPhase.RUNNING):
            self.context.move(WorkerPhase.STOPPING)
            self.rebalance.release_work(reason)

    def _finish_shutdown(self) -> None:
        """Leave the group, and fail all pending requests."""
        error = "The worker has shut down"
        self.requests.close(error)
        self.fencing.cancel_all(error, status=503)
        self.writer.close(error)
        self._route()
        self.context.move(WorkerPhase.STOPPED)
        self.membership.leave()
        self.context.record(payloads.WorkerStopped())
        fatal = self.rebalance.fatal_error
        self.context.emit(messages.WorkerShutDown(None if fatal is None else str(fatal)))

    def _on_timer(self, stimulus: messages.TimerFired) -> None:
        if isinstance(stimulus.key, timer_keys.GroupTimer):
            if self.membership.awaits(stimulus):
                self.membership.on_timer(stimulus)
            else:
                self.context.ignore(TimerReplaced(stimulus.key))
        elif self.context.timers.accept(stimulus):
            self._on_time(stimulus.key)
        else:
            self.context.ignore(TimerReplaced(stimulus.key))

    def _on_time(self, key: timer_keys.WorkTimer) -> None:  # one line per timer: a table
        match key:
            case timer_keys.WorkerTimer.REBALANCE_DELAY:
                self.rebalance.on_delay_over()
            case timer_keys.WorkerTimer.MISMATCH:
                self.rebalance.on_mismatch_timer()
            case timer_keys.WorkerTimer.CONFIG_READ:
                self.rebalance.on_read_retry()
            case timer_keys.WorkerTimer.RECLAIM:
                self.leadership.on_reclaim_timer(is_member=self.membership.is_confirmed)
            case timer_keys.WorkerTimer.CLAIM_LIMIT:
                self.leadership.on_claim_limit()
            case timer_keys.WorkerTimer.WRITE_LIMIT:
                self.writer.on_write_limit()
            case timer_keys.WorkerTimer.SESSION_KEY:
                self.leadership.check_session_key()
            case timer_keys.WorkerTimer.EMPTY_STOPPED:
                self.leadership.empty_stopped()
            case timer_keys.TaskStopLimit():
                self.tasks.on_stop_timer(key)
            case timer_keys.TaskFencingRetry():
                self.tasks.on_fence_timer(key)
            case timer_keys.TaskRestart():
                self.tasks.on_restart_timer(key)
            case timer_keys.ConnectorStopLimit():
                self.connectors.on_stop_timer(key)
            case timer_keys.TaskConfigsRetry():
                self.connectors.on_retry_timer(key)
            case timer_keys.TaskCountRetry():
                self.fencing.on_retry_timer(key)
            case _:
                assert_never(key)

    def _on_config_record(self, stimulus: messages.ConfigRecordRead) -> None:
        for change in self.context.config.apply(stimulus.log_offset, stimulus.record):
            if self.context.phase is WorkerPhase.RUNNING:
                self._on_change(change, stimulus.log_offset)

    def _on_change(self, change: config_log.ConfigChange, log_offset: int) -> None:
        if event := event_of(change, self.context.config, log_offset):
            self.context.record(*event)
        match change:
            case config_log.ConnectorConfigChanged(connector, is_new):
                self.connectors.reconfigure(connector)  # also one that was deleted a moment ago and is still here
                if is_new:
                    self.rebalance.request_rejoin(causes.ConnectorCreated(connector))
            case config_log.ConnectorRemoved(connector):
                self.rebalance.request_rejoin(causes.ConnectorRemoved(connector))
            case config_log.TaskConfigsCommitted(connector):
                self._on_tasks_committed(connector)
            case config_log.TargetStateChanged(connector):
                self.connectors.set_target_state(connector)
                self.tasks.set_target_state(connector)
                self.leadership.empty_stopped(connector)
            case config_log.RestartSeen(connector, include_tasks, only_failed):
                self.requests.execute_restart(connector, include_tasks=include_tasks, only_failed=only_failed)
            case config_log.LoggerLevelSeen(namespace, level):
                self.context.emit(messages.SetLoggerLevel(namespace, level))
            case config_log.TaskCountRecorded() | config_log.SessionKeyChanged():
                pass
            case _:
                assert_never(change)

    def _on_tasks_committed(self, connector: str) -> None:
        self.fencing.cancel(connector, f"new task configs of connector {connector} came during the fencing round")
        self.tasks.on_new_task_configs(connector)
        self.connectors.on_tasks_committed(connector)
        self.leadership.empty_stopped(connector)
        self.rebalance.request_rejoin(causes.TaskConfigsChanged(connector))

    def _on_written(self, outcome: signals.WriteOutcome) -> None:
        if outcome.fenced:
            self.leadership.on_claim_lost(outcome.error or "fenced by a newer leader")
            self.membership.confirm()
        match outcome.origin:
            case signals.RequestOrigin(request_id):
                self.requests.on_written(outcome, request_id)
            case signals.ConnectorOrigin():
                self.connectors.on_task_configs_written(outcome.origin, outcome.error)
            case signals.FencingOrigin():
                self.fencing.on_record_written(outcome)
            case signals.LeaderOrigin():
                self.leadership.on_session_key_written(outcome.error)
            case signals.StoppedOrigin():
                self.leadership.on_stopped_emptied(outcome.error)
            case _:
                assert_never(outcome.origin)

    def _on_fencing_outcome(self, outcome: signals.FencingOutcome) -> None:
        if isinstance(outcome.waiter, signals.LocalWaiter):
            self.tasks.on_fenced(outcome.waiter, outcome.error, retriable=outcome.status in (409, 503))
        else:
            self.requests.on_fenced(outcome, outcome.waiter)

    def _on_status_record(self, stimulus: messages.StatusRecordRead) -> None:
        record = stimulus.record
        self.context.status.apply(record, stimulus.timestamp_ms)
        match record:
            case TaskStatusRecord(task, Status()):
                self.tasks.on_status(task)
            case ConnectorStatusRecord(connector, Status()):
                self.connectors.remind(connector)
            case TaskStatusRecord() | ConnectorStatusRecord() | TopicStatusRecord():
                pass  # a tombstone, or a topic that a connector uses
            case _:
                assert_never(record)
        self.leadership.on_status(record)


def _is_state(item: Field[Any]) -> bool:
    """Whether a field of a part is state: not the step that is built, settings or another part."""
    return item.compare and item.name not in _REFERENCES


def _require(answer: messages.Answer, kind: type[_Answer]) -> _Answer:
    """Return the answer as the kind that the effect is answered by."""
    assert isinstance(answer, kind), f"a {kind.__name__} was awaited, and {answer} came"
    return answer
