"""DataSourceSink: a PySpark DataSource with a writer, run as a sink connector, at least once.

It decides when a writer is made and commits: at each flush, and for each job of executors. Rows of
one commit are written by one writer in the worker, or by as many as a job has parts; only the worker commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from connectx.connectors.spark.datasource import load_data_source
from connectx.connectors.spark.errors import DataSourceWriteError
from connectx.connectors.spark.gathering import GATHERING_CONFIG, GatheringSink, GatheringTask, Ranges
from connectx.data.frames import spark_schema
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef
from connectx.model.validators import non_empty
from connectx.plugins.contexts import SinkTaskContext
from connectx.plugins.slices import SinkBatch
from connectx.values import Value

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource, DataSourceWriter

_OPTIONS: Final = "datasource.options."


class DataSourceSink(GatheringSink):
    """Writes with any PySpark DataSource that has a writer; settings `datasource.options.<name>` are its options."""

    summary = "any PySpark `DataSource` that has a writer"
    config = ConfigDef(
        ConfigDef().define(
            "datasource.class",
            str,
            importance="HIGH",
            validator=non_empty(),
            doc="Dotted path of a subclass of pyspark.sql.datasource.DataSource with a writer; __main__.Name for a "
            "class of the running notebook.",
        ),
        GATHERING_CONFIG,
    )

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """The class is required to exist, and to have a writer."""
        try:
            load_writable(config.get("datasource.class") or "")
        except ConfigError as error:
            return {"datasource.class": error.problems}
        return {}

    @classmethod
    def bulk_classes(cls, config: Mapping[str, str | None]) -> Sequence[type]:
        return (load_writable(config.get("datasource.class") or ""),)

    class Task(GatheringTask):
        """All topics go to one target."""

        def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
            """Make the data source.

            Raises:
                ConfigError: there is no such class, or it has no writer.
            """
            super().start(config, context)
            values = DataSourceSink.config.parse(config)
            found = load_writable(values["datasource.class"])
            self._source = _made(found, config)
            self._jobs: dict[str, DataSourceWriter] = {}
            self.use(f"The data source {found.name()}", values["flush.size"])

        def plan(self, token: str, topic: str) -> WriterPlan:
            """A writer for the columns so far.

            Raises:
                NotStageableError: no columns are known yet.
            """
            schema = self.known_columns()
            self._jobs[token] = self._writer(schema)
            return WriterPlan(schema, self._jobs[token])

        def stage(self, plan: WriterPlan, token: str, batches: Iterator[SinkBatch]) -> Sequence[Any]:
            """On an executor: let the writer write all batches.

            Raises:
                NotStageableError: a batch has other columns.
                DataSourceWriteError: the writer has failed.
            """
            try:
                return [plan.writer.write(_records(plan.writer, self.converted(plan.schema, batches), plan.schema))]
            except ConnectxError:
                raise
            except Exception as error:
                raise self._error(error) from error

        def commit(self, token: str, ranges: Ranges, messages: Sequence[Any]) -> None:
            """Let the writer commit.

            Raises:
                DataSourceWriteError: the writer has failed.
            """
            self._commit(self._jobs[token], list(messages))
            del self._jobs[token]

        def discard(self, token: str, messages: Sequence[Any]) -> None:
            """Let the writer abort."""
            if (writer := self._jobs.pop(token, None)) is not None:
                writer.abort(list(messages))

        def write_out(self, tables: Sequence[pa.Table], schema: pa.Schema, ranges: Ranges) -> None:
            """One writer, one message.

            Raises:
                DataSourceWriteError: the writer has failed.
            """
            writer = self._writer(schema)
            try:
                message = writer.write(_records(writer, iter(tables), schema))
            except Exception as error:
                writer.abort([None])
                raise self._error(error) from error
            self._commit(writer, [message])

        def _commit(self, writer: DataSourceWriter, messages: list[Any]) -> None:
            """After a permanent failure, too, the writer is informed."""
            try:
                writer.commit(messages)
            except Exception as error:
                wrapped = self._error(error)
                if not wrapped.retriable:
                    writer.abort(messages)
                raise wrapped from error

        def _writer(self, schema: pa.Schema) -> DataSourceWriter:
            return self._source.writer(spark_schema(schema), False)

        def _error(self, error: Exception) -> ConnectxError:
            return error if isinstance(error, ConnectxError) else DataSourceWriteError(self.name, error)


class WriterPlan(Value):
    """What executors get: columns, and the writer."""

    schema: pa.Schema
    writer: DataSourceWriter


def load_writable(path: str) -> type[DataSource]:
    """The class of a dotted path. ConfigError if there is none, or none with a writer."""
    from pyspark.sql.datasource import DataSource

    found = load_data_source(path)
    if found.writer is DataSource.writer:
        raise ConfigError([f"Invalid value {path} for configuration datasource.class: it defines no writer"])
    return found


def _made(source: type[DataSource], config: Mapping[str, str]) -> DataSource:
    from pyspark.sql.datasource import CaseInsensitiveDict

    given = {name[len(_OPTIONS) :]: text for name, text in config.items() if name.startswith(_OPTIONS)}
    options: Any = CaseInsensitiveDict(given)
    return source(options)


def _records(writer: DataSourceWriter, tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[Any]:
    """What a writer takes: record batches, or rows."""
    from pyspark.sql.conversion import ArrowTableToRowsConversion
    from pyspark.sql.datasource import DataSourceArrowWriter

    kind = spark_schema(schema)
    for table in tables:
        if isinstance(writer, DataSourceArrowWriter):
            yield from table.to_batches()
        elif table.num_rows:
            yield from ArrowTableToRowsConversion.convert(table, kind)
