"""Connector instances and task runners of a worker, created and controlled by the core's effects."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connectx.core.messages import (
    GenerateTaskConfigs,
    PrepareTask,
    SetConnectorTargetState,
    StartConnector,
    Stimulus,
    StopConnector,
    TaskFailed,
    TaskStopped,
)
from connectx.model.causes import ThreadEnded
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import TaskEnded
from connectx.model.states import ConnectorType
from connectx.plugins.connectors import Connector, SourceConnector
from connectx.plugins.settings import source_connector_settings
from connectx.recording.ring import RecordedCore
from connectx.runtime.tasks.connector_host import ConnectorHost
from connectx.runtime.tasks.java.connector import JavaConnector
from connectx.runtime.tasks.java.jvm import WorkerJvm
from connectx.runtime.tasks.java.task import JavaTask
from connectx.runtime.tasks.runners import SinkRunner, SourceRunner
from connectx.runtime.tasks.services import TaskEffect, TaskRunner, TaskServices
from connectx.values import Value

if TYPE_CHECKING:
    from connectx.plugins.registry import Plugins


class _Instance(Value):
    task: TaskId
    instance: int


class _Failed(Value):
    """What stays known of a task that has failed, until it is prepared again: its metrics, and its recorded core."""

    metrics: Mapping[str, object]
    recorded: RecordedCore[Any] | None


class TaskHost:
    """Connectors and tasks of one worker.

    Args:
        services: what runners may use; their stimuli pass through here on the way to `services.post`.
        plugins: connector classes.
        is_gone: True once the worker has ended; then stimuli of its tasks are dropped.
    """

    def __init__(self, services: TaskServices, plugins: Plugins, is_gone: Callable[[], bool]) -> None:
        self._post = services.post
        self._record = services.record
        self._services = replace(services, post=self._post_of_task, ended=self._on_ended)
        self._plugins = plugins
        self._is_gone = is_gone
        self._end_reason = "stopped"
        self.jvm = WorkerJvm(self._services, plugins)
        self._hosts: dict[tuple[str, int], ConnectorHost | JavaConnector] = {}
        self._runners: dict[_Instance, TaskRunner] = {}
        self._failed: dict[TaskId, _Failed] = {}

    def start_connector(self, effect: StartConnector) -> None:
        """Start a connector instance on a separate thread."""
        host: ConnectorHost | JavaConnector
        if self._plugins.java.runs(effect.config):
            host = JavaConnector(effect, self.jvm)
        else:
            task_configs, providers = self._plugins.task_configs, self._services.providers
            host = ConnectorHost(effect, self._create_connector, task_configs, self._post, providers)
        self._hosts[effect.connector, effect.instance] = host
        host.start()
        if self._is_gone():  # `end` may have come before it was known
            host.kill()

    def _create_connector(self, config: Mapping[str, str | None]) -> Connector:
        connector = self._services.created(self._plugins.create_connector, config)
        if isinstance(connector, SourceConnector):
            source_connector_settings(config, self._services.config)
        return connector

    def send_to_connector(self, effect: SetConnectorTargetState | GenerateTaskConfigs | StopConnector) -> None:
        """Pass an effect to a connector instance, if it is still there."""
        key = effect.connector, effect.instance
        host = self._hosts.get(key)
        if host is not None:
            host.execute(effect)
        if isinstance(effect, StopConnector):
            self._hosts.pop(key, None)

    def prepare_task(self, effect: PrepareTask) -> None:
        is_source = self._plugins.connector_type(effect.connector_config) is ConnectorType.SOURCE
        runner: TaskRunner
        if self._plugins.java.runs(effect.connector_config):
            runner = JavaTask(effect, self._services, self.jvm, sink=not is_source)
        else:
            make = SourceRunner if is_source else SinkRunner
            runner = make(effect, self._services, self._plugins)
        self._failed.pop(effect.task, None)
        self._runners[_Instance(effect.task, effect.instance)] = runner
        runner.start()
        if self._is_gone():
            runner.kill()

    def send_to_task(self, effect: TaskEffect) -> None:
        """Pass an effect to a task runner, if it is still there."""
        runner = self._runners.get(_Instance(effect.task, effect.instance))
        if runner is not None:
            runner.execute(effect)

    def task_metrics(self) -> dict[TaskId, Mapping[str, object]]:
        return {key.task: runner.metrics() for key, runner in list(self._runners.items())}

    def counted(self) -> dict[TaskId, Mapping[str, object]]:
        """For metrics: live numbers of the tasks, their errors and plugins; `ended` and errors of those that failed."""
        running = {
            key.task: {**runner.metrics(), **runner.errors.metrics(), "plugins": runner.plugins}
            for key, runner in list(self._runners.items())
        }
        return {**{task: failed.metrics for task, failed in self._failed.items()}, **running}

    def join(self, timeout_s: float) -> bool:
        """Wait for the ends of all task threads, at most `timeout_s` in all; True when all have ended."""
        deadline_s = time.monotonic() + timeout_s
        runners = list(self._runners.values())
        return all(runner.join(max(0.0, deadline_s - time.monotonic())) for runner in runners)

    def end(self, reason: str) -> None:
        """End the remaining tasks after the worker's end, without waiting. The end of each task is recorded later."""
        self._end_reason = reason
        for runner in list(self._runners.values()):
            runner.kill()
        for host in list(self._hosts.values()):
            host.kill()
        self.jvm.kill()

    def _post_of_task(self, stimulus: Stimulus) -> None:
        """A stimulus of a runner. Its end is recorded first, even if the core has forgotten the task."""
        if self._is_gone():
            return
        if isinstance(stimulus, TaskStopped | TaskFailed):
            reason = "failed" if isinstance(stimulus, TaskFailed) else "stopped"
            self._ended(_Instance(stimulus.task, stimulus.instance), reason)
        self._post(stimulus)

    def _on_ended(self, task: TaskId, instance: int) -> None:
        """The thread of a task has ended, with or without a report."""
        self._ended(_Instance(task, instance), self._end_reason)

    def _ended(self, key: _Instance, reason: str) -> None:
        if (runner := self._runners.pop(key, None)) is not None:
            if reason == "failed":
                self._failed[key.task] = _Failed({**runner.errors.metrics(), "ended": True}, runner.recorded)
            ended = TaskEnded(key.instance)
            self._record(Transition(ended, key.task.connector, key.task.task, why=ThreadEnded(reason)))
