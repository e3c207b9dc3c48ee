"""Maps changes of the config topic to events of the history. Pure.

Workers report the changes that they apply, and attached processes those that they read, with the same mapping.
`WorkerCore` decides what follows from a change. Kafka Connect has no such class.
"""

from __future__ import annotations

from typing import assert_never

from connectx.core import config_log
from connectx.model import payloads
from connectx.model.payloads import Payload

ConfigEvent = tuple[Payload, str | None]
"""What an event records, and its connector. `config_offset` is one past the record's offset, as the group counts."""


def event_of(change: config_log.ConfigChange, log: config_log.ConfigLog, log_offset: int) -> ConfigEvent | None:
    """The event of a change that the record at `log_offset` made, with `log` as it is now; None: there is no event."""
    offset = log_offset + 1
    match change:
        case config_log.ConnectorConfigChanged(connector, is_new):
            return payloads.ConnectorConfigured(is_new, offset), connector
        case config_log.ConnectorRemoved(connector):
            return payloads.ConnectorDeleted(offset), connector
        case config_log.TaskConfigsCommitted(connector, _, complete):
            payload = payloads.TasksConfigured if complete else payloads.TasksInconsistent
            return payload(log.task_count(connector), log.task_config_generation(connector), offset), connector
        case config_log.TargetStateChanged(connector, target_state):
            return payloads.TargetStateChanged(target_state, offset), connector
        case config_log.TaskCountRecorded(connector, task_count):
            return payloads.TaskCountRecorded(task_count, offset), connector
        case config_log.SessionKeyChanged():
            return payloads.SessionKeyRotated(offset), None
        case config_log.RestartSeen(connector, include_tasks, only_failed):
            return payloads.RestartRequested(include_tasks, only_failed, offset), connector
        case config_log.LoggerLevelSeen():
            return None
        case _:
            assert_never(change)
