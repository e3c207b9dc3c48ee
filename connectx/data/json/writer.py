"""JSON as Connect's JsonConverter writes it, as Spark expressions.

Spark's to_json does the writing; this module only turns what Connect spells differently into what Spark spells the
same: null fields are written, dates and timestamps are numbers (days, milliseconds since 1970), decimals are base64 of
their unscaled bytes unless `decimal.format` is NUMERIC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectx.data.json.reader import bound, complement
from connectx.errors import ConversionError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, DecimalType

_KEEP_NULLS = {"ignoreNullFields": "false"}
_DAY_MS = 86_400_000
_SAME = ("string", "boolean", "byte", "short", "integer", "long", "float", "double", "binary", "void", "variant")


def to_json_text(column: Column, kind: DataType, *, base64_decimals: bool) -> Column:
    """Expression of type STRING: the JSON of any column; null stays null.

    Raises:
        ConversionError: a type that JSON as Connect writes it does not have.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    plain = _plain(column, kind, base64_decimals)
    if isinstance(kind, (StructType, ArrayType, MapType)):
        return f.to_json(plain, _KEEP_NULLS)
    # to_json takes no single values: write a list of one and cut off its brackets.
    text = f.to_json(f.array(plain))
    return f.when(column.isNotNull(), f.substring(text, f.lit(2), f.length(text) - 2))


def _plain(column: Column, kind: DataType, base64_decimals: bool) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    def inner(value: Column, inner_kind: DataType) -> Column:
        return _plain(value, inner_kind, base64_decimals)

    if not _differs(kind, base64_decimals):
        return column
    if isinstance(kind, StructType):
        fields = [inner(column.getField(field.name), field.dataType).alias(field.name) for field in kind.fields]
        return f.when(column.isNotNull(), f.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return f.transform(column, lambda value: inner(value, element))
    if isinstance(kind, MapType):
        value_kind = kind.valueType
        return f.transform_values(column, lambda _, value: inner(value, value_kind))
    if isinstance(kind, DecimalType):
        return f.base64(_unscaled_bytes(column, kind))
    if kind.typeName() == "date":
        return f.unix_date(column)
    return f.unix_millis(column) if kind.typeName() == "timestamp" else _wall_clock_ms(column)


def _differs(kind: DataType, base64_decimals: bool) -> bool:
    """True when Connect writes values of the type, or some inside, in another way than Spark does."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        return any(_differs(field.dataType, base64_decimals) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _differs(kind.elementType, base64_decimals)
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise ConversionError(f"JsonConverter cannot write {kind.simpleString()}: keys of a map must be strings.")
        return _differs(kind.valueType, base64_decimals)
    name = kind.typeName()
    if name == "decimal":
        return base64_decimals
    if name in ("date", "timestamp", "timestamp_ntz"):
        return True
    if name in (*_SAME, "char", "varchar"):
        return False
    raise ConversionError(
        f"JsonConverter cannot write values of type {kind.simpleString()}.",
        next_step="Cast the column to another type.",
    )


def _wall_clock_ms(column: Column) -> Column:
    """Milliseconds since 1970 of a timestamp without time zone, read as UTC, whatever the session's zone is."""
    from pyspark.sql import functions as f

    seconds = f.extract(f.lit("SECOND"), column)
    return (
        f.unix_date(column.cast("date")).cast("bigint") * _DAY_MS
        + f.hour(column) * 3_600_000
        + f.minute(column) * 60_000
        + f.floor(seconds * 1000)
    )


def _unscaled_bytes(column: Column, kind: DecimalType) -> Column:
    """Two's complement of a decimal's unscaled value, big-endian, as short as possible (Connect's Decimal)."""
    from pyspark.sql import functions as f

    if kind.scale > 36:
        raise ConversionError(f"JsonConverter cannot write {kind.simpleString()}.", next_step="Use a smaller scale.")
    text = column.cast("string")
    # Small values may be spelled with an exponent: spell them one larger and put the zero back.
    fraction = _magnitude(text).try_cast(f"decimal({kind.scale + 1},{kind.scale})") + f.lit(1).cast("decimal(1,0)")
    sign = f.when(text.startswith("-"), f.lit("-0")).otherwise(f.lit("0"))
    small = f.concat(sign, f.substring(fraction.cast("string"), 2, 60))
    unscaled = f.replace(f.when(text.contains("E"), small).otherwise(text), f.lit("."), f.lit(""))
    is_short = kind.precision <= 18
    whole = _hex64(unscaled.cast("bigint")) if is_short else bound(unscaled, _hex128)
    without_zeros = f.regexp_replace(whole, "^(00)+(?=[0-7][0-9A-F])", "")
    return f.unhex(f.regexp_replace(without_zeros, "^(FF)+(?=[89A-F][0-9A-F])", ""))


def _magnitude(text: Column) -> Column:
    """A number's text without its sign. Spark's own abs of a decimal rounds to 34 digits."""
    from pyspark.sql import functions as f

    return f.regexp_replace(text, "^-", "")


def _hex128(number: Column) -> Column:
    """32 hexadecimal digits of decimal ones, in two's complement: of a negative number the complement of -n - 1."""
    from pyspark.sql import functions as f

    one, two_to_64 = f.lit(1).cast("decimal(1,0)"), f.lit(str(1 << 64)).cast("decimal(20,0)")

    def digits(magnitude: Column) -> Column:
        low = f.pmod(magnitude, two_to_64)
        high = ((magnitude - low) / two_to_64).cast("bigint")
        return f.concat(_hex64(high), f.lpad(f.conv(low.cast("decimal(20,0)").cast("string"), 10, 16), 16, "0"))

    magnitude = _magnitude(number).cast("decimal(38,0)")
    negative = number.startswith("-") & (magnitude > f.lit(0).cast("decimal(1,0)"))
    found = bound(f.when(negative, magnitude - one).otherwise(magnitude), digits)
    return f.when(negative, complement(found)).otherwise(found)


def _hex64(number: Column) -> Column:
    from pyspark.sql import functions as f

    return f.lpad(f.hex(number), 16, "0")
