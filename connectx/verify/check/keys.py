"""Compares only the keys of rows, on Spark: the depth of a check for places of any size.

Executors read the topics without a consumer group and identify each row as a comparison of rows does; Spark counts. A
key is lost if the target does not have it, and duplicated if the target has it more often than the topics. Less often
is no finding, since a target may keep one row for each key. Order and other fields are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import field
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from connectx.errors.base import ConnectxError
from connectx.errors.checks import CheckError
from connectx.history.wording import plural
from connectx.kafka.fetcher.ranges import read_ranges
from connectx.model.ids import TopicPartition
from connectx.plugins.stored import Stored
from connectx.runtime.tasks.sink.bulk import split
from connectx.spark.executors import executor_cores
from connectx.spark.sessions import is_connect
from connectx.spark.shipping import modules_of, ship
from connectx.spark.slices import TaskSpark, failure_reason
from connectx.values import Value
from connectx.verify.check.comparison import Difference
from connectx.verify.check.identity import of_fields, shown
from connectx.verify.check.rows import OnRead, Row, Rows, fingerprint
from connectx.verify.check.sides import UNREADABLE, Decode, Sides, fields_of, fields_of_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_HEARTBEAT_S: Final = 0.2
_BATCH_RECORDS: Final = 50_000
_CHUNK_ROWS: Final = 20_000
_CHUNKS: Final = 10
"""Chunks of rows of the target in one data frame, each the work of one Spark task at the most."""

_RECORDS: Final = "key binary, topic string, partition int, offset long, time_ms long, pending boolean, deletes boolean"
_KEYS: Final = "key binary"

_SEEN: Final = {
    "there": "count(is_row)",
    "records": "count(topic)",
    "made": "count_if(NOT deletes)",
    "settled": "count_if(NOT pending)",
    "deleted": "coalesce(max_by(deletes, offset), true)",
    "scattered": "min(struct(topic, partition)) FILTER (WHERE topic IS NOT NULL) != max(struct(topic, partition))",
    "first": "min(struct(offset, partition, time_ms, topic)) FILTER (WHERE topic IS NOT NULL)",
}
"""Of each key: rows of the target, records, those that make a row, and those before the sink's committed offset.

