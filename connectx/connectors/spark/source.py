"""SparkSource: rows that are added to anything that Spark reads in batches become records.

It decides what an offset is, by `offset.mode`: values of growing columns, a Delta version or an Iceberg snapshot. Both
bounds of a slice are known before its rows are read, so an offset always stands for the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from connectx.connectors.shared.errors import LakeUnavailableError
from connectx.connectors.shared.iceberg import CATALOG, catalog_problems
from connectx.connectors.shared.keyed import valued_frame, valued_table
from connectx.connectors.shared.storage import STORAGE, options
from connectx.connectors.spark.columns import ColumnReader
from connectx.connectors.spark.delta import DeltaLog
from connectx.connectors.spark.iceberg import IcebergLog
from connectx.connectors.spark.reading import FORMAT_OPTIONS, Reader
from connectx.connectors.spark.tables import TableReader
from connectx.extras import require
from connectx.model.configdef import ConfigDef
from connectx.model.places import Place
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.validators import between, non_empty, one_of
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.contexts import SourceTaskContext
from connectx.plugins.errors import RetriableError
from connectx.plugins.slices import Slice
from connectx.plugins.tasks import SourceTask
from connectx.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_PATH: Final = f"{FORMAT_OPTIONS}path"
_FORMATS: Final = {"version": "delta", "snapshot": "iceberg"}
"""Offset modes that go with one format."""
_OFFSET: Final = "Offset"


class SparkSource(SourceConnector):
    """Reads any batch format of Spark that has an offset; settings `format.options.<name>` are its options."""

    summary = "any batch format of Spark, by growing columns, Delta versions or Iceberg snapshots"
    version = VERSION
    exactly_once = True
    requires = (("spark", "pyspark"),)
    config = (
        ConfigDef()
        .define(
            "format",
            str,
            importance="HIGH",
            validator=non_empty(),
            doc="Format as in DataFrameReader.format: parquet, orc, jdbc, delta, iceberg, or one of a library of your "
            "Spark.",
        )
        .define("topic", str, importance="HIGH", validator=non_empty(), doc="Topic that the records go to.")
        .define("key.fields", list, "", doc="Columns that make the record's key; none is a null key.")
        .define(
            "schema",
            str,
            None,
            doc="Columns and their types as Spark DDL, for formats without any, such as json. Only with "
            "offset.mode=column.",
        )
        .define(
            "offset.mode",
            str,
            importance="HIGH",
            group=_OFFSET,
            validator=one_of("column", *_FORMATS),
            doc="column: values of offset.columns. version: of a Delta table. snapshot: of an Iceberg table.",
        )
        .define(
            "offset.columns",
            list,
            "",
            importance="HIGH",
            group=_OFFSET,
            doc="Columns that only grow from row to row, the most significant first, for example updated_at,id.",
        )
        .define(
            "offset.start",
            "LONG",
            None,
            group=_OFFSET,
            doc="Version or snapshot after which the first rows are read. Left out, all rows of the table are read "
            "before those that are added.",
        )
        .define(
            "skip.change.commits",
            bool,
            False,
            group=_OFFSET,
            doc="With versions and snapshots: whether a commit that deletes or updates rows is left out as a whole. "
            "false: it fails the task.",
        )
        .define(
            "iceberg.catalog",
            str,
            "iceberg",
            group="Storage",
            validator=non_empty(),
            doc="Name of the catalog with offset.mode=snapshot. Settings that begin with iceberg.catalog. go to it, as "
            "with IcebergSink.",
        )
        .define(
            "poll.interval.ms",
            int,
            1_000,
            validator=between(10, 3_600_000),
            doc="How long to wait after there was nothing new.",
        )
        .define(
            "slice.rows",
            int,
            20_000,
            importance="LOW",
            validator=between(1, 10_000_000),
            doc="Rows of a slice that the worker reads. Rows with equal offset.columns are never divided.",
        )
    )

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        path = config.get("format.options.path")
        return [Place(f"{config.get('format')} {path}")] if path else []

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Each offset mode needs its settings."""
        mode, problems = config.get("offset.mode"), dict[str, list[str]]()
        if mode == "column" and not (config.get("offset.columns") or "").strip():
            problems["offset.columns"] = ["offset.mode=column needs the columns"]
        if mode == "column" and config.get("offset.start"):
            problems["offset.start"] = ["offset.mode=column has no version or snapshot to begin after"]
        if mode in _FORMATS:
            if config.get("format") != _FORMATS[mode]:
                problems["format"] = [f"offset.mode={mode} is one of format={_FORMATS[mode]}"]
            if not (config.get(_PATH) or "").strip():
                problems["offset.mode"] = [f"offset.mode={mode} needs the table in {_PATH}"]
            if config.get("schema"):
                problems["schema"] = [f"offset.mode={mode} has the columns of the table"]
        return problems | (catalog_problems(config) if mode == "snapshot" else {})

    class Task(SourceTask):
        """Source partition `{"format": ..., "source": ...}`; what an offset is depends on the offset mode."""

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            """Take the configuration; nothing is read before the first poll.

            Raises:
                MissingExtraError: the offset mode needs a package that is not installed.
            """
            super().start(config, context)
            self._values = values = SparkSource.config.parse(config)
            match values["offset.mode"]:
                case "version":
                    require("offset.mode=version", "lake", "deltalake")
                case "snapshot":
                    require("offset.mode=snapshot", "lake", "pyiceberg")
                case _:
                    pass  # Spark alone reads the source
            self._reader = _reader_of(values, config)
            self.partition: SourcePartition = self._reader.partition
            self.rows_may_change = values["offset.mode"] == "column"
            self._spark: SparkSession | None = None
            self._slices: Iterator[tuple[pa.Table, SourceOffset]] | None = None
            self._after: SourceOffset | None = None

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """The next rows.

            Raises:
                SparkFormatError, OffsetColumnError: Spark does not know the format, or a column cannot be the offset.
                TableRewrittenError, TableChangedError: the table has lost what comes next, or rows of it changed.
                LakeError: the table cannot be read.
            """
            self._spark = spark
            if self._slices is None or self._after != offset:
                self._slices = self._reader.slices(spark, offset)
            try:
                found = next(self._slices, None)
            except LakeUnavailableError as error:
                self._slices = None
                raise RetriableError(error.message, next_step=error.next_step) from error
            except BaseException:
                self._slices = None
                raise
            if found is None:
                self._slices = None
                return None
            self._after = found[1]
            return self._slice(*found)

        def waiting_bytes(self, offset: SourceOffset | None) -> int | None:
            """Estimated size of what waits; None before the first poll, which brings Spark."""
            return None if self._spark is None else self._reader.waiting_bytes(self._spark, offset)

        def poll_bulk(self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int) -> Slice | None:
            """Rows of about `max_bytes` that executors read."""
            self._slices = None
            found = self._reader.frame(spark, offset, max_bytes)
            if found is None:
                return None
            rows, after = found
            return Slice(valued_frame(rows, self._values["key.fields"]), after, topic=self._values["topic"])

        def reread(
            self, spark: SparkSession, start: SourceOffset | None, end: SourceOffset | None
        ) -> Iterator[Slice] | None:
            return (self._slice(rows, after) for rows, after in self._reader.again(spark, start, end) if rows.num_rows)

        def idle(self, offset: SourceOffset | None) -> None:
            self.context.wait(self._values["poll.interval.ms"])

        def _slice(self, rows: pa.Table, after: SourceOffset) -> Slice:
            """Rows as records; without rows the offset alone."""
            import pyarrow as pa

            if not rows.num_rows:
                return Slice(pa.table({"value": pa.nulls(0, pa.struct([]))}), after, commits_offset=True)
            return Slice(valued_table(rows, self._values["key.fields"]), after, topic=self._values["topic"])


def _reader_of(values: Mapping[str, Any], config: Mapping[str, str]) -> Reader:
    """What reads in the configured offset mode."""
    given, slice_rows = options(config, FORMAT_OPTIONS), values["slice.rows"]
    if values["offset.mode"] == "column":
        return ColumnReader(values["format"], given, values["offset.columns"], values["schema"], slice_rows)
    skips = values["skip.change.commits"]
    log = (
        DeltaLog(given["path"], options(config, STORAGE), skip_changes=skips)
        if values["offset.mode"] == "version"
        else IcebergLog(given["path"], values["iceberg.catalog"], options(config, CATALOG), skip_changes=skips)
    )
    return TableReader(log, slice_rows, values["offset.start"])
