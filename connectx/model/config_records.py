"""Records of the config topic as values; `connectx.protocol` turns them into bytes and back.

Mirrors the record types of Kafka Connect's KafkaConfigBackingStore. A field that is None where noted stands for a
tombstone. `log_offset` is not part of a record: it travels beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.values import Value


class ConnectorConfigRecord(Value):
    """`connector-<c>`: the raw configuration (placeholders unresolved); None is a deletion."""

    connector: str
    properties: Mapping[str, str | None] | None


class TargetStateRecord(Value):
    """`target-state-<c>`: what the user asked for; None is a removal."""

    connector: str
    state: TargetState | None


class TaskConfigRecord(Value):
    """`task-<c>-<t>`: one task's configuration, applied only by the commit record that follows."""

    task: TaskId
    properties: Mapping[str, str | None]


class TaskCommitRecord(Value):
    """`commit-<c>`: applies the task configs written before it."""

    connector: str
    tasks: int


class TaskCountRecord(Value):
    """`tasks-fencing-<c>`: number of transactional producers that may be alive (KIP-618)."""

    connector: str
    task_count: int


class SessionKeyRecord(Value):
    """`session-key`: signs internal requests (KIP-507). The key is a secret: keep it out of text forms."""

    key: bytes
    algorithm: str
    creation_timestamp_ms: int

    def __repr__(self) -> str:
        shown = f"algorithm={self.algorithm!r}, creation_timestamp_ms={self.creation_timestamp_ms}"
        return f"SessionKeyRecord(key=[hidden], {shown})"


class RestartRecord(Value):
    """`restart-connector-<c>`: a command (KIP-745); acted on only when read after start-up."""

    connector: str
    include_tasks: bool
    only_failed: bool


class LoggerLevelRecord(Value):
    """`logger-cluster-<namespace>`: a command (KIP-976); acted on only when read after start-up."""

    namespace: str
    level: str


class IgnoredRecord(Value):
    """A record that changes nothing but the offset: unknown key, or a known key with a value of the wrong shape."""

    key: str
    reason: str


ConfigRecord = (
    ConnectorConfigRecord
    | TargetStateRecord
    | TaskConfigRecord
    | TaskCommitRecord
    | TaskCountRecord
    | SessionKeyRecord
    | RestartRecord
    | LoggerLevelRecord
    | IgnoredRecord
)
