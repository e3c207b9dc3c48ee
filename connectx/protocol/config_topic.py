"""Keys and values of the config topic.

It decides which bytes are which record. It never decides what a record does (`connectx.core.config_log`).
Mirrors the formats of Kafka Connect's KafkaConfigBackingStore.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, assert_never

from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    IgnoredRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.decoding import WrongShape, decoder
from connectx.model.ids import MOST_TASKS, TaskId, parse_task
from connectx.model.states import TargetState
from connectx.protocol import compact_json

TARGET_STATE = "target-state-"
CONNECTOR = "connector-"
TASK = "task-"
COMMIT = "commit-"
RESTART = "restart-connector-"
TASK_COUNT = "tasks-fencing-"
SESSION_KEY = "session-key"
LOGGER = "logger-cluster-"


def encode_config_record(record: ConfigRecord) -> tuple[str, bytes | None]:
    """Key and value (None is a tombstone) as Kafka Connect writes them. An IgnoredRecord is never written."""
    key, value = _to_json(record)
    return key, None if value is None else compact_json.dumps(value)


def _to_json(record: ConfigRecord) -> tuple[str, dict[str, Any] | None]:
    match record:
        case ConnectorConfigRecord(connector, properties):
            return CONNECTOR + connector, None if properties is None else {"properties": dict(properties)}
        case TargetStateRecord(connector, None):
            return TARGET_STATE + connector, None
        case TargetStateRecord(connector, state):
            assert state is not None, "a tombstone is handled above"
            # Workers from before KIP-875 read `state` and do not know STOPPED.
            known_to_all = TargetState.PAUSED if state is TargetState.STOPPED else state
            return TARGET_STATE + connector, {"state": known_to_all.value, "state.v2": state.value}
        case TaskConfigRecord(task, properties):
            return f"{TASK}{task}", {"properties": dict(properties)}
        case TaskCommitRecord(connector, tasks):
            return COMMIT + connector, {"tasks": tasks}
        case TaskCountRecord(connector, task_count):
            return TASK_COUNT + connector, {"task-count": task_count}
        case SessionKeyRecord(key, algorithm, created_ms):
            text = base64.b64encode(key).decode()
            return SESSION_KEY, {"key": text, "algorithm": algorithm, "creation-timestamp": created_ms}
        case RestartRecord(connector, include_tasks, only_failed):
            return RESTART + connector, {"include-tasks": include_tasks, "only-failed": only_failed}
        case LoggerLevelRecord(namespace, level):
            return LOGGER + namespace, {"level": level}
        case IgnoredRecord():
            raise AssertionError(f"not a record to write: {record!r}")
        case _:
            assert_never(record)


@decoder
def decode_config_record(key: bytes | None, value: bytes | None) -> ConfigRecord:
    """The record. One that is unreadable, as its value is not JSON, does not even move the config offset.

    An unknown key, or a known one with a value of the wrong shape, gives an IgnoredRecord. JSON `null` is a tombstone.
    """
    content = None if value is None else compact_json.loads(value)
    text = "" if key is None else key.decode(errors="replace")
    try:
        return _from_json(text, content)
    except WrongShape as wrong:
        return IgnoredRecord(text, str(wrong))


def _from_json(key: str, content: Any) -> ConfigRecord:  # tested in Kafka Connect's order of prefixes
    if key.startswith(TARGET_STATE):
        return TargetStateRecord(_name(key, TARGET_STATE), None if content is None else _target_state(content))
    if key.startswith(CONNECTOR):
        return ConnectorConfigRecord(_name(key, CONNECTOR), None if content is None else _properties(content))
    if key.startswith(TASK):
        return TaskConfigRecord(task_of_key(key, TASK), _properties(content))
    if key.startswith(COMMIT):
        return TaskCommitRecord(_name(key, COMMIT), _count(content, "tasks"))
    if key.startswith(RESTART):
        fields = _object(content)
        include_tasks, only_failed = fields.get("include-tasks") is True, fields.get("only-failed") is True
        return RestartRecord(_name(key, RESTART), include_tasks, only_failed)
    if key.startswith(TASK_COUNT):
        return TaskCountRecord(_name(key, TASK_COUNT), _count(content, "task-count"))
    if key == SESSION_KEY:
        return _session_key(_object(content))
    if key.startswith(LOGGER):
        return LoggerLevelRecord(_name(key, LOGGER), _string(_object(content), "level"))
    raise WrongShape("the key is not known")


def task_of_key(key: str, prefix: str) -> TaskId:
    """The task of `<prefix><connector>-<number>`, the number being what follows the last dash."""
    task = parse_task(key.removeprefix(prefix))
    if task is None:
        raise WrongShape("the key does not name a task")
    return task


def _name(key: str, prefix: str) -> str:
    name = key.removeprefix(prefix)
    if not name:
        raise WrongShape("the key names nothing")
    return name


def _object(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise WrongShape("the value is not an object")
    return content


def _properties(content: Any) -> Mapping[str, str | None]:
    properties = _object(content).get("properties")
    if not isinstance(properties, dict):
        raise WrongShape("'properties' is not an object")
    if not all(text is None or isinstance(text, str) for text in properties.values()):
        raise WrongShape("'properties' has a value that is neither a string nor null")
    return properties


def _string(content: dict[str, Any], field: str) -> str:
    text = content.get(field)
    if not isinstance(text, str):
        raise WrongShape(f"'{field}' is not a string")
    return text


def _count(content: Any, field: str) -> int:
    count = _object(content).get(field)
    if not isinstance(count, int) or not compact_json.is_integer(count) or not 0 <= count <= MOST_TASKS:
        raise WrongShape(f"'{field}' is not a count")
    return count


def _target_state(content: Any) -> TargetState:
    fields = _object(content)
    word = fields.get("state.v2")
    if not isinstance(word, str):
        word = _string(fields, "state")
    try:
        return TargetState(word)
    except ValueError:
        raise WrongShape("'state' is no target state") from None


def _session_key(content: dict[str, Any]) -> SessionKeyRecord:
    text, algorithm, created_ms = (
        _string(content, "key"),
        _string(content, "algorithm"),
        content.get("creation-timestamp"),
    )
    if not isinstance(created_ms, int) or not compact_json.is_integer(created_ms):
        raise WrongShape("'creation-timestamp' is not an integer")
    try:
        return SessionKeyRecord(base64.b64decode(text, validate=True), algorithm, created_ms)
    except (binascii.Error, ValueError):
        raise WrongShape("'key' is not Base64") from None
