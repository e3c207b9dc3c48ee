"""Columns of a table of records, and the fields inside of a key or value."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from connectx.data.arrays import is_list
from connectx.data.chunks import one_chunk
from connectx.data.connect_schema import TIME_NAME, SchemaName, default_of, is_schemaless, with_default
from connectx.data.headers import HEADERS
from connectx.errors.plugins import TransformError

__all__ = [
    "HEADERS",
    "TIME",
    "TIMESTAMP",
    "Column",
    "Fields",
    "hash_bucket",
    "hash_capacity",
    "in_java_order",
    "java_hash",
    "moments",
    "name_of",
    "replaced",
    "require_all",
]

TIME: Final = pa.time32("ms")
TIMESTAMP: Final = pa.timestamp("us", "UTC")

Column: TypeAlias = tuple[pa.Field, pa.Array]


def name_of(kind: pa.DataType) -> str:
    """A type in messages: without fields, which JSON without schemas has other ones of in each batch."""
    types = pa.types
    return (
        "struct" if types.is_struct(kind) else "map" if types.is_map(kind) else "list" if is_list(kind) else str(kind)
    )


def replaced(table: pa.Table, name: str, values: pa.Array, field: pa.Field | None = None) -> pa.Table:
    """The table with another column of that name; `field` has the schema of its values and whether they may be null."""
    made = pa.field(name, values.type) if field is None else field.with_name(name).with_type(values.type)
    return table.set_column(table.column_names.index(name), made, values)


def moments(column: Column) -> pa.Array:
    """Values of a column; Connect's Time, which is read as a number, has Arrow's type."""
    field, values = column
    is_time = pa.types.is_int32(values.type) and SchemaName.of(field).name == TIME_NAME
    return values.cast(TIME) if is_time else values


def in_java_order(names: Collection[str]) -> list[str]:
    """Names in the order in which java.util.HashMap iterates over them: of names that clash the last one counts."""
    capacity = hash_capacity(len(names))
    return sorted(names, key=lambda name: hash_bucket(java_hash(name), capacity))


def hash_capacity(count: int) -> int:
    """Buckets of a java.util.HashMap of so many entries."""
    capacity = 16
    while count > capacity * 3 // 4:
        capacity *= 2
    return capacity


def hash_bucket(code: int, capacity: int) -> int:
    """The bucket of a hash code, which decides the place in the order of a java.util.HashMap."""
    code &= 0xFFFFFFFF
    return (code ^ code >> 16) & (capacity - 1)


def java_hash(text: str) -> int:
    """String.hashCode, modulo 2**32."""
    units, code = text.encode("utf-16-be", "surrogatepass"), 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8) + low) & 0xFFFFFFFF
    return code


class Fields:
    """Fields of the keys or values of a table, `columns` by name, in order.

    The chain gives transformations keys and values that are all null, or of which none is null.

    Args:
        varied: which of key and value have no schemas.
        use_defaults: null fields that have a default get it.

    Raises:
        TransformError: keys or values are of a type without fields.
    """

    def __init__(
        self, table: pa.Table, side: str, purpose: str, varied: Collection[str] = (), *, use_defaults: bool = True
    ) -> None:
        self._table = table
        self._side = side
        array = one_chunk(table[side])
        self.schemaless: bool = side in varied or is_schemaless(array.type)
        """The fields are entries of a map, of which each record has its own."""
        self.count: int = len(array)
        self.empty: bool = pa.types.is_null(array.type) or 0 < self.count == array.null_count
        """Keys or values are null, so that there are no fields to change."""
        if self.empty:
            array = pa.array([{}] * self.count, pa.struct([]))
        if not pa.types.is_struct(array.type):
            raise TransformError(f"Only Struct objects supported for [{purpose}], found: {name_of(array.type)}")
        self.columns: dict[str, Column] = {
            field.name: (field, with_default(values, default_of(field)) if use_defaults else values)
            for field, values in zip(array.type, array.flatten(), strict=True)
        }

    def column(self, name: str) -> Column:
        """A field. In records without schemas a field that none of them has is null, as in Java's maps.

        Raises:
            TransformError: there is no such field.
        """
        if name in self.columns:
            return self.columns[name]
        if not self.schemaless:
            raise TransformError(f"Field does not exist: {name}")
        return pa.field(name, pa.null()), pa.nulls(self.count)

    def with_missing(self, names: Collection[str]) -> dict[str, Column]:
        """All fields. Without schemas those of these names that are missing are null, as Java's maps get them."""
        missing = [name for name in names if name not in self.columns] if self.schemaless else []
        return self.columns | {name: self.column(name) for name in missing}

    def struct(self, columns: Sequence[Column]) -> pa.Array:
        """Columns as one struct per row. Without schemas the last of equal names counts, as in Java's maps.

        Raises:
            TransformError: two fields have the same name, or a required field is null.
        """
        if self.schemaless:
            columns = list({field.name: (field.with_nullable(True), values) for field, values in columns}.values())
        names = [field.name for field, _ in columns]
        for name in names:
            if names.count(name) > 1:
                raise TransformError(f"Cannot create field because of field name duplication {name}")
        for field, values in columns:
            if not field.nullable and values.null_count:
                raise TransformError(f"The field {field.name} is required, and null")
        if columns:
            return pa.StructArray.from_arrays([v for _, v in columns], fields=[f for f, _ in columns])
        return pa.array([{}] * self.count, pa.struct([]))

    def back(self, columns: Sequence[Column], *, optional: bool | None = None) -> pa.Table:
        """The table with these fields in the place of the former ones; the schema keeps its name.

        Args:
            optional: whether the schema is optional; None: as before.
        """
        whole = self._table.schema.field(self._side)
        field = whole if optional is None or self.schemaless else whole.with_nullable(optional)
        return replaced(self._table, self._side, self.struct(columns), field)


def require_all(fields: Fields, purpose: str) -> None:
    """Raise where Java would for a record without key or value."""
    if fields.empty:
        raise TransformError(f"Only Map objects supported in absence of schema for [{purpose}], found: null")
