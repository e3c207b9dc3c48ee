"""Whole files as tables: CSV, JSON lines, Parquet and Avro, compressed or not.

It decides which columns a file has and where values go that do not fit them. Columns are those of a schema, or
those of the file itself: of text formats, as its first rows suggest. What does not fit is kept in one column of text
(Auto Loader's rescued data column). Of an archive the tables are those of its files, one after the other. Reading a
file again gives the same tables.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import IO, Any, Final

import pyarrow as pa

from connectx.connectors.files.archives import ARCHIVE_ERRORS, is_archive, members_of
from connectx.connectors.files.avro import avro_tables
from connectx.connectors.files.errors import SourceFileColumnError, SourceFileUnreadableError, SourceFileValueError
from connectx.connectors.files.fitting import (
    Number,
    fitted,
    is_name,
    new_field,
    type_of,
    type_of_texts,
    united,
    widened,
)
from connectx.connectors.files.limits import MOST_BYTES, Lines, chunks, unpacked
from connectx.connectors.files.ranges import lines_between
from connectx.data.arrays import as_type
from connectx.errors.files import SourceFileError

FORMATS: Final = ("csv", "json", "parquet", "avro")
EVOLUTION_MODES: Final = ("addNewColumns", "rescue", "failOnNewColumns", "none")
_CORRUPT: Final = "_corrupt_record"
_EXTRA: Final = "_extra_values"
COMPRESSIONS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_RECORD_TYPES: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_CONTENT: Final = (OSError, EOFError, ValueError, csv.Error, pa.ArrowException, *ARCHIVE_ERRORS)

Row = Mapping[str, Any]
Readable = str | IO[bytes]
"""The path of a file, or a file of an archive."""


@dataclass(frozen=True, slots=True)
class TextColumns:
    """Columns of a text file, as its beginning suggests: `names` in the order of CSV values, and their types."""

    names: tuple[str, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class TextRange:
    """Lines of a text file that begin in [first, stop). The file is read from `start` to `end`, both at line ends."""

    first: int
    stop: int
    start: int
    end: int
    columns: TextColumns


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups of a Parquet file, from `first` to before `end`."""

    first: int
    end: int


Part = TextRange | RowGroups


