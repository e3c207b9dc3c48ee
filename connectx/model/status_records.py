"""Records of the status topic as values (Kafka Connect: KafkaStatusBackingStore)."""

from __future__ import annotations

from connectx.model.ids import TaskId
from connectx.model.states import State
from connectx.values import Value


class Status(Value):
    """State of one connector or task as a worker reported it.

    `worker_id` is host:port of the worker's advertised URL, `generation` the group generation it was written under,
    `version` the plugin's version ([4.1] of Kafka Connect), None where it is not known.
    """

    state: State
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None


class ConnectorStatusRecord(Value):
    """`status-connector-<c>`; None is a tombstone."""

    connector: str
    status: Status | None


class TaskStatusRecord(Value):
    """`status-task-<c>-<t>`; None is a tombstone."""

    task: TaskId
    status: Status | None


class TopicStatusRecord(Value):
    """`status-topic-<topic>:connector-<c>` (KIP-558): this connector used this topic; `task` None is a tombstone."""

    topic: str
    connector: str
    task: int | None
    discover_timestamp_ms: int | None = None


StatusRecord = ConnectorStatusRecord | TaskStatusRecord | TopicStatusRecord
