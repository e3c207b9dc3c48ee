"""Records as changes of rows that a key identifies: what is written, what is deleted, and which change is last.

Pure. A change is a row with the column `DELETED`; only the key of a deleted row matters. Keys come from the record's
key or from its value. Debezium's envelopes (`before`, `after`, `op`) are unwrapped here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.shared.columns import fitted, nullable
from connectx.connectors.shared.kept import KEPT, KEPT_FIELD, from_earlier, with_kept
from connectx.connectors.shared.uniting import VALUE, by_shape, columns_of
from connectx.data.arrays import is_text
from connectx.data.chunks import rows_where
from connectx.data.converter import OTHER_FIELDS, other_fields_of, with_others
from connectx.errors.databases import TableMismatchError

DELETED: Final = "_connectx_deleted"
"""Column of changes that marks rows to delete; no column of a table."""

_PROBLEM: Final = "_connectx_problem"
_WRITES: Final = ("c", "u", "r")
_TOMBSTONE: Final = "the record has no value (a tombstone), and delete.enabled is false"
_DELETE: Final = "the record deletes a row, and delete.enabled is false"
_NO_KEY: Final = "a field of its key (pk.fields) is null"
_NO_FIELD: Final = "its {side} has no field {name}, which pk.fields names"
_OTHERS: Final = "it has the field {names}, for which the table has no column: add the column, or set auto.evolve=true"
_NO_ROW: Final = (
    "the record is no change of a row in Debezium's envelope (op c, u, d or r), which value.envelope=debezium expects"
)


@dataclass(frozen=True, slots=True)
class UpsertSettings:
    """How records become changes.

    Attributes:
        key: columns that identify a row (`pk.fields`).
        from_record_key: they are in the record's key (`pk.mode=record_key`), otherwise in its value.
        deletes: rows may be deleted (`delete.enabled`).
        debezium: values are Debezium's envelopes (`value.envelope=debezium`).
    """

    key: tuple[str, ...]
    from_record_key: bool
    deletes: bool
    debezium: bool

    def value_type(self, columns: pa.Schema) -> pa.DataType:
        """What values should have for a table with these columns."""
        row = pa.struct([field for field in columns if not (self.from_record_key and field.name in self.key)])
        return pa.struct([("op", pa.string()), ("before", row), ("after", row)]) if self.debezium else row

    def reading_type(self, columns: pa.Schema) -> pa.DataType:
        """The same, which asks for the names of fields that the table lacks."""
        kind = self.value_type(columns)
        if self.debezium:
            return with_others(kind, self.key if self.from_record_key else (), within="after")
        return with_others(kind, self.key if self.from_record_key else ())

    def key_type(self, columns: pa.Schema) -> pa.DataType | None:
        """What keys of records should have for a table with these columns; None: they are not stored, or unknown."""
        if not self.from_record_key or not set(self.key) <= set(columns.names):
            return None
        return pa.struct([columns.field(name).with_nullable(True) for name in self.key])

    def change(self, key: Any, value: Any) -> tuple[Mapping[str, Any] | None, bool]:
        """The row that one record is about, None if it is about no row, and whether the record deletes it."""
        deletes = value is None
        if self.debezium and isinstance(value, Mapping):
            deletes = value.get("op") == "d"
            value = value.get("before" if deletes else "after")
        if not self.from_record_key:
            return (value, deletes) if isinstance(value, Mapping) else (None, deletes)
        fields = value if isinstance(value, Mapping) else {} if value is None else {VALUE: value}
        return {**fields, **(key if isinstance(key, Mapping) else {self.key[0]: key})}, deletes


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes, one for each record.

    Attributes:
        columns: rows with `DELETED`.
        problems: why a record is refused; null where it is a change; empty where it changes nothing.
    """

    columns: pa.Table
    problems: pa.ChunkedArray

    @property
    def good(self) -> pa.ChunkedArray:
        """True where a record is a change."""
        return pc.is_null(self.problems)

    def refused(self) -> Iterator[tuple[int, str]]:
        """Numbers of the records that are refused, with the cause."""
        for row in rows_where(pc.fill_null(pc.not_equal(self.problems, ""), False)).to_pylist():
            yield row, self.problems[row].as_py()


def changes_of(records: pa.Table, upserts: UpsertSettings) -> Changes:
    """Records, with the columns key and value, as changes of the rows of a table.

    Raises:
        TableMismatchError: no one type holds the values of a column.
    """
    made = by_shape(records.select(["key", "value"]), lambda part: _changes_of(part, upserts))
    return Changes(made.drop_columns(_PROBLEM), made[_PROBLEM])


