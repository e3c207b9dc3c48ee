"""FileSource: CSV or JSON lines of a growing file become typed records, parsed by Spark.

It decides where slices begin and end (exact byte positions). The worker reads slices of the tail, and Spark parses
them. Executors read those of the bulk lane, for which they have to see the file. Source partition and offset are
FileStreamSource's. CSV values with line feeds in them are not supported: a slice has to end at a line end that can be
seen without parsing what is before it.
"""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from connectx.connectors.files.following import SourceFile
from connectx.connectors.files.formats import LINE, LineFormat, infer_schema
from connectx.connectors.files.stream_source import lines_of
from connectx.errors import ConfigError, MalformedLineError
from connectx.model.configdef import ConfigDef
from connectx.model.source_offsets import SourceOffset
from connectx.model.validators import between, non_empty, one_of
from connectx.plugins.api import Slice, SourceConnector, SourceTask, SourceTaskContext
from connectx.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_HEADER_BYTES = 64 * 1024
_SAMPLE_BYTES = 256 * 1024
_PART_BYTES = 8 * 1024 * 1024


class FileSource(SourceConnector):
    """Reads one CSV or JSON-lines file with Spark, exactly once, and goes on with lines that are appended."""

    version = VERSION
    requires = (("spark", "pyspark"),)
    config = (
        ConfigDef()
        .define("file", str, importance="HIGH", validator=non_empty(), doc="File to read; appended lines follow.")
        .define("topic", str, importance="HIGH", validator=non_empty(), doc="Topic that the records go to.")
        .define(
            "format",
            str,
            "csv",
            importance="HIGH",
            validator=one_of("csv", "json"),
            doc="csv, or json for one JSON object per line.",
        )
        .define(
            "schema",
            str,
            None,
            importance="HIGH",
            doc="Columns and their types as Spark DDL, for example `id INT, name STRING, at TIMESTAMP`. Left out, it "
            "is inferred from the header and the first lines of the file.",
        )
        .define("header", bool, False, doc="Whether the first line of a CSV file names the columns.")
        .define("delimiter", str, ",", validator=non_empty(), doc="What separates the values of a CSV line.")
        .define("null.text", str, "", doc="Text of a CSV value that stands for null, for example NA.")
        .define(
            "key.fields",
            list,
            "",
            doc="Fields that make the record's key: one gives its value, several a struct, none a null key.",
        )
        .define(
            "on.malformed",
            str,
            "fail",
            validator=one_of("fail", "skip"),
            doc="What to do with a line that does not fit the schema: fail the task, naming the line, or skip it.",
        )
        .define(
            "slice.bytes",
            int,
            4 * 1024 * 1024,
            importance="LOW",
            validator=between(1, 256 * 1024 * 1024),
            doc="About how many bytes of lines one slice takes when there is a backlog.",
        )
    )

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str | None]) -> bool | None:
        """Byte positions are exact."""
        return True

    class Task(SourceTask):
        """Source partition `{"filename": <file as configured>}`, source offset `{"position": <bytes>}`."""

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            """Take the configuration; the file is opened by the first poll."""
            super().start(config, context)
            self._values = FileSource.config.parse(config)
            self.partition = {"filename": self._values["file"]}
            self._path = os.path.abspath(self._values["file"])
            self._file = SourceFile(self._path)
            self._format: LineFormat | None = None
            self._last: tuple[int, int] = (0, 0)

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """Rows of the next complete lines.

            Raises:
                SourceFileMissingError, SourceFileUnreadableError, SourceFileShrunkError: as they say.
                ConfigError: the schema cannot be read or inferred, or has no such key field.
            """
            start = int(offset["position"]) if offset else 0
            if start == 0 and self._has_header:
                start = len(self._first_line())
            block = self._file.read_lines(start, self._values["slice.bytes"])
            if not block:
                return None
            return self._slice(spark, start, start + len(block), block)

        def waiting_bytes(self, offset: SourceOffset | None) -> int | None:
            """Bytes of the file after the offset. Skipped lines can be counted only where the worker has read them."""
            position = int(offset["position"]) if offset else 0
            return None if self._values["on.malformed"] == "skip" else self._file.size_bytes(position) - position

        def poll_bulk(self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int) -> Slice | None:
            """Rows of about `max_bytes` of lines, which executors read; the worker reads where they end."""
            start = int(offset["position"]) if offset else 0
            if start == 0 and self._has_header:
                start = len(self._first_line())
            end = self._file.end_of_lines(start, max_bytes)
            self._last = (start, end)
            if end == start:
                return None
            rows = self._line_format(spark).parse(
                read_by_executors(spark, self._path, start, end), skip_malformed=False
            )
            return Slice(rows, {"position": end}, topic=self._values["topic"])

        def reread(self, spark: SparkSession, start: SourceOffset | None, end: SourceOffset | None) -> Iterator[Slice]:
            """The rows between two positions."""
            if self._has_header and not (start or {}).get("position"):
                start = {"position": len(self._first_line())}
            for first, behind, block in self._file.blocks(start, end, self._values["slice.bytes"]):
                yield self._slice(spark, first, behind, block)

        def _slice(self, spark: SparkSession, start: int, end: int, block: bytes) -> Slice:
            values = self._values
            self._last = (start, end)
            line_format = self._line_format(spark)
            lines = spark.createDataFrame(lines_of(block, LINE))
            skip = values["on.malformed"] == "skip"
            rows = line_format.parse(lines, skip_malformed=skip)
            rows_read = sum(map(bool, map(bytes.strip, block.splitlines()))) if skip else None
            return Slice(rows, {"position": end}, topic=values["topic"], rows_read=rows_read)

        def explain(self, spark: SparkSession, error: Exception) -> Exception | None:
            """Find the malformed line that made the last slice fail."""
            import pyarrow as pa

            line_format = self._line_format(spark)
            start, end = ({"position": position} for position in self._last)
            for first, _, block in self._file.blocks(start, end, self._values["slice.bytes"]):
                lines = lines_of(block, LINE)
                numbered = lines.append_column("number", pa.array(range(lines.num_rows), pa.int64()))
                found = line_format.first_malformed(spark.createDataFrame(numbered), "number")
                if found is not None:
                    number, cause = self._file.line_number(first) + found[0], "does not fit the schema"
                    return MalformedLineError(
                        self._path, line_number=number, text=found[1], cause=f"{cause} `{line_format.schema}`"
                    )
            return None

        def idle(self, offset: SourceOffset | None) -> None:
            """Watch the file."""
            self._file.wait(self.context.wait)

        @property
        def _has_header(self) -> bool:
            return bool(self._values["header"] and self._values["format"] == "csv")

        def _first_line(self) -> bytes:
            block = self._file.read_lines(0, _HEADER_BYTES)
            return block.splitlines(keepends=True)[0] if block else b""

        def _line_format(self, spark: SparkSession) -> LineFormat:
            if self._format is None:
                values = self._values
                line_format = LineFormat(
                    values["format"],
                    values["schema"] or "",
                    values["delimiter"],
                    values["null.text"],
                    tuple(values["key.fields"]),
                )
                if not line_format.schema:
                    line_format = self._inferred(spark, line_format)
                line_format.check(spark)
                self._format = line_format
            return self._format

        def _inferred(self, spark: SparkSession, line_format: LineFormat) -> LineFormat:
            """Always from the first lines of the file, so that every instance of the task finds the same schema."""
            lines = self._file.read_lines(0, _SAMPLE_BYTES).decode(errors="replace").splitlines()
            names: Sequence[str] = ()
            if line_format.format == "csv" and lines:
                first = next(csv.reader([lines[0]], delimiter=line_format.delimiter))
                names = first if self._has_header else [f"_c{at}" for at in range(len(first))]
            lines = [line for line in lines[1 if self._has_header else 0 :] if line.strip()]
            if not lines:
                raise ConfigError([f"Missing configuration schema: {self._path} has no lines to infer it from."])
            schema = infer_schema(spark, line_format, names, lines)
            log.info("Inferred the schema of %s: %s", self._path, schema)
            return line_format.with_schema(schema)

    task_class = Task


