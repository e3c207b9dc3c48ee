"""Bulk slices of DirectorySource: which files, and parts of files, Spark's executors read in one job.

The worker decides the parts, executors read them with the readers of the tail. Small files are read whole. Large ones
are divided: Parquet by row groups, text by byte ranges, if its columns cannot depend on rows of other ranges. A file
that cannot be divided and is too large for one Spark task is left to the tail.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from connectx.connectors.files.errors import SourceFileUnreadableError
from connectx.connectors.files.following import SourceFile
from connectx.connectors.files.ranges import PART_BYTES, ranges_of
from connectx.connectors.files.readers import (
    FileReader,
    Part,
    RowGroups,
    TextColumns,
    TextRange,
    is_about_content,
    is_compressed,
    rows_after,
)
from connectx.connectors.shared.keyed import valued_table
from connectx.errors.files import SourceFileError

if TYPE_CHECKING:
    import pyarrow as pa

    from connectx.plugins.slices import TablesOfParts

FILES_MAX: Final = 1_000
"""Files of one slice: each adds a source offset to its transaction."""

_WHOLE_BYTES: Final = 64 * 1024 * 1024
_WHOLE_COMPRESSED_BYTES: Final = 16 * 1024 * 1024
"""What one Spark task reads in a few seconds, so that the transaction does not expire."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a Spark task reads of a file: `part` of it, None for all of it, without the first `skip` rows."""

    file: int
    path: str
    size: int
    part: Part | None = None
    skip: int = 0

    def tables(self, reader: FileReader) -> Iterator[pa.Table]:
        """Its rows.

        Raises:
            SourceFileError: it cannot be read, or is not the file that the worker found.
        """
        try:
            size = os.stat(self.path).st_size
        except OSError as error:
            raise SourceFileUnreadableError(self.path, error.strerror or str(error), setting="path") from error
        if size != self.size:
            cause = f"it has {size} bytes here, and {self.size} where the worker found it"
            raise SourceFileUnreadableError(self.path, cause, setting="path") from OSError(0, cause)
        yield from rows_after(reader.tables(self.path, self.part), self.skip)


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What a job reads of a file, from the row `position` on.

    Attributes:
        size_bytes: of what is read, about.
        is_last: whether the pieces reach the end of the file.
        end_byte: of a range of lines, where it ends; None for other parts.
    """

    path: str
    size: int
    position: int
    pieces: tuple[Piece, ...]
    size_bytes: int
    is_last: bool = True
    end_byte: int | None = None

    @property
    def is_divided(self) -> bool:
        """Whether a piece follows another one, so that rows are missing in the middle if one fails."""
        return len(self.pieces) > 1


def may_be_read(path: str, size: int, file_format: str) -> bool:
    """Whether executors may read a file: it is small enough for one task, or may have parts."""
    return size <= _whole_bytes(path) or (file_format != "avro" and may_be_divided(path, size))


def may_be_divided(path: str, size: int) -> bool:
    """Whether a file is large enough to have parts, and its bytes are those of its content."""
    return size > PART_BYTES and not is_compressed(path)


@dataclass(slots=True)
class Planner:
    """Decides the pieces of files. It keeps what it found out about large text files."""

    reader: FileReader
    _columns: dict[str, TextColumns | None] = field(default_factory=dict)

    def plan(self, number: int, path: str, size: int, offset: dict[str, Any], max_bytes: int) -> FilePlan | None:
        """About `max_bytes` of a file after a source offset; None if the tail has to read it.

        Args:
            number: of the file in the slice.
            offset: empty at its beginning.
        """
        position = int(offset.get("position", 0))
        whole = FilePlan(path, size, position, (Piece(number, path, size, None, position),), size)
        try:
            if may_be_divided(path, size):
                if self.reader.format == "parquet":
                    return self._row_groups(whole, number, max_bytes)
                if self.reader.format in ("csv", "json"):
                    start = int(offset.get("bytes", 0))
                    if (start > 0) == (position > 0) and (columns := self._text_columns(path)) is not None:
                        return self._ranges(whole, number, start, max_bytes, columns)
        except (SourceFileError, OSError, ValueError):
            return None  # the tail finds the cause
        return whole if size <= _whole_bytes(path) else None

    def forget(self, path: str) -> None:
        """A file is finished."""
        self._columns.pop(path, None)

    def _row_groups(self, whole: FilePlan, number: int, max_bytes: int) -> FilePlan | None:
        """Pieces of row groups; None if one that is still to be read is too large for one Spark task."""
        import pyarrow.parquet as pq

        path, size, position = whole.path, whole.size, whole.position
        rows = pq.read_metadata(path)
        counts = [rows.row_group(at).num_rows for at in range(rows.num_row_groups)]
        first = before = 0
        while first < len(counts) - 1 and before + counts[first] <= position:
            before += counts[first]
            first += 1
        sizes = [size * count // max(1, rows.num_rows) for count in counts]
        if max(sizes[first:], default=0) > _WHOLE_BYTES:
            return None
        pieces: list[Piece] = []
        begin, taken, total = first, 0, 0
        for at in range(first, len(counts)):
            taken += sizes[at]
            if taken >= PART_BYTES or at == len(counts) - 1 or total + taken >= max_bytes:
                skip = position - before if begin == first else 0
                pieces.append(Piece(number, path, size, RowGroups(begin, at + 1), skip))
                begin, taken, total = at + 1, 0, total + taken
                if total >= max_bytes:
                    break
        return FilePlan(path, size, position, tuple(pieces), total, is_last=begin >= len(counts)) if pieces else whole

    def _ranges(self, whole: FilePlan, number: int, start: int, max_bytes: int, columns: TextColumns) -> FilePlan:
        path, size = whole.path, whole.size
        end = size if size - start <= max_bytes else SourceFile(path).end_of_lines(start, max_bytes)
        pieces = [
            Piece(number, path, size, TextRange(first, stop, start, end, columns))
            for first, stop in ranges_of(start, end)
        ]
        return FilePlan(path, size, whole.position, tuple(pieces), end - start, end == size, end)

    def _text_columns(self, path: str) -> TextColumns | None:
        if path not in self._columns:
            is_divisible = _has_lines(path, quotes=self.reader.format == "csv")
            self._columns[path] = self.reader.text_columns(path) if is_divisible else None
        return self._columns[path]


def tasks_of(plans: Sequence[FilePlan]) -> list[list[Piece]]:
    """Pieces of each Spark task, in the order of the files: small files share a task."""
    tasks: list[list[Piece]] = []
    size_bytes = PART_BYTES
    for plan in plans:
        for piece in plan.pieces:
            if size_bytes >= PART_BYTES:
                tasks.append([])
                size_bytes = 0
            tasks[-1].append(piece)
            size_bytes += max(1, plan.size_bytes // len(plan.pieces))
    return tasks


def reading(reader: FileReader, key_fields: Sequence[str], plans: Sequence[FilePlan]) -> Any:
    """The function of a BulkSlice that reads these files; its parts are their numbers."""
    divided = frozenset(number for number, plan in enumerate(plans) if plan.is_divided)
    return partial(_read, reader, tuple(key_fields), tasks_of(plans), divided)


def _read(
    reader: FileReader, key_fields: Sequence[str], tasks: Sequence[Sequence[Piece]], divided: frozenset[int], task: int
) -> TablesOfParts:
    """Tables of one Spark task. Of a file whose content is bad, the rows before are read, and the tail finds the cause.

    Raises:
        SourceFileError: a file cannot be read here, or one of several pieces of a file is bad.
    """
    for piece in tasks[task]:
        try:
            for table in piece.tables(reader):
                yield piece.file, valued_table(table, key_fields)
        except SourceFileError as error:
            if piece.file in divided or not is_about_content(error):
                raise
        else:
            yield piece.file, None


def _whole_bytes(path: str) -> int:
    return _WHOLE_COMPRESSED_BYTES if is_compressed(path) else _WHOLE_BYTES


def _has_lines(path: str, *, quotes: bool) -> bool:
    """Whether each line feed ends a line. With `quotes` a file is read to its first quote, which can enclose others."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"\n", 0, PART_BYTES) >= 0 and not (quotes and content.find(b'"') >= 0)
