"""SparkSink and FunctionSink: rows as a DataFrame, written by Spark, at least once.

The DataFrame has the rows of a flush, which the worker has read and converted, or in bulk those that executors have.
Offsets follow when the write has returned.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from connectx.connectors.spark.errors import DataSourceWriteError
from connectx.connectors.spark.gathering import GATHERING_CONFIG, GatheringSink, GatheringTask, Ranges
from connectx.data.frames import spark_schema
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef
from connectx.model.validators import non_empty
from connectx.plugins.contexts import SinkTaskContext
from connectx.plugins.slices import SinkBatch
from connectx.plugins.stored import Stored

_OPTIONS: Final = "format.options."
_READABLE: Final = ("parquet", "orc")


class _SparkTask(GatheringTask):
    """Hands a DataFrame to `write`: of the gathered rows, or of those that executors have read and converted."""

    stages_rows = True

    def write(self, frame: Any, ranges: Ranges, token: str) -> None:
        raise TypeError(f"{type(self).__name__} must define write")

    def write_out(self, tables: Sequence[pa.Table], schema: pa.Schema, ranges: Ranges) -> None:
        """Let Spark write rows of the worker.

        Raises:
            DataSourceWriteError: the write has failed.
        """
        rows = pa.concat_tables(tables)
        self._write_frame(lambda: self.context.spark().createDataFrame(rows, spark_schema(schema)), ranges)

    def plan(self, token: str, topic: str) -> pa.Schema:
        """The columns so far.

        Raises:
            NotStageableError: there are none yet.
        """
        return self.known_columns()

    def stage(self, plan: pa.Schema, token: str, batches: Iterator[SinkBatch]) -> Iterator[pa.Table]:
        """On an executor: rows in these columns.

        Raises:
            NotStageableError: a batch has other columns.
        """
        return self.converted(plan, batches)

    def save(self, token: str, ranges: Ranges, frame: Any) -> None:
        """Let Spark write rows that its executors hold.

        Raises:
            DataSourceWriteError: the write has failed.
        """
        self._write_frame(lambda: frame, ranges)

    def commit(self, token: str, ranges: Ranges, messages: Sequence[Any]) -> None:
        """Nothing is left to do: `save` has written."""

    def _write_frame(self, make: Callable[[], Any], ranges: Ranges) -> None:
        try:
            self.write(make(), ranges, token_of(self.context.group_id, ranges))
        except ConnectxError:
            raise
        except Exception as error:
            raise DataSourceWriteError(self.name, error) from error


class SparkSink(GatheringSink):
    """Appends to any format that Spark can write; settings `format.options.<name>` are its options."""

    summary = "any format that Spark can append to"
    config = ConfigDef(
        ConfigDef().define(
            "format",
            str,
            importance="HIGH",
            validator=non_empty(),
            doc="Format as in DataFrameWriter.format: parquet, orc, json, jdbc, or one of a library of your Spark.",
        ),
        GATHERING_CONFIG,
    )

    @classmethod
    def stored(cls, config: Mapping[str, str | None], topic: str) -> Stored | None:
        """The rows of Parquet or ORC files on this machine, which all topics share; None for others."""
        given, path = cls.config.parse(config)["format"], config.get(f"{_OPTIONS}path") or ""
        if given not in _READABLE or not path or "://" in path:
            return None
        return Stored(f"{given} files in {path}", lambda: _files(Path(path), given))

    class Task(_SparkTask):
        """All topics go to one target."""

        def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
            super().start(config, context)
            values = SparkSink.config.parse(config)
            self._format: str = values["format"]
            self._options = {name[len(_OPTIONS) :]: text for name, text in config.items() if name.startswith(_OPTIONS)}
            self.use(f"Spark's format {self._format}", values["flush.size"])

        def write(self, frame: Any, ranges: Ranges, token: str) -> None:
            frame.write.format(self._format).options(**self._options).mode("append").save()


class FunctionSink(GatheringSink):
    """Calls a Python function with a DataFrame, as foreachBatch of Structured Streaming does."""

    summary = "calls a Python function with a DataFrame, like foreachBatch"
    config = ConfigDef(
        ConfigDef().define(
            "function",
            str,
            importance="HIGH",
            validator=non_empty(),
            doc="Dotted path of a function that takes a DataFrame, ranges of offsets and a token, and returns when the "
            "rows are durable; __main__.name for one of the running notebook.",
        ),
        GATHERING_CONFIG,
    )

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """The function is required to exist."""
        try:
            load_function(config.get("function") or "")
        except ConfigError as error:
            return {"function": error.problems}
        return {}

    class Task(_SparkTask):
        """Calls the function at each flush that has rows."""

        def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
            """Take the settings. Executors have no need of the function, so that it is found when it is called."""
            super().start(config, context)
            values = FunctionSink.config.parse(config)
            self._path: str = values["function"]
            self.use(f"The function {self._path}", values["flush.size"])

        def write(self, frame: Any, ranges: Ranges, token: str) -> None:
            """Call it.

            Raises:
                ConfigError: there is no such function any more.
            """
            load_function(self._path)(frame, dict(ranges), token)


def load_function(path: str) -> Callable[[Any, Ranges, str], object]:
    """The function of a dotted path. ConfigError if there is none."""
    module, _, name = path.strip().rpartition(".")
    try:
        found: Any = getattr(importlib.import_module(module), name) if module else None
    except (ImportError, AttributeError) as error:
        raise ConfigError([f"Invalid value {path} for configuration function: {error}"]) from error
    if not callable(found):
        raise ConfigError([f"Invalid value {path} for configuration function: it is not a function"])
    function: Callable[[Any, Ranges, str], object] = found
    return function


def _files(path: Path, format_name: str) -> Iterator[pa.Table]:
    """Rows of the files that jobs have written; none before the first job."""
    import pyarrow.dataset as ds

    if path.exists():
        for batch in ds.dataset(path, format=format_name).to_batches():
            yield pa.Table.from_batches([batch])


def token_of(group_id: str, ranges: Ranges) -> str:
    """A name of these ranges of one consumer group: the same for the same ranges."""
    text = "\n".join(f"{partition} {first} {end}" for partition, (first, end) in sorted(ranges.items()))
    return f"{group_id}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
