"""Keys and values of the status topic.

It decides which bytes are which record. It never decides which status wins (`connectx.core.status_log`).
Mirrors the formats of Kafka Connect's KafkaStatusBackingStore, with the `version` field of 4.1.
"""

from __future__ import annotations

from typing import Any

from connectx.model.ids import TaskId
from connectx.model.states import State
from connectx.model.status_records import (
    ConnectorStatusRecord,
    Status,
    StatusRecord,
    TaskStatusRecord,
    TopicStatusRecord,
)
from connectx.protocol import compact_json

CONNECTOR = "status-connector-"
TASK = "status-task-"
TOPIC = "status-topic-"
TOPIC_SEPARATOR = ":connector-"


def encode_status_record(record: StatusRecord) -> tuple[str, bytes | None]:
    """Key and value as Kafka Connect writes them. No status, and the state DESTROYED, are tombstones (None)."""
    match record:
        case ConnectorStatusRecord(connector, status):
            return CONNECTOR + connector, _encode_status(status)
        case TaskStatusRecord(task, status):
            return f"{TASK}{task}", _encode_status(status)
        case TopicStatusRecord(topic, connector, task, discover_timestamp_ms):
            key = f"{TOPIC}{topic}{TOPIC_SEPARATOR}{connector}"
            if task is None:
                return key, None
            used = {"name": topic, "connector": connector, "task": task, "discoverTimestamp": discover_timestamp_ms}
            return key, compact_json.dumps({"topic": used})


def _encode_status(status: Status | None) -> bytes | None:
    if status is None or status.state is State.DESTROYED:
        return None
    return compact_json.dumps(
        {
            "state": status.state.value,
            "trace": status.trace,
            "worker_id": status.worker_id,
            "generation": status.generation,
            "version": status.version,
        }
    )


def decode_status_record(key: bytes | None, value: bytes | None) -> StatusRecord | None:
    """The record, or None for an unknown key or a value of the wrong shape, which readers skip."""
    text = "" if key is None else key.decode(errors="replace")
    try:
        content = None if value is None else compact_json.loads(value)
    except ValueError:
        return None
    if text.startswith(CONNECTOR) and text != CONNECTOR:
        status = _decode_status(content)
        return None if status is None and value is not None else ConnectorStatusRecord(text[len(CONNECTOR) :], status)
    if text.startswith(TASK):
        status = _decode_status(content)
        task = _decode_task(text.removeprefix(TASK))
        return None if task is None or (status is None and value is not None) else TaskStatusRecord(task, status)
    if text.startswith(TOPIC):
        topic, _, connector = text.removeprefix(TOPIC).partition(TOPIC_SEPARATOR)
        if topic and connector:
            return (
                TopicStatusRecord(topic, connector, None) if value is None else _decode_use(topic, connector, content)
            )
    return None


def _decode_task(name: str) -> TaskId | None:
    connector, _, number = name.rpartition("-")
    if not connector or not (number.isascii() and number.isdigit()):
        return None
    return TaskId(connector, int(number))


def _decode_status(content: Any) -> Status | None:
    if not isinstance(content, dict):
        return None
    state, generation = content.get("state"), content.get("generation")
    worker_id, trace, version = content.get("worker_id"), content.get("trace"), content.get("version")
    if not isinstance(worker_id, str) or not isinstance(generation, int) or not compact_json.is_integer(generation):
        return None
    if state not in list(State) or not all(text is None or isinstance(text, str) for text in (trace, version)):
        return None
    return Status(State(state), worker_id, generation, trace, version)


def _decode_use(topic: str, connector: str, content: Any) -> TopicStatusRecord | None:
    used = content.get("topic") if isinstance(content, dict) else None
    if not isinstance(used, dict):
        return None
    task, discovered_ms = used.get("task"), used.get("discoverTimestamp")
    if not compact_json.is_integer(task) or not compact_json.is_integer(discovered_ms):
        return None
    return TopicStatusRecord(topic, connector, task, discovered_ms)
