"""DataSourceSource: a PySpark DataSource with a stream reader, run as a source connector.

It decides how the reader's offsets and partitions become slices. A reader's partitions are read by Spark's executors;
a simple reader reads in the worker. In the bulk lane (`bulk.mode=always`, because readers do not report how much waits)
executors also convert and send the rows. A reader whose `latestOffset` takes a start and a limit (Spark 4.2) gets its
own default limit in both lanes, as in a continuous query of Spark. `prepareForTriggerAvailableNow` is for queries that
end, so it is not called.

Since rows and offsets are committed together, the reader is asked for rows after the committed offset after any
failure, which is all that Spark asks of a replayable source, too.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectx.connectors.shared.formats import schema_of
from connectx.connectors.shared.keyed import keyed_frame, keyed_table
from connectx.connectors.spark.errors import ReadLimitError
from connectx.data.frames import named_rows
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef
from connectx.model.source_offsets import SourceOffset
from connectx.model.validators import at_least, non_empty
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.contexts import SourceTaskContext
from connectx.plugins.slices import Slice
from connectx.plugins.tasks import SourceTask
from connectx.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, SimpleDataSourceStreamReader
    from pyspark.sql.types import StructType

_OPTIONS = "datasource.options."
_BATCH_ROWS = 10_000
_AS_JSON = "offset.json"


class DataSourceSource(SourceConnector):
    """Runs any PySpark streaming DataSource; settings `datasource.options.<name>` are its options."""

    summary = "any PySpark `DataSource` with a stream reader"
    version = VERSION
    exactly_once = True
    requires = (("spark", "pyspark"),)
    config = (
        ConfigDef()
        .define(
            "datasource.class",
            str,
            importance="HIGH",
            validator=non_empty(),
            doc="Dotted path of a subclass of pyspark.sql.datasource.DataSource with a streamReader or a "
            "simpleStreamReader; __main__.Name for a class of the running notebook.",
        )
        .define("topic", str, importance="HIGH", validator=non_empty(), doc="Topic that the rows go to.")
        .define("key.fields", list, "", doc="Columns that make the record's key; none is a null key.")
        .define(
            "poll.interval.ms",
            int,
            100,
            importance="LOW",
            validator=at_least(1),
            doc="How long to wait after the reader had nothing new.",
        )
    )

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Report a class that cannot be imported."""
        try:
            load_data_source(config.get("datasource.class") or "")
        except ConfigError as error:
            return {"datasource.class": error.problems}
        return {}

    class Task(SourceTask):
        """Source partition `{"datasource": <name of the class>}`, source offset as the reader gives it."""

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            """Take the configuration; the reader is made by the first poll, which has Spark."""
            super().start(config, context)
            self._values = DataSourceSource.config.parse(config)
            self._class = load_data_source(self._values["datasource.class"])
            self.executor_classes = (self._class,)
            self._options = {name[len(_OPTIONS) :]: text for name, text in config.items() if name.startswith(_OPTIONS)}
            self.partition = {"datasource": self._class.name()}
            self._reader: DataSourceStreamReader | None = None
            self._simple: SimpleDataSourceStreamReader | None = None
            self._next: tuple[dict[str, Any], dict[str, Any]] | None = None

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """Rows between the offset and the reader's latest one."""
            if self._reader is None and self._simple is None:
                self._open(spark)
            rows: DataFrame | pa.Table
            key_fields: Sequence[str] = self._values["key.fields"]
            if self._simple is not None:
                start = self._simple.initialOffset() if offset is None else _from_stored(offset)
                found, end = self._simple.read(start)
                if end == start:
                    return None
                rows = keyed_table(_to_table(found, self._schema, self._source), key_fields)
            else:
                start, end = self._range(offset)
                self._next = None
                if end == start:
                    return None
                rows = keyed_frame(self._read_on_executors(spark, start, end), key_fields)
            return Slice(rows, _to_stored(end), topic=self._values["topic"])

        def waiting_bytes(self, offset: SourceOffset | None) -> int | None:
            """1 if the stream reader has something new: readers do not report sizes. None for a simple reader."""
            if self._reader is None:
                return None
            start, end = self._range(offset)
            return int(end != start)

        def poll_bulk(self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int) -> Slice | None:
            """As `poll`: it is the reader that limits a slice."""
            return self.poll(spark, offset)

        def idle(self, offset: SourceOffset | None) -> None:
            self.context.wait(self._values["poll.interval.ms"])

        def committed(self, offset: SourceOffset) -> None:
            """Pass the committed offset to the reader."""
            reader = self._reader or self._simple
            if reader is not None:
                reader.commit(_from_stored(offset))

        def stop(self) -> None:
            if self._reader is not None:
                self._reader.stop()

        def _open(self, spark: SparkSession) -> None:
            from pyspark.errors import PySparkNotImplementedError
            from pyspark.sql.datasource import CaseInsensitiveDict

            options: Any = CaseInsensitiveDict(self._options)
            self._source = self._class(options)
            schema = self._source.schema()
            self._schema = schema_of(spark, schema) if isinstance(schema, str) else schema
            try:
                self._reader = self._source.streamReader(self._schema)
            except PySparkNotImplementedError:
                self._simple = self._source.simpleStreamReader(self._schema)

        def _range(self, offset: SourceOffset | None) -> tuple[dict[str, Any], dict[str, Any]]:
            """Offsets between which a stream reader has rows now. The end is asked for once for each slice."""
            assert self._reader is not None, "a source has one of two kinds of reader"
            start = self._reader.initialOffset() if offset is None else _from_stored(offset)
            if self._next is None or self._next[0] != start:
                self._next = start, latest_offset(self._reader, start)
            return self._next

        def _read_on_executors(self, spark: SparkSession, start: dict[str, Any], end: dict[str, Any]) -> DataFrame:
            reader, source, schema = self._reader, self._source, self._schema
            assert reader is not None, "only a stream reader has partitions"
            partitions = list(reader.partitions(start, end))

            def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
                from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

                for batch in batches:
                    for at in batch.column(0).to_pylist():
                        found = iter(reader.read(partitions[at]))
                        yield from records_to_arrow_batches(found, 10_000, schema, source)

            count = len(partitions)
            return spark.range(0, count, 1, max(1, count)).mapInArrow(read, schema)


