"""Compares only the keys of rows, on Spark: the depth of a check for places of any size.

Executors read the topics without a consumer group and identify each row as a comparison of rows does; Spark counts. A
key is lost if the target does not have it, and duplicated if the target has it more often than the topics. Less often
is no finding, since a target may keep one row for each key. Order and other fields are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import field
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from connectx.errors.base import ConnectxError
from connectx.errors.checks import CheckError
from connectx.history.wording import plural
from connectx.model.ids import TopicPartition
from connectx.plugins.stored import Stored
from connectx.runtime.tasks.sink.bulk import split
from connectx.spark.executors import executor_cores
from connectx.spark.sessions import is_connect
from connectx.spark.shipping import modules_of, ship
from connectx.spark.slices import TaskSpark, failure_reason
from connectx.values import Value
from connectx.verify.check.comparison import Difference
from connectx.verify.check.identity import shown
from connectx.verify.check.key_reading import KEYS, RECORDS, KeyReader, identified, identified_chunks
from connectx.verify.check.rows import OnRead, Row, Rows, fingerprint
from connectx.verify.check.sides import Sides

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HEARTBEAT_S: Final = 0.2
_CHUNK_ROWS: Final = 20_000
_CHUNKS: Final = 10
"""Chunks of rows of the target in one data frame, each the work of one Spark task at the most."""

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
    "lost": "count_if(kind = 'lost')",
    "pending": "count_if(there = 0 AND allowed > 0 AND NOT is_needed AND NOT is_undecided)",
    "duplicated": "sum(IF(allowed > 0, greatest(there - allowed, 0), 0))",
    "alien": "sum(IF(allowed = 0, there, 0))",
}
_KINDS: Final = ("lost", "duplicated", "alien")
_KIND: Final = """CASE
    WHEN there = 0 AND is_needed THEN 'lost'
    WHEN allowed > 0 AND there > allowed THEN 'duplicated'
    WHEN allowed = 0 AND there > 0 THEN 'alien'
END"""


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
            .withColumn("kind", f.expr(_KIND))
        )
        wanted = {**_COUNTS, "undecided": "count_if(is_undecided)"}
        sums = counted.agg(*(f.expr(text).alias(name) for name, text in wanted.items())).first()
        assert sums is not None
        counts: dict[str, Any] = {name: int(sums[name] or 0) for name in _COUNTS}
        self._undecided[:] = [self._doubt(sums["undecided"])] if sums["undecided"] else []
        self._examples.clear()
        if examples and any(counts[kind] for kind in _KINDS):
            counts |= self._take(counted, examples)
        return Difference(**counts, by_key=True)

    def _doubt(self, keys: int) -> str:
        place = self.sides.stored.place
        return f"records of several partitions change and delete {plural(keys, 'key')} of {place}"

    def _take(self, counted: DataFrame, examples: int) -> dict[str, tuple[int, ...]]:
        """Note the first keys of each kind as examples, and return their fingerprints."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        number = f.row_number().over(Window.partitionBy("kind").orderBy("first.offset", "key"))
        found = counted.where("kind IS NOT NULL").withColumn("number", number).where(f.col("number") <= examples)
        for each in found.select("kind", "key", "first", "number").orderBy("kind", "number").collect():
            identity, first = bytes(each["key"]), each["first"]
            at = {} if first is None else {name: first[name] for name in ("partition", "offset", "time_ms", "topic")}
            self._examples.setdefault(each["kind"], []).append(Row(identity, self._text(identity), **at))
        return {f"{kind}_prints": tuple(fingerprint(row.identity) for row in self._shown(kind)) for kind in _KINDS}

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
            return session.createDataFrame([], RECORDS)
        decode = {topic.snapshot.topic: topic.decode for topic in topics}
        order = KeyReader(
            parts,
            topics[0].snapshot.consumer,
            decode,
            self.sides.named_key,
            self.sides.stored.change,
            self.sides.committed,
        )
        return session.range(0, len(parts), 1, len(parts)).mapInArrow(order, RECORDS)

    def _rows(self, session: SparkSession) -> DataFrame:
        names, stored = self.sides.named_key, self.sides.stored
        if self.frame is not None and not is_connect(session):
            return self.frame.select(*names).mapInArrow(partial(identified, names=names, lines=False), KEYS)
        frames = [
            session.createDataFrame([(chunk,) for chunk in chunks], "chunk binary")
            .repartition(len(chunks))
            .mapInArrow(partial(identified_chunks, names=names, lines=stored.lines), KEYS)
            for chunks in _chunks(stored, names)
        ]
        rows = session.createDataFrame([], KEYS)
        for frame in frames:
            rows = rows.unionAll(frame)
        return rows


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
