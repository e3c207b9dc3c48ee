"""Connector instances of this worker, and the publication of their task configs.

Decides when an instance is started, stopped, paused and asked for task configs, and where those go. Never instantiates
anything. Mirrors Kafka Connect's WorkerConnector and DistributedHerder.reconfigureConnector. A connector's state is its
own: a failed task does not fail it, and it may fail while its tasks run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from connectx.core import messages
from connectx.core.config_writer import ConfigWriter
from connectx.core.context import Context, StartAgain, WorkerPhase
from connectx.core.ignored import InstanceGone, PhaseOver
from connectx.core.moves import Moves, moved
from connectx.core.pending import ConnectorConfigsSent
from connectx.core.signals import ConnectorOrigin
from connectx.core.timer_keys import ConnectorStopLimit, TaskConfigsRetry
from connectx.model.causes import Cause, ConfigurationChanged, TargetStateAsked
from connectx.model.states import State, TargetState
from connectx.model.status_records import Status

_STOP_MS = 5_000
_RETRY_MS = 250
_RETRY_MAX_MS = 60_000
_TaskConfigs = tuple[Mapping[str, str | None], ...]


class ConnectorPhase(StrEnum):
    STARTING = "starting"  # ACTIVE or FAILED
    ACTIVE = "active"  # running, paused or stopped by its user: FAILED on its own report
    FAILED = "failed"  # until restarted, reconfigured or revoked; ACTIVE when its user stops it
    STOPPING = "stopping"  # forgotten, or STARTING again


CONNECTOR_MOVES: Final[Moves[ConnectorPhase]] = {
    ConnectorPhase.STARTING: frozenset({ConnectorPhase.ACTIVE, ConnectorPhase.FAILED, ConnectorPhase.STOPPING}),
    ConnectorPhase.ACTIVE: frozenset({ConnectorPhase.FAILED, ConnectorPhase.STOPPING}),
    ConnectorPhase.FAILED: frozenset({ConnectorPhase.ACTIVE, ConnectorPhase.STOPPING}),
    ConnectorPhase.STOPPING: frozenset(),
}
"""A connector that stops leaves the table; a failed one becomes ACTIVE when its user stops it."""


@dataclass(slots=True)
class ConnectorLife:
    connector: str
    instance: int
    phase: ConnectorPhase
    asked: TargetState
    """What it was last asked to be; `state` follows."""
    cause: Cause
    """Why it was started, moved or stopped last."""
    state: TargetState | None = None
    version: str | None = None
    reported: Status | None = None
    """Its latest status in the status topic."""
    again: StartAgain | None = None
    """Set while stopping when it shall start again."""
    generated: _TaskConfigs | None = None
    """The task configs that it wanted last, as they go to the config topic."""
    request_id: int | None = None
    """Task configs that were sent to the leader."""
    attempts: int = 0
    waiters: tuple[int, ...] = ()
    """Requests that are answered when it has started and made its task configs."""


_REPORTED = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}


@dataclass(slots=True)
class Connectors:
    context: Context
    writer: ConfigWriter
    lives: dict[str, ConnectorLife] = field(default_factory=dict)

    def start(self, connector: str, cause: Cause, waiters: tuple[int, ...] = ()) -> None:
        """Start an assigned connector that is not there yet; one that is stopping starts when it has stopped.

        The requests `waiters` are answered when it has started, or has failed to.
        """
        context, life = self.context, self.lives.get(connector)
        if life is not None:
            assert not waiters, "a request restarts what is there"
            if life.phase is ConnectorPhase.STOPPING:
                life.again = life.again or StartAgain(cause)
            return
        config = context.config.connector_config(connector)
        if context.phase is not WorkerPhase.RUNNING or config is None:
            context.end_restarts(waiters, _not_started(connector))
            return
        life = ConnectorLife(
            connector, context.new_instance(), ConnectorPhase.STARTING, context.target_state(connector), cause
        )
        life.waiters = waiters
        self.lives[connector] = life
        context.emit(messages.StartConnector(connector, life.instance, config, life.asked))

    def stop(self, connector: str, cause: Cause) -> None:
        """Stop an instance, and cancel the start that would follow."""
        self._stop(connector, cause, None)

    def restart(self, connector: str, cause: Cause, waiters: tuple[int, ...] = ()) -> None:
        """Stop an instance and start it again because a user asked for it; `waiters` as in `start`."""
        self._stop(connector, cause, StartAgain(cause, is_restart=True, waiters=waiters))

    def reconfigure(self, connector: str) -> None:
        """Stop an instance and start it again with its new configuration."""
        cause = ConfigurationChanged()
        self._stop(connector, cause, StartAgain(cause))

    def set_target_state(self, connector: str) -> None:
        """Bring the instance to the target state. A failed one does not leave FAILED by pause or resume."""
        life = self.lives.get(connector)
        if life is None:
            return
        target_state = self.context.target_state(connector)
        stops_failed = life.phase is ConnectorPhase.FAILED and target_state is TargetState.STOPPED
        if life.phase is ConnectorPhase.ACTIVE or stops_failed:
            self._ask(life, target_state)

    def remind(self, connector: str) -> None:
        """Write its status again, if it runs here and the status topic has another one."""
        life = self.lives.get(connector)
        if life is not None and life.reported is not None and life.phase is not ConnectorPhase.STOPPING:
            self.context.remind(connector, life.reported)

    def running(self) -> tuple[str, ...]:
        """Connectors that occupy a place here, sorted."""
        return tuple(sorted(self.lives))

    def is_failed(self, connector: str) -> bool:
        life = self.lives.get(connector)
        return life is not None and life.phase is ConnectorPhase.FAILED

    def stage(self, connector: str) -> str:
        """What the restart of a connector waits for, as Kafka Connect words it."""
        match self.lives[connector].phase:
            case ConnectorPhase.STOPPING:
                return f"stopping restarted connector {connector}"
            case ConnectorPhase.STARTING:
                return "starting the connector"
            case _:
                return f"generating task configs for connector {connector}"

    def on_started(self, stimulus: messages.ConnectorStarted) -> None:
        """The instance runs, or rests as its target state asks."""
        life = self._reported(stimulus.connector, stimulus.instance, ConnectorPhase.STARTING)
        if life is None:
            return
        life.phase = moved(CONNECTOR_MOVES, life.phase, ConnectorPhase.ACTIVE, life.connector)
        life.version = stimulus.version
        self._reached(life, stimulus.state)

    def on_state_reached(self, stimulus: messages.ConnectorStateReached) -> None:
        """The instance followed its target state; one that has failed meanwhile counts only when it is STOPPED."""
        may_be = [ConnectorPhase.ACTIVE]
        if stimulus.state is TargetState.STOPPED:
            may_be.append(ConnectorPhase.FAILED)
        life = self._reported(stimulus.connector, stimulus.instance, *may_be)
        if life is None:
            return
        life.phase = moved(CONNECTOR_MOVES, life.phase, ConnectorPhase.ACTIVE, life.connector)
        self._reached(life, stimulus.state)

    def on_failed(self, stimulus: messages.ConnectorFailed) -> None:
        """The instance failed; nothing restarts it but its user."""
        life = self._reported(stimulus.connector, stimulus.instance, ConnectorPhase.STARTING, ConnectorPhase.ACTIVE)
        if life is not None:
            self._failed(life, stimulus.trace)

    def on_stopped(self, stimulus: messages.ConnectorStopped) -> None:
        life = self._reported(stimulus.connector, stimulus.instance, ConnectorPhase.STOPPING)
        if life is not None:
            self._forget(life)

    def on_stop_timer(self, key: ConnectorStopLimit) -> None:
        """The fixed limit is over: the instance is left alone and makes room."""
        life = self._reported(key.connector, key.instance, ConnectorPhase.STOPPING)
        if life is not None:
            self._forget(life)

    def on_reconfiguration_requested(self, stimulus: messages.TaskReconfigurationRequested) -> None:
        life = self._started(stimulus.connector, stimulus.instance)
        if life is not None:
            self._generate(life)

    def on_task_configs(self, stimulus: messages.TaskConfigsGenerated) -> None:
        """Publish the task configs if they changed: write them as the leader, or send them to the leader."""
        life = self._started(stimulus.connector, stimulus.instance)
        if life is None:
            return
        if stimulus.error is not None:
            # Kafka Connect logs it and asks again: a connector that looks RUNNING and never gets its tasks.
            self._failed(life, stimulus.error)
        else:
            self._end_restarts(life)
            life.generated = self.context.config.raw_task_configs(life.connector, stimulus.task_configs)
            self._publish(life, life.generated)

    def on_tasks_committed(self, connector: str) -> None:
        """Publish again what others overwrote: configs of an older instance may be written after those of a newer one.

        Kafka Connect does not notice.
        """
        life = self.lives.get(connector)
        if life is not None and life.generated is not None and self._is_started(life):
            self._publish(life, life.generated)

    def on_task_configs_sent(self, connector: str, stimulus: messages.TaskConfigsSent) -> None:
        """The leader took the task configs, or they must be sent again."""
        life = self.lives[connector]
        life.request_id = None
        self._published(life, stimulus.error)

    def on_task_configs_written(self, origin: ConnectorOrigin, error: str | None) -> None:
        """This worker, as the leader, wrote the task configs, or failed to."""
        life = self.lives.get(origin.connector)
        if life is not None and life.instance == origin.instance and life.phase is ConnectorPhase.ACTIVE:
            self._published(life, error)

    def on_retry_timer(self, key: TaskConfigsRetry) -> None:
        """Publish task configs again, and request them from the connector again, because they may have changed."""
        life = self._started(key.connector, key.instance)
        if life is not None:
            self._generate(life)

    def _stop(self, connector: str, cause: Cause, again: StartAgain | None) -> None:
        life = self.lives.get(connector)
        if life is None:
            return
        again = self.context.start_again(life.again, again, _not_started(connector))
        life.cause, life.again = cause, again
        self._end_restarts(life, _not_started(connector))
        if life.phase is ConnectorPhase.STOPPING:
            return
        life.phase = moved(CONNECTOR_MOVES, life.phase, ConnectorPhase.STOPPING, life.connector)
        self._drop_request(life)
        self.context.emit(messages.StopConnector(connector, life.instance))
        self.context.set_timer(_stop_timer(life), _STOP_MS)

    def _forget(self, life: ConnectorLife) -> None:
        del self.lives[life.connector]
        self.context.timers.cancel(_stop_timer(life), _retry_timer(life))
        self.context.report_connector(life.connector, State.UNASSIGNED, version=life.version, why=life.cause)
        again = life.again
        if again is None:
            return
        if life.connector not in self.context.group.work.connectors:
            self.context.end_restarts(again.waiters, _not_started(life.connector))
            return
        if again.is_restart:
            self.context.report_connector(life.connector, State.RESTARTING, why=again.cause)
        self.start(life.connector, again.cause, again.waiters)

    def _ask(self, life: ConnectorLife, target_state: TargetState) -> None:
        if life.asked is not target_state or life.phase is ConnectorPhase.FAILED:
            life.asked = target_state
            life.cause = TargetStateAsked(target_state)
            self.context.emit(messages.SetConnectorTargetState(life.connector, life.instance, target_state))

    def _reached(self, life: ConnectorLife, state: TargetState) -> None:
        life.state = state
        life.reported = self.context.report_connector(
            life.connector, _REPORTED[state], version=life.version, why=life.cause
        )
        self._ask(life, self.context.target_state(life.connector))
        if life.asked is TargetState.STARTED:
            self._generate(life)
        if not self._is_started(life):
            self._end_restarts(life)

    def _end_restarts(self, life: ConnectorLife, error: str | None = None) -> None:
        """Report to the requests that wait for its start."""
        self.context.end_restarts(life.waiters, error)
        life.waiters = ()

    def _failed(self, life: ConnectorLife, trace: str) -> None:
        life.phase = moved(CONNECTOR_MOVES, life.phase, ConnectorPhase.FAILED, life.connector)
        life.reported = self.context.report_connector(life.connector, State.FAILED, trace=trace, version=life.version)
        self._end_restarts(life, _not_started(life.connector))

    def _generate(self, life: ConnectorLife) -> None:
        config = self.context.config.connector_config(life.connector)
        if self._is_started(life) and config is not None:
            self.context.emit(messages.GenerateTaskConfigs(life.connector, life.instance, config))

    def _publish(self, life: ConnectorLife, task_configs: _TaskConfigs) -> None:
        if not self.context.config.task_configs_changed(life.connector, task_configs):
            return
        group = self.context.group
        if group.is_leader:
            self.writer.put_task_configs(life.connector, task_configs, ConnectorOrigin(life.connector, life.instance))
        elif self.context.may_ask_leader:
            self._drop_request(life)  # an older answer is not about these task configs
            life.request_id = self.context.new_request_id(ConnectorConfigsSent(life.connector))
            self.context.emit(messages.SendTaskConfigs(life.request_id, group.leader_url, life.connector, task_configs))
        else:
            self._published(life, "the leader or its session key is not known yet")

    def _published(self, life: ConnectorLife, error: str | None) -> None:
        if error is None:
            life.attempts = 0
            return
        delay_ms = min(_RETRY_MAX_MS, _RETRY_MS * 2 ** min(life.attempts, 8))
        life.attempts += 1
        self.context.set_timer(_retry_timer(life), delay_ms)

    @staticmethod
    def _is_started(life: ConnectorLife) -> bool:
        return life.phase is ConnectorPhase.ACTIVE and life.state is TargetState.STARTED

    def _drop_request(self, life: ConnectorLife) -> None:
        self.context.pending.drop(life.request_id)
        life.request_id = None

    def _started(self, connector: str, instance: int) -> ConnectorLife | None:
        """As `_reported`, for an instance that runs."""
        life = self._reported(connector, instance, *ConnectorPhase)
        if life is not None and not self._is_started(life):
            is_active = life.phase is ConnectorPhase.ACTIVE and life.state is not None
            self.context.ignore(PhaseOver(connector, instance, str(life.state if is_active else life.phase)))
            return None
        return life

    def _reported(self, connector: str, instance: int, *phases: ConnectorPhase) -> ConnectorLife | None:
        """Return the instance that a report or a timer is about; one in another phase, or gone, ignores it."""
        life = self.lives.get(connector)
        if life is None or life.instance != instance:
            self.context.ignore(InstanceGone(connector, instance, None if life is None else life.instance))
            return None
        if life.phase not in phases:
            self.context.ignore(PhaseOver(connector, instance, life.phase))
            return None
        return life


def _not_started(connector: str) -> str:
    return f"Failed to start connector: {connector}"


def _retry_timer(life: ConnectorLife) -> TaskConfigsRetry:
    return TaskConfigsRetry(life.connector, life.instance)


def _stop_timer(life: ConnectorLife) -> ConnectorStopLimit:
    return ConnectorStopLimit(life.connector, life.instance)