@dataclass(frozen=True, slots=True)
class FileReader:
    """How files are read.

    Attributes:
        format: one of `FORMATS`.
        rows: rows of a table; the columns of a text file without a schema are those of its first table.
        schema: columns and their types; None: as the file has them.
        evolution: what a column that the schema lacks means; one of `EVOLUTION_MODES`.
        rescued: name of the column for what does not fit; empty: then the task fails.
        delimiter, header, null_text: of CSV.
        members: names of the files of an archive that are read.
    """

    format: str
    rows: int
    schema: pa.Schema | None = None
    evolution: str = "addNewColumns"
    rescued: str = "_rescued_data"
    delimiter: str = ","
    header: bool = True
    null_text: str = ""
    members: str = "*"

    def tables(self, path: str, part: Part | None = None) -> Iterator[pa.Table]:
        """All rows of a file, or of a part of it, in order.

        Raises:
            SourceFileUnreadableError: it cannot be opened or decoded.
            SourceFileColumnError: it has a column that the schema lacks, with failOnNewColumns.
            SourceFileValueError: a value does not fit, and there is no column for what does not.
        """
        name = path
        try:
            if not is_archive(path):
                yield from self._tables(path, path, path, part)
                return
            for member, file in members_of(path):
                if fnmatch(os.path.basename(member), self.members):
                    name = f"{member} in {path}"
                    yield from self._tables(file, member, name)
        except _CONTENT as error:
            raise SourceFileUnreadableError(name, " ".join(str(error).split())[:200], setting="path") from error

    def text_columns(self, path: str) -> TextColumns | None:
        """Columns that all ranges of an uncompressed text file have; None if rows further down can add columns.

        Raises:
            SourceFileUnreadableError: it cannot be opened or decoded.
        """
        try:
            names = list(self.schema.names) if self.schema else []
            if self.format == "csv" and self.header:
                with _text(path, path) as file:
                    names = _header(self._csv_lines(Lines(file)))
            with _text(path, path) as file:
                sample = next(self._chunks(file), [])
        except _CONTENT as error:
            raise SourceFileUnreadableError(path, " ".join(str(error).split())[:200], setting="path") from error
        if self.schema is None:
            names = names or [name for name in dict.fromkeys(sample[0] if sample else ()) if name != _EXTRA]
            return TextColumns(tuple(names), _inferred_schema(sample, self.format))
        is_fixed = self.format == "csv" and set(names) <= set(self.schema.names)
        return TextColumns(tuple(names), self.schema) if is_fixed or self.evolution != "addNewColumns" else None

    def _tables(self, file: Readable, name: str, shown: str, part: Part | None = None) -> Iterator[pa.Table]:
        """Rows of one file; errors show it as `shown`."""
        if self.format == "parquet":
            groups = range(part.first, part.end) if isinstance(part, RowGroups) else None
            yield from (self._typed(table, shown) for table in _parquet(file, self.rows, groups))
        elif self.format == "avro":
            with _stream(file, name) as content:
                yield from (self._typed(table, shown) for table in avro_tables(content, self.rows))
        elif isinstance(part, TextRange):
            yield from self._texts(_text_range(str(file), part), shown, part)
        else:
            yield from self._texts(_text(file, name), shown)

    def _typed(self, table: pa.Table, path: str) -> pa.Table:
        """Rows of a file that carries its types."""
        if self.schema is None:
            return table
        columns = {name: table[name] for name in table.column_names}
        columns = self._known(columns, path)
        problems: dict[str, list[Any]] = {}
        made: dict[str, pa.ChunkedArray | pa.Array] = {}
        for field in self.schema:
            found = columns.pop(field.name, None)
            if found is None:
                made[field.name] = pa.nulls(table.num_rows, field.type)
                continue
            wide = united(field.type, found.type)
            kind = self._evolved(field, wide, path)
            try:
                if kind != wide and self.evolution != "none":
                    raise pa.ArrowInvalid("a cast leaves out fields")
                made[field.name] = as_type(found, kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                made[field.name], problems[field.name] = self._fit(found.to_pylist(), kind)
        if self.evolution == "rescue":
            problems |= {name: column.to_pylist() for name, column in columns.items()}
        elif self.evolution == "addNewColumns":
            made |= columns
        return self._with_rescued(made, problems, table.num_rows, path)

    def _evolved(self, field: pa.Field, wide: pa.DataType, path: str) -> pa.DataType:
        """The type of a column whose values have fields of a wider type."""
        if wide != field.type and self.evolution == "failOnNewColumns":
            raise SourceFileColumnError(path, new_field(field.name, field.type, wide))
        return wide if self.evolution == "addNewColumns" else field.type

    def _fit(self, values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, list[Any]]:
        """Values as a column, and for each what is to be rescued of it."""
        found = fitted(values, kind, exact=self.schema is None)
        lacked = {} if self.schema is not None and self.evolution == "none" else found.lacked
        return found.column, [value if at in found.unfit else lacked.get(at) for at, value in enumerate(values)]

    def _texts(self, file: io.TextIOWrapper, path: str, part: TextRange | None = None) -> Iterator[pa.Table]:
        schema = self.schema if part is None else part.columns.schema
        with file:
            for chunk in self._chunks(file, part):
                if schema is None:
                    schema = _inferred_schema(chunk, self.format)
                yield self._table(chunk, schema, path)

    def _chunks(self, file: io.TextIOWrapper, part: TextRange | None = None) -> Iterator[list[Row]]:
        """Rows of the tables."""
        lines = Lines(file)
        return chunks(
            self._csv(lines, part) if self.format == "csv" else self._json(lines), self.rows, lambda: lines.read
        )

    def _table(self, rows: Sequence[Row], schema: pa.Schema, path: str) -> pa.Table:
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        strange: dict[str, list[Any]] = {name: columns.pop(name) for name in (_CORRUPT, _EXTRA) if name in columns}
        if self.schema is not None:
            columns = self._known(columns, path)
        kinds = {field.name: field.type for field in schema}
        if self.schema is not None:
            kinds = {
                field.name: self._evolved(field, widened(field.type, columns.get(field.name, ())), path)
                for field in schema
            }
        if self.schema is not None and self.evolution == "addNewColumns":
            more = [{name: columns[name][at] for name in columns if name not in kinds} for at in range(len(rows))]
            kinds |= _inferred(more, type_of)
        made: dict[str, Any] = {}
        problems: dict[str, list[Any]] = {}
        for name, kind in kinds.items():
            made[name], bad = self._fit(columns.pop(name, [None] * len(rows)), kind)
            problems |= {name: bad} if any(value is not None for value in bad) else {}
        if self.schema is None or self.evolution in ("rescue", "addNewColumns"):
            problems |= columns
        return self._with_rescued(made, {**problems, **strange}, len(rows), path)

    def _json(self, lines: Lines) -> Iterator[Row]:
        has_decimals = self.schema is not None and any("decimal" in str(field.type) for field in self.schema)
        parse_float = Number if has_decimals else None
        for line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_float=parse_float)
            except ValueError:
                row = None
            yield row if isinstance(row, dict) else {_CORRUPT: line.rstrip("\r\n")}

    def _csv(self, lines: Lines, part: TextRange | None = None) -> Iterator[Row]:
        records = self._csv_lines(lines)
        names = _header(records) if self.header and (part is None or part.first == 0) else None
        if part is not None:
            names = list(part.columns.names)
        for values in records:
            if not values:
                continue
            if names is None:
                names = list(self.schema.names) if self.schema else [f"_c{at}" for at in range(len(values))]
            texts = (None if text == self.null_text else text for text in values)
            row: dict[str, Any] = dict(zip(names, texts, strict=False))
            if len(values) > len(names):
                row[_EXTRA] = values[len(names) :]
            yield row

    def _csv_lines(self, lines: Lines) -> Iterator[list[str]]:
        """Values of each line. ValueError names the line where a quote is wrong."""
        csv.field_size_limit(MOST_BYTES)  # of a longer one a quote is probably not closed
        records = csv.reader(lines, delimiter=self.delimiter, strict=True)
        while True:
            begin = records.line_num + 1
            try:
                values = next(records, None)
            except csv.Error as error:
                raise ValueError(f"the record that begins in line {begin}: {error}") from error
            if values is None:
                return
            yield values

    def _known(self, columns: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Columns, if none is new or new ones are allowed."""
        assert self.schema is not None
        new = [name for name in columns if name not in self.schema.names]
        if new and self.evolution == "failOnNewColumns":
            raise SourceFileColumnError(path, new[0])
        return {name: values for name, values in columns.items() if name not in new or self.evolution != "none"}

    def _with_rescued(
        self, columns: dict[str, Any], problems: Mapping[str, Sequence[Any]], count: int, path: str
    ) -> pa.Table:
        kept: list[str | None] = [None] * count
        for at in range(count) if problems else ():
            found = {name: values[at] for name, values in problems.items() if values[at] is not None}
            if found:
                kept[at] = _rescued(found)
                if not self.rescued:
                    raise SourceFileValueError(path, kept[at] or "")
        more = {self.rescued: pa.array(kept, pa.string())} if self.rescued else {}
        return pa.table({**columns, **more})


def _rescued(found: Mapping[str, Any]) -> str:
    """Rescued data as JSON; halves of surrogate pairs are escaped."""
    text = json.dumps(found, default=str, ensure_ascii=False)
    return text if is_name(text) else json.dumps(found, default=str)


def rows_after(tables: Iterator[pa.Table], position: int) -> Iterator[pa.Table]:
    """Tables without the first `position` rows."""
    for table in tables:
        if position < table.num_rows:
            yield table.slice(position)
        position = max(0, position - table.num_rows)


def is_about_content(error: SourceFileError) -> bool:
    """Whether a file itself is the cause, and not the system that it is read from."""
    if isinstance(error, (SourceFileColumnError, SourceFileValueError)):
        return True
    cause = error.__cause__
    return isinstance(error, SourceFileUnreadableError) and not (isinstance(cause, OSError) and cause.errno is not None)


def is_compressed(path: str) -> bool:
    """Whether the name of a file is that of an archive or of a compressed file."""
    return is_archive(path) or os.path.splitext(path)[1] in COMPRESSIONS


def _header(lines: Iterator[list[str]]) -> list[str]:
    """The first line. ValueError if it names a column twice, so that one of its values would be lost."""
    names = next(lines, [])
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise ValueError(f"its header names the column {twice[0]!r} twice")
    return names


def _text(file: Readable, name: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(_stream(file, name), "utf-8-sig", newline="")


def _text_range(path: str, part: TextRange) -> io.TextIOWrapper:
    """Lines of a range. Only the beginning of a file can have a byte order mark."""
    block = lines_between(path, part.first, part.stop, part.start, part.end)
    return io.TextIOWrapper(io.BytesIO(block), "utf-8" if part.first else "utf-8-sig", newline="")


def _stream(file: Readable, name: str) -> pa.NativeFile:
    """Bytes of a file, decompressed by the ending of its name."""
    return pa.input_stream(file, compression=COMPRESSIONS.get(os.path.splitext(name)[1]))


def _parquet(file: Readable, rows: int, groups: range | None = None) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    with (
        nullcontext(file) if isinstance(file, str) else unpacked(file) as content,
        pq.ParquetFile(content) as parquet,
    ):
        for batch in parquet.iter_batches(batch_size=rows, row_groups=None if groups is None else list(groups)):
            yield _in_records_types(pa.Table.from_batches([batch]))


def _in_records_types(table: pa.Table) -> pa.Table:
    """Columns in types that records have: integers without a sign are signed ones that hold them."""
    kinds = [_record_type(field.type) for field in table.schema]
    columns = [
        column if column.type == kind else column.cast(kind) for column, kind in zip(table.columns, kinds, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _record_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_record_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_record_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_record_type(kind.item_type)))
    return _RECORD_TYPES.get(kind, kind)


def _inferred_schema(rows: Sequence[Row], text_format: str) -> pa.Schema:
    """Columns of a text file by its first rows."""
    return pa.schema(list(_inferred(rows, type_of_texts if text_format == "csv" else type_of).items()))


def _inferred(rows: Sequence[Row], infer: Callable[[Sequence[Any]], pa.DataType]) -> dict[str, pa.DataType]:
    """A type for each column with a value."""
    kinds: dict[str, pa.DataType] = {}
    for name in dict.fromkeys(name for row in rows for name in row if name not in (_CORRUPT, _EXTRA)):
        if is_name(name) and (values := [row[name] for row in rows if row.get(name) is not None]):
            kinds[name] = infer(values)
    return kinds
