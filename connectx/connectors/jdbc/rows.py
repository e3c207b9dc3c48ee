"""Turns records into rows of tables, creates and changes tables, and finds rows that a database refuses.

It never commits rows or compares offsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.jdbc.ordering import after_deletion, in_layers, runs, shapes_of, tombstones
from connectx.connectors.jdbc.target import Target, TargetTable, split_name
from connectx.connectors.shared.kept import KEPT, NO_OLD_VALUE, from_earlier, with_kept
from connectx.connectors.shared.uniting import united_columns
from connectx.data.chunks import rows_where
from connectx.data.connect_schema import DEFAULT
from connectx.data.shapes import divided, is_united
from connectx.errors.base import ConnectxError
from connectx.errors.databases import DatabaseUnavailableError, RowRefusedError, TableMissingError
from connectx.errors.plugins import RecordRejectedError
from connectx.model.ids import TopicPartition

KAFKA_KEY: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
"""Columns of pk.mode=kafka, unless pk.fields names others."""

_PLACE: Final = ["topic", "partition", "offset"]

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
        if settings.pk_mode == "kafka":
            return table.value_type(settings.key_columns or KAFKA_KEY)
        return table.value_type((settings.key_columns or table.key) if settings.pk_mode == "record_key" else ())

    def key_type(self, topic: str) -> pa.DataType | None:
        """The same for the columns of the key that are in the record's key.

        Raises:
            TableMissingError: there is no table, and auto.create is off.
        """
        if self._settings.pk_mode != "record_key" or self._settings.auto_evolve:
            return None
        table = self._table(topic)
        return None if table is None else table.key_type(self._settings.key_columns)

    def prepare(self, rows: pa.Table, refused: Mapping[int, str]) -> None:
        """Make and change tables for rows of any topics; commits each change, since not all databases undo one.

        Args:
            refused: the rows' `refusals`.

        Raises:
            TableMissingError, TableMismatchError, DatabasePermissionError
        """
        for topic, mine in _by_topic(_accepted(rows, refused)):
            dead = tombstones(mine)
            alive = mine.filter(pc.invert(dead)) if pc.any(dead).as_py() else mine
            table = self._table(topic)
            if not alive.num_rows:
                continue
            parts = [self._columns(part, table) for _, part in divided(alive)]
            columns, key = united_columns([part for part, _ in parts]), parts[0][1]
            for name in columns.column_names:
                self._target.quoted(name)  # refuses one that needs quotes where there are none
            if table is None:
                table = self._change(topic, self._target.create(*self._name_of(topic), columns, key))
            if table.missing(columns):
                table = self._table(topic, again=True) or table
            for field in [columns.schema.field(name) for name in table.missing(columns)]:
                if self._settings.auto_evolve:
                    table = self._change(topic, self._target.add_column(table, field), field.name)
            for part, _ in parts:
                table.check(part)
            if self._settings.insert_mode == "upsert" and table.quoted not in self._checked:
                self._target.check_key(table, key)
                self._checked.add(table.quoted)

    def refusals(self, rows: pa.Table) -> Mapping[int, str]:
        """Numbers of the rows that are refused before the database sees them, with the cause."""
        found: dict[int, str] = {}
        for numbers, part in divided(rows):
            dead = tombstones(part)
            for is_dead in (False, True):
                mine = rows_where(pc.equal(dead, is_dead)).to_numpy()
                if len(mine) and (cause := self._refusal(part.slice(0, 0), is_dead=is_dead)):
                    found |= dict.fromkeys(numbers[mine].tolist(), cause)
        return dict(sorted(found.items()))

    def write(self, rows: pa.Table, refused: Mapping[int, str], *, carefully: bool) -> None:
        """Write rows of any topics. With `carefully` refused rows are found and reported, and the others written.

        Args:
            refused: the rows' `refusals`; with any of them write carefully.

        Raises:
            RowRefusedError: not carefully, and a row is refused: roll back, and begin again with care.
            RecordRejectedError: a row is refused, with errors.tolerance=none.
            TableMissingError, TableMismatchError
        """
        for number, cause in refused.items():
            self._refuse(rows.slice(number, 1).select(_PLACE).to_pylist()[0], cause, self._target.label)
        rows = _accepted(rows, refused)
        if carefully and rows.num_rows:
            self._target.check_immediately()
        for topic, mine in _by_topic(rows):
            for is_delete, part in self._parts(mine, carefully=carefully):
                if carefully:
                    self._halve(topic, part, is_delete=is_delete)
                else:
                    self._load(topic, part, is_delete=is_delete, in_part=False)

    def _refusal(self, shape: pa.Table, *, is_dead: bool) -> str | None:
        """Why rows of a shape are refused."""
        if is_dead and not self._settings.delete:
            return "the record has no value (a tombstone), and without delete.enabled=true this sink deletes nothing"
        try:
            self._key_columns(shape) if is_dead else self._columns(shape, None)
        except RowRefusedError as error:
            return error.message
        return None

    def _halve(self, topic: str, rows: pa.Table, *, is_delete: bool) -> None:
        """Halve what is refused until single rows are left."""
        self._target.begin_part()
        try:
            self._load(topic, rows, is_delete=is_delete, in_part=True)
            self._target.keep_part()
        except RowRefusedError as error:
            self._target.drop_part()
            if rows.num_rows == 1:
                row = rows.select(_PLACE).to_pylist()[0]
                self._refuse(row, error.message, f"Table {self._existing(topic).quoted}")
                return
            half = rows.num_rows // 2
            self._halve(topic, rows.slice(0, half), is_delete=is_delete)
            self._halve(topic, rows.slice(half), is_delete=is_delete)

    def _refuse(self, row: Mapping[str, object], cause: str, target: str) -> None:
        partition = TopicPartition(str(row["topic"]), int(str(row["partition"])))
        offset = int(str(row["offset"]))
        self._report(partition, offset, RecordRejectedError(str(partition), offset, target, cause))

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
        deleted = ((True, part) for _, part in divided(rows.filter(dead)) if part.num_rows)
        if mode == "update":  # an update never brings back a row that was deleted
            alive = rows.filter(pc.invert(dead))
            yield from ((False, part) for part in (in_layers(alive, self._keys(alive)) if is_mixed else [alive]))
            yield from deleted
            return
        yield from deleted  # also of keys that come again: a later record may leave columns out
        if is_mixed or self._keep_values(rows):
            alive = rows.take(pa.array(after_deletion(self._keys(rows), dead), pa.int64()))
            yield from ((False, part) for part in (in_layers(alive, self._keys(alive)) if is_mixed else [alive]))
        else:
            latest = rows.take(_last_of_each(pa.table(self._key_columns(rows))))
            yield False, latest.filter(pc.is_valid(latest["value"]))

    def _keep_values(self, rows: pa.Table) -> bool:
        """Whether some rows of one shape keep values of rows before them."""
        if not pa.types.is_struct(rows["value"].type):
            return False
        return KEPT in with_kept(pa.table(_fields_of(rows["value"], "value")), ()).column_names

    def _keys(self, rows: pa.Table) -> list[Hashable]:
        """What identifies each row."""
        found: list[Hashable] = [None] * rows.num_rows
        for numbers, part in divided(rows):
            keys = pa.table(self._key_columns(part))
            if self._settings.pk_mode == "record_value":
                columns, names = self._columns(part, None)
                keys = columns.select([name for name in names if name in columns.column_names])
            texts = zip(*(map(_spelled, column.to_pylist()) for column in keys.columns), strict=True)
            for number, key in zip(numbers.tolist(), texts, strict=True):
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
                table.check(keys)
                self._target.delete(table, table.fit(keys.take(_last_of_each(keys)), zone))
                return
            columns, key = self._columns(rows, table)
            table.check(columns)
            if self._settings.insert_mode != "insert" and self._settings.pk_mode != "kafka":
                _check_whole(columns, key)
                columns = from_earlier(with_kept(columns, key), key)
            if KEPT in columns.column_names:
                self._load_kept(table, columns, key, in_part=in_part)
                return
            fitted = table.fit(columns, zone, keep=key if self._settings.insert_mode != "insert" else ())
        except pa.ArrowInvalid as error:
            raise RowRefusedError(str(error)) from error
        if self._settings.insert_mode == "insert":
            self._target.insert(table, fitted)
            return
        latest = _last_of_each(fitted.select(list(key)))
        if len(latest) < fitted.num_rows:
            fitted = fitted.take(latest)
        if self._settings.insert_mode == "upsert":
            self._target.upsert(table, fitted, key, in_part=in_part)
        elif len(fitted.column_names) > len(key):
            self._target.update(table, fitted, key)

    def _load_kept(self, table: TargetTable, columns: pa.Table, key: Sequence[str], *, in_part: bool) -> None:
        """Write the last row of each key; columns whose values some rows keep are left alone in these rows.

        Raises:
            RowRefusedError: upsert, and the table has no row to keep the value of.
        """
        columns = columns.take(_last_of_each(columns.select(list(key))))
        kept = columns[KEPT].to_pylist()
        zone = self._target.settings.database.zone
        for names in dict.fromkeys(tuple(each or ()) for each in kept):
            mine = columns.filter(pa.array([tuple(each or ()) == names for each in kept]))
            fitted = table.fit(mine.drop_columns([KEPT, *names]), zone, keep=key)
            if not names and self._settings.insert_mode == "upsert":
                self._target.upsert(table, fitted, key, in_part=in_part)
                continue
            may_add = self._settings.insert_mode == "upsert"
            if may_add and self._target.held(table, fitted.select(list(key))) < fitted.num_rows:
                raise RowRefusedError(f"{NO_OLD_VALUE.format(names=', '.join(names))}.")
            if len(fitted.column_names) > len(key):
                self._target.update(table, fitted, key)


def _accepted(rows: pa.Table, refused: Mapping[int, str]) -> pa.Table:
    return rows.filter(pa.array([row not in refused for row in range(rows.num_rows)])) if refused else rows


def _by_topic(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Rows of each topic; there are several only where transformations route records."""
    topics = rows["topic"].unique().to_pylist()
    for topic in topics:
        yield topic, rows if len(topics) == 1 else rows.filter(pc.equal(rows["topic"], topic))


def _spelled(value: object) -> str:
    """Text of a key's value: the same for 7, 7.0 and the decimal 7.00, which are one key in a column of numbers."""
    if isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value):
        value = int(value)
    return repr(value)


def _last_of_each(keys: pa.Table) -> pa.Array:
    """Numbers of the rows that hold a key for the last time, in order: a collation may take two keys for one."""
    names = keys.column_names
    numbered = keys.append_column("connectx_row", pa.array(range(keys.num_rows), pa.int64()))
    found = numbered.group_by(names, use_threads=False).aggregate([("connectx_row", "max")])["connectx_row_max"]
    return pa.array(np.sort(found.to_numpy()))


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
    }
