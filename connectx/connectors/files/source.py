"""FileSource: CSV or JSON lines of a growing file become typed records, parsed by Spark.

It decides where slices begin and end (exact byte positions). The worker reads slices of the tail, and Spark parses
them. Executors read those of the bulk lane, for which they have to see the file. Source partition and offset are
FileStreamSource's. With `multiline` a slice ends at a line end outside of quotes. The worker then reads all slices, as
it does when rotated files are followed.
"""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from typing_extensions import override

from connectx.connectors.files.errors import MalformedLineError
from connectx.connectors.files.following import Lines, SourceFile
from connectx.connectors.files.quoted import last_record_end, records_of
from connectx.connectors.files.ranges import lines_between, ranges_of
from connectx.connectors.files.rotation import followed, with_rotation
from connectx.connectors.files.stream_source import lines_of
from connectx.connectors.shared.formats import LINE, LineFormat, infer_schema
from connectx.errors.files import SourceFileMissingError
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef
from connectx.model.places import Place, files
from connectx.model.source_offsets import SourceOffset
from connectx.model.validators import between, non_empty, one_of
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.contexts import SourceTaskContext
from connectx.plugins.slices import Slice
from connectx.plugins.tasks import SourceTask
from connectx.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_HEADER_BYTES = 64 * 1024
_SAMPLE_BYTES = 256 * 1024


