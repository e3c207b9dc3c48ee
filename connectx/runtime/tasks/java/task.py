"""One instance of a Java task: hands the core's effects to the JVM, and its reports to the core.

The JVM carries out the start of an exactly-once source in the core's order: Kafka Connect's Worker waits before and
after its producer is initialized, until InitTaskProducer and BeginTask come.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from connectx.core import messages
from connectx.errors.base import ConnectxError
from connectx.model.json_values import record_to_json
from connectx.recording.ring import RecordedCore
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.java.jvm import WorkerJvm
from connectx.runtime.tasks.java.reports import Committed, TaskReport
from connectx.runtime.tasks.java.settings import task_settings
from connectx.runtime.tasks.plugin_names import TaskPlugins
from connectx.runtime.tasks.record_errors import RecordErrors
from connectx.runtime.tasks.services import TaskEffect, TaskServices


class JavaTask:
    """One task instance in the JVM of its worker (see `connectx.runtime.tasks.services.TaskRunner`).

    Args:
        order: the task and its configuration.
        services: of the worker.
        jvm: where it runs.
        sink: whether it is a sink's.
    """

    plugins: TaskPlugins | None = None
    recorded: RecordedCore[Any] | None = None

    def __init__(self, order: messages.PrepareTask, services: TaskServices, jvm: WorkerJvm, *, sink: bool) -> None:
        self.order = order
        self.errors = RecordErrors(services.clock)
        self._services = services
        self._jvm = jvm
        self._sink = sink
        self._key = order.task, order.instance
        self._records = 0
        self._over = threading.Event()

    def start(self) -> None:
        services, task = self._services, self.order.task
        self._jvm.admit(self._key, self)
        try:
            order = services.resolved(self.order)
        except ConnectxError as error:
            self._fail(trace_of(error))
            return
        config = task_settings(services.worker, services.config, task, order.connector_config, sink=self._sink)
        fields = record_to_json(replace(order, connector_config=config))
        self._jvm.order(self._key, "PrepareTask", sink=self._sink, **fields)

    def execute(self, effect: TaskEffect) -> None:
        if not isinstance(effect, messages.CancelTask):  # the JVM cancels it by itself, after the same time
            self._jvm.order(self._key, type(effect).__name__, **record_to_json(effect))

    def kill(self) -> None:
        self._end()

    def join(self, timeout_s: float) -> bool:
        return self._over.wait(timeout_s)

    def metrics(self) -> Mapping[str, object]:
        """Records that it has committed."""
        return {"records": self._records}

    def take(self, report: TaskReport | Committed) -> None:
        if isinstance(report, Committed):
            self._records += report.records
            return
        self._services.post(report)
        if isinstance(report, messages.TaskStopped | messages.TaskFailed):
            self._end()

    def lost(self, reason: str) -> None:
        self._fail(reason)

    def _fail(self, trace: str) -> None:
        self._services.post(messages.TaskFailed(self.order.task, self.order.instance, trace))
        self._end()

    def _end(self) -> None:
        self._jvm.remove(self._key)
        self._over.set()
        self._services.ended(self.order.task, self.order.instance)
