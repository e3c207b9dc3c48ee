"""A model of what a Kafka cluster is to workers and tasks: groups, topics, transactional producers.

Answers come at once; whoever asks adds the latency. Nothing here draws at random or knows of faults, and all of it
copies and compares by value. `tests/conformance/` holds it to what the real broker does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from connectx.core.config_log import ConfigLog
from connectx.model.config_records import ConfigRecord
from connectx.model.ids import TopicPartition
from connectx.model.status_records import StatusRecord
from tests.simulation.broker_coordinator import Answers, Coordinator
from tests.simulation.broker_logs import Log
from tests.simulation.broker_requests import TransactionalBroker

CONFIG_TOPIC = "connect-configs"
WORKER_GROUP = "g"


@dataclass
class Broker:
    """Everything that outlives workers. Set `now_ms` through `set_time` before asking."""

    groups: dict[str, Coordinator] = field(default_factory=dict)
    transactions: TransactionalBroker = field(default_factory=TransactionalBroker)
    status_log: list[StatusRecord] = field(default_factory=list)
    _config: ConfigLog = field(default_factory=ConfigLog, compare=False)
    _config_read: int = field(default=0, compare=False)

    def set_time(self, now_ms: int) -> None:
        self.transactions.now_ms = now_ms
        for coordinator in self.groups.values():
            coordinator.now_ms = now_ms

    def group(self, group_id: str) -> Coordinator:
        """The coordinator of a group, of workers or of a sink's consumers."""
        return self.groups.setdefault(group_id, Coordinator(now_ms=self.transactions.now_ms))

    @property
    def coordinator(self) -> Coordinator:
        """That of the workers."""
        return self.group(WORKER_GROUP)

    def move_coordinator(self, group_id: str = WORKER_GROUP) -> Answers:
        """Another node coordinates the group: who names the old one gets NOT_COORDINATOR until it asks `find`."""
        return self.group(group_id).move()

    def log(self, topic: str, partition: int) -> Log:
        """One partition; it is there as soon as it is asked for."""
        return self.transactions.log(TopicPartition(topic, partition))

    def append(self, topic: str, partition: int, values: Iterable[Any]) -> None:
        """Append outside any transaction."""
        self.log(topic, partition).append(values)

    def read(
        self, topic: str, partition: int, from_offset: int, committed: bool = True, limit: int | None = None
    ) -> list[tuple[int, Any]]:
        """(log offset, value) of what a consumer sees; with `committed` up to the last stable offset."""
        return self.log(topic, partition).read(from_offset, committed=committed, limit=limit)

    def end(self, topic: str, partition: int) -> int:
        """Offset of the next record."""
        return self.log(topic, partition).end

    def last_stable(self, topic: str, partition: int) -> int:
        """Offset of the first record of an open transaction, or the end."""
        return self.log(topic, partition).last_stable

    def compact(self, topic: str, key: Callable[[Any], Hashable]) -> None:
        """Keep the newest record of each key in all partitions of a topic, as far as they are stable.

        Kafka's cleaner stops at the active segment, or at the one with the last stable offset, if that comes first.
        """
        for target, log in self.transactions.logs.items():
            if target.topic == topic:
                log.compact(key)

    @property
    def config_log(self) -> list[tuple[int, ConfigRecord]]:
        """Records of the config topic with their log offsets, as workers read them."""
        return self.read(CONFIG_TOPIC, 0, 0)

    @property
    def next_offset(self) -> int:
        """End of the config topic."""
        return self.end(CONFIG_TOPIC, 0)

    @property
    def config(self) -> ConfigLog:
        """The fold of the config topic: the truth that workers read late."""
        if self._config_read < self.last_stable(CONFIG_TOPIC, 0):
            for log_offset, record in self.read(CONFIG_TOPIC, 0, self._config_read):
                self._config.apply(log_offset, record)
            self._config_read = self.last_stable(CONFIG_TOPIC, 0)
        return self._config