Offsets order the records of a key, unless it is in several partitions (scattered).
"""
_APPENDED: Final = {"allowed": "made", "is_needed": "made > 0 AND settled > 0", "is_undecided": "false"}
_KEPT: Final = {
    "allowed": "IF(settled < records OR scattered, int(made > 0), int(NOT deleted))",
    "is_needed": "IF(settled < records OR scattered, settled > 0 AND made = records, NOT deleted)",
    "is_undecided": "scattered AND settled = records AND made BETWEEN 1 AND records - 1",
}
"""The target keeps one row for each key, unless the last record deletes it; undecided if that record is not known."""
_COUNTS: Final = {
    "found": "sum(there)",
    "expected": "sum(IF(there = 0, IF(is_needed, 1, 0), least(there, allowed)))",
    "needed": "sum(IF(is_needed, greatest(least(there, allowed), 1), 0))",
    "lost": "count_if(there = 0 AND is_needed)",
    "pending": "count_if(there = 0 AND allowed > 0 AND NOT is_needed AND NOT is_undecided)",
    "duplicated": "sum(IF(allowed > 0, greatest(there - allowed, 0), 0))",
    "alien": "sum(IF(allowed = 0, there, 0))",
}
_EXAMPLES: Final = {
    "lost": "there = 0 AND is_needed",
    "duplicated": "allowed > 0 AND there > allowed",
    "alien": "allowed = 0 AND there > 0",
}


class KeyComparison(Value):
    """Keys of topics and of a target.

    Args:
        sides: what is compared, with the fields that identify a row; without any, whole lines are compared.
        spark: where keys are counted.
        classes: plugins that decode the records, which executors need.
        frame: the rows of the target, if they are a Spark data frame.
    """

    sides: Sides
    spark: TaskSpark
    classes: tuple[type, ...] = ()
    frame: DataFrame | None = None
    _examples: dict[str, list[Row]] = field(default_factory=dict)
    _undecided: list[str] = field(default_factory=list)

    def found(self) -> Rows:
        """The target, of whose rows only examples can be read."""
        return Rows(self.sides.stored.place, lambda: self._shown("duplicated", "alien"))

    def wanted(self) -> Rows:
        """The topics, of whose records only examples can be read."""
        return Rows(self.sides.wanted().place, lambda: self._shown("lost", "duplicated"))

    def unchecked(self) -> tuple[str, ...]:
        """Which keys were not compared, known once they were counted."""
        return tuple(self._undecided)

    def _shown(self, *kinds: str) -> list[Row]:
        return [row for kind in kinds for row in self._examples.get(kind, ())]

    def count(self, on_read: OnRead, examples: int) -> Difference:
        """Count keys of both sides; an error of `on_read`, or an interrupt, ends the jobs of Spark.

        Raises:
            CheckError: no fields were named, the target lacks them, or Spark fails.
        """
        self._check_fields()
        with ThreadPoolExecutor(1, thread_name_prefix="check-keys") as pool:  # Spark answers only when it is done
            counting = pool.submit(self._count, examples)
            try:
                while not wait([counting], _HEARTBEAT_S).done:
                    on_read(f"keys of {self.sides.stored.place}", 0, 0)
            except BaseException:
                self.spark.interrupt()
                raise
        return counting.result()

    def _check_fields(self) -> None:
        names, stored = self.sides.named_key, self.sides.stored
        if not names and not stored.lines:
            raise CheckError(
                f"No fields were named that match records with rows of {stored.place}.",
                next_step="Name them: key=, one or more fields.",
            )
        if self.frame is not None:
            columns: Sequence[str] | None = self.frame.columns
        else:
            columns = None if stored.lines else next((table.column_names for table in stored.read()), None)
        missing = [name for name in names if columns is not None and name not in columns]
        if missing:
            raise CheckError(
                f"{stored.place} has no column {missing[0]}, which was to identify rows.",
                next_step=f"Name columns that it has: {', '.join(columns or ())}.",
            )

    def _count(self, examples: int) -> Difference:
        try:
            return self._difference(examples)
        except ConnectxError:
            raise
        except Exception as error:
            raise CheckError(
                f"Spark could not compare the keys of {self.sides.stored.place}: {failure_reason(error)}.",
                next_step='Executors need a route to Kafka and the topic\'s records; depth="rows" needs no Spark.',
            ) from error

    def _difference(self, examples: int) -> Difference:
        from pyspark.sql import functions as f

        session = self.spark.session()
        ship(session, modules_of(self.classes))
        rows = self._rows(session)
        records = self._records(session)  # later: otherwise the target may have rows of records after them
        both = records.unionByName(rows.withColumn("is_row", f.lit(True)), allowMissingColumns=True)
        values = _KEPT if self.sides.stored.key else _APPENDED
        counted = (
            both.groupBy("key")
            .agg(*(f.expr(text).alias(name) for name, text in _SEEN.items()))
            .withColumns({name: f.expr(text) for name, text in values.items()})
        )
        wanted = {**_COUNTS, "undecided": "count_if(is_undecided)"}
        sums = counted.agg(*(f.expr(text).alias(name) for name, text in wanted.items())).first()
        assert sums is not None
        counts: dict[str, Any] = {name: int(sums[name] or 0) for name in _COUNTS}
        self._undecided[:] = [self._doubt(sums["undecided"])] if sums["undecided"] else []
        for kind in _EXAMPLES:
            counts[f"{kind}_prints"] = self._take(counted, kind, examples if counts[kind] else 0)
        return Difference(**counts, by_key=True)

    def _doubt(self, keys: int) -> str:
        place = self.sides.stored.place
        return f"records of several partitions change and delete {plural(keys, 'key')} of {place}"

    def _take(self, counted: DataFrame, kind: str, examples: int) -> tuple[int, ...]:
        """Note the first keys of a kind as examples, and return their fingerprints."""
        if not examples:
            return ()
        found = counted.where(_EXAMPLES[kind]).orderBy("first.offset", "key").limit(examples).collect()
        rows = []
        for each in found:
            identity, first = bytes(each["key"]), each["first"]
            at = {} if first is None else {name: first[name] for name in ("partition", "offset", "time_ms", "topic")}
            rows.append(Row(identity, self._text(identity), **at))
        self._examples[kind] = rows
        return tuple(fingerprint(row.identity) for row in rows)

    def _text(self, identity: bytes) -> str:
        names = self.sides.named_key
        return shown(
            dict(zip(names, json.loads(identity), strict=True)) if names else identity.decode(errors="replace")
        )

    def _records(self, session: SparkSession) -> DataFrame:
        cores = executor_cores(session)
        parts: list[tuple[TopicPartition, tuple[int, int]]] = []
        topics = list(self.sides.latest())
        for topic in topics:
            if ranges := topic.snapshot.ranges:
                parts += split(ranges, cores)
        if not parts:
            return session.createDataFrame([], _RECORDS)
        decode = {topic.snapshot.topic: topic.decode for topic in topics}
        order = _ReadKeys(
            parts,
            topics[0].snapshot.consumer,
            decode,
            self.sides.named_key,
            self.sides.stored.change,
            self.sides.committed,
        )
        return session.range(0, len(parts), 1, len(parts)).mapInArrow(order, _RECORDS)

    def _rows(self, session: SparkSession) -> DataFrame:
        names, stored = self.sides.named_key, self.sides.stored
        if self.frame is not None and not is_connect(session):
            return self.frame.select(*names).mapInArrow(partial(_identified, names=names, lines=False), _KEYS)
        frames = [
            session.createDataFrame([(chunk,) for chunk in chunks], "chunk binary")
            .repartition(len(chunks))
            .mapInArrow(partial(_identified_chunks, names=names, lines=stored.lines), _KEYS)
            for chunks in _chunks(stored, names)
        ]
        rows = session.createDataFrame([], _KEYS)
        for frame in frames:
            rows = rows.unionAll(frame)
        return rows


class _ReadKeys(Value):
    """Reads parts of topics on executors; can be pickled."""

    parts: Sequence[tuple[TopicPartition, tuple[int, int]]]
    consumer: Mapping[str, Any]
    decode: Mapping[str, Decode]
    names: tuple[str, ...]
    change: Any
    committed: Mapping[str, int] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                partition, offsets = self.parts[number]
                for records in read_ranges(self.consumer, {partition: offsets}, max_records=_BATCH_RECORDS):
                    yield self._keys(partition, records)

    def _keys(self, partition: TopicPartition, records: pa.Table) -> pa.RecordBatch:
        import pyarrow as pa

        reached = None if self.committed is None else self.committed.get(str(partition), 0)
        decoded = self.decode[partition.topic](partition.topic, records)
        rows = [
            (identity, offset, time_ms, reached is not None and offset >= reached, deletes)
            for offset, time_ms, (key, value) in zip(
                records["offset"].to_pylist(), records["timestamp"].to_pylist(), decoded, strict=True
            )
            for identity, deletes in self._identities(key, value)
        ]
        keys, offsets, times_ms, pending, deletes = zip(*rows, strict=True) if rows else ((),) * 5
        columns = {
            "key": pa.array(keys, pa.binary()),
            "topic": pa.array([partition.topic] * len(rows), pa.string()),
            "partition": pa.array([partition.partition] * len(rows), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "time_ms": pa.array(times_ms, pa.int64()),
            "pending": pa.array(pending, pa.bool_()),
            "deletes": pa.array(deletes, pa.bool_()),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _identities(self, key: Any, value: Any) -> Iterator[tuple[bytes, bool]]:
        """Keys of the rows that a record is about, and whether it deletes them."""
        if value is UNREADABLE:
            return
        if self.names:
            fields, deletes = fields_of(self.change, key, value, self.names)
            if fields is not None:
                yield of_fields(fields, self.names), deletes
            return
        from connectx.connectors.files.stream_sink import lines_of_value

        for line in lines_of_value(value):
            yield line.encode(), False


def _chunks(stored: Stored, names: tuple[str, ...]) -> Iterator[list[bytes]]:
    """The rows of a target in Arrow's format, so that they are identified on executors, whatever their types are."""
    import pyarrow as pa

    held: list[bytes] = []
    for table in stored.read():
        wanted = table.select([0] if stored.lines else list(names))
        for start in range(0, wanted.num_rows, _CHUNK_ROWS):
            sink = BytesIO()
            with pa.ipc.new_stream(sink, wanted.schema) as writer:
                writer.write_table(wanted.slice(start, _CHUNK_ROWS))
            held.append(sink.getvalue())
            if len(held) == _CHUNKS:
                yield held
                held = []
    if held:
        yield held


def _identified_chunks(batches: Iterable[pa.RecordBatch], names: tuple[str, ...], lines: bool) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        for chunk in batch.column(0).to_pylist():
            yield from _identified(pa.ipc.open_stream(chunk), names, lines)


def _identified(batches: Iterable[pa.RecordBatch], names: tuple[str, ...], lines: bool) -> Iterator[pa.RecordBatch]:
    """Keys of rows, as `of_fields` makes them, or lines."""
    import pyarrow as pa

    for batch in batches:
        if not lines:
            keys = [of_fields(row, names) for row in batch.to_pylist()]
        elif names:
            keys = [of_fields(fields_of_line(line, names), names) for line in batch.column(0).to_pylist()]
        else:
            keys = [(line or "").encode() for line in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary())})
