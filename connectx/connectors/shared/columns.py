"""Values of records as columns of a table in files, and how such a table's columns may change.

It decides which type a column has in a new table, which changes are safe (new columns, wider types), and brings values
to a table's types. It never writes. The rules for wider types are Iceberg's: integers, floats, and decimals of the same
scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import as_type
from connectx.data.chunks import rows_where
from connectx.errors.databases import TableMismatchError

_STORED: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_INT64_DIGITS: Final = 19
_MOST_DIGITS: Final = 38
_RANKS: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def stored_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Type of a column for values of this type.

    Raises:
        TableMismatchError: tables in files have no such type.
    """
    if kind in _STORED:
        return _STORED[kind]
    if pa.types.is_decimal256(kind):
        return pa.decimal128(_MOST_DIGITS, kind.scale)
    if pa.types.is_dictionary(kind):
        return stored_type(kind.value_type, name)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_struct(kind):
        known = [field for field in kind if not _is_unknown(field.type)]
        return pa.struct([pa.field(f.name, stored_type(f.type, f"{name}.{f.name}")) for f in known])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", stored_type(kind.value_type, name)))
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type, name), stored_type(kind.item_type, name))
    known_types = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_decimal,
        pa.types.is_date,
    )
    if any(is_known(kind) for is_known in known_types):
        return kind
    raise TableMismatchError(
        f"The field {name} is of type {kind}, for which tables in files have no column type.",
        next_step="Change it with a Cast transformation, or remove it with ReplaceField, and restart the task.",
    )


def normal_type(kind: pa.DataType) -> pa.DataType:
    """The same for a column of a table that exists, whose type may be one that no new table gets."""
    try:
        return stored_type(kind, "")
    except TableMismatchError:
        return kind


def evolved(current: pa.Schema | None, found: pa.Schema, table: str, *, evolve: bool) -> pa.Schema:
    """Columns that a table must have to take these values too.

    Args:
        current: the table's columns; None: it is yet to be created.
        found: the columns of some values.
        table: the table's name, for messages.
        evolve: whether columns may be added and types widened (`auto.evolve`).

    Raises:
        TableMismatchError: the values need a change that is not allowed.
    """
    fields = {} if current is None else {field.name: field for field in current}
    for field in found:
        known = fields.get(field.name)
        if _is_unknown(field.type):
            continue
        kind = stored_type(field.type, field.name) if known is None else _wider(known.type, field, table, evolve)
        if known is None and current is not None and not evolve:
            raise TableMismatchError(
                f"The table {table} has no column {field.name}, which the records have, and auto.evolve is false.",
                next_step="Add the column, or set auto.evolve=true, and restart the task.",
            )
        fields[field.name] = pa.field(field.name, kind) if known is None else known.with_type(kind)
    if not fields:
        raise TableMismatchError(
            f"The records for {table} have no field with a value, so its columns are not known.",
            next_step="Correct the records, or create the table, and restart the task.",
        )
    return pa.schema(list(fields.values()))


def widens(current: pa.Schema, schema: pa.Schema) -> bool:
    """True when a column of `current`, or a field within one, is of another type in `schema`."""
    return any(not _same_leaves(field.type, schema.field(field.name).type) for field in current)


