"""MirrorSource: copies topics of another Kafka cluster, exactly once.

Keys, source partitions and source offsets are those of MirrorMaker 2's MirrorSourceConnector, so either can continue
where the other stopped. Records come from connectx's own fetcher as Arrow tables and keep key, value, headers,
timestamp and partition.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from connectx.connectors.mirror.clients import client_config
from connectx.connectors.mirror.config import (
    CONFIG,
    SOURCE_ADMIN,
    SOURCE_READER,
    TARGET_ADMIN,
    Naming,
    offset_problem,
    problems,
    source_partition,
)
from connectx.connectors.mirror.errors import MirrorGapError, MirrorTopicRecreatedError
from connectx.errors.base import ConnectxError
from connectx.errors.kafka import KafkaUnreachableError, OffsetOutOfRangeError
from connectx.errors.plugins import ConfigError
from connectx.model.ids import TopicPartition
from connectx.model.places import Place
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.contexts import ConnectorContext, SourceTaskContext
from connectx.plugins.errors import RetriableError
from connectx.plugins.slices import Slice
from connectx.plugins.tasks import SourceTask
from connectx.version import KAFKA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from connectx.kafka.admin.client import Admin
    from connectx.kafka.fetcher.fetcher import FetchedRecords, RecordFetcher

log = logging.getLogger(__name__)

_ASSIGNED: Final = "task.assigned.partitions"
_TOPIC_ID: Final = "topic_id"
"""Field of source offsets that MirrorMaker 2 does not write, and does not read."""
_POLL_S: Final = 0.1
_AGAIN_MS: Final = 1_000
_SLACK_S: Final = 0.5  # monitor comes at its interval, not exactly


class MirrorSource(SourceConnector):
    """Copies topics of another Kafka cluster, exactly once (Kafka: MirrorSourceConnector)."""

    summary = "topics of another Kafka cluster; keys and offsets of MirrorMaker 2"
    java_class = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    version = KAFKA_VERSION
    offsets_in_kafka = True
    config = CONFIG
    _admins: tuple[Admin, ...] = ()

    def start(self, config: Mapping[str, str], context: ConnectorContext) -> None:
        """Find the topics, and create those that the target lacks.

        Raises:
            ConfigError: source and target are one cluster, and topics keep their names.
            TopicNotCreatableError, KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError
        """
        from connectx.connectors.mirror.groups import GroupOffsets
        from connectx.connectors.mirror.topics import MirroredTopics
        from connectx.kafka.admin.client import Admin  # slow: Kafka's admin client

        super().start(config, context)
        self._context = context
        self._values = values = CONFIG.parse(config)
        source = Admin(client_config(config, SOURCE_ADMIN, "connectx-mirror-source"))
        target = Admin(client_config(config, TARGET_ADMIN, "connectx-mirror-target"))
        self._admins, naming = (source, target), Naming.of(values)
        self._same_cluster = source.cluster_id() == target.cluster_id()
        if self._same_cluster and naming.keeps_names:
            raise ConfigError(
                ["source.cluster.bootstrap.servers and target.cluster.bootstrap.servers are one cluster"],
                next_step="Name another cluster, or set replication.policy.class=DefaultReplicationPolicy.",
            )
        self._topics = MirroredTopics(source, target, naming, values)
        self._groups = GroupOffsets(source, target, naming, values, config)
        self._counts = self._topics.sync(same_cluster=self._same_cluster)
        now_s = time.monotonic()
        self._due_s = {self._refresh: now_s + values["refresh.topics.interval.seconds"], self._translate: now_s}

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Partitions are dealt out in turn, as MirrorMaker 2 does."""
        parts = [f"{topic}-{number}" for topic, count in self._counts.items() for number in range(count)]
        tasks = min(max_tasks, len(parts))
        return [{**self.settings, _ASSIGNED: ",".join(parts[task::tasks])} for task in range(tasks)]

    def monitor_interval_ms(self) -> int | None:
        """The shortest of the intervals that are in use."""
        seconds = [self._values[name] for name in self._intervals().values()]
        return min(seconds) * 1000 if seconds else None

    def monitor(self) -> None:
        """Look for new topics and partitions, and translate offsets of groups."""
        for step, name in self._intervals().items():
            if time.monotonic() < self._due_s[step]:
                continue
            self._due_s[step] = time.monotonic() + self._values[name] - _SLACK_S
            try:
                step()
            except ConnectxError as error:
                if not error.retriable:
                    raise
                log.warning("%s It is tried again after %s.", error.message, name)

    def stop(self) -> None:
        """Close the clients."""
        for admin in self._admins:
            admin.close()

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        servers, names = config.get("source.cluster.bootstrap.servers"), config.get("topics") or ".*"
        return [Place(f"topic {topic.strip()} of {servers}") for topic in names.split(",") if servers]

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Bytes pass through unchanged, and translated offsets need the header."""
        return problems(config)

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str | None]) -> bool | None:
        """Yes, if only committed records of the source are read."""
        return (config.get("source.consumer.isolation.level") or "read_committed").lower() == "read_committed"

    @classmethod
    def check_offsets(
        cls, config: Mapping[str, str | None], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> None:
        """Partitions and offsets have MirrorMaker 2's form."""
        for partition, offset in offsets:
            if (problem := offset_problem(partition, offset)) is not None:
                raise ValueError(problem)

    def _intervals(self) -> dict[Any, str]:
        found: dict[Any, str] = {}
        if self._values["refresh.topics.enabled"]:
            found[self._refresh] = "refresh.topics.interval.seconds"
        if self._values["sync.group.offsets.enabled"]:
            found[self._translate] = "sync.group.offsets.interval.seconds"
        return found

    def _refresh(self) -> None:
        counts = self._topics.sync(same_cluster=self._same_cluster)
        if counts != self._counts:
            self._counts = counts
            self._context.request_task_reconfiguration()

    def _translate(self) -> None:
        self._groups.sync(self._counts)

    class Task(SourceTask):
        """Source partitions `{"cluster", "partition", "topic"}`; `{"offset"}` is that of the last mirrored record."""

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            """Take the configuration; the first poll connects."""
            super().start(config, context)
            self._values = values = CONFIG.parse(config)
            self._naming = Naming.of(values)
            self._assigned = [_named(text) for text in config[_ASSIGNED].split(",")]
            self.partition = self._place(self._assigned[0])
            self._reader = client_config(config, SOURCE_READER, f"connectx-mirror-{context.task}")
            self._fetcher: RecordFetcher | None = None
            self._slices: deque[Slice] = deque()
            self._ids: dict[str, str] = {}
            self._interruptions = 0

        def partitions(self) -> Sequence[SourcePartition]:
            """One for each topic partition."""
            return [self._place(at) for at in self._assigned]

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """The next records of one partition.

            Raises:
                RetriableError: the source cannot be reached.
                MirrorGapError: the source has removed records that were not read yet.
                MirrorTopicRecreatedError: a topic of the source was deleted and created again.
                KafkaLoginError, KafkaPermissionError, KafkaRequestError, RecordBatchError
            """
            try:
                if self._fetcher is None:
                    self._fetcher = self._open()
                if not self._slices:
                    self._fetch(self._fetcher)
            except OffsetOutOfRangeError as error:
                if not self._have_new_ids():
                    self._skip(error)
            except KafkaUnreachableError as error:
                self.waits = error.message
                raise RetriableError(error.message, next_step=error.next_step) from error
            return self._slices.popleft() if self._slices else None

        def reread_partition(
            self, spark: SparkSession, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset | None
        ) -> Iterator[Slice] | None:
            """Records between two offsets; None when the source no longer has all of them."""
            at = TopicPartition(str(partition["topic"]), int(partition["partition"]))
            with closing(self._admin()) as admin:
                earliest = admin.start_offsets([at])[at]
                last = int(end["offset"]) + 1 if end else admin.end_offsets([at], committed=True)[at]
                now = admin.topic_ids([at.topic]).get(at.topic)
            if any(offset and offset.get(_TOPIC_ID, now) != now for offset in (start, end)):
                return None
            first = earliest if start is None else int(start["offset"]) + 1
            return None if first < earliest else self._read(at, first, last)

        def idle(self, offset: SourceOffset | None) -> None:
            """Wait only while the source cannot be reached: a poll has waited for records."""
            self.context.wait(_AGAIN_MS if self._fetcher is None else 1)

        def stop(self) -> None:
            """Close the connections."""
            if self._fetcher is not None:
                self._fetcher.close()

        def abandon(self) -> None:
            """Close the connections: nothing is left to be finished."""
            self.stop()

        def _place(self, at: TopicPartition) -> dict[str, Any]:
            return source_partition(self._naming.alias, at)

        def _admin(self) -> Admin:
            from connectx.kafka.admin.client import Admin

            return Admin(client_config(self.settings, SOURCE_ADMIN, f"connectx-mirror-admin-{self.context.task}"))

        def _open(self) -> RecordFetcher:
            from connectx.kafka.fetcher.fetcher import RecordFetcher

            reached = {at: self.context.offset(self._place(at)) for at in self._assigned}
            known = {at: offset for at, offset in reached.items() if offset is not None}
            self._ids = self._present_ids()
            again = self._recreated({at: offset.get(_TOPIC_ID) for at, offset in known.items()}, self._ids)
            for at in again:
                if self._values["source.consumer.auto.offset.reset"] is None:
                    raise MirrorTopicRecreatedError(str(at), known[at]["offset"])
                log.warning("%s: the topic of %s was created again after %s", self.context.task, at, known[at])
            offsets = {at: int(offset["offset"]) + 1 for at, offset in known.items() if at not in again}
            offsets |= self._initial([at for at in self._assigned if at not in offsets])
            fetcher = RecordFetcher(self._reader)
            fetcher.start()
            fetcher.fetch_from(offsets)
            return fetcher

        def _fetch(self, fetcher: RecordFetcher) -> None:
            """Slices of the next records. Where reading was interrupted, topics may have been created again."""
            fetched = fetcher.poll(_POLL_S, self._values["source.consumer.max.poll.records"])
            self.waits = "" if fetched is not None else fetcher.trouble or ""
            interruptions = fetcher.interruptions
            if fetched is None or (interruptions > self._interruptions and self._have_new_ids()):
                return
            self._interruptions = interruptions
            self._slices.extend(self._cut(fetched))

        def _have_new_ids(self) -> bool:
            """Whether a topic was created again since the task began to read it; the next poll then begins again."""
            if not self._recreated({at: self._ids.get(at.topic) for at in self._assigned}, self._present_ids()):
                return False
            assert self._fetcher is not None, "it has read"
            self._fetcher.close()
            self._fetcher, self._interruptions = None, 0
            return True

        def _present_ids(self) -> dict[str, str]:
            with closing(self._admin()) as admin:
                return admin.topic_ids(sorted({at.topic for at in self._assigned}))

        def _recreated(
            self, before: Mapping[TopicPartition, str | None], now: Mapping[str, str]
        ) -> list[TopicPartition]:
            """Partitions of topics that have another id than before."""
            return [at for at, id_ in before.items() if id_ and now.get(at.topic, id_) != id_]

        def _initial(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            """Where to begin, by source.consumer.auto.offset.reset."""
            if not partitions:
                return {}
            with closing(self._admin()) as admin:
                if self._values["source.consumer.auto.offset.reset"] == "latest":
                    return admin.end_offsets(partitions, committed=True)
                return admin.start_offsets(partitions)

        def _skip(self, error: OffsetOutOfRangeError) -> None:
            """Continue after the removed records, if the configuration allows it."""
            at = _named(error.partition)
            lost = self.context.offset(self._place(at)) is not None
            if lost and self._values["source.consumer.auto.offset.reset"] is None:
                raise MirrorGapError(error.partition, error.offset) from error
            start = self._initial([at])
            assert self._fetcher is not None, "it has read"
            self._fetcher.fetch_from(start)
            if lost:
                log.warning("%s continues at offset %d of %s: %s", self.context.task, start[at], at, error.message)

        def _cut(self, fetched: FetchedRecords | None) -> Iterator[Slice]:
            """A slice for each partition."""
            if fetched is None:
                return
            for at in fetched.ranges:
                rows = fetched.rows if len(fetched.ranges) == 1 else _of_partition(fetched.rows, at)
                if rows.num_rows:
                    yield self._slice(at, rows)

        def _read(self, at: TopicPartition, first: int, end: int) -> Iterator[Slice]:
            from connectx.kafka.fetcher.ranges import read_ranges

            for rows in read_ranges(self._reader, {at: (first, end)}):
                yield self._slice(at, rows)

        def _slice(self, at: TopicPartition, rows: pa.Table) -> Slice:
            last = rows["offset"][rows.num_rows - 1].as_py()
            if header := self._values["source.offset.header"]:
                rows = _with_offset_header(rows, header)
            return Slice(
                rows.select(["key", "value", "partition", "timestamp", "headers"]),
                {"offset": last} | ({_TOPIC_ID: self._ids[at.topic]} if at.topic in self._ids else {}),
                topic=self._naming.target(at.topic),
                partition=self._place(at),
            )


def _named(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def _of_partition(rows: pa.Table, at: TopicPartition) -> pa.Table:
    import pyarrow.compute as pc

    return rows.filter(pc.and_(pc.equal(rows["topic"], at.topic), pc.equal(rows["partition"], at.partition)))


def _with_offset_header(rows: pa.Table, name: str) -> pa.Table:
    """Each record's offset as its last header."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    headers = rows["headers"].combine_chunks()
    headers = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
    count, kind = rows.num_rows, headers.type.value_type
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(counts + 1)]).astype(np.int32)
    texts = rows["offset"].combine_chunks().cast(pa.string()).cast(pa.binary())
    own = pa.StructArray.from_arrays([pa.repeat(name, count), texts], fields=list(kind))
    both = pa.concat_arrays([headers.flatten(), own])
    order = np.empty(len(both), np.int64)
    is_own = np.zeros(len(both), bool)
    is_own[offsets[1:] - 1] = True
    order[is_own] = np.arange(len(both) - count, len(both))
    order[~is_own] = np.arange(len(both) - count)
    made = pa.ListArray.from_arrays(pa.array(offsets), both.take(pa.array(order)), type=headers.type)
    return rows.set_column(rows.column_names.index("headers"), "headers", pa.chunked_array([made]))