def read_by_executors(spark: SparkSession, path: str, start: int, end: int) -> DataFrame:
    """Lines between two byte positions that lie at line ends, in order, as a column of strings read by executors."""
    parts = max(2, -(-(end - start) // _PART_BYTES))
    length = -(-(end - start) // parts)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield read_part(start + part * length, min(start + (part + 1) * length, end))

    def read_part(first: int, stop: int) -> pa.RecordBatch:
        """Lines that begin in [first, stop)."""
        import pyarrow as pa

        with open(path, "rb") as file:
            if file.seek(0, 2) < end:
                raise EOFError(f"{path} ends before byte {end}")
            if first > start:
                file.seek(first - 1)
                file.readline()
                first = file.tell()
            file.seek(first)
            block = file.read(max(0, stop - first))
            if block and not block.endswith(b"\n"):
                block += file.readline(end - first - len(block))
        return pa.RecordBatch.from_arrays([lines_in(block)], [LINE])

    def lines_in(block: bytes) -> pa.Array:
        """As `lines_of`, which executors may not have."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if block and b"\r" not in block:
            try:
                return pc.split_pattern(pa.scalar(block[:-1], pa.binary()), b"\n").values.cast(pa.string())
            except pa.ArrowInvalid:
                pass  # not UTF-8
        return pa.array([line.decode(errors="replace") for line in block.splitlines()], pa.string())

    return spark.range(0, parts, 1, parts).mapInArrow(read, f"{LINE} STRING")