def fitted(columns: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns in the order and types of a table; a column that the values lack is null.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    arrays = [
        as_type(columns[field.name], field.type)
        if field.name in columns.column_names
        else pa.chunked_array([pa.nulls(columns.num_rows, field.type)])
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


def fitted_by_halves(
    columns: pa.Table, places: pa.Table, schema: pa.Schema, refuse: Callable[[Mapping[str, Any], str], object]
) -> tuple[pa.Table, pa.Table]:
    """As `fitted`, with the places of the rows; a row whose value does not fit goes to `refuse`, with the cause."""
    try:
        return fitted(columns, schema), places
    except pa.ArrowInvalid as error:
        if columns.num_rows == 1:
            refuse(places.to_pylist()[0], str(error))
            return fitted(columns.slice(0, 0), schema), places.slice(0, 0)
    half = columns.num_rows // 2
    cuts = ((0, half), (half,))
    parts = [fitted_by_halves(columns.slice(*cut), places.slice(*cut), schema, refuse) for cut in cuts]
    return pa.concat_tables([part for part, _ in parts]), pa.concat_tables([place for _, place in parts])


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, none of them required."""
    return pa.schema([field.with_nullable(True) for field in schema])


def required_nulls(rows: pa.Table) -> dict[int, str]:
    """Numbers of the rows that have null in a required column of their table, with the cause."""
    found: dict[int, str] = {}
    for field in rows.schema:
        if not field.nullable and rows[field.name].null_count:
            cause = f"the column {field.name} is required, and the record has no value for it"
            found |= dict.fromkeys(rows_where(pc.is_null(rows[field.name])).to_pylist(), cause)
    return found


def _wider(known: pa.DataType, field: pa.Field, table: str, evolve: bool) -> pa.DataType:
    """The type that holds values of both: the column's own, or a wider one."""
    kind = common_type(known, stored_type(field.type, field.name))
    if kind is None or not (kind == known or evolve):
        allowed = "auto.evolve adds columns and widens integers, floats and decimals, and changes nothing else"
        raise TableMismatchError(
            f"The column {field.name} of {table} is of type {known}, and the records have {field.type}: "
            f"{allowed if evolve else 'auto.evolve is false'}.",
            next_step="Correct the records, for example with a Cast transformation, or write them to another table.",
        )
    return kind


def _is_unknown(kind: pa.DataType) -> bool:
    """True when values show no type: there are none, only empty lists, or only structs of such fields."""
    if pa.types.is_struct(kind):
        return all(_is_unknown(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_unknown(kind.value_type)
    return bool(pa.types.is_null(kind))


def common_type(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """The type that a column of a known type gets to take values of a new one; None where no type holds both."""
    if known == new or pa.types.is_null(new):
        return known
    if pa.types.is_null(known):
        return new
    for narrow, wide in _RANKS:
        if {known, new} <= {narrow, wide}:
            return wide
    if pa.types.is_integer(new) and pa.types.is_floating(known):
        return known  # JSON without schemas has 1 for 1.0
    if pa.types.is_decimal(new) and new.scale == 0 and pa.types.is_floating(known):
        return known
    if pa.types.is_integer(new) and pa.types.is_decimal(known) and known.precision - known.scale >= _INT64_DIGITS:
        return known  # JSON without schemas has integers of any size
    if pa.types.is_integer(new) and pa.types.is_integer(known):
        return known  # a table of another writer, with narrower types than are made here
    if pa.types.is_decimal(known) and pa.types.is_decimal(new) and known.scale == new.scale:
        return known if known.precision >= new.precision else new
    if pa.types.is_timestamp(known) and pa.types.is_timestamp(new) and (known.tz is None) == (new.tz is None):
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        return _common_struct(known, new)
    if pa.types.is_list(known) and pa.types.is_list(new):
        inner = common_type(known.value_type, new.value_type)
        return None if inner is None else pa.list_(known.value_field.with_type(inner))
    if pa.types.is_map(known) and pa.types.is_map(new) and known.key_type == new.key_type:
        inner = common_type(known.item_type, new.item_type)
        return None if inner is None else pa.map_(known.key_field, known.item_field.with_type(inner))
    return None


def _common_struct(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    fields = {field.name: field for field in known}
    for field in new:
        inner = common_type(fields[field.name].type, field.type) if field.name in fields else field.type
        if inner is None:
            return None
        fields[field.name] = fields[field.name].with_type(inner) if field.name in fields else field
    return pa.struct(list(fields.values()))


def _same_leaves(known: pa.DataType, kind: pa.DataType) -> bool:
    """True when a type differs at most in fields that were added to its structs."""
    if pa.types.is_struct(known):
        return all(_same_leaves(field.type, kind.field(field.name).type) for field in known)
    if pa.types.is_list(known):
        return _same_leaves(known.value_type, kind.value_type)
    if pa.types.is_map(known):
        return _same_leaves(known.item_type, kind.item_type)
    return bool(known == kind)
