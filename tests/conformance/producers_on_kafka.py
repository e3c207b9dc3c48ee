"""The verbs of producers on a real broker: confluent-kafka's producers and consumers, errors as tasks name them."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import kafka.errors as kafka_errors
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.metadata import CoordinatorType

from connectx.errors.kafka import ProducerFencedError, TransactionExpiredError
from connectx.kafka.admin.fencing import ProducerFencer
from connectx.kafka.admin.partition_offsets import LATEST, Offsets, OffsetsClient
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.net import KafkaNet
from connectx.model import ids
from tests.conformance.librdkafka_errors import Circumstances, producer_error
from tests.conformance.producers import Producers
from tests.support.waiting import until

log = logging.getLogger(__name__)

LIMIT_S = 20.0
SEGMENT_MS = 60_000
_scenarios = itertools.count(1)


class Clients:
    """What all scenarios share: an admin client, two consumers, and connections for what only kafka-python asks."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers}, logger=log)
        connection = {"bootstrap_servers": [bootstrap_servers], "client_id": "conformance"}
        self.net, self.offsets = KafkaNet(connection), OffsetsClient(connection)
        self.net.start()
        self.consumers = {True: self._consumer("read_committed"), False: self._consumer("read_uncommitted")}
        self.plain = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0}, logger=log)

    def close(self) -> None:
        for consumer in self.consumers.values():
            consumer.close()
        self.net.close()
        self.offsets.close()

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "conformance-readers",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            },
            logger=log,
        )


