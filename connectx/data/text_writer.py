"""Values as text, as StringConverter writes them: Spark expressions after Java's toString.

Dates and times are in ISO form, where Java would write its legacy Date format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from connectx.data.converter import Converter

_PLAIN = ("string", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "date", "timestamp")


def to_text(column: Column, kind: DataType, converter: Converter) -> Column:
    """Expression of type STRING; null stays null.

    Raises:
        ConversionError: a type without a text form, such as binary.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    def inner(value: Column, inner_kind: DataType) -> Column:
        return f.coalesce(to_text(value, inner_kind, converter), f.lit("null"))

    if isinstance(kind, StructType):
        fields = [
            f.concat(f.lit(f"{field.name}="), to_text(column.getField(field.name), field.dataType, converter))
            for field in kind.fields
        ]
        return f.when(column.isNotNull(), f.concat(f.lit("Struct{"), f.concat_ws(",", *fields), f.lit("}")))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        parts = f.array_join(f.transform(column, lambda value: inner(value, element)), ", ")
        return f.concat(f.lit("["), parts, f.lit("]"))
    if isinstance(kind, MapType):
        key, value = kind.keyType, kind.valueType
        pairs = f.transform(
            f.map_entries(column), lambda e: f.concat(inner(e["key"], key), f.lit("="), inner(e["value"], value))
        )
        return f.concat(f.lit("{"), f.array_join(pairs, ", "), f.lit("}"))
    if kind.typeName() not in (*_PLAIN, "timestamp_ntz", "void", "char", "varchar"):
        raise converter.refuses(kind.simpleString())
    return column.cast("string")
