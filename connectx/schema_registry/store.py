"""The `_schemas` topic of a registry: written, read back, and then applied to the catalog.

Several registries may share the topic. Each change is decided by one that holds the topic's transactional id and has
read everything that was written before it took it; a registry that lost it is fenced by Kafka, takes it again, reads
on and decides again. So two registries never give out the same version or id. Confluent's own registry writes without
transactions: it may take the topic over, but must not run beside this one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import Message

from connectx.errors.base import ConnectxError
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topics import START_S, ensure_schemas_topic
from connectx.kafka.internal.leader_writer import LeaderProducer
from connectx.kafka.internal.topic_tail import TopicTail, as_bytes
from connectx.kafka.settings.client_config import ClientConfig
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TopicPartition
from connectx.schema_registry.catalog import Catalog, Change
from connectx.schema_registry.refusals import Refusal

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
_READ_S: Final = 30.0
_WRITE_S: Final = 30.0

_Answer = TypeVar("_Answer")


class SchemaStore:
    """Reader and writer of the topic, with the catalog that it makes."""

    def __init__(self, clients: ClientConfigs, topic: str, catalog: Catalog) -> None:
        self._clients = clients
        self._partition = TopicPartition(topic, 0)
        self._catalog = catalog
        self._state = threading.Lock()
        self._changing = threading.Lock()
        self._claimed = False
        self._orders = 0
        self._failed = ""
        self._admin = Admin(clients.admin())
        self._tail = TopicTail(
            "schema-registry-reader", self._reader_config(), self._admin, self._read, self._admin.serve, self._crashed
        )
        self._writer = LeaderProducer("schema-registry-writer", self._writer_config, topic, self._crashed)

    def start(self) -> None:
        """Create the topic where it is missing, and read it to its end.

        Raises:
            InternalTopicError, TopicMissingError: the topic cannot be used, or not created.
            KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError, ReadToEndError
        """
        ensure_schemas_topic(self._admin, self._partition.topic)
        self._writer.start()
        self._tail.start([self._partition])
        self._read_to_end(START_S)

    def ask(self, question: Callable[[Catalog], _Answer]) -> _Answer:
        """The answer of the catalog as it is now.

        Raises:
            RefusedError: the catalog refuses, or the topic cannot be read any more.
        """
        with self._state:
            if self._failed:
                raise Refusal.STORE_FAILED.error(self._failed)
            return question(self._catalog)

    def refresh(self) -> None:
        """Read what other registries have written until now.

        Raises:
            RefusedError: 50001, Kafka does not answer.
        """
        try:
            self._read_to_end(_READ_S)
        except ConnectxError as error:
            raise Refusal.STORE_FAILED.error(error.message) from error

    def change(self, decide: Callable[[Catalog], Change]) -> object:
        """Write what the catalog decides, read it back, and return the answer.

        Raises:
            RefusedError: the catalog refuses, or 50001: it could not be written.
        """
        with self._changing:
            reason = ""
            for _ in range(_ATTEMPTS):
                if not self._claimed:
                    reason = self._done(self._writer.claim)
                    if reason:
                        continue
                    self._claimed = True
                    self.refresh()
                change = self.ask(decide)
                if not change.records:
                    return change.answer
                records = change.records
                reason = self._done(
                    lambda number, outcome, records=records: self._writer.write(number, records, outcome)  # type: ignore[misc]
                )
                if not reason:
                    self.refresh()
                    return change.answer
                self._claimed = False
                _log.info("the schema registry decides a change again: %s", reason)
            raise Refusal.STORE_FAILED.error(reason)

    def close(self) -> None:
        """End both threads and close the clients."""
        self._writer.close()
        self._tail.close()
        self._admin.close()

    def _read(self, message: Message) -> None:
        key, value = message.key(), message.value()
        with self._state:
            self._catalog.apply(as_bytes(key), as_bytes(value))

    def _read_to_end(self, timeout_s: float) -> None:
        ended, failures = threading.Event(), list[ConnectxError]()

        def done(error: ConnectxError | None) -> None:
            failures.extend([error] if error is not None else [])
            ended.set()

        self._tail.read_to_end([self._partition], timeout_s, done)
        ended.wait(timeout_s + 5)
        if failures:
            raise failures[0]

    def _done(self, order: Callable[[int, Callable[[str | None], object]], None]) -> str:
        """Give an order to the writer and wait: why it failed, or empty."""
        ended, reasons = threading.Event(), list[str]()

        def outcome(error: str | None) -> None:
            reasons.extend([error] if error else [])
            ended.set()

        self._orders += 1
        order(self._orders, outcome)
        if not ended.wait(_WRITE_S):
            self._writer.abandon_order(self._orders)
            return f"Kafka did not answer within {_WRITE_S:g} s"
        return reasons[0] if reasons else ""

    def _crashed(self, error: BaseException) -> None:
        self._failed = f"{type(error).__name__}: {error}"

    def _reader_config(self) -> ClientConfig:
        config = self._clients.internal_consumer()
        config["isolation.level"] = "read_committed"
        config["group.id"] = f"schema-registry-{self._partition.topic}"
        return config

    def _writer_config(self) -> ClientConfig:
        config = self._clients.leader_producer()
        config["transactional.id"] = f"schema-registry-{self._partition.topic}"
        return config
