"""Maps changes of the config topic to events of the history. Pure.

Workers report the changes that they apply, and attached processes those that they read, with the same mapping.
`WorkerCore` decides what follows from a change. Kafka Connect has no such class.
"""

from __future__ import annotations

from typing import assert_never

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
from connectx.model import payloads
from connectx.model.payloads import Payload

ConfigEvent = tuple[Payload, str | None]
"""What an event records, and its connector. `config_offset` is one past the record's offset, as the group counts."""


def event_of(change: ConfigChange, log: ConfigLog, log_offset: int) -> ConfigEvent | None:
    """The event of a change that the record at `log_offset` made, with `log` as it is now; None: there is no event."""
    offset = log_offset + 1
    match change:
        case ConnectorConfigChanged(connector, is_new):
            return payloads.ConnectorConfigured(is_new, offset), connector
        case ConnectorRemoved(connector):
            return payloads.ConnectorDeleted(offset), connector
        case TaskConfigsCommitted(connector, _, complete):
            payload = payloads.TasksConfigured if complete else payloads.TasksInconsistent
            return payload(log.task_count(connector), log.task_config_generation(connector), offset), connector
        case TargetStateChanged(connector, target_state):
            return payloads.TargetStateChanged(target_state, offset), connector
        case TaskCountRecorded(connector, task_count):
            return payloads.TaskCountRecorded(task_count, offset), connector
        case SessionKeyChanged():
            return payloads.SessionKeyRotated(offset), None
        case RestartSeen(connector, include_tasks, only_failed):
            return payloads.RestartRequested(include_tasks, only_failed, offset), connector
        case LoggerLevelSeen():
            return None
        case _:
            assert_never(change)
