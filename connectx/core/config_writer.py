"""Writes to the config topic, one operation at a time: write, read back, then answer.

Decides the records of an operation, their batches (one transaction each) and when it is done. The worker's own view
changes only when a record is read back. Mirrors Kafka Connect's KafkaConfigBackingStore and the herder's privileged
writes (KIP-618).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from connectx.core.context import Context
from connectx.core.messages import (
    ConfigReadToEnd,
    ConfigRecordsWritten,
    ReadConfigToEnd,
    WriteConfigRecords,
)
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.ids import TaskId
from connectx.model.states import TargetState

_READ_BACK_TIMEOUT_MS = 30_000


class WriteKind(StrEnum):
    """Operations on the config topic."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    TARGET_STATE = "target_state"
    STOP = "stop"
    TASK_CONFIGS = "task_configs"
    TASK_COUNT = "task_count"
    SESSION_KEY = "session_key"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """A request waits for the outcome."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ConnectorOrigin:
    """A connector instance of this worker published its task configs."""

    connector: str
    instance: int


@dataclass(frozen=True, slots=True)
class FencingOrigin:
    """A fencing round writes its task count record."""

    connector: str


@dataclass(frozen=True, slots=True)
class LeaderOrigin:
    """The leader itself: a session key."""


Origin = RequestOrigin | ConnectorOrigin | FencingOrigin | LeaderOrigin


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that are written together; `privileged` ones by the leader's producer."""

    records: tuple[ConfigRecord, ...]
    privileged: bool = True


@dataclass(slots=True)
class ConfigWrite:
    """One operation: its batches, and how far it has come.

    `expected_generation` (task count records only) is the task config generation that the record must still follow.
    """

    kind: WriteKind
    origin: Origin
    connector: str
    batches: tuple[Batch, ...]
    read_first: bool = False
    expected_generation: int | None = None
    next_batch: int = 0
    request_id: int | None = None
    reading: bool = False


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """How an operation ended; `fenced` when another worker leads now."""

    kind: WriteKind
    origin: Origin
    connector: str
    status: int = 200
    error: str | None = None
    fenced: bool = False


