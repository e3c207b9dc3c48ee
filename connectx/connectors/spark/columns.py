"""Rows of any format, ordered by columns that only grow.

A slice is the rows whose columns are above one offset and not above another. Rows with equal columns are in the same
slice. The upper bound of a backlog is asked for before its rows are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from connectx.connectors.spark.errors import OffsetColumnError
from connectx.connectors.spark.reading import load
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.values import Value

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_PAGE_SLICES: Final = 5
"""Slices of one query, so that a backlog is sorted less often."""
_SAMPLE: Final = 2_000
"""Places at which bulk slices of a backlog may end."""
_VALUE_BYTES: Final = 16
"""Estimated size of a value until rows were read."""
_MARK: Final = "__offset_"
_SOURCE_OPTIONS: Final = ("path", "dbtable", "query", "table")
"""Options that name what is read, in the formats of Spark."""

Position = tuple[Any, ...]
"""Values of the offset columns, as an offset has them."""


@dataclass(slots=True)
class _Backlog:
    """Rows up to `upto` that were found after an offset, about `count` of which are left, and where slices may end."""

    after: SourceOffset | None
    upto: Position
    count: int
    places: list[Position] | None = None
    rows_a_place: float = 1.0

    def advance(self, after: SourceOffset, place: Position, rows: int) -> None:
        """Rows up to a place were handed out; the count of those in a bulk slice is an estimate."""
        self.after = after
        self.count = 0 if place == self.upto else max(1, self.count - rows)


class _Kind(Value):
    """How values of a column are stored in an offset, and read from it."""

    encode: Callable[[Column], Column]
    decode: Callable[[Any], Column]


class ColumnReader:
    """Reads rows by growing columns; a `connectx.connectors.spark.reading.Reader`.

    Args:
        name: of the format.
        options: of the format.
        columns: of the offset, the most significant first.
        schema: of the rows as DDL; None if the format knows it.
        slice_rows: rows of a slice that the worker reads; more if columns have equal values.
    """

    def __init__(
        self, name: str, options: Mapping[str, str], columns: Sequence[str], schema: str | None, slice_rows: int
    ) -> None:
        self._format = name
        self._options = dict(options)
        self._columns = list(columns)
        self._schema = schema
        self._slice_rows = slice_rows
        self._backlog: _Backlog | None = None
        self._row_bytes = 0.0
        self._kinds: dict[str, _Kind] = {}

    @property
    def partition(self) -> SourcePartition:
        """The format, and the option that names the place."""
        named = [self._options[key] for key in _SOURCE_OPTIONS if key in self._options]
        return {"format": self._format, "source": named[0] if named else ""}

    def slices(self, spark: SparkSession, offset: SourceOffset | None) -> Iterator[tuple[pa.Table, SourceOffset]]:
        """Rows of the backlog, in order.

        Raises:
            SparkFormatError: Spark does not know the format.
            OffsetColumnError: a column is missing, null or has no order.
        """
        backlog = self._found(spark, offset)
        while backlog.count:
            before = offset
            for rows, place in self._page(spark, offset, backlog.upto):
                offset = self._offset(place)
                backlog.advance(offset, place, rows.num_rows)
                backlog.places = None
                yield rows, offset
            if offset == before:  # the rest was deleted meanwhile
                break
        self._backlog = None

    def waiting_bytes(self, spark: SparkSession, offset: SourceOffset | None) -> int:
        """Rows of the backlog, times their mean size."""
        return int(self._found(spark, offset).count * self._row_bytes)

    def frame(
        self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int
    ) -> tuple[DataFrame, SourceOffset] | None:
        """Rows up to one of the places where a slice may end, sorted by their columns and then by all others."""
        from pyspark.sql import functions as F

        backlog = self._found(spark, offset)
        if not backlog.count:
            self._backlog = None
            return None
        wanted = max(1, int(max_bytes / self._row_bytes))
        upto, count = self._place(spark, backlog, wanted) if wanted < backlog.count else (backlog.upto, backlog.count)
        rows = self._between(self._load(spark), offset, upto)
        # Rows with equal columns have the same order when they are evaluated again.
        rest = F.xxhash64(F.to_json(F.struct(*map(_column, rows.columns))))
        end = self._offset(upto)
        backlog.advance(end, upto, count)
        return rows.orderBy(*map(_column, self._columns), rest), end

    def again(
        self, spark: SparkSession, start: SourceOffset | None, end: SourceOffset | None
    ) -> Iterator[tuple[pa.Table, SourceOffset]]:
        if end is None:
            found = self._probe(spark, start)
            if not found.count:
                return
            end = self._offset(found.upto)
        while start != end:
            before = start
            for rows, place in self._page(spark, start, self._position(end)):
                start = self._offset(place)
                yield rows, start
            if start == before:  # the rest was deleted
                return

    def _found(self, spark: SparkSession, offset: SourceOffset | None) -> _Backlog:
        """What was found after this offset; asks Spark if nothing is known, or if the offset is another one."""
        if self._backlog is None or self._backlog.after != offset:
            self._backlog = self._probe(spark, offset)
        return self._backlog

    def _probe(self, spark: SparkSession, offset: SourceOffset | None) -> _Backlog:
        """How many rows come after an offset, and where the last of them is."""
        from pyspark.sql import functions as F

        frame, columns = self._load(spark), [_column(name) for name in self._columns]
        missing = reduce(lambda left, right: left | right, (column.isNull() for column in columns))
        newer = frame if offset is None else frame.where(missing | self._after(self._position(offset)))
        found = newer.agg(
            F.count(F.lit(1)).alias("count"),
            F.count_if(missing).alias("missing"),
            F.max(F.struct(*columns)).alias("upto"),
        )
        last = [kind.encode(F.col("upto").getField(name)) for name, kind in self._kinds.items()]
        marks = [column.alias(f"{_MARK}{at}") for at, column in enumerate(last)]
        count, nulls, *upto = found.select("count", "missing", *marks).toArrow().to_pylist()[0].values()
        if nulls:
            raise OffsetColumnError(", ".join(self._columns), self._where, f"{nulls} rows have a null there")
        if not self._row_bytes:
            self._row_bytes = float(_VALUE_BYTES * len(frame.columns))
        return _Backlog(offset, tuple(upto), count)

    def _page(
        self, spark: SparkSession, offset: SourceOffset | None, upto: Position
    ) -> Iterator[tuple[pa.Table, Position]]:
        """Slices of the first rows after an offset. Rows with equal columns are in one slice."""
        limit = _PAGE_SLICES * self._slice_rows
        rows, places = self._rows(spark, offset, upto, limit + 1)
        count = rows.num_rows
        if count > limit:  # rows that were left out may have the columns of the last one
            count = _first_of_equals(places, count - 1)
            if count == 0:
                rows, places = self._rows(spark, offset, _at(places, 0), None)
                count = rows.num_rows
        first = 0
        while first < count:
            end = _end_of_equals(places, min(first + self._slice_rows, count), count)
            yield rows.slice(first, end - first), _at(places, end - 1)
            first = end

    def _rows(
        self, spark: SparkSession, offset: SourceOffset | None, upto: Position, limit: int | None
    ) -> tuple[pa.Table, pa.Table]:
        """The first rows between two places, in order; and the places where they are."""
        frame = self._between(self._load(spark), offset, upto)
        ordered = frame.select("*", *self._marks()).orderBy(*map(_column, self._columns))
        found = (ordered if limit is None else ordered.limit(limit)).toArrow().combine_chunks()
        names = found.column_names[: len(frame.columns)]
        rows = found.select(names)
        if rows.num_rows:
            self._row_bytes = max(1.0, rows.nbytes / rows.num_rows)
        return rows, found.select(found.column_names[len(names) :])

    def _place(self, spark: SparkSession, backlog: _Backlog, wanted: int) -> tuple[Position, int]:
        """The place of some row, about so many rows after the beginning of the backlog; and their number."""
        if backlog.places is None:
            part = min(1.0, _SAMPLE / backlog.count)
            newer = self._between(self._load(spark), backlog.after, backlog.upto)
            sample = newer if part == 1.0 else newer.sample(part)
            ordered = sample.orderBy(*map(_column, self._columns)).select(*self._marks()).toArrow()
            backlog.places = [tuple(row.values()) for row in ordered.to_pylist()]
            backlog.rows_a_place = 1 / part
        at = max(1, int(wanted / backlog.rows_a_place))
        if at >= len(backlog.places):
            return backlog.upto, backlog.count
        place = backlog.places[at - 1]
        while at < len(backlog.places) and backlog.places[at] == place:
            at += 1
        del backlog.places[:at]
        return place, int(at * backlog.rows_a_place)

    def _load(self, spark: SparkSession) -> DataFrame:
        """The rows as they are now.

        Raises:
            SparkFormatError: Spark does not know the format.
            JdbcDriverError: it has no driver for the database.
            OffsetColumnError: a column is missing or has no order.
        """
        frame, schema = load(spark, self._format, self._options, self._schema)
        types = {field.name: field.dataType for field in schema}
        self._kinds = {name: self._kind(name, types.get(name)) for name in self._columns}
        return frame

    def _kind(self, name: str, kind: DataType | None) -> _Kind:
        from pyspark.sql import functions as F
        from pyspark.sql import types as T

        match kind:
            case None:
                raise OffsetColumnError(name, self._where, "there is no such column")
            case T.StringType() if self._format == "jdbc" and not self._filters_here:
                cause = "databases order text differently from Spark; set format.options.pushDownPredicate=false"
                raise OffsetColumnError(name, self._where, cause)
            case T.StringType():
                return _Kind(lambda column: column, F.lit)
            case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
                return _Kind(lambda column: column.cast("long"), lambda value: F.lit(value).cast(kind))
            case T.TimestampType():
                return _Kind(F.unix_micros, lambda value: F.timestamp_micros(F.lit(value)))
            case T.TimestampNTZType() | T.DateType() | T.DecimalType():
                return _Kind(lambda column: column.cast("string"), lambda value: F.lit(value).cast(kind))
            case _:  # types whose values are no position
                cause = f"it is {kind.simpleString()}; take a whole number, decimal, text, date or timestamp"
                raise OffsetColumnError(name, self._where, cause)

    @property
    def _filters_here(self) -> bool:
        """Whether Spark compares values of a database, not the database."""
        return any(name.lower() == "pushdownpredicate" and text == "false" for name, text in self._options.items())

    @property
    def _where(self) -> str:
        return " ".join(str(text) for text in self.partition.values() if text)

    def _marks(self) -> list[Column]:
        """The offset columns as an offset has them."""
        return [kind.encode(_column(name)).alias(f"{_MARK}{at}") for at, (name, kind) in enumerate(self._kinds.items())]

    def _offset(self, place: Position) -> SourceOffset:
        return dict(zip(self._columns, place, strict=True))

    def _position(self, offset: SourceOffset) -> Position:
        """The values of an offset.

        Raises:
            OffsetColumnError: it is one of other columns.
        """
        if set(offset) != set(self._columns):
            held = ", ".join(offset)
            raise OffsetColumnError(", ".join(self._columns), self._where, f"the committed offset has {held}")
        return tuple(offset[name] for name in self._columns)

    def _after(self, place: Position) -> Column:
        """Rows above a place, compared column by column."""
        from pyspark.sql import functions as F

        above, values = F.lit(False), self._values(place)
        for column, value in reversed(values):
            above = (column > value) | ((column == value) & above)
        first, value = values[0]
        return (first >= value) & above  # the first part is what a format can use to skip files

    def _until(self, place: Position) -> Column:
        """Rows at a place or below it."""
        from pyspark.sql import functions as F

        below, values = F.lit(True), self._values(place)
        for column, value in reversed(values):
            below = (column < value) | ((column == value) & below)
        first, value = values[0]
        return (first <= value) & below

    def _values(self, place: Position) -> list[tuple[Column, Column]]:
        """The offset columns, each with its value at a place."""
        kinds = self._kinds.items()
        return [(_column(name), kind.decode(value)) for (name, kind), value in zip(kinds, place, strict=True)]

    def _between(self, frame: DataFrame, offset: SourceOffset | None, upto: Position) -> DataFrame:
        """Rows above an offset and not above a place. Nulls are left to the next probe, which reports them."""
        present = (_column(name).isNotNull() for name in self._columns)
        below = frame.where(reduce(lambda left, right: left & right, present, self._until(upto)))
        return below if offset is None else below.where(self._after(self._position(offset)))


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(f"`{name}`")


def _at(places: pa.Table, row: int) -> Position:
    return tuple(column[row].as_py() for column in places.columns)


def _first_of_equals(places: pa.Table, row: int) -> int:
    """The first row with the place of this one."""
    place = _at(places, row)
    while row and _at(places, row - 1) == place:
        row -= 1
    return row


def _end_of_equals(places: pa.Table, end: int, count: int) -> int:
    """The end of the rows that have the place of the last one before `end`."""
    place = _at(places, end - 1)
    while end < count and _at(places, end) == place:
        end += 1
    return end
