"""Rows that are added to tables in files, whose log names the files of each commit.

A table is read as it is now, and then commit by commit. Files of a commit have an order, and rows in a file, too, so a
slice is the rows between two places in files. The worker or executors read files through Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from connectx.data import frames
from connectx.data.frames import as_spark_takes, spark_schema
from connectx.errors.plugins import ConfigError
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.values import Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AHEAD: Final = 64
"""Commits whose sizes are added up, and whose files one bulk slice may have."""
_PARTS: Final = 64
"""Spark tasks of a bulk slice at the most."""
_START, _FILE, _ROW = "start", "file", "row"

ReadFile = Callable[[Any], Iterator[pa.RecordBatch]]
"""Reads a file, named as in `TableFile.entry`, in the columns of its commit."""


class Files(Protocol):
    """Reads files of one commit, in the worker or on an executor: one that Python can pickle."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def open(self) -> ReadFile:
        """What reads a file."""


class TableFile(Value):
    """A data file; `entry` is what `Files` needs to find it."""

    entry: Any
    size_bytes: int


class Commit(Value):
    """The files that a version or snapshot added, or all that it has. No `reader`: no files."""

    number: int
    files: tuple[TableFile, ...] = ()
    reader: Files | None = None


class TableLog(Protocol):
    """The log of a table in files.

    Attributes:
        name: begins a sentence.
        format: the format, and `place` the table, as a source partition has them.
        unit: what a commit is called in offsets.
    """

    name: str
    format: str
    place: str
    unit: str

    def newest(self) -> int | None:
        """The last commit; None if the table is empty."""

    def contents(self, number: int) -> Commit:
        """All files of the table after this commit, in an order that does not change."""

    def commit(self, number: int) -> Commit:
        """The files that this commit added."""

    def following(self, number: int) -> int | None:
        """The commit after this one; None if it is the last."""

    def errors(self) -> AbstractContextManager[None]:
        """Turns errors of reading files into those of connectx."""


class Place(Value):
    """After the first rows of a file of a commit, or after a whole commit.

    Attributes:
        start: the commit up to which the table was read as a whole; None if only later ones are read.
        number: the commit.
        file: index of the file in it; None after the whole commit.
        row: rows of that file.
    """

    start: int | None
    number: int
    file: int | None = None
    row: int = 0


