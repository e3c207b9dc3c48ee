"""Values as text, as StringConverter writes them: Java's toString, on whole columns.

Dates and times are in ISO form, times in UTC, where Java would write its legacy Date format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import enclosed, entry_lists, is_list, is_text, joined_lists, where_valid
from connectx.data.java_numbers import java_text
from connectx.data.shapes import is_united, mapped

if TYPE_CHECKING:
    from connectx.data.converter import Converter

_ONE_SPELLING: Final = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_decimal128,
    pa.types.is_date32,
    pa.types.is_null,
)


def to_text(values: pa.Array, converter: Converter) -> pa.Array:
    """Text of each value, as string; null stays null.

    Raises:
        ConversionError: a type without a text form, such as binary.
    """
    kind, types = values.type, pa.types

    def inner(part: pa.Array) -> pa.Array:
        return pc.fill_null(to_text(part, converter), "null")

    if is_united(kind):
        return mapped(lambda part: to_text(part, converter), values)
    if types.is_dictionary(kind):
        return to_text(values.cast(kind.value_type), converter)
    if types.is_struct(kind):
        fields = [enclosed(f"{field.name}=", to_text(values.field(at), converter), "") for at, field in enumerate(kind)]
        texts = pc.binary_join_element_wise(
            pa.array([""] * len(values), pa.string()), *fields, ",", null_handling="skip"
        )
        return where_valid(values, enclosed("Struct{", pc.utf8_slice_codeunits(texts, 1), "}"))
    if types.is_map(kind):
        values = entry_lists(values)
        pairs = pc.binary_join_element_wise(*map(inner, values.flatten().flatten()), "=")
        return enclosed("{", joined_lists(values, pairs, ", "), "}")
    if is_list(kind):
        return enclosed("[", joined_lists(values, inner(values.flatten()), ", "), "]")
    if types.is_float32(kind) or types.is_float64(kind):
        return java_text(values)
    if types.is_timestamp(kind):
        texts = values.cast(pa.timestamp("us"), safe=False).cast(pa.string())
        return pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    if types.is_time(kind):
        return values.cast(pa.time32("ms"), safe=False).cast(pa.string())
    if is_text(kind) or any(fits(kind) for fits in _ONE_SPELLING):
        return values.cast(pa.string())
    raise converter.refuses(kind)
