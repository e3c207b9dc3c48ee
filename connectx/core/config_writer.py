"""Writes to the config topic, one operation at a time: write, read back, then answer.

Decides the records of an operation, their batches (one transaction each), whether it may still be done when its turn
comes, and when it is over. The worker's own view changes only when a record is read back. Mirrors Kafka Connect's
KafkaConfigBackingStore and the herder's privileged writes (KIP-618).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, assert_never

from connectx.core import messages
from connectx.core.context import Context
from connectx.core.pending import Single
from connectx.core.signals import LeaderOrigin, Origin, WriteKind, WriteOutcome
from connectx.core.timer_keys import WorkerTimer
from connectx.model import config_records
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.values import Value

ANSWER_MS: Final = 30_000
"""How long Kafka may take for a claim, a write or a read back (Kafka Connect: READ_WRITE_TOTAL_TIMEOUT_MS)."""
_RETRY = "this may be due to a transient error and the request can be safely retried"


_DONE = {
    WriteKind.CREATE: 201,
    WriteKind.PUT: 200,  # 201 when the connector is new
    WriteKind.TARGET_STATE: 202,
    WriteKind.RESTART: 202,
}
"""HTTP status of a success, 204 for the others."""

_WITHOUT_CONNECTOR = (WriteKind.CREATE, WriteKind.PUT, WriteKind.SESSION_KEY, WriteKind.LOGGER_LEVEL)

_CREATING = (WriteKind.CREATE, WriteKind.PUT)


class Claim(StrEnum):
    """The right of the leader to write privileged records."""

    NONE = "none"  # another worker leads: privileged operations are refused
    PENDING = "pending"  # this worker leads and claims the config topic: they wait
    HELD = "held"  # they are written


class Batch(Value):
    """Records that are written together; `privileged` ones by the leader's producer."""

    records: tuple[config_records.ConfigRecord, ...]
    privileged: bool = True


@dataclass(slots=True)
class ConfigWrite:
    """One operation: its batches, and how far it has come.

    Conditions that are looked at again when its turn comes: `expected_config` (PUT only) is the configuration that it
    replaces, `expected_generation` (task count records only) the task config generation that the record must follow.
    """

    kind: WriteKind
    origin: Origin
    connector: str
    batches: tuple[Batch, ...]
    read_due: bool = False
    expected_config: Mapping[str, str | None] | None = None
    expected_generation: int | None = None
    next_batch: int = 0
    is_new: bool = False
    request_id: int | None = None
    """The write or read that it waits for."""
    reading: bool = False