class TableReader:
    """Reads rows of a table by its log; a `connectx.connectors.spark.reading.Reader`.

    Args:
        log: of the table.
        slice_rows: rows of a slice that the worker reads.
        begin: commit after which to begin; None: all rows of the table.
    """

    def __init__(self, log: TableLog, slice_rows: int, begin: int | None = None) -> None:
        self._log = log
        self._slice_rows = slice_rows
        self._begin = begin
        self._commits: dict[tuple[int, bool], Commit] = {}

    @property
    def partition(self) -> SourcePartition:
        """The format and the table."""
        return {"format": self._log.format, "source": self._log.place}

    def slices(self, spark: SparkSession, offset: SourceOffset | None) -> Iterator[tuple[pa.Table, SourceOffset]]:
        """Rows of the files that come next.

        Raises:
            TableRewrittenError: commits or files do not exist any more.
            TableChangedError: a commit has changed rows.
            LakeError, LakeUnavailableError: see their docstrings.
        """
        place = self._place(offset)
        if place is not None:
            yield from ((rows, self._offset(after)) for rows, _, after in self._walk(place))

    def waiting_bytes(self, spark: SparkSession, offset: SourceOffset | None) -> int | None:
        """Sizes of the next files; None if Spark has no types for their columns."""
        place, size_bytes = self._place(offset), 0
        if place is None:
            return 0
        for commit, file, _ in islice(self._steps(place), _AHEAD):
            if commit.reader is not None and not is_taken_by_spark(commit.reader.schema):
                return None
            size_bytes += sum(one.size_bytes for one in commit.files[file:])
        return size_bytes

    def frame(
        self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int
    ) -> tuple[DataFrame, SourceOffset] | None:
        """The next files, also of several commits with the same columns."""
        place = self._place(offset)
        if place is None:
            return None
        parts: list[Part] = []
        size_bytes, commits, schema, after = 0, 0, None, None
        for commit, first, row in self._steps(place):
            if commit.reader is None:
                continue
            if size_bytes >= max_bytes or commits == _AHEAD or commit.reader.schema != (schema or commit.reader.schema):
                break
            schema, commits = commit.reader.schema, commits + 1
            for at, file in enumerate(commit.files[first:], first):
                if size_bytes >= max_bytes:
                    break
                parts.append(Part(commit.reader, file.entry, row if at == first else 0))
                size_bytes += file.size_bytes
                after = _after_file(place.start, commit, at)
        if schema is None or after is None:
            return None
        return read_by_executors(spark, parts, schema), self._offset(after)

    def again(
        self, spark: SparkSession, start: SourceOffset | None, end: SourceOffset | None
    ) -> Iterator[tuple[pa.Table, SourceOffset]]:
        until = None if end is None else self._parsed(end)
        at = self._place(start)
        if start is None and until is not None and until.start is not None:
            at = Place(until.start, until.start, 0)
        if at is None or at == until:
            return
        for rows, before, after in self._walk(at):
            left = rows.num_rows
            if until is not None and (before.number, before.file) == (until.number, until.file):
                left = until.row - before.row
            if rows.num_rows and left > 0:
                yield rows.slice(0, left), self._offset(after)
            if after == until or left < rows.num_rows:
                return

    def _walk(self, place: Place) -> Iterator[tuple[pa.Table, Place, Place]]:
        """Slices after a place, each with the places before and after it. A commit without files is an empty slice."""
        for commit, first, row in self._steps(place):
            if commit.reader is None:
                there = Place(place.start, commit.number)
                yield pa.table({}), there, there
                continue
            with self._log.errors():
                read = commit.reader.open()
                for at in range(first, len(commit.files)):
                    before = Place(place.start, commit.number, at, row if at == first else 0)
                    yield from self._walk_file(read, commit, before)

    def _walk_file(self, read: ReadFile, commit: Commit, before: Place) -> Iterator[tuple[pa.Table, Place, Place]]:
        assert before.file is not None, "it is a place in a file"
        tables = self._tables(skipped(read(commit.files[before.file].entry), before.row))
        rows = next(tables, None)
        while rows is not None:
            following = next(tables, None)
            after = Place(before.start, commit.number, before.file, before.row + rows.num_rows)
            if following is None:
                after = _after_file(before.start, commit, before.file)
            yield rows, before, after
            rows, before = following, after

    def _tables(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        for batch in batches:
            for row in range(0, batch.num_rows, self._slice_rows):
                yield pa.Table.from_batches([batch.slice(row, self._slice_rows)])

    def _steps(self, place: Place) -> Iterator[tuple[Commit, int, int]]:
        """What comes after a place: commits, each with the first file of it and the first row of that."""
        if place.file is not None:
            yield self._commit(place.number, place.start == place.number), place.file, place.row
        number = self._log.following(place.number)
        while number is not None:
            yield self._commit(number, False), 0, 0
            number = self._log.following(number)

    def _commit(self, number: int, whole: bool) -> Commit:
        found = self._commits.get((number, whole))
        if found is None:
            found = self._log.contents(number) if whole else self._log.commit(number)
            if len(self._commits) > 2 * _AHEAD:
                self._commits.clear()
            self._commits[number, whole] = found
        return found

    def _place(self, offset: SourceOffset | None) -> Place | None:
        """Where an offset is; without one the beginning, if there is one."""
        if offset is not None:
            return self._parsed(offset)
        if self._begin is not None:
            return Place(None, self._begin)
        newest = self._log.newest()
        return None if newest is None else Place(newest, newest, 0)

    def _parsed(self, offset: SourceOffset) -> Place:
        if not {self._log.unit} <= set(offset) <= {self._log.unit, _START, _FILE, _ROW}:
            reason = f"the committed offset {dict(offset)} is not one of a {self._log.unit}; reset the offsets"
            raise ConfigError([f"Invalid value for configuration offset.mode: {reason}"])
        return Place(offset.get(_START), offset[self._log.unit], offset.get(_FILE), offset.get(_ROW, 0))

    def _offset(self, place: Place) -> SourceOffset:
        start = {} if place.start is None else {_START: place.start}
        within = {} if place.file is None else {_FILE: place.file, _ROW: place.row}
        return {self._log.unit: place.number, **start, **within}


class Part(Value):
    """A file that an executor reads, without its first rows."""

    reader: Files
    entry: Any
    skip: int


def read_by_executors(spark: SparkSession, parts: Sequence[Part], schema: pa.Schema) -> DataFrame:
    """The rows of files, in order."""
    size = -(-len(parts) // _PARTS)
    groups = [tuple(parts[at : at + size]) for at in range(0, len(parts), size)]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                yield from rows_of(groups[at])

    count = len(groups)
    return spark.range(0, count, 1, count).mapInArrow(read, spark_schema(schema))


def rows_of(parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
    opened: tuple[Files, ReadFile] | None = None
    for part in parts:
        if opened is None or opened[0] is not part.reader:
            opened = part.reader, part.reader.open()
        yield from skipped(opened[1](part.entry), part.skip)


def skipped(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches without the first rows."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows)
        rows = max(0, rows - batch.num_rows)


def is_taken_by_spark(schema: pa.Schema) -> bool:
    """Whether Spark has types for all columns."""
    from pyspark.errors import PySparkTypeError

    try:
        spark_schema(schema)
    except PySparkTypeError:
        return False
    return True


def common_schema(schema: pa.Schema) -> pa.Schema:
    """The columns in the Arrow types that Spark's executors get, so that both lanes have the same ones."""
    found = as_spark_takes(schema) if is_taken_by_spark(schema) else schema
    return pa.schema([field.with_nullable(True) for field in found])


def in_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches in the types of a schema."""
    for batch in batches:
        yield from frames.in_schema(pa.Table.from_batches([batch]), schema).to_batches()


def _after_file(start: int | None, commit: Commit, file: int) -> Place:
    return Place(start, commit.number, file + 1 if file + 1 < len(commit.files) else None)