def latest_offset(reader: DataSourceStreamReader, start: Mapping[str, Any]) -> dict[str, Any]:
    """Where the next slice of a stream reader ends: within its default limit, if its `latestOffset` takes one.

    Raises:
        ReadLimitError: it takes a limit and defines no default, and this pyspark has none.
    """
    found: Any = reader
    if not inspect.signature(found.latestOffset).parameters:  # as Spark distinguishes the two signatures
        end: dict[str, Any] = found.latestOffset()
        return end
    if not hasattr(found, "getDefaultReadLimit"):
        raise ReadLimitError(type(reader).__name__)
    # A reader may change what it gets: Spark hands it a copy, too.
    limited: dict[str, Any] = found.latestOffset(copy.deepcopy(dict(start)), found.getDefaultReadLimit())
    return limited


def load_data_source(path: str) -> type[DataSource]:
    """The class of a dotted path. ConfigError when it is not there or is no DataSource."""
    from pyspark.sql.datasource import DataSource

    module, _, name = path.strip().rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name) if module else None
    except (ImportError, AttributeError) as error:
        raise ConfigError([f"Invalid value {path} for configuration datasource.class: {error}"]) from error
    if not (isinstance(found, type) and issubclass(found, DataSource)):
        reason = "it is not a subclass of pyspark.sql.datasource.DataSource"
        raise ConfigError([f"Invalid value {path} for configuration datasource.class: {reason}"])
    return found


def _to_table(rows: Iterable[tuple[Any, ...]], schema: StructType, source: DataSource) -> pa.Table:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

    batches = list(records_to_arrow_batches(iter(rows), _BATCH_ROWS, schema, source))
    return named_rows(pa.Table.from_batches(batches) if batches else to_arrow_schema(schema).empty_table(), schema)


def _to_stored(offset: Mapping[str, Any]) -> SourceOffset:
    """An offset as the offsets topic takes it, a flat map of primitive values; any other becomes JSON text in one."""
    if all(isinstance(value, str | int | float | bool | None) for value in offset.values()):
        return dict(offset)
    return {_AS_JSON: json.dumps(offset)}


def _from_stored(offset: SourceOffset) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(offset[_AS_JSON]) if set(offset) == {_AS_JSON} else dict(offset)
    return found
