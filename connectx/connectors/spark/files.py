"""Files of any format that Spark reads, in the order of their names, each once.

Spark lists and reads them, so every file system and format of Spark will do, also over Spark Connect. A slice is whole
files, or rows of one file. Each file has its own columns, so the rows of a slice do not depend on the other files.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from connectx.connectors.spark.reading import load
from connectx.errors.files import SourceDirectoryMissingError, SourceFileMissingError
from connectx.errors.plugins import ConfigError
from connectx.model.source_offsets import SourceOffset, SourcePartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

_FILE, _ROW = "file", "row"
_SETTING: Final = "format.options.path"
_BASE: Final = "basePath"
_MARK: Final = "__file"
_MISSING: Final = "PATH_NOT_FOUND"
_MAGIC: Final = re.compile(r"([\\{}\[\]*?])")
_PAGE_BYTES: Final = 16 << 20
"""Size of the files that the worker reads together; at least one file."""
_PAGE_FILES: Final = 64
"""Files that are read together at the most, in both lanes."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file: its name as offsets have it, its path as Spark takes it."""

    name: str
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a slice of some files ends.

    Attributes:
        rows: of the slice.
        files: that are finished by then.
        row: rows of the next file that are read by then.
    """

    rows: int
    files: int
    row: int = 0


def cuts(counts: Sequence[int], begun: int, slice_rows: int) -> Iterator[Cut]:
    """Slices of files: whole ones of up to `slice_rows` rows together, or rows of one that has more.

    Args:
        counts: rows of each file, without those that were read before.
        begun: rows of the first file that were read before.
        slice_rows: rows of a slice at the most.
    """
    rows, ended = 0, 0
    for at, count in enumerate(counts):
        if rows and rows + count > slice_rows:
            yield Cut(rows, at)
            rows, ended = 0, at
        left, before = count, begun if at == 0 else 0
        while left > slice_rows:
            left, before = left - slice_rows, before + slice_rows
            yield Cut(slice_rows, at, before)
        rows += left
        if before:
            yield Cut(rows, at + 1)
            rows, ended = 0, at + 1
    if ended < len(counts):
        yield Cut(rows, len(counts))


class FileReader:
    """Reads files by name; a `connectx.connectors.spark.reading.Reader`.

    Args:
        name: of the format.
        options: of the format, with the path.
        schema: of the rows as DDL; None: each file has its own columns.
        slice_rows: rows of a slice that the worker reads.
    """

    def __init__(self, name: str, options: Mapping[str, str], schema: str | None, slice_rows: int) -> None:
        self._format = name
        self._path = options["path"]
        self._options = {key: text for key, text in options.items() if key != "path"}
        self._schema = schema
        self._slice_rows = slice_rows
        self._backlog: tuple[SourceOffset | None, list[FoundFile]] | None = None
        self._seen_us: int | None = None
        """Newest time of change that is known; a file with a later one is new."""

    @property
    def partition(self) -> SourcePartition:
        """The format and the path."""
        return {"format": self._format, "source": self._path}

    def slices(self, spark: SparkSession, offset: SourceOffset | None) -> Iterator[tuple[pa.Table, SourceOffset]]:
        """Rows of the files that come next.

        Raises:
            SparkFormatError: Spark does not know the format.
            SourceDirectoryMissingError, SourceFileMissingError: see their docstrings.
        """
        files = self._found(spark, offset)
        for rows, after, left in self._walk(spark, files, offset):
            self._backlog = after, left
            yield rows, after
        self._backlog = None

    def waiting_bytes(self, spark: SparkSession, offset: SourceOffset | None) -> int | None:
        """Sizes of the next files; None within a file, whose other rows only the worker finds."""
        return None if _place(offset)[1] else sum(file.size_bytes for file in self._found(spark, offset))

    def frame(
        self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int
    ) -> tuple[DataFrame, SourceOffset] | None:
        """Whole files with the same columns."""
        assert not _place(offset)[1], "within a file it is not known how much waits"
        files = self._found(spark, offset)
        if not files:
            self._backlog = None
            return None
        frames = self._frames(spark, files, max_bytes)
        after: SourceOffset = {_FILE: files[len(frames) - 1].name}
        self._backlog = after, files[len(frames) :]
        return reduce(lambda left, right: left.union(right), frames), after

    def again(
        self, spark: SparkSession, start: SourceOffset | None, end: SourceOffset | None
    ) -> Iterator[tuple[pa.Table, SourceOffset]]:
        """Rows between two offsets."""
        files = self._listed(spark, start)
        last, row = _place(end)
        if last is not None:
            files = [file for file in files if file.name <= last]
        if last is not None and row and (not files or files[-1].name != last):
            raise SourceFileMissingError(last, setting=_SETTING)
        for rows, after, _ in self._walk(spark, files, start, row):
            yield rows, after

    def _found(self, spark: SparkSession, offset: SourceOffset | None) -> list[FoundFile]:
        """Files that wait; lists them if none is known, or if the offset is another one."""
        if self._backlog is None or self._backlog[0] != offset:
            self._backlog = offset, self._listed(spark, offset)
        return self._backlog[1]

    def _listed(self, spark: SparkSession, offset: SourceOffset | None) -> list[FoundFile]:
        """The file of an offset that is not finished, and all whose names sort after it.

        Raises:
            SourceDirectoryMissingError: there is no such directory.
            SourceFileMissingError: the file is gone.
        """
        from pyspark.sql import functions as F

        name, row = _place(offset)
        seen_us = self._seen_us or time.time_ns() // 1000
        file = {key: F.col(f"_metadata.file_{key}") for key in ("path", "size", "modification_time")}
        columns = (column.alias(key) for key, column in file.items() if key != "modification_time")
        try:
            frame = spark.read.format("binaryFile").options(**self._options).load(self._path)
            if name is not None:  # Spark applies conditions on these columns to the listing
                is_late = file["modification_time"] > F.timestamp_micros(F.lit(seen_us))
                frame = frame.where((file["path"] >= name) | is_late)
            changed = F.unix_micros(file["modification_time"]).alias("changed")
            found = frame.select(F.col("path").alias("given"), *columns, changed).toArrow().to_pylist()
        except Exception as error:
            if _MISSING not in str(error):
                raise
            if _MAGIC.search(self._path):
                return []  # no file yet
            raise SourceDirectoryMissingError(self._path, setting=_SETTING) from error
        self._seen_us = max([seen_us, *(one["changed"] for one in found)])
        files = sorted((FoundFile(one["path"], one["given"], one["size"]) for one in found), key=lambda one: one.name)
        if name is None:
            return files
        self._report(name, [one.name for one in files if one.name < name])
        if row and not any(one.name == name for one in files):
            raise SourceFileMissingError(name, setting=_SETTING)
        return [one for one in files if one.name > name or (row and one.name == name)]

    def _report(self, last: str, late: Sequence[str]) -> None:
        if late:
            more = f" ({len(late)} such files)" if len(late) > 1 else ""
            log.warning("The file %s is not read, because its name does not sort after %s%s.", late[0], last, more)

    def _frames(self, spark: SparkSession, files: Sequence[FoundFile], max_bytes: int) -> list[DataFrame]:
        """The first files of about `max_bytes` together that have the same columns."""
        frames: list[DataFrame] = []
        columns, left = None, max_bytes
        for file in files[:_PAGE_FILES]:
            if left <= 0:
                break
            frame, found = self._load(spark, file)
            if columns is not None and found != columns:
                break
            frames.append(frame)
            columns, left = found, left - file.size_bytes
        return frames

    def _load(self, spark: SparkSession, file: FoundFile) -> tuple[DataFrame, StructType]:
        """One file, with the columns that its directories name.

        Raises:
            SourceFileMissingError: it was removed after it was listed.
        """
        base = {} if _MAGIC.search(self._path) else {_BASE: self._path}
        try:
            return load(spark, self._format, {**base, **self._options}, self._schema, _MAGIC.sub(r"\\\1", file.path))
        except Exception as error:
            if _MISSING in str(error):
                raise SourceFileMissingError(file.name, setting=_SETTING) from error
            raise

    def _walk(
        self, spark: SparkSession, files: Sequence[FoundFile], start: SourceOffset | None, end_row: int = 0
    ) -> Iterator[tuple[pa.Table, SourceOffset, list[FoundFile]]]:
        """Slices, each with the offset after it and the files left then. `end_row`: rows of the last file; 0: all."""
        begun, left = _place(start)[1], list(files)
        while left:
            frames = self._frames(spark, left, _PAGE_BYTES)
            rows, counts = _rows_of(frames)
            if end_row and len(frames) == len(left):
                rows = rows.slice(0, rows.num_rows - max(0, counts[-1] - end_row))
                counts[-1] = min(counts[-1], end_row)
            skipped = min(begun, counts[0])  # a file that was replaced by a shorter one has no more rows
            rows, counts[0] = rows.slice(skipped), counts[0] - skipped
            first, page = 0, left
            for cut in cuts(counts, begun, self._slice_rows):
                left = page[cut.files :]
                after = {_FILE: left[0].name, _ROW: cut.row} if cut.row else {_FILE: page[cut.files - 1].name}
                yield rows.slice(first, cut.rows), after, left
                first += cut.rows
            begun = 0


def _rows_of(frames: Sequence[DataFrame]) -> tuple[pa.Table, list[int]]:
    """The rows of some files in order, and how many each of them has."""
    import pyarrow.compute as pc
    from pyspark.sql import functions as F

    marked = [frame.withColumn(_MARK, F.lit(at)) for at, frame in enumerate(frames)]
    table = reduce(lambda left, right: left.union(right), marked).toArrow().combine_chunks()
    found = {one["values"]: one["counts"] for one in pc.value_counts(table[_MARK]).to_pylist()}
    return table.drop_columns([_MARK]), [found.get(at, 0) for at in range(len(frames))]


def _place(offset: SourceOffset | None) -> tuple[str | None, int]:
    """The last file of an offset, and how many rows of it are read; 0: all.

    Raises:
        ConfigError: it is an offset of another mode.
    """
    if offset is None:
        return None, 0
    if not {_FILE} <= set(offset) <= {_FILE, _ROW}:
        reason = f"the committed offset {dict(offset)} is not one of a file; reset the offsets"
        raise ConfigError([f"Invalid value for configuration offset.mode: {reason}"])
    return offset[_FILE], offset.get(_ROW, 0)
