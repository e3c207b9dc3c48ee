"""Base of the sinks that gather rows and write them at each flush, at least once.

It decides which columns the rows have and when they are written, not how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.shared.columns import evolved, fitted, fitted_by_halves
from connectx.connectors.shared.uniting import columns_of
from connectx.data.shapes import nulls_of
from connectx.errors.plugins import RecordRejectedError
from connectx.model.configdef import ConfigDef
from connectx.model.ids import TopicPartition
from connectx.model.validators import at_least
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.errors import NotStageableError
from connectx.plugins.slices import SinkBatch
from connectx.plugins.tasks import SinkTask
from connectx.version import VERSION

GATHERING_CONFIG: Final = (
    ConfigDef()
    .define(
        "flush.interval.ms",
        int,
        10_000,
        importance="HIGH",
        validator=at_least(100),
        doc="Time between commits.",
    )
    .define(
        "flush.size",
        int,
        100_000,
        validator=at_least(1),
        doc="Rows in memory after which a task commits before the interval is over.",
    )
)

_NO_VALUE: Final = "the record has no value (a tombstone), and this sink deletes nothing"

Ranges = Mapping[TopicPartition, tuple[int, int]]


class GatheringSink(SinkConnector):
    """Executors convert rows, too, and rows are written every flush.interval.ms."""

    version = VERSION
    requires = (("spark", "pyspark"),)

    @classmethod
    def bulk_obstacle(cls, config: Mapping[str, str | None]) -> str | None:
        return None

    @classmethod
    def flush_interval_ms(cls, config: Mapping[str, str | None]) -> int | None:
        interval_ms: int = cls.config.parse(config)["flush.interval.ms"]
        return interval_ms


class GatheringTask(SinkTask):
    """Columns are those of all values so far; a value without fields is in the column `value`.

    `start` of a subclass calls `use`. `name` is that of the target, `schema` None before there were rows.
    """

    reads_fields = True

    def use(self, name: str, flush_rows: int) -> None:
        self.name = name
        self.schema: pa.Schema | None = None
        self._flush_rows = flush_rows
        self._rows: dict[TopicPartition, list[pa.Table]] = {}
        self._ranges: dict[TopicPartition, tuple[int, int]] = {}

    def write_out(self, tables: Sequence[pa.Table], schema: pa.Schema, ranges: Ranges) -> None:
        """Write rows of these ranges of offsets, so that they are durable when it returns."""
        raise TypeError(f"{type(self).__name__} must define write_out")

    def put(self, batch: SinkBatch) -> None:
        """Take rows; first write if enough are gathered.

        Raises:
            TableMismatchError: values have a field in a type that its column cannot have.
            RecordRejectedError: a record has no value, with errors.tolerance=none.
            ConnectxError: what `write_out` raises.
        """
        if sum(rows.num_rows for tables in self._rows.values() for rows in tables) >= self._flush_rows:
            self._write()
        for partition, (first, end) in batch.ranges.items():
            columns, places = self.columns(partition, batch.rows)
            if columns.num_rows:
                self.schema = evolved(self.schema, columns.schema, self.name, evolve=True)
                self._rows.setdefault(partition, []).append(self.fitting(partition, columns, places, self.schema))
            self._ranges[partition] = self._ranges.get(partition, (first, end))[0], end

    def flush(self) -> None:
        """Write the gathered rows; after a failure they are dropped and read again.

        Raises:
            ConnectxError: what `write_out` raises.
        """
        try:
            self._write()
        except Exception:
            self._rows, self._ranges = {}, {}
            raise

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop rows that were not flushed."""
        for partition in partitions:
            self._rows.pop(partition, None)
            self._ranges.pop(partition, None)

    def columns(self, partition: TopicPartition, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Values of a partition as columns, and their offsets. Tombstones are reported and left out."""
        if not rows.num_rows:
            return pa.table({}), rows.select(["offset"])
        rows = rows.filter(pc.equal(rows["partition"], partition.partition))
        missing = nulls_of(rows["value"])
        if pc.any(missing).as_py():
            for offset in rows["offset"].filter(missing).to_pylist():
                self._refuse(partition, offset, _NO_VALUE)
            rows = rows.filter(pc.invert(missing))
        return columns_of(rows["value"]), rows.select(["offset"])

    def fitting(self, partition: TopicPartition, columns: pa.Table, places: pa.Table, schema: pa.Schema) -> pa.Table:
        """Columns in these types; a row whose value does not fit is reported and left out."""

        def refuse(place: Mapping[str, Any], cause: str) -> None:
            self._refuse(partition, place["offset"], cause)

        return fitted_by_halves(columns, places, schema, refuse)[0]

    def known_columns(self) -> pa.Schema:
        """Columns so far, for executors. Raises NotStageableError without any."""
        if self.schema is None:
            raise NotStageableError("The columns are not known before the worker has put records.")
        return self.schema

    def converted(self, schema: pa.Schema, batches: Iterator[SinkBatch]) -> Iterator[pa.Table]:
        """On an executor: rows of batches in these columns.

        Raises:
            NotStageableError: a batch has other columns.
        """
        for batch in batches:
            (partition,) = batch.ranges
            columns, places = self.columns(partition, batch.rows)
            if not columns.num_rows:
                continue
            if not evolved(schema, columns.schema, self.name, evolve=True).equals(schema):
                raise NotStageableError("The records have other columns than those before.")
            yield self.fitting(partition, columns, places, schema)

    def _write(self) -> None:
        tables = [rows for tables in self._rows.values() for rows in tables]
        if tables:
            schema = self.schema
            assert schema is not None, "there are rows"
            self.write_out([fitted(rows, schema) for rows in tables], schema, self._ranges)
        self._rows, self._ranges = {}, {}

    def _refuse(self, partition: TopicPartition, offset: int, cause: str) -> None:
        self.context.report(partition, offset, RecordRejectedError(str(partition), offset, self.name, cause))
