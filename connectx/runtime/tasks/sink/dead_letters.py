"""The dead letter queue of a sink task: records that could not be read, transformed or put, as they came from Kafka.

It decides nothing about errors. A report is at least once: `flush` must end before a position moves. A target that
holds offsets moves them in its own commit, so letters are sent before it. If it then refuses the commit, the same
records are put again; their letters are remembered until then and not sent twice. Mirrors Kafka Connect's
DeadLetterQueueReporter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError

from connectx.data.headers import HEADERS
from connectx.errors.base import ConnectxError
from connectx.errors.kafka import KafkaUnreachableError, TopicNotCreatableError
from connectx.kafka.admin.client import Admin, TopicSpec
from connectx.kafka.producer.producer import KafkaProducer
from connectx.kafka.settings.client_config import ClientConfig
from connectx.model.class_names import path_of
from connectx.model.ids import TaskId, TopicPartition
from connectx.plugins.settings import SinkSettings
from connectx.recording.recorder import Recorder
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.record_errors import RecordErrors
from connectx.values import Value

_CALL_S = 5.0
_CLOSE_S = 5.0
_PREFIX: Final = "__connect.errors."
_PLACE: Final = ["topic", "partition", "offset"]


class DeadLetter(Value):
    """One record by its row in a fetched table, and why it is dead; stages are Kafka Connect's."""

    row: int
    stage: str
    class_name: str
    error: Exception


class DeadLetterQueue:
    """Reports of one task, sent by its thread.

    Args:
        task: named in headers.
        settings: topic, its replication factor, and whether headers have the context.
        producer_config: settings of its producer.
        admin: makes the topic when it is missing.
        checkpoint: called while a call waits; what it raises ends the call.
        masked: hides values of placeholders in the headers.
        errors: counts what is sent and what is refused.
        recorder: keeps the latest steps of the producer's core.
    """

    def __init__(
        self,
        task: TaskId,
        settings: SinkSettings,
        producer_config: ClientConfig,
        admin: Admin,
        checkpoint: Callable[[], None],
        masked: Callable[[str], str],
        errors: RecordErrors,
        recorder: Recorder | None = None,
    ) -> None:
        self._task = task
        self._topic = settings.dead_letter_topic or ""
        self._replication_factor = settings.dead_letter_replication_factor
        self._with_context = settings.dead_letter_headers
        self._producer = KafkaProducer(producer_config, checkpoint=checkpoint, recorder=recorder)
        self._admin = admin
        self._checkpoint = checkpoint
        self._masked = masked
        self._errors = errors
        self._sent: defaultdict[TopicPartition, set[int]] = defaultdict(set)

    def start(self) -> None:
        """Make sure that the topic is there.

        Raises:
            TopicNotCreatableError: it is missing, and Kafka did not create it.
            ProducerError: the producer cannot be created.
        """
        while True:
            self._checkpoint()
            try:
                if self._admin.partition_counts([self._topic], _CALL_S)[self._topic] is None:
                    self._create()
                break
            except KafkaUnreachableError:
                continue
        self._admin.close()
        self._producer.init()

    def report(self, records: pa.Table, letters: Sequence[DeadLetter]) -> None:
        """Send records of a fetched table, but for those that were sent and are not put yet.

        They are safe once `flush` has returned.
        """
        letters = self._unsent(records, letters)
        if not letters:
            return
        rows = records.select([*_PLACE, "timestamp", "key", "value", "headers"]).take(
            pa.array([letter.row for letter in letters], pa.int64())
        )
        if self._with_context:
            places = rows.select(_PLACE).to_pylist()
            given = rows["headers"].cast(HEADERS).to_pylist()
            headers = [
                [*(before or ()), *self._context(letter, place)]
                for before, letter, place in zip(given, letters, places, strict=True)
            ]
            rows = rows.set_column(rows.column_names.index("headers"), "headers", pa.array(headers, HEADERS))
        self._errors.dead_letters += len(letters)
        try:
            self._producer.send(rows.drop_columns(_PLACE), self._topic)
        except BaseException:
            self._sent.clear()
            raise
        finally:
            self._errors.failed_dead_letters = self._producer.refusals

    def flush(self) -> None:
        """Wait until all reports are acknowledged, without a timeout.

        Raises:
            RecordRefusedError, RecordTooLargeError: Kafka refused one.
        """
        try:
            while not self._producer.flush(_CALL_S):
                self._checkpoint()
        except BaseException:
            self._sent.clear()
            raise
        finally:
            self._errors.failed_dead_letters = self._producer.refusals

    def settled(self, ends: Mapping[TopicPartition, int]) -> None:
        """Records before these offsets are put: forget their letters."""
        for partition in self._sent.keys() & ends.keys():
            self._sent[partition] = {offset for offset in self._sent[partition] if offset >= ends[partition]}

    def closed(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were taken away: forget their letters."""
        for partition in partitions:
            self._sent.pop(partition, None)

    def close(self) -> None:
        """Let the producer go; what was not flushed may be lost."""
        self._producer.close(_CLOSE_S)

    def abandon(self) -> None:
        """Close without waiting, as a killed process would."""
        self._producer.abandon()

    def _unsent(self, records: pa.Table, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Those that are not on their way or in the topic; from now on they are."""
        places = records.select(_PLACE).take(pa.array([letter.row for letter in letters], pa.int64())).to_pylist()
        unsent = []
        for letter, place in zip(letters, places, strict=True):
            sent = self._sent[TopicPartition(place["topic"], place["partition"])]
            if place["offset"] not in sent:
                sent.add(place["offset"])
                unsent.append(letter)
        return unsent

    def _create(self) -> None:
        spec = TopicSpec(self._topic, 1, self._replication_factor)
        error = self._admin.create_topics([spec], _CALL_S)[self._topic]
        if error is not None and error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicNotCreatableError(
                f"The dead letter queue {self._topic} is missing and could not be created: {error.str().rstrip('.')}.",
                next_step="Create it, or correct errors.deadletterqueue.topic.replication.factor or the permissions of "
                "the connector's admin client; then restart the task.",
            )

    def _context(self, letter: DeadLetter, place: dict[str, object]) -> list[dict[str, object]]:
        error = letter.error
        cls = type(error)
        headers = {
            "topic": place["topic"],
            "partition": place["partition"],
            "offset": place["offset"],
            "connector.name": self._task.connector,
            "task.id": self._task.task,
            "stage": letter.stage,
            "class.name": letter.class_name,
            "exception.class.name": path_of(cls),
            "exception.message": self._masked(error.message if isinstance(error, ConnectxError) else str(error)),
            "exception.stacktrace": self._masked(trace_of(error)),
        }
        return [{"key": _PREFIX + name, "value": str(value).encode()} for name, value in headers.items()]