class ProducersOnKafka(Producers):
    """One topic of a broker, with transactional ids of its own.

    Args:
        clients: shared by scenarios.
        fencer: what a leader fences with.
        topic: an empty topic of two partitions.
        kafka: the broker.
    """

    def __init__(self, clients: Clients, fencer: ProducerFencer, topic: str, kafka: EmbeddedKafka) -> None:
        super().__init__()
        assert kafka.data_dir is not None
        self.checkpoint = kafka.data_dir / "data" / "cleaner-offset-checkpoint"
        self.clients = clients
        self.fencer = fencer
        self.topic = topic
        self.restart = kafka.restart
        self.prefix = f"conformance-{next(_scenarios)}-"
        self.producers: dict[str, Producer] = {}
        self.timeouts_ms: dict[str, int] = {}
        self.begun_s: dict[str, float] = {}
        self.future_ms = int(time.time() * 1000)
        self.segments: list[int] = []

    def init(self, who: str, transactional_id: str, timeout_ms: int) -> str:
        self.timeouts_ms[who] = timeout_ms
        self.producers[who] = Producer(
            {
                "bootstrap.servers": self.clients.bootstrap_servers,
                "transactional.id": self.prefix + transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.producers[who].init_transactions(LIMIT_S)
        return f"epoch {self.epoch(transactional_id)}"

    def begins(self, who: str) -> str:
        def begin() -> None:
            self.producers[who].begin_transaction()
            self.begun_s[who] = time.monotonic()

        return self._call(who, begin)

    def send(self, who: str, partition: int, values: list[str]) -> str:
        """A fatal error comes up in flush; a callback in there would turn it into a SystemError."""

        def produce() -> None:
            producer = self.producers[who]
            for value in values:
                producer.produce(self.topic, value.encode(), _key(value), partition)
            assert producer.flush(LIMIT_S) == 0

        return self._call(who, produce)

    def commits(self, who: str) -> str:
        return self._end_with(who, lambda: self.producers[who].commit_transaction(LIMIT_S))

    def aborts(self, who: str) -> str:
        return self._end_with(who, lambda: self.producers[who].abort_transaction(LIMIT_S))

    def epoch(self, transactional_id: str) -> int:
        return int(self._describe(transactional_id).producer_epoch)

    def fence(self, transactional_id: str) -> None:
        self.fencer.fence("conformance", {}, [self.prefix + transactional_id])

    def expires(self, who: str) -> None:
        until(lambda: self._describe(who).transaction_state == "CompleteAbort", "a transaction to expire")

    def send_plain(self, partition: int, values: list[str]) -> None:
        for value in values:
            self.clients.plain.produce(self.topic, value.encode(), _key(value), partition)
        assert self.clients.plain.flush(LIMIT_S) == 0

    def read(self, partition: int, *, committed: bool) -> list[tuple[int, str]]:
        consumer = self.clients.consumers[committed]
        consumer.assign([TopicPartition(self.topic, partition, 0)])
        found: list[tuple[int, str]] = []
        while True:
            message = consumer.poll(LIMIT_S)
            assert message is not None, "the end of the partition is not reached"
            if (error := message.error()) is None:
                found.append((message.offset() or 0, (message.value() or b"").decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)

    def ends_of(self, partition: int) -> tuple[int, int]:
        return self._end(partition, committed=True), self._end(partition, committed=False)

    def rolls(self, who: str, value: str) -> None:
        self.future_ms += 2 * SEGMENT_MS
        self.segments.append(self._end(0, committed=False))
        self.clients.plain.produce(self.topic, value.encode(), _key(value), 0, timestamp=self.future_ms)
        assert self.clients.plain.flush(LIMIT_S) == 0

    def await_cleaner(self) -> None:
        stable = self._end(0, committed=True)
        wanted = f"{self.topic} 0 {max(first for first in self.segments if first <= stable)}"
        until(lambda: wanted in self.checkpoint.read_text().splitlines(), f"the cleaner to note {wanted}")

    def moves(self, who: str) -> None:
        self.restart()

    def _call(self, who: str, call: Callable[[], object]) -> str:
        try:
            call()
        except KafkaException as error:
            return self._name(who, error.args[0])
        return "OK"

    def _end_with(self, who: str, call: Callable[[], object]) -> str:
        """The coordinator answers before it has written the markers, so that they are awaited."""
        outcome = self._call(who, call)
        until(lambda: not self._describe(self.ids[who]).transaction_state.startswith("Prepare"), "the markers")
        return outcome

    def _name(self, who: str, error: KafkaError) -> str:
        """What the task would be told."""
        if error.code() == KafkaError._STATE:
            return "INVALID_STATE"
        begun_s = self.begun_s.get(who)
        circumstances = Circumstances(
            self.ids[who],
            transaction_timeout_ms=self.timeouts_ms[who],
            max_request_size_bytes=1 << 20,
            open_ms=None if begun_s is None else int((time.monotonic() - begun_s) * 1000),
        )
        recorded = producer_error(error, "go on", circumstances)
        if isinstance(recorded, TransactionExpiredError):
            return "EXPIRED"
        return "FENCED" if isinstance(recorded, ProducerFencedError) else f"{type(recorded).__name__}: {error}"

    def _end(self, partition: int, *, committed: bool) -> int:
        where, answer = ids.TopicPartition(self.topic, partition), Future[Offsets]()
        self.clients.offsets.request(
            [where], LATEST, answer.set_result, answer.set_exception, committed=committed, timeout_s=LIMIT_S
        )
        return answer.result()[where]

    def _describe(self, transactional_id: str) -> Any:
        """What the transaction coordinator knows."""
        name, net = self.prefix + transactional_id, self.clients.net
        deadline_s = time.monotonic() + LIMIT_S

        async def ask() -> Any:
            coordinator = await net.find_coordinator(CoordinatorType.TRANSACTION, name, deadline_s)
            await net.connect(coordinator.node_id, deadline_s)
            reply = await net.send(
                DescribeTransactionsRequest(transactional_ids=[name]), coordinator.node_id, LIMIT_S * 1000
            )
            state = reply.transaction_states[0]
            return None if state.error_code else state

        def found() -> Any:
            try:
                return net.run(ask)
            except kafka_errors.RetriableError:  # it is coming up
                return None

        return until(found, f"the transactional id {name}")


def _key(value: str) -> str:
    return value.partition("=")[0]