@dataclass(slots=True)
class ConfigWriter:
    """Queue of operations. Each ends with a `WriteOutcome`."""

    context: Context
    claim: Claim = Claim.NONE
    queue: list[ConfigWrite] = field(default_factory=list)

    def create_connector(
        self, connector: str, properties: Mapping[str, str | None], initial_state: TargetState | None, origin: Origin
    ) -> None:
        """Create a connector; the initial state, if given, in the same transaction before it. 409 if there is one.

        An empty commit record comes first if a deleted connector of that name left task configs in the topic.
        """
        config = config_records.ConnectorConfigRecord(connector, dict(properties))
        records: tuple[config_records.ConfigRecord, ...] = (config,)
        if initial_state is not None:
            records = (config_records.TargetStateRecord(connector, initial_state), config)
        self._enqueue(ConfigWrite(WriteKind.CREATE, origin, connector, (Batch(records),)))

    def put_connector(
        self,
        connector: str,
        properties: Mapping[str, str | None],
        expected: Mapping[str, str | None] | None,
        origin: Origin,
    ) -> None:
        """Create or update a connector; 409 if `expected` is given and is not its configuration any more."""
        config = config_records.ConnectorConfigRecord(connector, dict(properties))
        write = ConfigWrite(WriteKind.PUT, origin, connector, (Batch((config,)),))
        write.expected_config = None if expected is None else dict(expected)
        self._enqueue(write)

    def delete_connector(self, connector: str, origin: Origin) -> None:
        """Tombstones for the configuration and the target state, and then an empty set of task configs.

        Kafka Connect leaves the last commit record there; when compaction has taken the tombstones, a worker that
        starts then could take the tasks of the deleted connector for those of a namesake.
        """
        tombstones = (
            config_records.ConnectorConfigRecord(connector, None),
            config_records.TargetStateRecord(connector, None),
        )
        records = (*tombstones, config_records.TaskCommitRecord(connector, 0))
        self._enqueue(ConfigWrite(WriteKind.DELETE, origin, connector, (Batch(records),)))

    def put_target_state(self, connector: str, state: TargetState, origin: Origin) -> None:
        """Pause or resume: an ordinary write of any worker."""
        batch = Batch((config_records.TargetStateRecord(connector, state),), privileged=False)
        self._enqueue(ConfigWrite(WriteKind.TARGET_STATE, origin, connector, (batch,)))

    def stop_connector(self, connector: str, origin: Origin) -> None:
        """An empty set of task configs first, then the target state STOPPED (KIP-875)."""
        batches = (
            Batch((config_records.TaskCommitRecord(connector, 0),)),
            Batch((config_records.TargetStateRecord(connector, TargetState.STOPPED),), privileged=False),
        )
        self._enqueue(ConfigWrite(WriteKind.STOP, origin, connector, batches))

    def put_task_configs(
        self, connector: str, task_configs: Sequence[Mapping[str, str | None]], origin: Origin
    ) -> None:
        """All task configs in one batch, then the commit record in another."""
        tasks = tuple(
            config_records.TaskConfigRecord(TaskId(connector, number), dict(properties))
            for number, properties in enumerate(task_configs)
        )
        commit = Batch((config_records.TaskCommitRecord(connector, len(tasks)),))
        batches = (Batch(tasks), commit) if tasks else (commit,)
        self._enqueue(ConfigWrite(WriteKind.TASK_CONFIGS, origin, connector, batches, read_due=True))

    def put_task_count(self, connector: str, task_count: int, expected_generation: int | None, origin: Origin) -> None:
        """A task count record, unless newer task configs have come since the round began (KIP-618)."""
        batch = Batch((config_records.TaskCountRecord(connector, task_count),))
        write = ConfigWrite(WriteKind.TASK_COUNT, origin, connector, (batch,), read_due=True)
        write.expected_generation = expected_generation
        self._enqueue(write)

    def put_session_key(self, record: config_records.SessionKeyRecord) -> None:
        """A new key for internal requests (KIP-507)."""
        self._enqueue(ConfigWrite(WriteKind.SESSION_KEY, LeaderOrigin(), "", (Batch((record,)),)))

    def put_restart(self, record: config_records.RestartRecord, origin: Origin) -> None:
        """A restart command (KIP-745)."""
        self._enqueue(ConfigWrite(WriteKind.RESTART, origin, record.connector, (Batch((record,)),)))

    def put_logger_level(self, record: config_records.LoggerLevelRecord, origin: Origin) -> None:
        """A logger's level on every worker (KIP-976): an ordinary write of any worker."""
        self._enqueue(ConfigWrite(WriteKind.LOGGER_LEVEL, origin, "", (Batch((record,), privileged=False),)))

    def stage(self) -> str:
        """What the operation at the head of the queue does, as Kafka Connect words it."""
        write = self.queue[0]
        if write.reading:
            return "reading to the end of the config topic"
        if write.request_id is None:
            return "reclaiming write privileges for the config topic"
        place = "from" if write.kind is WriteKind.DELETE else "to"
        return f"{_description(write)} {place} the config topic"

    def on_written(self, stimulus: messages.ConfigRecordsWritten) -> None:
        """A batch was appended, or not: read it back."""
        self.context.timers.cancel(WorkerTimer.WRITE_LIMIT)
        write = self.queue[0]
        write.request_id = None
        if stimulus.error is not None:
            message = f"Failed to write to the config topic: {stimulus.error}; {_RETRY}"
            is_lost = stimulus.fenced and self.claim is Claim.HELD
            if is_lost:  # before the leader orders it: the next write in the queue may not go first
                self.claim = Claim.PENDING
            self._end(write, 500, message, fenced=is_lost)
        else:
            write.next_batch += 1
            write.read_due = True
        self._proceed()

    def on_write_limit(self) -> None:
        """Kafka has not answered in time: the write may be in the config topic or not, and the claim is lost."""
        request_id = self.queue[0].request_id
        assert request_id is not None, "the limit belongs to a write"
        self.context.pending.drop(request_id)
        self.context.emit(messages.AbandonConfigWrites(request_id))
        error = f"Kafka did not answer within {ANSWER_MS // 1000} s"
        self.on_written(messages.ConfigRecordsWritten(request_id, error, fenced=True))

    def on_read(self, stimulus: messages.ConfigReadToEnd) -> None:
        """The config topic was read to its end for the operation at the head of the queue."""
        write = self.queue[0]
        write.request_id = None
        write.reading = False
        if stimulus.error is not None:
            self._end(write, 500, f"Failed to read back the config topic: {stimulus.error}")
        self._proceed()

    def set_claim(self, claim: Claim) -> None:
        """The leader's rights have changed: privileged operations wait, continue, or are refused.

        A write in progress ends with its response: only the response shows whether it was too late.
        """
        self.claim = claim
        self._proceed()

    def withdraw(self, origin: Origin) -> None:
        """Forget an operation without a waiting caller, unless it is being written already."""
        for write in [write for write in self.queue if write.origin == origin and not self._is_begun(write)]:
            self._remove(write)
        self._proceed()

    def close(self, error: str) -> None:
        """The worker ends: what has not begun can be retried elsewhere (503), the rest has an unknown outcome (500)."""
        for write in list(self.queue):
            self._end(write, 500 if self._is_begun(write) else 503, error)

    def _enqueue(self, write: ConfigWrite) -> None:
        self.queue.append(write)
        self._proceed()

    def _proceed(self) -> None:
        """Move the head of the queue on, until one waits for an answer or for the claim."""
        while self.queue and self.queue[0].request_id is None:
            write = self.queue[0]
            if write.read_due:
                write.read_due = False
                write.reading = True
                write.request_id = self.context.new_request_id(Single.OPERATION_READ_BACK)
                self.context.emit(messages.ReadConfigToEnd(write.request_id, ANSWER_MS))
            elif write.next_batch == len(write.batches):
                self._end(write, 201 if write.is_new else _DONE.get(write.kind, 204))
            elif (refusal := self._refusal(write)) is not None:
                self._end(write, *refusal)
            elif self._changes_nothing(write):
                self._end(write, 204)
            elif write.batches[write.next_batch].privileged and self.claim is Claim.PENDING:
                return
            else:
                self._write(write)

    def _write(self, write: ConfigWrite) -> None:
        write.is_new = write.kind is WriteKind.PUT and not self.context.config.contains(write.connector)
        write.request_id = self.context.new_request_id(Single.OPERATION_WRITTEN)
        batch = write.batches[write.next_batch]
        records = batch.records
        if write.kind in _CREATING and self.context.config.has_leftover_tasks(write.connector):
            # After compaction, workers that start later would take them for this connector's tasks.
            records = (config_records.TaskCommitRecord(write.connector, 0), *records)
        self.context.emit(messages.WriteConfigRecords(write.request_id, records, batch.privileged))
        if self.is_transactional(batch):
            self.context.set_timer(WorkerTimer.WRITE_LIMIT, ANSWER_MS)

    def is_transactional(self, batch: Batch) -> bool:
        """True for records of the leader's producer; the client of the others has a separate limit."""
        return batch.privileged and self.context.settings.worker.exactly_once_source_support.leader_is_transactional

    def _refusal(self, write: ConfigWrite) -> tuple[int, str] | None:
        """Why an operation may not be done any more, as an HTTP status and a message."""
        config, connector = self.context.config, write.connector
        exists = config.contains(connector)
        if write.batches[write.next_batch].privileged and self.claim is Claim.NONE:
            return 409, "This worker does not lead the group any more; the request can be retried"
        if write.kind is WriteKind.CREATE and exists:
            return 409, f"Connector {connector} already exists"
        if write.kind not in _WITHOUT_CONNECTOR and not exists:
            of_state = write.kind in (WriteKind.TARGET_STATE, WriteKind.STOP)
            return 404, f"Unknown connector {connector}" if of_state else f"Connector {connector} not found"
        if write.expected_config is not None and config.connector_config(connector) != write.expected_config:
            return 409, f"The configuration of connector {connector} has changed meanwhile"
        stopped = config.target_state(connector) is TargetState.STOPPED
        if write.kind is WriteKind.TASK_CONFIGS and stopped and len(write.batches) > 1:
            return 400, f"Connector {connector} is stopped and takes no task configs"
        if write.kind is WriteKind.TASK_COUNT and config.task_config_generation(connector) != write.expected_generation:
            return 409, f"New task configs of connector {connector} came during the fencing round"
        return None

    def _changes_nothing(self, write: ConfigWrite) -> bool:
        """True for task configs that are there already: sent twice, because the first answer was lost or late."""
        if write.kind is not WriteKind.TASK_CONFIGS or write.next_batch > 0:
            return False
        tasks = [
            record.properties
            for record in write.batches[0].records
            if isinstance(record, config_records.TaskConfigRecord)
        ]
        return not self.context.config.task_configs_changed(write.connector, tasks)

    def _end(self, write: ConfigWrite, status: int, error: str | None = None, *, fenced: bool = False) -> None:
        self._remove(write)
        self.context.signal(WriteOutcome(write.kind, write.origin, write.connector, status, error, fenced))

    def _remove(self, write: ConfigWrite) -> None:
        if write.request_id is not None:
            self.context.pending.drop(write.request_id)
            self.context.timers.cancel(WorkerTimer.WRITE_LIMIT)
        self.queue = [other for other in self.queue if other is not write]

    @staticmethod
    def _is_begun(write: ConfigWrite) -> bool:
        """True when a part of it may be in the config topic."""
        return write.next_batch > 0 or (write.request_id is not None and not write.reading)


def _description(write: ConfigWrite) -> str:
    of = f"for connector {write.connector}"
    match write.kind:
        case WriteKind.CREATE | WriteKind.PUT:
            return f"writing a config {of}"
        case WriteKind.DELETE:
            return f"removing the config {of}"
        case WriteKind.TARGET_STATE:
            return f"writing the target state {of}"
        case WriteKind.STOP if write.next_batch > 0:
            return f"writing the STOPPED target stage {of}"
        case WriteKind.STOP | WriteKind.TASK_CONFIGS:
            count = sum(isinstance(record, config_records.TaskConfigRecord) for record in write.batches[0].records)
            return f"writing {count} task configs {of}"
        case WriteKind.TASK_COUNT:
            return f"writing a task count record {of}"
        case WriteKind.SESSION_KEY:
            return "writing a new session key"
        case WriteKind.RESTART:
            return f"writing restart request {of}"
        case WriteKind.LOGGER_LEVEL:
            return "writing a logger level"
        case _:
            assert_never(write.kind)