@dataclass(slots=True)
class ConfigWriter:
    """Queue of operations. `outcomes` collects what ended until the worker's core takes it.

    Privileged batches wait while `may_write` is False: a new leader claims the config topic first (KIP-618).
    """

    context: Context
    may_write: bool = False
    queue: list[ConfigWrite] = field(default_factory=list)
    outcomes: list[WriteOutcome] = field(default_factory=list)

    # ---------------------------------------------------------------------------------------------- operations

    def put_connector(
        self,
        connector: str,
        properties: Mapping[str, str | None],
        initial_state: TargetState | None,
        origin: Origin,
    ) -> None:
        """Create or update a connector; the initial state, if given, in the same transaction before it."""
        config = ConnectorConfigRecord(connector, dict(properties))
        records: tuple[ConfigRecord, ...] = (config,)
        if initial_state is not None:
            records = (TargetStateRecord(connector, initial_state), config)
        kind = WriteKind.UPDATE if self.context.config.contains(connector) else WriteKind.CREATE
        self._enqueue(ConfigWrite(kind, origin, connector, (Batch(records),)))

    def delete_connector(self, connector: str, origin: Origin) -> None:
        """Tombstones for the configuration and the target state."""
        records = (ConnectorConfigRecord(connector, None), TargetStateRecord(connector, None))
        self._enqueue(ConfigWrite(WriteKind.DELETE, origin, connector, (Batch(records),)))

    def put_target_state(self, connector: str, state: TargetState, origin: Origin) -> None:
        """Pause or resume: an ordinary write of any worker."""
        batch = Batch((TargetStateRecord(connector, state),), privileged=False)
        self._enqueue(ConfigWrite(WriteKind.TARGET_STATE, origin, connector, (batch,)))

    def stop_connector(self, connector: str, origin: Origin) -> None:
        """An empty set of task configs first, then the target state STOPPED (KIP-875)."""
        batches = (
            Batch((TaskCommitRecord(connector, 0),)),
            Batch((TargetStateRecord(connector, TargetState.STOPPED),), privileged=False),
        )
        self._enqueue(ConfigWrite(WriteKind.STOP, origin, connector, batches))

    def put_task_configs(
        self, connector: str, task_configs: Sequence[Mapping[str, str | None]], origin: Origin
    ) -> None:
        """All task configs in one batch, then the commit record in another."""
        tasks = tuple(
            TaskConfigRecord(TaskId(connector, number), dict(properties))
            for number, properties in enumerate(task_configs)
        )
        commit = Batch((TaskCommitRecord(connector, len(tasks)),))
        batches = (Batch(tasks), commit) if tasks else (commit,)
        self._enqueue(ConfigWrite(WriteKind.TASK_CONFIGS, origin, connector, batches, read_first=True))

    def put_task_count(self, connector: str, task_count: int, expected_generation: int | None, origin: Origin) -> None:
        """A task count record, unless newer task configs have come since the round began (KIP-618)."""
        batch = Batch((TaskCountRecord(connector, task_count),))
        write = ConfigWrite(WriteKind.TASK_COUNT, origin, connector, (batch,), read_first=True)
        write.expected_generation = expected_generation
        self._enqueue(write)

    def put_session_key(self, record: SessionKeyRecord) -> None:
        """A new key for internal requests (KIP-507)."""
        self._enqueue(ConfigWrite(WriteKind.SESSION_KEY, LeaderOrigin(), "", (Batch((record,)),)))

    def put_restart(self, record: RestartRecord, origin: Origin) -> None:
        """A restart command (KIP-745)."""
        self._enqueue(ConfigWrite(WriteKind.RESTART, origin, record.connector, (Batch((record,)),)))

    # ------------------------------------------------------------------------------------------------- answers

    def on_written(self, stimulus: ConfigRecordsWritten) -> None:
        """A batch was appended, or not: read it back."""
        write = self._current(stimulus.request_id)
        if write is None or write.reading:
            return
        if stimulus.error is not None:
            hint = "another worker leads the group now" if stimulus.fenced else stimulus.error
            message = f"Failed to write to the config topic: {hint}; the request can be retried"
            self._end(write, 500, message, fenced=stimulus.fenced)
            return
        write.next_batch += 1
        self._read(write)

    def on_read(self, stimulus: ConfigReadToEnd) -> None:
        """The config topic was read to its end for the operation at the head of the queue."""
        write = self._current(stimulus.request_id)
        if write is None or not write.reading:
            return
        if stimulus.error is not None:
            self._end(write, 500, f"Failed to read back the config topic: {stimulus.error}")
        elif write.next_batch == len(write.batches):
            self._end(write, 200, None)
        else:
            self._write_next(write)

    def allow(self) -> None:
        """The config topic was claimed: write what waited for it."""
        self.may_write = True
        head = self.queue[0] if self.queue else None
        if head is not None and head.request_id is None:
            self._write_next(head)

    def abandon(self, error: str) -> None:
        """Fail every operation that needs the leader's rights: this worker leads no more."""
        self.may_write = False
        for write in [w for w in self.queue if any(b.privileged for b in w.batches[w.next_batch :])]:
            self._end(write, 409, error)

    # ---------------------------------------------------------------------------------------------- inner moves

    def _enqueue(self, write: ConfigWrite) -> None:
        self.queue.append(write)
        if len(self.queue) == 1:
            self._begin(write)

    def _begin(self, write: ConfigWrite) -> None:
        if write.read_first:
            self._read(write)
        else:
            self._write_next(write)

    def _read(self, write: ConfigWrite) -> None:
        write.request_id = self.context.new_request_id()
        write.reading = True
        self.context.emit(ReadConfigToEnd(write.request_id, _READ_BACK_TIMEOUT_MS))

    def _write_next(self, write: ConfigWrite) -> None:
        if (refusal := self._refusal(write)) is not None:
            self._end(write, *refusal)
            return
        batch = write.batches[write.next_batch]
        write.reading = False
        if batch.privileged and not self.may_write:
            write.request_id = None
            return
        write.request_id = self.context.new_request_id()
        self.context.emit(WriteConfigRecords(write.request_id, batch.records, batch.privileged))

    def _refusal(self, write: ConfigWrite) -> tuple[int, str] | None:
        config = self.context.config
        if write.kind is WriteKind.TASK_CONFIGS and not config.contains(write.connector):
            return 404, f"Connector {write.connector} not found"
        stopped = config.target_state(write.connector) is TargetState.STOPPED
        if write.kind is WriteKind.TASK_CONFIGS and stopped and len(write.batches) > 1:
            return 400, f"Connector {write.connector} is stopped and takes no task configs"
        expected = write.expected_generation
        if expected is not None and config.task_config_generation(write.connector) != expected:
            return 409, f"New task configs of connector {write.connector} came during the fencing round"
        return None

    def _end(self, write: ConfigWrite, status: int, error: str | None, *, fenced: bool = False) -> None:
        was_head = self.queue[0] is write
        self.queue.remove(write)
        self.outcomes.append(WriteOutcome(write.kind, write.origin, write.connector, status, error, fenced))
        if was_head and self.queue:
            self._begin(self.queue[0])

    def _current(self, request_id: int) -> ConfigWrite | None:
        head = self.queue[0] if self.queue else None
        return head if head is not None and head.request_id == request_id else None
