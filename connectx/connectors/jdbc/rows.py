"""Turns records into rows of tables, creates and changes tables, and finds rows that a database refuses.

It never commits rows or compares offsets.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.jdbc.ordering import in_layers, last_of_each, layered, runs, shapes_of, tombstones
from connectx.connectors.jdbc.target import Target, TargetTable, split_name
from connectx.connectors.shared.kept import KEPT, NO_OLD_VALUE, with_kept
from connectx.connectors.shared.uniting import united_columns
from connectx.data.chunks import rows_where
from connectx.data.connect_schema import DEFAULT
from connectx.data.converter import OTHER_FIELDS, other_fields_of, with_others
from connectx.data.shapes import divided, is_united
from connectx.errors.base import ConnectxError
from connectx.errors.databases import DatabaseUnavailableError, RowRefusedError, TableMissingError
from connectx.errors.plugins import RecordRejectedError
from connectx.model.ids import TopicPartition

KAFKA_KEY: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
"""Columns of pk.mode=kafka, unless pk.fields names others."""

_PLACE: Final = ["topic", "partition", "offset"]
_ROW: Final = "connectx_row"
"""Column of the numbers of rows within their batch."""

Report = Callable[[TopicPartition, int, Exception], None]


@dataclass(frozen=True, slots=True)
class RowSettings:
    """How records become rows.

    Attributes:
        insert_mode: insert, upsert or update.
        pk_mode: none, kafka, record_key or record_value.
        key_columns: pk.fields; empty: all fields of the record's key, or of its value.
        fields: names of the fields of values to write; empty: all.
    """

    table_format: str
    insert_mode: str = "insert"
    pk_mode: str = "none"
    key_columns: tuple[str, ...] = ()
    fields: frozenset[str] = frozenset()
    delete: bool = False
    auto_create: bool = False
    auto_evolve: bool = False

    def change(self, key: Sequence[str], record_key: Any, value: Any) -> tuple[Mapping[str, Any] | None, bool]:
        """The row that one record is about, None if it is about no row, and whether the record deletes it.

        Args:
            key: columns that identify a row.
        """
        if value is None and not self.delete:
            return None, False
        fields = dict(value) if isinstance(value, Mapping) else {}
        if self.fields:
            fields = {name: fields[name] for name in fields if name in self.fields or name in key}
        if self.pk_mode == "record_key":
            fields |= (
                {name: record_key.get(name) for name in key}
                if isinstance(record_key, Mapping)
                else {key[0]: record_key}
            )
        return fields, value is None


class TableRows:
    """Writes rows within the target's transaction.

    Args:
        report: called with a record that is refused; raises when that is to fail the task.
    """

    def __init__(self, target: Target, settings: RowSettings, report: Report) -> None:
        self._target = target
        self._settings = settings
        self._report = report
        self._tables: dict[str, TargetTable] = {}
        self._checked: set[str] = set()

    def value_type(self, topic: str) -> pa.DataType | None:
        """Columns of the topic's table as the type of values; None when values have the fields that they hold.

        Raises:
            TableMissingError: there is no table, and auto.create is off.
        """
        table = self._table(topic)
        if table is None or self._settings.auto_evolve:
            return None
        settings = self._settings
        key: Sequence[str] = ()  # that does not come from the value
        if settings.pk_mode == "kafka":
            key = settings.key_columns or KAFKA_KEY
        elif settings.pk_mode == "record_key":
            key = settings.key_columns or table.key
        kind = table.value_type(key)
        # With a whitelist other fields are left out, unless it names one that the table lacks.
        return kind if settings.fields and settings.fields <= {*table.columns, *key} else with_others(kind, key)

    def key_type(self, topic: str) -> pa.DataType | None:
        """The same for the columns of the key that are in the record's key.

        Raises:
            TableMissingError: there is no table, and auto.create is off.
        """
        if self._settings.pk_mode != "record_key" or self._settings.auto_evolve:
            return None
        table = self._table(topic)
        return None if table is None else table.key_type(self._settings.key_columns)

    def prepare(self, rows: pa.Table) -> Mapping[int, str]:
        """Make and change tables for rows of any topics; commits each change, since not all databases undo one.

        Returns:
            Numbers of the rows that are refused before the database sees them, with the cause.

        Raises:
            TableMissingError, TableMismatchError, DatabasePermissionError
        """
        refused = self._refusals(rows)
        numbered = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
        for topic, mine in _by_topic(_accepted(numbered, refused)):
            dead = tombstones(mine)
            alive = mine.filter(pc.invert(dead)) if pc.any(dead).as_py() else mine
            table = self._table(topic)
            if alive.num_rows:
                refused |= self._prepared(topic, alive, table)
        return refused

    def write(self, rows: pa.Table, refused: Mapping[int, str], *, carefully: bool) -> None:
        """Write rows of any topics. With `carefully` refused rows are found and reported, and the others written.

        Args:
            refused: the result of `prepare`; with any of them write carefully.

        Raises:
            RowRefusedError: not carefully, and a row is refused: roll back, and begin again with care.
            RecordRejectedError: a row is refused, with errors.tolerance=none: the first one.
            TableMissingError, TableMismatchError
        """
        if not carefully:
            for topic, mine in _by_topic(rows):
                for is_delete, part in self._parts(mine, carefully=False):
                    self._load(topic, part, is_delete=is_delete, in_part=False)
            return
        numbered = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
        refusals = _Refusals(rows, {row: (cause, self._target.label) for row, cause in refused.items()}, self._report)
        accepted = _accepted(numbered, refused)
        if accepted.num_rows:
            self._target.check_immediately()
        parts = [(topic, *part) for topic, mine in _by_topic(accepted) for part in self._parts(mine, carefully=True)]
        firsts = [min(part[_ROW].to_pylist(), default=rows.num_rows) for *_, part in parts]
        for at, (topic, is_delete, part) in enumerate(parts):
            refusals.settled = min(firsts[at + 1 :], default=rows.num_rows)
            self._halve(topic, part, refusals, is_delete=is_delete)
        refusals.report_until(rows.num_rows)

    def _refusals(self, rows: pa.Table) -> dict[int, str]:
        """Numbers of the rows that are refused whatever the table is, with the cause."""
        found: dict[int, str] = {}
        for numbers, part in divided(rows):
            dead = tombstones(part)
            for is_dead in (False, True):
                mine = rows_where(pc.equal(dead, is_dead)).to_numpy()
                if len(mine) and (cause := self._refusal(part.slice(0, 0), is_dead=is_dead)):
                    found |= dict.fromkeys(numbers[mine].tolist(), cause)
        return dict(sorted(found.items()))

    def _prepared(self, topic: str, alive: pa.Table, table: TargetTable | None) -> dict[int, str]:
        """Make or change the table for rows with values; which of these the table does not take."""
        divisions = [part for _, part in divided(alive)]
        parts = [(part[_ROW].to_pylist(), *self._columns(part, table)) for part in divisions]
        columns, key = united_columns([part for _, part, _ in parts]), parts[0][2]
        for name in columns.column_names:
            self._target.quoted(name)  # refuses one that needs quotes where there are none
        if table is None:
            table = self._change(topic, self._target.create(*self._name_of(topic), columns, key))
        if table.missing(columns):
            table = self._table(topic, again=True) or table
        for field in [columns.schema.field(name) for name in table.missing(columns)]:
            if self._settings.auto_evolve:
                table = self._change(topic, self._target.add_column(table, field), field.name)
        refused = {row: cause for rows, part, _ in parts if (cause := table.refusal(part)) for row in rows}
        others = [found for part in divisions for found in self._with_others(part)]
        if others:
            self._table(topic, again=True)  # records that come later are read with columns that were added meanwhile
            refused |= {row: table.lacking(names) for row, names in others}
        if self._settings.insert_mode == "upsert" and table.quoted not in self._checked:
            self._target.check_key(table, key)
            self._checked.add(table.quoted)
        return refused

    def _with_others(self, rows: pa.Table) -> Iterator[tuple[int, list[str]]]:
        """Numbers of the rows that hold fields which the table lacks, and the names of those that are to be written."""
        names, fields = other_fields_of(rows["value"]), self._settings.fields
        if names is not None and names.null_count < rows.num_rows:
            for row, found in zip(rows[_ROW].to_pylist(), names.to_pylist(), strict=True):
                if wanted := [name for name in json.loads(found or "[]") if not fields or name in fields]:
                    yield row, wanted

    def _refusal(self, shape: pa.Table, *, is_dead: bool) -> str | None:
        """Why rows of a shape are refused."""
        if is_dead and not self._settings.delete:
            return "the record has no value (a tombstone), and without delete.enabled=true this sink deletes nothing"
        try:
            self._key_columns(shape) if is_dead else self._columns(shape, None)
        except RowRefusedError as error:
            return error.message
        return None

    def _halve(self, topic: str, rows: pa.Table, refusals: _Refusals, *, is_delete: bool) -> None:
        """Halve what is refused until single rows are left."""
        self._target.begin_part()
        try:
            self._load(topic, rows, is_delete=is_delete, in_part=True)
            self._target.keep_part()
        except RowRefusedError as error:
            self._target.drop_part()
            if rows.num_rows == 1:
                refusals.add(rows[_ROW][0].as_py(), error.message, f"Table {self._existing(topic).quoted}")
                return
            half = rows.num_rows // 2
            self._halve(topic, rows.slice(0, half), refusals, is_delete=is_delete)
            self._halve(topic, rows.slice(half), refusals, is_delete=is_delete)

    def _table(self, topic: str, *, again: bool = False) -> TargetTable | None:
        known = self._tables.get(topic)
        if known is not None and not again:
            return known
        schema, name = self._name_of(topic)
        found = self._target.describe(schema, name)
        if found is not None:
            self._tables[topic] = found
        elif not self._settings.auto_create:
            raise TableMissingError(
                f"The table {self._target.place(schema, name)} for topic {topic} does not exist.",
                next_step="Create it, correct table.name.format, or set auto.create=true, and restart the task.",
            )
        return found

    def _existing(self, topic: str) -> TargetTable:
        table = self._table(topic)
        if table is None:
            raise DatabaseUnavailableError(f"The table for topic {topic} was dropped.", next_step="It is made again.")
        return table

    def _name_of(self, topic: str) -> tuple[str, str]:
        schema, name = split_name(self._settings.table_format, topic, self._target.default_schema())
        return self._target.stored_name(schema), self._target.stored_name(name)

    def _change(self, topic: str, statement: str, column: str = "") -> TargetTable:
        """Make or change a table; where another task was faster, its table or column serves."""
        try:
            self._target.execute(statement)
            self._target.commit()
        except ConnectxError:
            self._target.rollback()
            table = self._table(topic, again=True)
            if table is None or (column and column not in table.columns):
                raise
            return table
        self._table(topic, again=True)
        return self._existing(topic)

    def _columns(self, rows: pa.Table, table: TargetTable | None) -> tuple[pa.Table, tuple[str, ...]]:
        """Columns of rows that have a value, and the names of the key's; without those that only say null."""
        settings = self._settings
        columns = _fields_of(rows["value"], "value")
        key = self._key_columns(rows)
        if settings.pk_mode == "record_value":
            names = settings.key_columns or tuple(columns)
            if missing := [name for name in names if name not in columns]:
                raise _no_key_field("value", missing)
        else:
            names = tuple(key)
        if settings.fields:
            columns = {name: values for name, values in columns.items() if name in settings.fields or name in names}
        columns |= key
        if not columns:
            raise RowRefusedError(f"its value has no field{' of fields.whitelist' if settings.fields else 's'}")
        made, known = self._with_defaults(columns, rows, key), {} if table is None else table.columns
        empty = [field.name for field in made.schema if pa.types.is_null(field.type) and field.name not in known]
        return made.drop_columns(empty), tuple(map(self._target.stored_name, names))

    def _with_defaults(
        self, columns: Mapping[str, pa.ChunkedArray], rows: pa.Table, key: Mapping[str, Any]
    ) -> pa.Table:
        """Columns whose fields have the defaults of the records' schemas."""
        made = self._named(columns)
        given = [
            one
            for side in ("value", "key")
            if pa.types.is_struct(rows[side].type)
            for one in rows[side].type
            if DEFAULT.encode() in (one.metadata or ()) and (side == "key") == (one.name in key)
        ]
        defaults = {self._target.stored_name(one.name): {DEFAULT: one.metadata[DEFAULT.encode()]} for one in given}
        fields = [field.with_metadata(defaults.get(field.name)) for field in made.schema]
        return pa.Table.from_arrays(made.columns, schema=pa.schema(fields))

    def _named(self, columns: Mapping[str, pa.ChunkedArray]) -> pa.Table:
        return pa.table({self._target.stored_name(name): values for name, values in columns.items()})

    def _key_columns(self, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Columns of the key that do not come from the value."""
        names = self._settings.key_columns
        if self._settings.pk_mode == "kafka":
            return dict(zip(names or KAFKA_KEY, (rows[at] for at in ("topic", "partition", "offset")), strict=True))
        if self._settings.pk_mode != "record_key":
            return {}
        key = rows["key"]
        if pa.types.is_struct(key.type):
            fields = _fields_of(key, "key")
            if missing := [name for name in names if name not in fields]:
                raise _no_key_field("key", missing)
            return {name: fields[name] for name in names or fields}
        if len(names) != 1:
            raise RowRefusedError(f"its key is a single {key.type}, but pk.fields names {len(names)} columns")
        return {names[0]: key}

    def _parts(self, rows: pa.Table, *, carefully: bool) -> Iterator[tuple[bool, pa.Table]]:
        """(whether to delete, rows of one shape): the outcome is that of the records one after the other."""
        dead, mode = tombstones(rows), self._settings.insert_mode
        is_mixed = any(is_united(rows[side].type) for side in ("key", "value"))
        if not is_mixed and not pc.any(dead).as_py():
            yield False, rows
            return
        if mode == "insert":
            # Rows with different columns have an order only where the database refuses one because of another.
            in_order = shapes_of(rows) if is_mixed and carefully else [0] * rows.num_rows
            for run in runs(list(zip(dead.to_pylist(), in_order, strict=True))):
                part = rows.slice(*run)
                yield from ((dead[run[0]].as_py(), each) for _, each in divided(part))
            return
        yield from in_layers(rows, self._keys(rows))

    def _keys(self, rows: pa.Table) -> list[Hashable]:
        """What identifies each row."""
        found: list[Hashable] = [None] * rows.num_rows
        for numbers, part in divided(rows):
            keys = pa.table(self._key_columns(part))
            if self._settings.pk_mode == "record_value":
                columns, names = self._columns(part, None)
                keys = columns.select([name for name in names if name in columns.column_names])
            spelled = _spelled_rows(keys) if keys.num_columns else [None] * part.num_rows
            for number, key in zip(numbers.tolist(), spelled, strict=True):
                found[number] = key
        return found

    def _load(self, topic: str, rows: pa.Table, *, is_delete: bool, in_part: bool) -> None:
        if not rows.num_rows:
            return
        table = self._existing(topic)
        zone = self._target.settings.database.zone
        try:
            if is_delete:
                keys = self._named(self._key_columns(rows))
                _check(table, keys)
                self._target.delete(table, table.fit(keys.take(last_of_each(keys)), zone))
                return
            columns, key = self._columns(rows, table)
            _check(table, columns)
            if self._settings.insert_mode != "insert" and self._settings.pk_mode != "kafka":
                _check_whole(columns, key)
                columns = with_kept(columns, key)
            for kept, part in self._by_columns(table, columns, key):
                fitted = table.fit(part, zone, keep=key if self._settings.insert_mode != "insert" else ())
                self._put(table, fitted, key, kept, in_part=in_part)
        except pa.ArrowInvalid as error:
            raise RowRefusedError(str(error)) from error

    def _by_columns(
        self, table: TargetTable, columns: pa.Table, key: Sequence[str]
    ) -> Iterator[tuple[Sequence[str], pa.Table]]:
        """(columns that keep their values, rows without these), in order for each key.

        Null in a column with a default is left to the default, whatever other rows have in that column.
        """
        count, mode = columns.num_rows, self._settings.insert_mode
        kept = columns[KEPT].to_pylist() if KEPT in columns.column_names else [None] * count
        columns = columns.drop_columns([KEPT]) if KEPT in columns.column_names else columns
        candidates = table.optional(columns, () if mode == "insert" else key)
        optional = [name for name in candidates if columns[name].null_count < count]
        if not optional and not any(kept):
            yield (), columns
            return
        nulls = zip(*(columns[name].is_null().to_pylist() for name in optional), strict=True) if optional else ()
        kinds = list(zip((tuple(each or ()) for each in kept), nulls or [()] * count, strict=True))
        keys = list[Hashable](range(count)) if mode == "insert" else _spelled_rows(columns.select(list(key)))
        for group in layered(kinds, keys):
            names, _ = kinds[group[0]]
            yield names, columns.take(pa.array(group)).drop_columns(list(names))

    def _put(
        self, table: TargetTable, rows: pa.Table, key: Sequence[str], kept: Sequence[str], *, in_part: bool
    ) -> None:
        """Write rows with the same columns.

        Raises:
            RowRefusedError: upsert, and the table has no row to keep the value of.
        """
        mode = self._settings.insert_mode
        if mode == "insert":
            self._target.insert(table, rows)
            return
        if mode == "upsert":
            if not kept:
                self._target.upsert(table, rows, key, in_part=in_part)
                return
            keys = rows.select(list(key))
            keys = keys.take(last_of_each(keys))
            if self._target.held(table, keys) < keys.num_rows:
                raise RowRefusedError(f"{NO_OLD_VALUE.format(names=', '.join(kept))}.")
        if len(rows.column_names) > len(key):
            self._target.update(table, rows, key)


class _Refusals:
    """Rows of a batch that are refused, reported in the order of their records.

    Attributes:
        settled: no row before this one will be refused in the parts that come after this one.
    """

    def __init__(self, rows: pa.Table, found: Mapping[int, tuple[str, str]], report: Report) -> None:
        self._places = rows.select(_PLACE)
        self._found = dict(found)
        self._report = report
        self.settled = 0

    def add(self, row: int, cause: str, target: str) -> None:
        """Rows of a part come in order, so none before this one is left in it."""
        self._found[row] = cause, target
        self.report_until(min(row + 1, self.settled))

    def report_until(self, end: int) -> None:
        """Report the rows before this one.

        Raises:
            RecordRejectedError: with errors.tolerance=none.
        """
        for row in sorted(row for row in self._found if row < end):
            (place,) = self._places.slice(row, 1).to_pylist()
            partition, offset = TopicPartition(place["topic"], place["partition"]), place["offset"]
            cause, target = self._found.pop(row)
            self._report(partition, offset, RecordRejectedError(str(partition), offset, target, cause))


def _accepted(rows: pa.Table, refused: Mapping[int, str]) -> pa.Table:
    return rows.filter(pa.array([row not in refused for row in range(rows.num_rows)])) if refused else rows


def _by_topic(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Rows of each topic; there are several only where transformations route records."""
    topics = rows["topic"].unique().to_pylist()
    for topic in topics:
        yield topic, rows if len(topics) == 1 else rows.filter(pc.equal(rows["topic"], topic))


def _spelled(value: object) -> str:
    """Text of a key's value, the same for values that a column may take for one key.

    In a column of numbers 7, 7.0, the decimal 7.00 and the text 7 are one key, and under a collation `A`, `a` and `à `.
    Values with the same text are written in order, so it does no harm if they are different keys.
    """
    if isinstance(value, (bool, float, Decimal)) and math.isfinite(value) and value == int(value):
        value = int(value)
    text = str(value)
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return text.casefold().rstrip()


def _spelled_rows(keys: pa.Table) -> list[Hashable]:
    return list(zip(*(map(_spelled, column.to_pylist()) for column in keys.columns), strict=True))


def _check(table: TargetTable, columns: pa.Table) -> None:
    """Raise RowRefusedError for columns that the table does not take."""
    if cause := table.refusal(columns):
        raise RowRefusedError(cause)


def _check_whole(columns: pa.Table, key: Sequence[str]) -> None:
    """Raise RowRefusedError for a null in a key: it finds no row, so each record would be a new one."""
    if empty := [name for name in key if columns[name].null_count]:
        raise RowRefusedError(f"a field of its key (pk.fields) is null: {', '.join(empty)}")


def _no_key_field(side: str, names: Sequence[str]) -> RowRefusedError:
    return RowRefusedError(f"its {side} has no field {', '.join(names)}, which pk.fields names")


def _fields_of(column: pa.ChunkedArray, side: str) -> dict[str, pa.ChunkedArray]:
    if not pa.types.is_struct(column.type):
        raise RowRefusedError(
            f"its {side} is of type {column.type} and has no fields, so there are no columns for it: use a "
            f"{side}.converter that reads fields, for example JsonConverter"
        )
    flat = [chunk.flatten() for chunk in column.chunks]
    names = [field.name for field in column.type]
    return {
        name: pa.chunked_array([fields[index] for fields in flat], column.type[index].type)
        for index, name in enumerate(names)
        if name != OTHER_FIELDS
    }
