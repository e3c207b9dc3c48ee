"""Reads sources again with the code of their tasks, for the bytes that they should have written.

A source whose tasks cannot read again (`SourceTask.reread`) gives None. Then only the history shows how many records
are expected. It never writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from connectx.data.converters import decode
from connectx.data.json.converter import JsonConverter
from connectx.data.transforms.encoding import transform_and_encode
from connectx.errors.base import ConnectxError
from connectx.model.ids import TaskId
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.states import TransactionBoundary
from connectx.plugins.settings import source_connector_settings
from connectx.plugins.slices import Slice
from connectx.plugins.stored import Held
from connectx.plugins.tasks import SourceTask
from connectx.values import Value
from connectx.verify.check.commits import SourceHistory
from connectx.verify.check.identity import of_record, shown
from connectx.verify.check.replay import HeldRecord, Replay
from connectx.verify.check.rows import Row
from connectx.verify.check.sides import UNREADABLE, Decode, Topic, Values, decode_plainly

if TYPE_CHECKING:
    import pyarrow as pa

    from connectx.data.converter import Converter
    from connectx.kafka.admin.topic_snapshot import TopicSnapshot
    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.spark.slices import TaskSpark

Config = Mapping[str, "str | None"]


class SourceReader(Value):
    """Reads one source connector again.

    Attributes:
        tasks: configurations of its tasks, by number.
        histories: what it has committed, by source partition.
        numbers: a number for each of its source partitions, unlike those of other connectors.
    """

    connector: str
    config: Mapping[str, str | None]
    tasks: Sequence[Mapping[str, str]]
    histories: Sequence[SourceHistory]
    plugins: Plugins
    worker: WorkerConfig
    spark: TaskSpark
    numbers: Mapping[str, int] = field(default_factory=dict)
    latest: Callable[[], Sequence[SourceHistory]] = tuple
    """What it has committed by the time that its source is read, which is after its topics were."""

    def problem(self) -> str:
        """Why it cannot be read again; empty when it can."""
        if (java := self.plugins.java.connector(self.config.get("connector.class"))) is not None:
            return f"{java.class_name} of {self.connector} runs in Java, and only Python connectors read sources again"
        if (self.config.get("transaction.boundary") or "").lower() == TransactionBoundary.CONNECTOR:
            return f"connector {self.connector} ends its transactions itself, and may have aborted some"
        if self.plugins.chain(self.config).reads_time:
            return f"transformations of {self.connector} read the times of records, which may be those of polls"
        left = {json.dumps(history.partition) for history in self.histories}
        try:
            for task in self._started():
                partitions = task.partitions()
                left.difference_update(json.dumps(dict(partition)) for partition in partitions)
                if any(task.reread_partition(self.spark.lazy(), one, None, None) is None for one in partitions):
                    return f"connector {self.connector} cannot read its source again"
        except ConnectxError as error:
            return f"the source of {self.connector} cannot be read again: {error.message.rstrip('.')}"
        if left:
            return f"{self.connector} has committed {', '.join(sorted(left))}, which its tasks do not read any more"
        return ""

    def rows_may_change(self) -> bool:
        """Whether its rows may have changed after they were read."""
        return any(task.rows_may_change for task in self._started())

    def rows(self, topic: str) -> Iterator[Row]:
        """All rows for a topic: first those of the committed stretches, then those that may still come."""
        for task, partition in self._partitions():
            number = self.numbers.get(json.dumps(dict(partition)), 0)
            for piece, pending in self._slices(task, partition):
                for to, k, v in self._records(piece):
                    if to == topic:
                        yield Row(of_record(k, v), shown(v if v is not None else b"null"), number, pending=pending)

    def replay(self, topics: Sequence[TopicSnapshot], limit: int) -> Replay | None:
        """What its records leave, and what it holds, up to one row more than `limit`; None: unknown.

        Its transformations may make other rows of its records, and several tasks hold other rows.
        """
        if self.plugins.chain(self.config) or len(self.tasks) != 1:
            return None
        read = self._decode()
        for task in self._started():
            if (held := task.held(self.spark.lazy())) is not None:
                records = (record for piece in held.slices for record in self._decoded(piece, read))
                is_ahead = partial(self._is_ahead, held)
                return Replay(
                    [Topic(one, read) for one in topics], list(islice(records, limit + 1)), held.change, is_ahead
                )
        return None

    def _is_ahead(self, held: Held) -> bool:
        ends = [history.chapters[-1][1] for history in self.latest() if history.chapters]
        return not ends or not all(map(held.is_reached, ends))

    def _decode(self) -> Decode:
        """Fields as each record has them. JsonConverter would give all records of a chunk the same ones."""
        key, value = self._converter("key"), self._converter("value")
        if isinstance(key, JsonConverter) and isinstance(value, JsonConverter):
            return decode_plainly

        def decoded(topic: str, records: pa.Table) -> Values:
            read = decode(records.select(["key", "value"]), key, value)
            columns = (read[name].to_pylist() for name in ("key", "value", "error"))
            return [(None, UNREADABLE) if error else (k, v) for k, v, error in zip(*columns, strict=True)]

        return decoded

    def _decoded(self, piece: Slice, read: Decode) -> Iterator[HeldRecord]:
        import pyarrow as pa

        records = list(self._records(piece))
        sides = {
            "key": pa.array([k for _, k, _ in records], pa.binary()),
            "value": pa.array([v for _, _, v in records], pa.binary()),
        }
        for (topic, _, _), (key, value) in zip(records, read("", pa.table(sides)), strict=True):
            yield topic, key, value

    def _records(self, piece: Slice) -> Iterator[tuple[str, bytes | None, bytes | None]]:
        """Topic, key and value of the records that its task would have sent of a slice."""
        key, value, chain = self._converter("key"), self._converter("value"), self.plugins.chain(self.config)
        headers = self.plugins.header_converter(self.config, self.worker)
        tolerant = source_connector_settings(self.config, self.worker).errors.tolerate_all
        for rows in piece.rows if isinstance(piece.rows, tuple) else (piece.rows,):
            made = transform_and_encode(rows, piece.topic, chain, key, value, headers, skip_unwritable=tolerant)
            table = made.records
            topics = table["topic"].to_pylist() if "topic" in table.column_names else [None] * table.num_rows
            for to, k, v in zip(topics, table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
                yield to or piece.topic or "", k, v

    def _partitions(self) -> Iterator[tuple[SourceTask, SourcePartition]]:
        for task in self._started():
            yield from ((task, partition) for partition in task.partitions())

    def _slices(self, task: SourceTask, partition: SourcePartition) -> Iterator[tuple[Slice, bool]]:
        spark = self.spark.lazy()
        chapters = [
            c for history in self.histories if dict(history.partition) == dict(partition) for c in history.chapters
        ]
        for start, end in chapters:
            yield from ((piece, False) for piece in task.reread_partition(spark, partition, start, end) or ())
        after = chapters[-1][1] if chapters else None
        newer = [h.chapters[-1][1] for h in self.latest() if dict(h.partition) == dict(partition) and h.chapters]
        if newer and newer[0] != after:
            yield from ((piece, True) for piece in task.reread_partition(spark, partition, after, newer[0]) or ())
            after = newer[0]
        yield from ((piece, True) for piece in task.reread_partition(spark, partition, after, None) or ())

    def _started(self) -> Iterator[SourceTask]:
        for number, config in enumerate(self.tasks):
            task = self.plugins.create_task(self.config)
            assert isinstance(task, SourceTask), "only source connectors are read again"
            try:
                task.start(config, _Context(TaskId(self.connector, number)))
                yield task
            finally:
                task.stop()

    def _converter(self, side: str) -> Converter:
        return self.plugins.converter(side, self.config, self.worker)


class _Context(Value):
    """A SourceTaskContext without a past, and without a reason to wait."""

    task: TaskId
    transaction: None = None

    def offset(self, partition: SourcePartition) -> SourceOffset | None:
        return None

    def offsets(self, partitions: Sequence[SourcePartition]) -> list[SourceOffset | None]:
        return [None] * len(partitions)

    def wait(self, timeout_ms: int) -> bool:
        return True


def partition_numbers(histories: Sequence[SourceHistory]) -> dict[str, dict[str, int]]:
    """A number for each source partition of each connector."""
    numbers: dict[str, dict[str, int]] = {}
    for number, history in enumerate(histories, start=1):
        numbers.setdefault(history.connector, {})[json.dumps(history.partition)] = number
    return numbers


def judged_together(users: Mapping[str, Sequence[str]], counted: set[str]) -> list[list[str]]:
    """Groups of topics, by name.

    All topics of a source that can only be `counted` are one group, as the history counts their records together.

    Args:
        users: sources by topic.
        counted: sources that cannot be read again.
    """
    shared = {name for names in users.values() if len(names) > 1 for name in names}
    groups: dict[tuple[str, ...], list[str]] = {}
    for topic in sorted(users):
        name = users[topic][0]
        groups.setdefault((name,) if name in counted - shared else (name, topic), []).append(topic)
    return list(groups.values())


def task_configs(listed: Sequence[Mapping[str, Any]], resolve: Callable[[Config], Config]) -> list[dict[str, str]]:
    """Configurations of tasks as REST lists them, resolved by `resolve`: what stands there is placeholders."""
    ordered = sorted(listed, key=lambda task: int(task["id"]["task"]))
    resolved = [resolve(task["config"]) for task in ordered]
    return [{key: value for key, value in config.items() if value is not None} for config in resolved]
