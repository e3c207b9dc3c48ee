"""Columns of Arrow tables as columns of DataFrames, and back, with the names of their schemas.

Spark's types have no names, but its fields have metadata. A StructField has the keys of an Arrow field's metadata
(`connectx.data.connect_schema`), with text as values. Elements of arrays and values of maps are no fields in Spark:
their metadata is in that of the array or map, under `connect.element`. Timestamps without a time zone stay without one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from connectx.data.arrays import is_list

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

Rows: TypeAlias = "DataFrame | pa.Table"

ELEMENT: Final = "connect.element"
"""Key in the metadata of a StructField that holds the metadata of an array's elements or a map's values."""

_OURS: Final = "connect."

_SPARKS: Final = b"SPARK::metadata::json"
"""Key under which Spark 4.2 and later repeat a StructField's metadata in an Arrow field. It is dropped here."""


def spark_schema(schema: pa.Schema) -> StructType:
    """Columns of a DataFrame for these of a table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return _with_metadata(from_arrow_schema(schema, prefer_timestamp_ntz=True), schema)


def as_spark_takes(schema: pa.Schema) -> pa.Schema:
    """The types that rows of these columns must have where Spark reads record batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    kind = spark_schema(schema)
    return named_schema(to_arrow_schema(kind), kind)


def in_arrow(rows: Rows) -> pa.Table:
    """Rows in the worker; a DataFrame is evaluated."""
    return rows if isinstance(rows, pa.Table) else named_rows(rows.toArrow(), rows.schema)


def named_rows(rows: pa.Table, columns: StructType) -> pa.Table:
    """Rows that Spark returned, with the metadata of its columns."""
    return in_schema(rows, named_schema(rows.schema, columns))


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the types of a schema, with its metadata.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    if schema.equals(rows.schema, check_metadata=True):
        return rows
    if schema.types != rows.schema.types:
        return rows.cast(schema)
    # A cast refuses a null struct with fields that are not nullable, although only names are to change.
    batches = [pa.ipc.read_record_batch(batch.serialize(), schema) for batch in rows.to_batches()]
    return pa.Table.from_batches(batches, schema)


def named_schema(schema: pa.Schema, columns: StructType) -> pa.Schema:
    """The same types, with the metadata of Spark's columns."""
    fields = [_named(field, column.metadata, column.dataType) for field, column in zip(schema, columns, strict=True)]
    return pa.schema(fields, schema.metadata)


def _element(kind: pa.DataType) -> pa.Field | None:
    """Field of a list's elements or a map's values."""
    if pa.types.is_map(kind):
        return kind.item_field
    return kind.value_field if is_list(kind) else None


def _texts(field: pa.Field) -> dict[str, str]:
    found = {key.decode(): text for key, text in (field.metadata or {}).items()}
    return {key: text.decode() for key, text in found.items() if key.startswith(_OURS)}


def _metadata(field: pa.Field) -> dict[str, Any]:
    """What a StructField has for this field."""
    element = _element(field.type)
    inner = {} if element is None else _metadata(element)
    return {**_texts(field), **({ELEMENT: inner} if inner else {})}


def _with_metadata(kind: StructType, fields: Iterable[pa.Field]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(of.name, _type_with_metadata(of.dataType, field.type), of.nullable, _metadata(field))
            for of, field in zip(kind, fields, strict=True)
        ]
    )


def _type_with_metadata(kind: DataType, of: pa.DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    element = _element(of)
    match kind:
        case StructType() if pa.types.is_struct(of):
            return _with_metadata(kind, of)
        case ArrayType() if element is not None:
            return ArrayType(_type_with_metadata(kind.elementType, element.type), kind.containsNull)
        case MapType() if element is not None:
            return MapType(kind.keyType, _type_with_metadata(kind.valueType, element.type), kind.valueContainsNull)
    return kind


def _named(field: pa.Field, metadata: Mapping[str, Any], kind: DataType) -> pa.Field:
    """A field with the metadata that Spark has for it. A user may have given numbers and objects in place of text."""
    field = field.with_type(_named_type(field.type, metadata.get(ELEMENT, {}), kind))
    own = {key: value for key, value in metadata.items() if key.startswith(_OURS) and key != ELEMENT}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in own.items()}
    kept = {key: value for key, value in (field.metadata or {}).items() if key != _SPARKS}
    named = {**kept, **{key.encode(): text.encode() for key, text in texts.items()}}
    return field if named == (field.metadata or {}) else field.with_metadata(named)


def _named_type(of: pa.DataType, metadata: Mapping[str, Any], kind: DataType) -> pa.DataType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            return pa.struct(list(named_schema(pa.schema(list(of)), kind)))
        case MapType():
            key = _named(of.key_field, {}, kind.keyType)
            return pa.map_(key, _named(of.item_field, metadata, kind.valueType), of.keys_sorted)
        case ArrayType():
            element = _named(of.value_field, metadata, kind.elementType)
            return pa.large_list(element) if pa.types.is_large_list(of) else pa.list_(element)
        case _:  # a scalar
            return of
