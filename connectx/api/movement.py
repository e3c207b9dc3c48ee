"""Throughput and lag of connectors and sizes of topics, computed from offsets in Kafka, also while no task runs.

A source moves the ends of its topics, a sink the offsets of its group. Transaction markers therefore count as records,
and so do records of other producers of the same topic. It works with any Kafka Connect.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from connectx.errors.base import ConnectxError
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topic_snapshot import take_snapshot
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TopicPartition
from connectx.model.patterns import compiled
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.settings import sink_connector_settings
from connectx.rest.client import RestClient
from connectx.values import Value
from connectx.views import Form, Shown


def backlog(client: RestClient, config: WorkerConfig, connector: str) -> int:
    """Offsets from what a sink has committed, or from the beginning, to the ends of its topics.

    Raises:
        TopicMissingError, KafkaUnreachableError and other errors of Kafka; ConfigError: it is no sink.
    """
    clients = ClientConfigs(config, "backlog", config.bootstrap_servers)
    settings = sink_connector_settings(client.config(connector))
    topics = settings.topics or _matching(clients, settings.topics_regex or "")
    committed = {
        (entry["partition"]["kafka_topic"], int(entry["partition"]["kafka_partition"])): int(
            entry["offset"]["kafka_offset"]
        )
        for entry in client.offsets(connector)
    }
    waiting = 0
    for topic in topics:
        snapshot = take_snapshot(clients, topic)
        for partition, end in snapshot.ends.items():
            waiting += max(0, end - max(snapshot.starts[partition], committed.get((topic, partition), 0)))
    return waiting


def topic_sizes(config: WorkerConfig, topics: Sequence[str]) -> dict[str, int]:
    """About how many records each existing topic holds; markers of transactions count, too.

    Raises:
        KafkaUnreachableError and other errors of Kafka.
    """
    admin = Admin(ClientConfigs(config, "sizes", config.bootstrap_servers).admin())
    try:
        counts = admin.partition_counts(topics) if topics else {}
        partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count or 0)]
        starts = admin.start_offsets(partitions) if partitions else {}
        ends = admin.end_offsets(partitions, committed=True) if partitions else {}
    finally:
        admin.close()
    return {
        topic: sum(ends[at] - starts[at] for at in partitions if at.topic == topic)
        for topic, count in counts.items()
        if count is not None
    }


def _matching(clients: ClientConfigs, regex: str) -> list[str]:
    admin = Admin(clients.admin())
    try:
        return [topic for topic in admin.topics() if compiled(regex).matches(topic)]
    finally:
        admin.close()


WINDOW_S = 8.0
"""Rates are over this time, because commits come seconds apart."""


class Movement(Shown, Value):
    """How the records of a connector move; None for what cannot be seen.

    Attributes:
        rate: records a second over the last `WINDOW_S`, or since the first reading.
        moved: records since the first reading.
        lag: records that a sink has not committed.
        is_sink: it reads its topics instead of writing them.
        topics: that it has used.
        committed: offsets of a sink, by partition, like "orders-0".
    """

    rate: float | None = None
    moved: int | None = None
    lag: int | None = None
    is_sink: bool = False
    topics: tuple[str, ...] = ()
    committed: Mapping[str, int] = field(default_factory=dict)


class MovementReader(Shown):
    """Reads offsets repeatedly. Not for several threads at a time.

    Args:
        client: asks the workers.
        config: settings to reach Kafka; None: without Kafka, sources have no rate and sinks no lag.
        clock_s: seconds of a clock that only goes forward.
    """

    def __init__(
        self, client: RestClient, config: WorkerConfig | None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._admin = None if config is None else Admin(ClientConfigs(config, "flow").admin())
        self._clock_s = clock_s
        self._positions: deque[tuple[float, dict[str, int]]] = deque()
        self._first: dict[str, int] = {}

    def _shown(self) -> Form:
        return Form(
            "MovementReader", {"Kafka": "reached" if self._admin is not None else "not known", "window s": WINDOW_S}
        )

    def read(self, connectors: Mapping[str, str]) -> dict[str, Movement]:
        """Read the offsets of connectors, name to type (source or sink)."""
        topics = {name: self._asked(self._client.topics, name) or [] for name in connectors}
        ends = self._ends({topic for used in topics.values() for topic in used})
        positions: dict[str, int] = {}
        lags: dict[str, int] = {}
        read: dict[str, dict[str, int]] = {}
        for name, kind in connectors.items():
            if kind == "sink":
                committed = {
                    _partition(one): int(one["offset"]["kafka_offset"])
                    for one in self._asked(self._client.offsets, name) or ()
                }
                read[name] = {str(partition): offset for partition, offset in committed.items()}
                if committed:
                    positions[name] = sum(committed.values())
                if committed and all(partition in ends for partition in committed):
                    lags[name] = sum(max(0, ends[partition] - offset) for partition, offset in committed.items())
            elif written := [end for partition, end in ends.items() if partition.topic in topics[name]]:
                positions[name] = sum(written)
        rates = self._rates(positions)
        self._first = {name: self._first.get(name, position) for name, position in positions.items()}
        moved = {name: max(0, position - self._first[name]) for name, position in positions.items()}
        return {
            name: Movement(
                rates.get(name),
                moved.get(name),
                lags.get(name),
                is_sink=kind == "sink",
                topics=tuple(topics[name]),
                committed=read.get(name, {}),
            )
            for name, kind in connectors.items()
        }

    def read_all(self) -> dict[str, Movement]:
        """Read the offsets of all connectors, as `read`; RestError where the workers do not answer."""
        shown = self._client.expanded()
        statuses = {name: one["status"] for name, one in shown.items() if one.get("status")}
        return self.read({name: str(status.get("type", "")) for name, status in statuses.items()})

    def close(self) -> None:
        """Close the connection to Kafka."""
        if self._admin is not None:
            self._admin.close()

    def _rates(self, positions: dict[str, int]) -> dict[str, float]:
        self._positions.append((self._clock_s(), positions))
        while len(self._positions) > 2 and self._positions[-1][0] - self._positions[1][0] >= WINDOW_S:
            self._positions.popleft()
        (first_s, first), (last_s, last) = self._positions[0], self._positions[-1]
        if last_s <= first_s:
            return {}
        return {name: max(0, last[name] - first[name]) / (last_s - first_s) for name in last if name in first}

    def _ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, int]:
        wanted = sorted(topics)
        if self._admin is None or not wanted:
            return {}
        with suppress(ConnectxError):  # Kafka does not answer just now
            counts = self._admin.partition_counts(wanted)
            partitions = [TopicPartition(topic, number) for topic in wanted for number in range(counts[topic] or 0)]
            return self._admin.end_offsets(partitions, committed=True)
        return {}

    @staticmethod
    def _asked(ask: Callable[[str], list[Any]], connector: str) -> list[Any] | None:
        try:
            return ask(connector)
        except ConnectxError:  # deleted meanwhile, or the worker does not know
            return None


def _partition(entry: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(entry["partition"]["kafka_topic"], int(entry["partition"]["kafka_partition"]))
