"""Which event of the history a change of the configuration is. Pure.

Written once, because a worker tells of the changes that it applies and an attached process of those that it reads. It
never decides what follows from a change (`WorkerCore`). There is no class like it in Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectx.core.config_log import (
    ConfigChange,
    ConfigLog,
    ConnectorConfigChanged,
    ConnectorRemoved,
    LoggerLevelSeen,
    RestartSeen,
    SessionKeyChanged,
    TargetStateChanged,
    TaskConfigsCommitted,
    TaskCountRecorded,
)
from connectx.model.events import EventKind

ConfigEvent = tuple[EventKind, str | None, Mapping[str, Any]]
"""Kind, connector and data of an event, with `config_offset`: one behind the record, as the group counts."""


def event_of(change: ConfigChange, log: ConfigLog, log_offset: int) -> ConfigEvent | None:
    """What a change made by the record at `log_offset` is told as, with `log` as it is now; None is not told."""
    event = _event(change, log)
    return None if event is None else (event[0], event[1], {**event[2], "config_offset": log_offset + 1})


def _event(change: ConfigChange, log: ConfigLog) -> ConfigEvent | None:
    match change:
        case ConnectorConfigChanged(connector, is_new):
            return EventKind.CONNECTOR_CONFIGURED, connector, {"is_new": is_new}
        case ConnectorRemoved(connector):
            return EventKind.CONNECTOR_DELETED, connector, {}
        case TaskConfigsCommitted(connector, _, complete):
            kind = EventKind.TASKS_CONFIGURED if complete else EventKind.TASKS_INCONSISTENT
            generation = log.task_config_generation(connector)
            return kind, connector, {"tasks": log.task_count(connector), "task_config_generation": generation}
        case TargetStateChanged(connector, target_state):
            return EventKind.TARGET_STATE_CHANGED, connector, {"target_state": target_state.value}
        case TaskCountRecorded(connector, task_count):
            return EventKind.TASK_COUNT_RECORDED, connector, {"task_count": task_count}
        case SessionKeyChanged():
            return EventKind.SESSION_KEY_ROTATED, None, {}
        case RestartSeen(connector, include_tasks, only_failed):
            return EventKind.RESTART_REQUESTED, connector, {"include_tasks": include_tasks, "only_failed": only_failed}
        case LoggerLevelSeen():
            return None
