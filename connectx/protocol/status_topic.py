"""Keys and values of the status topic.

It decides which bytes are which record. It never decides which status wins (`connectx.core.status_log`).
Mirrors the formats of Kafka Connect's KafkaStatusBackingStore, with the `version` field of 4.1.
"""

from __future__ import annotations

from typing import Any

from connectx.model.decoding import WrongShape, decoder
from connectx.model.ids import parse_task
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


@decoder
def decode_status_record(key: bytes | None, value: bytes | None) -> StatusRecord:
    """The record; unreadable are also an unknown key and a value of the wrong shape."""
    text = "" if key is None else key.decode(errors="replace")
    content = None if value is None else compact_json.loads(value)
    if text.startswith(CONNECTOR) and text != CONNECTOR:
        return ConnectorStatusRecord(text[len(CONNECTOR) :], None if value is None else _decode_status(content))
    task = parse_task(text.removeprefix(TASK)) if text.startswith(TASK) else None
    if task is not None:
        return TaskStatusRecord(task, None if value is None else _decode_status(content))
    topic, _, connector = text.removeprefix(TOPIC).partition(TOPIC_SEPARATOR)
    if text.startswith(TOPIC) and topic and connector:
        return TopicStatusRecord(topic, connector, None) if value is None else _decode_use(topic, connector, content)
    raise WrongShape("the key is not known")


def _decode_status(content: Any) -> Status:
    if not isinstance(content, dict):
        raise WrongShape("the value is not an object")
    state, generation = content.get("state"), content.get("generation")
    worker_id, trace, version = content.get("worker_id"), content.get("trace"), content.get("version")
    if not isinstance(worker_id, str) or not isinstance(generation, int) or not _is_generation(generation):
        raise WrongShape("'worker_id' or 'generation' is of a wrong type")
    if state not in list(State) or not all(text is None or isinstance(text, str) for text in (trace, version)):
        raise WrongShape("'state' is no state, or 'trace' or 'version' is not a string")
    return Status(State(state), worker_id, generation, trace, version)


def _is_generation(number: int) -> bool:
    return compact_json.is_integer(number) and -(2**31) <= number < 2**31


def _decode_use(topic: str, connector: str, content: Any) -> TopicStatusRecord:
    used = content.get("topic") if isinstance(content, dict) else None
    if not isinstance(used, dict):
        raise WrongShape("'topic' is not an object")
    task, discovered_ms = used.get("task"), used.get("discoverTimestamp")
    if not compact_json.is_integer(task) or not compact_json.is_integer(discovered_ms):
        raise WrongShape("'task' or 'discoverTimestamp' is not an integer")
    return TopicStatusRecord(topic, connector, task, discovered_ms)