class FileSource(SourceConnector):
    """Reads one CSV or JSON-lines file with Spark, exactly once, and continues with lines that are appended."""

    summary = "CSV or JSON lines of a file that grows, typed by a schema"
    version = VERSION
    offsets_in_kafka = True
    exactly_once = True
    requires = (("spark", "pyspark"),)
    config = with_rotation(
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
        .define(
            "multiline",
            bool,
            False,
            doc="Whether quoted values of a CSV file may hold line feeds. Quotes within values are then doubled "
            "(RFC 4180), and the worker reads everything.",
        )
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

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        return [*files(config.get("file"))]

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Only values of CSV have line feeds, and rotated files have the same columns."""
        found: dict[str, list[str]] = {}
        if (config.get("multiline") or "").strip().lower() == "true" and config.get("format") == "json":
            found["multiline"] = ["Invalid value true for configuration multiline: it needs format=csv"]
        if (config.get("rotated.files") or "").strip() and not (config.get("schema") or "").strip():
            found["schema"] = ["Missing configuration schema: with rotated.files it cannot be inferred from one file"]
        return found

    class Task(SourceTask):
        """Source partition `{"filename": <file as configured>}`, source offset `{"position": <bytes>}`."""

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            """Take the configuration; the file is opened by the first poll."""
            super().start(config, context)
            self._values = FileSource.config.parse(config)
            self.partition = {"filename": self._values["file"]}
            self._path = os.path.abspath(self._values["file"])
            self._file = SourceFile(self._path)
            self._is_multiline = self._values["multiline"]
            if self._is_multiline:
                self._file.ends = partial(last_record_end, path=self._path)
            self._followed = followed(self._file, self._values)
            self._format: LineFormat | None = None
            self._last: Lines | tuple[int, int] = (0, 0)

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """Rows of the next complete lines.

            Raises:
                SourceFileMissingError, SourceFileUnreadableError, SourceFileShrunkError: see their docstrings.
                SourceRotationError: where to continue after a rotation cannot be decided.
                ConfigError: the schema cannot be read or inferred, or has no such key field.
            """
            lines = self._followed.next_lines(offset, self._values["slice.bytes"])
            if self._followed.waits and self._followed is self._file:
                raise SourceFileMissingError(self._path)
            if lines is not None and lines.data and not self._without_header(lines).data:
                lines = self._followed.next_lines(lines.offset, self._values["slice.bytes"])
            self.waits = self._followed.waits
            return None if lines is None else self._slice(spark, self._without_header(lines))

        def waiting_bytes(self, offset: SourceOffset | None) -> int | None:
            """Bytes of the file after the offset. Skipped lines can be counted only where the worker has read them."""
            if self._values["on.malformed"] == "skip" or self._is_multiline or self._values["rotated.files"]:
                return None
            position = int(offset["position"]) if offset else 0
            return self._file.size_bytes(position) - position

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
            for lines in self._followed.lines_between(start, end, self._values["slice.bytes"]):
                if (rest := self._without_header(lines)).data:
                    yield self._slice(spark, rest)

        def _without_header(self, lines: Lines) -> Lines:
            if not self._has_header or lines.start or not lines.data:
                return lines
            header = len(self._first_of(lines.data))
            return replace(lines, data=lines.data[header:], start=header)

        def _slice(self, spark: SparkSession, lines: Lines) -> Slice:
            values = self._values
            self._last = lines
            line_format = self._line_format(spark)
            rows = line_format.parse(spark.createDataFrame(self._table(lines.data)), skip_malformed=self._skips)
            rows_read = sum(map(bool, map(bytes.strip, self._split(lines.data)))) if self._skips else None
            empty = not lines.data  # reading went on to the next file
            return Slice(rows, lines.offset, topic=values["topic"], rows_read=rows_read, commits_offset=empty)

        def explain(self, spark: SparkSession, error: Exception) -> Exception | None:
            """Find the malformed line that made the last slice fail."""
            import pyarrow as pa

            line_format = self._line_format(spark)
            for lines in self._last_lines():
                records = self._split(lines.data)
                numbers = accumulate((record.count(b"\n") + 1 for record in records), initial=0)
                table = self._table(lines.data)
                numbered = table.append_column("number", pa.array(islice(numbers, table.num_rows), pa.int64()))
                found = line_format.first_malformed(spark.createDataFrame(numbered), "number")
                if found is not None:
                    place, number = f"{lines.path} after byte {lines.start}", found[0] + 1
                    if self._followed is self._file:
                        place, number = lines.path, self._file.line_number(lines.start) + found[0]
                    cause = f"does not fit the schema `{line_format.schema}`"
                    return MalformedLineError(place, line_number=number, text=found[1], cause=cause)
            return None

        def _last_lines(self) -> Iterator[Lines]:
            """What the last poll read; of the bulk lane it is read again."""
            if isinstance(self._last, Lines):
                yield self._last
                return
            start, end = ({"position": position} for position in self._last)
            yield from self._file.lines_between(start, end, self._values["slice.bytes"])

        def idle(self, offset: SourceOffset | None) -> None:
            """Watch the file."""
            self._followed.wait(self.context.wait)

        def stop(self) -> None:
            """Close what is open."""
            self._followed.close()

        @property
        def _skips(self) -> bool:
            return bool(self._values["on.malformed"] == "skip")

        @property
        def _has_header(self) -> bool:
            return bool(self._values["header"] and self._values["format"] == "csv")

        def _first_line(self) -> bytes:
            return self._first_of(self._file.read_lines(0, _HEADER_BYTES))

        def _first_of(self, block: bytes) -> bytes:
            """The first line with its end."""
            if self._is_multiline:
                first = records_of(block)[0] if block else b""
                return first + block[len(first) :].splitlines(keepends=True)[0] if len(first) < len(block) else first
            return block.splitlines(keepends=True)[0] if block else b""

        def _split(self, block: bytes) -> list[bytes]:
            """The lines of a block without their ends; those of a multiline file may hold line feeds."""
            return records_of(block) if self._is_multiline else block.splitlines()

        def _table(self, block: bytes) -> pa.Table:
            """The lines of a block as a column of text."""
            import pyarrow as pa

            if not self._is_multiline and block:
                return lines_of(block, LINE)
            texts = [record.decode(errors="replace") for record in self._split(block)] if block else []
            return pa.table({LINE: pa.array(texts, pa.string())})

        def _line_format(self, spark: SparkSession) -> LineFormat:
            if self._format is None:
                values = self._values
                line_format = LineFormat(
                    values["format"],
                    values["schema"] or "",
                    values["delimiter"],
                    values["null.text"],
                    tuple(values["key.fields"]),
                    self._is_multiline,
                )
                if not line_format.schema:
                    line_format = self._inferred(spark, line_format)
                line_format.check(spark)
                self._format = line_format
            return self._format

        def _inferred(self, spark: SparkSession, line_format: LineFormat) -> LineFormat:
            """Always from the first lines of the file, so that every instance of the task finds the same schema."""
            sample = self._file.read_lines(0, _SAMPLE_BYTES)
            lines = [line.decode(errors="replace") for line in self._split(sample)] if sample else []
            names: Sequence[str] = ()
            if line_format.format == "csv" and lines:
                first = next(csv.reader([lines[0]], delimiter=line_format.delimiter))
                names = first if self._has_header else [f"_c{at}" for at in range(len(first))]
            lines = [line for line in lines[1 if self._has_header else 0 :] if line.strip()]
            if not lines:
                raise ConfigError([f"Missing configuration schema: {self._path} has no lines to infer it from."])
            schema = infer_schema(spark, line_format, names, lines, ddl_type)
            log.info("Inferred the schema of %s: %s", self._path, schema)
            return line_format.with_schema(schema)


def ddl_type(texts: Sequence[str]) -> str:
    """Spark's name of the type of a column with these texts; text where a number would lose digits."""
    import pyarrow as pa

    from connectx.connectors.files.fitting import type_of_texts

    kind = str(type_of_texts(texts))
    if kind == "string":
        try:
            pa.array(texts, pa.string()).cast(pa.timestamp("us"))  # dates as well
        except pa.ArrowInvalid:
            return "STRING"
    return {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN"}.get(kind, "TIMESTAMP")


def read_by_executors(spark: SparkSession, path: str, start: int, end: int) -> DataFrame:
    """Lines between two byte positions that lie at line ends, in order, as a column of strings read by executors."""
    ranges = ranges_of(start, end, least=2)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for part in batch.column(0).to_pylist():
                first, stop = ranges[int(part)]
                if block := lines_between(path, first, stop, start, end):
                    lines = lines_of(block, LINE)
                    yield pa.RecordBatch.from_arrays([lines.column(0).combine_chunks()], [LINE])

    return spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(read, f"{LINE} STRING")
