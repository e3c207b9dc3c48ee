"""Columns of a table of records, and the fields inside of a key or value.

Null keys and values are left out of what a transformation sees and put back in their places: a tombstone has no fields.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import is_list
from connectx.data.chunks import one_chunk
from connectx.data.connect_schema import NO_NAME, SchemaName
from connectx.data.headers import HEADERS
from connectx.errors.plugins import TransformError

__all__ = ["HEADERS", "TIME", "TIMESTAMP", "Column", "Fields", "name_of", "replaced", "require_all", "spread"]

TIME: Final = pa.time32("ms")
TIMESTAMP: Final = pa.timestamp("us", "UTC")

Column: TypeAlias = tuple[pa.Field, pa.Array]


def name_of(kind: pa.DataType) -> str:
    """A type in messages: without fields, which JSON without schemas has other ones of in each batch."""
    types = pa.types
    return (
        "struct" if types.is_struct(kind) else "map" if types.is_map(kind) else "list" if is_list(kind) else str(kind)
    )


def replaced(table: pa.Table, name: str, values: pa.Array, schema: SchemaName = NO_NAME) -> pa.Table:
    """The table with another column of that name; `schema` is the name of the schema of its values."""
    return table.set_column(table.column_names.index(name), schema.on(pa.field(name, values.type)), values)


def spread(values: pa.Array, valid: pa.Array | None) -> pa.Array:
    """Values of valid rows, with nulls put between them."""
    if valid is None:
        return values
    rows = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    return values.take(pc.if_else(valid, rows, pa.scalar(None, pa.int64())))


class Fields:
    """Fields of the keys or values of a table that are there, `columns` by name, in order.

    `varied`: which of key and value have no schemas.

    Raises:
        TransformError: keys or values are of a type without fields.
    """

    def __init__(self, table: pa.Table, side: str, purpose: str, varied: Collection[str] = ()) -> None:
        self._table = table
        self._side = side
        self._varied = varied
        array = one_chunk(table[side])
        self.valid: pa.Array | None = array.is_valid() if array.null_count else None
        self.empty: bool = pa.types.is_null(array.type)
        """Keys or values have no type, so that there are no fields to change."""
        if self.empty:
            array = pa.array([], pa.struct([]))
        if not pa.types.is_struct(array.type):
            raise TransformError(f"Only Struct objects supported for [{purpose}], found: {name_of(array.type)}")
        kept = array if self.valid is None else array.drop_null()
        self.count: int = len(kept)
        self.columns: dict[str, Column] = {
            field.name: (field, values) for field, values in zip(array.type, kept.flatten(), strict=True)
        }

    def column(self, name: str) -> Column:
        """A field. In records without schemas a field that none of them has is null, as in Java's maps.

        Raises:
            TransformError: there is no such field.
        """
        if name in self.columns:
            return self.columns[name]
        if self._side not in self._varied:
            raise TransformError(f"Field does not exist: {name}")
        return pa.field(name, pa.null()), pa.nulls(self.count)

    def beside(self, name: str) -> pa.Array:
        """Another column of the table, for the rows that have fields."""
        values = one_chunk(self._table[name])
        return values if self.valid is None else values.filter(self.valid)

    def struct(self, columns: Sequence[Column]) -> pa.Array:
        """Columns as one struct per row of the table.

        Raises:
            TransformError: two fields have the same name, or a required field is null.
        """
        names = [field.name for field, _ in columns]
        for name in names:
            if names.count(name) > 1:
                raise TransformError(f"Cannot create field because of field name duplication {name}")
        for field, values in columns:
            if not field.nullable and values.null_count:
                raise TransformError(f"The field {field.name} is required, and null")
        if columns:
            made = pa.StructArray.from_arrays([v for _, v in columns], fields=[f for f, _ in columns])
        else:
            made = pa.array([{}] * self.count, pa.struct([]))
        return spread(made, self.valid)

    def back(self, columns: Sequence[Column]) -> pa.Table:
        """The table with these fields in the place of the former ones."""
        place = self._table.column_names.index(self._side)
        made = self.struct(columns)
        metadata = self._table.schema.field(place).metadata  # edited fields leave the schema its name and version
        return self._table.set_column(place, pa.field(self._side, made.type, metadata=metadata), made)


def require_all(fields: Fields, purpose: str) -> None:
    """Raise where Java would for a record without key or value."""
    if fields.valid is not None:
        raise TransformError(f"Only Map objects supported in absence of schema for [{purpose}], found: null")