def _changes_of(records: pa.Table, upserts: UpsertSettings) -> pa.Table:
    """Changes with their problems, of keys and values of one shape."""
    values = records["value"]
    missing = pc.is_null(values)
    if upserts.debezium:
        op, before, after = (_field(values, name) for name in ("op", "before", "after"))
        op = (
            op.cast(pa.string())
            if is_text(op.type) or pa.types.is_dictionary(op.type)
            else _nulls(records.num_rows).cast(pa.string())
        )
        deleted = pc.or_(pc.fill_null(pc.equal(op, "d"), False), pc.and_(missing, upserts.from_record_key))
        writes = pc.fill_null(pc.is_in(op, pa.array(_WRITES)), False)
        known = pc.or_(writes, pc.or_(deleted, missing))
    else:
        before = after = values
        deleted, known = missing, pc.is_valid(missing)
    columns = with_kept(_columns_of(after), upserts.key)
    if upserts.from_record_key:
        side, keys = "key", {name: _record_key(records["key"], name, upserts.key) for name in upserts.key}
    else:
        side, keys = "value", {name: _key_field(name, after, before, deleted) for name in upserts.key}
    lacking = [name for name, column in keys.items() if column is None]
    found = {name: _nulls(records.num_rows) if column is None else column for name, column in keys.items()}
    for name, column in found.items():
        at = columns.schema.get_field_index(name)
        columns = columns.append_column(name, column) if at < 0 else columns.set_column(at, name, column)
    causes = [(pc.invert(known), _NO_ROW)]
    if not upserts.deletes:
        causes = [(missing, _TOMBSTONE), (deleted, _DELETE), *causes]
    elif not upserts.from_record_key:
        causes = [(missing, ""), *causes]  # Debezium's tombstone comes after the record that deletes
    causes += [(pc.is_null(found[name]), _NO_FIELD.format(side=side, name=name)) for name in lacking]
    causes += [(pc.is_null(column), _NO_KEY) for column in found.values()]
    problems = pc.case_when(pc.make_struct(*(rows for rows, _ in causes)), *(pa.scalar(cause) for _, cause in causes))
    if (others := other_fields_of(values)) is not None:
        problems = pc.coalesce(problems, why_others(others))
    return columns.append_column(DELETED, deleted).append_column(_PROBLEM, _chunked(problems))


def last_changes(changes: Sequence[pa.Table], schema: pa.Schema, key: Sequence[str]) -> pa.Table:
    """The last change of each key, in these columns and `DELETED`, of tables in the order of their records.

    It has `KEPT` if some keep values that no change before has.
    """
    wide = nullable(schema).append(pa.field(DELETED, pa.bool_()))  # deletions have no more than a key
    if any(KEPT in table.column_names for table in changes):
        wide = wide.append(KEPT_FIELD)
    rows = from_earlier(pa.concat_tables([fitted(table, wide) for table in changes]), key, DELETED)
    numbered = rows.select(list(key)).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    numbered = numbered.rename_columns([*map(str, range(len(key))), "row"])
    last = numbered.group_by([str(at) for at in range(len(key))], use_threads=False).aggregate([("row", "max")])
    chosen = last["row_max"]
    return rows if len(chosen) == rows.num_rows else rows.take(chosen)


def check_keys(schema: pa.Schema, key: Sequence[str], table: str) -> None:
    """Raise TableMismatchError for a key column whose type cannot identify rows."""
    for name in key:
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise TableMismatchError(
                f"The column {name} of {table} is of type {kind}, which cannot be a key (pk.fields).",
                next_step="Name columns of integers, texts, booleans, dates, times, decimals or bytes in pk.fields.",
            )


def why_others(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Why records are refused that have fields with these names (`OTHER_FIELDS`); null where they have none."""
    causes = [
        None if found is None else _OTHERS.format(names=", ".join(json.loads(found))) for found in names.to_pylist()
    ]
    return pa.chunked_array([pa.array(causes, pa.string())])


def _columns_of(rows: pa.ChunkedArray) -> pa.Table:
    if pa.types.is_null(rows.type):  # every record deletes
        return pa.table({"no": pa.nulls(len(rows))}).select([])
    columns = columns_of(rows)
    return columns.drop_columns(OTHER_FIELDS) if OTHER_FIELDS in columns.column_names else columns


def _field(values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """A field of Debezium's envelope; nulls where the values lack it."""
    return _chunked(pc.struct_field(values, name)) if name in _names(values) else _nulls(len(values))


def _key_field(
    name: str, after: pa.ChunkedArray, before: pa.ChunkedArray, deleted: pa.ChunkedArray
) -> pa.ChunkedArray | None:
    """A field that is part of the key: of the row after the change, or before it is deleted. None: neither has it."""
    new, old = (_chunked(pc.struct_field(side, name)) if name in _names(side) else None for side in (after, before))
    if new is None or old is None or old is new:
        return new if old is None else old
    return _chunked(pc.if_else(deleted, old.cast(new.type), new))


def _record_key(keys: pa.ChunkedArray, name: str, names: Sequence[str]) -> pa.ChunkedArray | None:
    """A column of the record's key, which is the key itself if it has no fields and only one column is named."""
    if pa.types.is_struct(keys.type):
        return _chunked(pc.struct_field(keys, name)) if name in _names(keys) else None
    return keys if len(names) == 1 else None


def _names(values: pa.ChunkedArray) -> Sequence[str]:
    return [field.name for field in values.type] if pa.types.is_struct(values.type) else ()


def _nulls(count: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(count)])


def _chunked(array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
