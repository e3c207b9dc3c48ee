"""Real brokers on which the scripts run: clients, made once, and new topics."""

from __future__ import annotations

import itertools

from confluent_kafka.admin import NewTopic

from connectx.kafka.admin.fencing import ProducerFencer
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.worker_config import WorkerConfig, embedded_config
from tests.conformance.groups_on_kafka import GroupsOnKafka
from tests.conformance.producers_on_kafka import SEGMENT_MS, Clients, ProducersOnKafka
from tests.conformance.requests_on_kafka import RequestsOnKafka

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": str(SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
}


class Broker:
    """A broker with what makes adapters on it."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self.clients = Clients(kafka.bootstrap_servers)
        settings = embedded_config({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "conformance"})
        self.fencer = ProducerFencer(ClientConfigs(WorkerConfig.parse(settings), "worker-1", kafka.bootstrap_servers))
        self._topics = itertools.count(1)
        self._topic_of_groups = self.topic()

    def topic(self, config: dict[str, str] | None = None) -> str:
        """A new topic of two partitions."""
        name = f"conformance-{next(self._topics)}"
        self.clients.admin.create_topics([NewTopic(name, 2, 1, config=config or {})])[name].result(30)
        return name

    def groups(self) -> GroupsOnKafka:
        return GroupsOnKafka(self.clients.net, self._topic_of_groups, self.kafka.restart)

    def producers(self, config: dict[str, str] | None = None) -> ProducersOnKafka:
        return ProducersOnKafka(self.clients, self.fencer, self.topic(config), self.kafka)

    def requests(self) -> RequestsOnKafka:
        return RequestsOnKafka(self.producers())
