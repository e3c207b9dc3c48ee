"""State of the status topic: latest statuses of connectors and tasks, and topics that connectors used.

It decides which records count and whether a "safe" status may be written. It never decides which status to report.
Mirrors the read side of Kafka Connect's KafkaStatusBackingStore.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from connectx.model.ids import TASK_ORDER, TaskId
from connectx.model.states import State
from connectx.model.status_records import (
    ConnectorStatusRecord,
    Status,
    StatusRecord,
    TaskStatusRecord,
    TopicStatusRecord,
)


@dataclass(slots=True)
class StatusLog:
    """State of the status topic. Equal by value."""

    _connectors: dict[str, Status] = field(default_factory=dict)
    _tasks: dict[str, dict[TaskId, Status]] = field(default_factory=dict)  # by connector, none of them empty
    _topics: dict[str, dict[str, TopicStatusRecord]] = field(default_factory=dict)  # by connector, then topic
    _task_since_ms: dict[TaskId, int] = field(default_factory=dict)

    def apply(self, record: StatusRecord, timestamp_ms: int | None = None) -> bool:
        """Take in a record that was written at `timestamp_ms` (Unix time); True when the state changed."""
        match record:
            case ConnectorStatusRecord(connector, status):
                return self._apply_connector(connector, status)
            case TaskStatusRecord(task, status):
                return self._apply_task(task, status, timestamp_ms)
            case TopicStatusRecord(topic, connector, task):
                topics = self._topics.setdefault(connector, {})
                before = topics.pop(topic, None)
                after = None if task is None else record
                if after is not None:
                    topics[topic] = after
                if not topics:
                    del self._topics[connector]
                return before != after

    def _apply_connector(self, connector: str, status: Status | None) -> bool:
        before = self._connectors.pop(connector, None)
        if status is not None:
            self._connectors[connector] = status
            return before != status
        orphans = self._tasks.pop(connector, {})  # they go with their connector
        for task in orphans:
            self._task_since_ms.pop(task, None)
        return before is not None or bool(orphans)

    def _apply_task(self, task: TaskId, status: Status | None, timestamp_ms: int | None) -> bool:
        before = self.task_status(task)
        if status is None:
            self._forget_task(task)
            return before is not None
        # KAFKA-12525: the former owner's farewell may be written after the new owner's start.
        runs_under = before.generation if before is not None and before.state is State.RUNNING else None
        if status.state is State.UNASSIGNED and runs_under is not None and runs_under >= status.generation:
            return False
        self._tasks.setdefault(task.connector, {})[task] = status
        if before is None or (before.state, before.worker_id) != (status.state, status.worker_id):
            self._task_since_ms.pop(task, None)
            if timestamp_ms is not None:
                self._task_since_ms[task] = timestamp_ms
        return before != status

    def _forget_task(self, task: TaskId) -> None:
        self._task_since_ms.pop(task, None)
        statuses = self._tasks.get(task.connector, {})
        if statuses.pop(task, None) is not None and not statuses:
            del self._tasks[task.connector]

    def may_write_safely(self, subject: str | TaskId, status: Status) -> bool:
        """Whether a status that must not hide a newer one (UNASSIGNED, FAILED) may be written.

        `subject` is a connector's name or a task. Not when the status known is another worker's under a higher
        generation.
        """
        known = self.task_status(subject) if isinstance(subject, TaskId) else self.connector_status(subject)
        return known is None or known.worker_id == status.worker_id or known.generation <= status.generation

    def connectors(self) -> tuple[str, ...]:
        """Connectors that have a status or a task with one, sorted."""
        return tuple(sorted({*self._connectors, *self._tasks}))

    def connector_status(self, connector: str) -> Status | None:
        return self._connectors.get(connector)

    def task_status(self, task: TaskId) -> Status | None:
        return self._tasks.get(task.connector, {}).get(task)

    def task_since_ms(self, task: TaskId) -> int | None:
        """Since when the task is in its latest state on its worker (Unix time), None if it is unknown."""
        return self._task_since_ms.get(task)

    def task_statuses(self, connector: str) -> dict[TaskId, Status]:
        """Latest statuses of the connector's tasks, in order of task number."""
        statuses = self._tasks.get(connector, {})
        return {task: statuses[task] for task in sorted(statuses, key=TASK_ORDER)}

    def topics(self, connector: str) -> tuple[str, ...]:
        """Topics that the connector used, sorted."""
        return tuple(sorted(self._topics.get(connector, ())))

    def topic_connectors(self) -> tuple[str, ...]:
        """Connectors for which topics are tracked, sorted."""
        return tuple(sorted(self._topics))
