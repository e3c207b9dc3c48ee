"""JSON as Connect's JsonConverter reads it, as Spark expressions: strict, with an error per record.

Spark's from_json alone is lenient where data would be lost: it reads the first of several documents, wraps bytes
around, makes missing fields null and says nothing. So each document is read inside a small envelope of ours, whose last
field is seen only if the document ended where it should, and every other leak is closed by a check. Numbers and ISO
text are both read as dates and timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from connectx.data.connect_schema import DEFAULT, default_value

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, DecimalType, StructField

NOT_JSON = "not valid JSON of the expected type"
"""Error of a record that the parser refused; `connectx.data.diagnosis` finds out why."""

_CORRUPT = "_connectx_corrupt"
_TEMPORAL = ("date", "timestamp", "timestamp_ntz")


class JsonReader:
    """Reads columns of JSON text with one set of options.

    Args:
        base64_decimals: text in place of a decimal is base64 of its unscaled bytes, otherwise digits.
        use_defaults: a schema's default stands in for null and missing fields.
    """

    def __init__(self, *, base64_decimals: bool, use_defaults: bool) -> None:
        self.base64_decimals = base64_decimals
        self.use_defaults = use_defaults

    def parse(self, text: Column, target: DataType) -> Column:
        """The parser's raw outcome: a struct with the document as `v`, to give to `value` and `problem`."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import BooleanType, StringType, StructType

        document = StructType().add("v", self._parsed_type(target))
        envelope = document.add("end", BooleanType()).add(_CORRUPT, StringType())
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
        return f.from_json(f.concat(f.lit('{"v":'), text, f.lit(',"end":true}')), envelope, options)

    def broken(self, parsed: Column, text: Column) -> Column:
        """True when the parser refused the record, or would have had to guess its characters."""
        from pyspark.sql import functions as f

        unread = parsed.getField(_CORRUPT).isNotNull() | parsed.getField("end").isNull()
        return text.isNotNull() & (unread | ~f.is_valid_utf8(text))

    def value(self, parsed: Column, target: DataType) -> Column:
        """Value of type `target` out of what was parsed for it."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

        if not self._changes(target):
            return parsed
        if isinstance(target, StructType):
            fields = [self._field(parsed, field).alias(field.name) for field in target.fields]
            return f.when(parsed.isNotNull(), f.struct(*fields))
        if isinstance(target, ArrayType):
            element = target.elementType
            return f.transform(parsed, lambda value: self.value(value, element))
        if isinstance(target, MapType):
            value_type = target.valueType
            return f.transform_values(parsed, lambda _, value: self.value(value, value_type))
        if isinstance(target, DecimalType):
            return self._decimal(parsed, target)
        if target.typeName() == "byte":
            return parsed.try_cast("tinyint")
        return _temporal(parsed, target.typeName())

    def problem(self, parsed: Column, target: DataType, text: Column, path: str = "the value") -> Column | None:
        """What is wrong with a parsed value, as a STRING that is null when all is well; None when nothing can be."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(target, StructType):
            problems = [self._field_problem(parsed, field, text, path) for field in target.fields]
            found = [problem for problem in problems if problem is not None]
            return f.when(parsed.isNotNull(), f.coalesce(*found)) if found else None
        if isinstance(target, ArrayType):
            return self._element_problem(parsed, target.elementType, target.containsNull, text, f"{path}[]")
        if isinstance(target, MapType):
            values = f.map_values(parsed)
            return self._element_problem(values, target.valueType, target.valueContainsNull, text, f"{path}{{}}")
        name = target.typeName()
        wrong: Column | None = None
        if name in ("float", "double"):
            wrong = parsed.isin(float("inf"), float("-inf")) & ~text.rlike("Inf|INF")
        elif name in ("byte", "decimal", *_TEMPORAL):
            wrong = ~_is_null(parsed, target) & self.value(parsed, target).isNull()
        return None if wrong is None else f.when(wrong, f.lit(f"{path} does not fit {target.simpleString()}"))

    def _field(self, parsed: Column, field: StructField) -> Column:
        from pyspark.sql import functions as f

        value = self.value(parsed.getField(field.name), field.dataType)
        if not self._has_default(field):
            return value
        default = f.lit(default_value(field.dataType, field.metadata[DEFAULT])).cast(field.dataType)
        # The condition is always met here; it keeps the field nullable, as the struct around it is.
        return f.when(parsed.isNotNull(), f.coalesce(value, default))

    def _field_problem(self, parsed: Column, field: StructField, text: Column, path: str) -> Column | None:
        from pyspark.sql import functions as f

        name = field.name if path == "the value" else f"{path}.{field.name}"
        child = parsed.getField(field.name)
        inner = self.problem(child, field.dataType, text, name)
        if field.nullable or self._has_default(field):
            return inner
        missing = f.when(_is_null(child, field.dataType), f.lit(f"{name} is required, and missing or null"))
        return missing if inner is None else f.coalesce(missing, inner)

    def _element_problem(
        self, elements: Column, kind: DataType, nullable: bool, text: Column, path: str
    ) -> Column | None:
        from pyspark.sql import functions as f

        def one(element: Column) -> Column:
            inner = self.problem(element, kind, text, path)
            missing = f.when(_is_null(element, kind), f.lit(f"{path} must not be null"))
            found = [p for p in (None if nullable else missing, inner) if p is not None]
            return f.coalesce(*found)

        if nullable and self.problem(f.lit(None), kind, text, path) is None:
            return None
        return f.get(f.filter(f.transform(elements, one), lambda problem: problem.isNotNull()), f.lit(0))

    def _has_default(self, field: StructField) -> bool:
        return self.use_defaults and DEFAULT in field.metadata

    def _changes(self, target: DataType) -> bool:
        """True when a value of the type is not what the parser makes of it."""
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(target, StructType):
            return any(self._has_default(field) or self._changes(field.dataType) for field in target.fields)
        if isinstance(target, ArrayType):
            return self._changes(target.elementType)
        if isinstance(target, MapType):
            return self._changes(target.valueType)
        return target.typeName() in ("byte", "decimal", *_TEMPORAL)

    def _parsed_type(self, target: DataType) -> DataType:
        """What the parser is told: types that it reads leniently, or not as Connect does, are told as wider ones."""
        from pyspark.sql import types as t

        if isinstance(target, t.StructType):
            return t.StructType([t.StructField(f.name, self._parsed_type(f.dataType)) for f in target.fields])
        if isinstance(target, t.ArrayType):
            return t.ArrayType(self._parsed_type(target.elementType))
        if isinstance(target, t.MapType):
            return t.MapType(target.keyType, self._parsed_type(target.valueType))
        if target.typeName() in _TEMPORAL:
            return t.StringType()
        wider: dict[str, DataType] = {"byte": t.ShortType(), "decimal": t.VariantType()}
        return wider.get(target.typeName(), target)

    def _decimal(self, parsed: Column, kind: DecimalType) -> Column:
        """A decimal out of a VARIANT, which still knows numbers from text."""
        from pyspark.sql import functions as f

        text = f.try_variant_get(parsed, "$", "string")
        quoted = _from_unscaled(text, kind) if self.base64_decimals else text.try_cast(kind)
        number = f.try_variant_get(parsed, "$", kind.simpleString())

        def read(found: Column) -> Column:
            return f.when(found == "STRING", quoted).when(found.rlike("^(BIGINT|DECIMAL|DOUBLE)"), number)

        return bound(f.schema_of_variant(parsed), read)


def _is_null(parsed: Column, target: DataType) -> Column:
    """True for null and missing; a VARIANT, which stands for decimals, has a null of its own."""
    from pyspark.sql import functions as f

    if target.typeName() != "decimal":
        return parsed.isNull()
    return parsed.isNull() | f.coalesce(f.is_variant_null(parsed), f.lit(True))


def _temporal(text: Column, name: str) -> Column:
    """A date or timestamp out of a number (days, milliseconds since 1970) or ISO text; null when it is neither."""
    from pyspark.sql import functions as f

    number = f.when(text.rlike(r"^-?[0-9]{1,15}$"), text).try_cast("bigint")
    if name == "date":
        days = f.when(f.abs(number) < 3_000_000, number).cast("int")
        from_days = f.date_add(f.lit("1970-01-01").cast("date"), days)
        return f.when(number.isNotNull(), from_days).otherwise(text.try_cast("date"))
    if name == "timestamp":
        return f.when(number.isNotNull(), f.timestamp_millis(number)).otherwise(text.try_cast("timestamp"))
    seconds = (number.cast("decimal(18,3)") / 1000).cast("decimal(18,6)")
    since_epoch = f.make_dt_interval(f.lit(0), f.lit(0), f.lit(0), seconds)
    from_number = f.lit("1970-01-01").cast("timestamp_ntz") + since_epoch
    return f.when(number.isNotNull(), from_number).otherwise(text.try_cast("timestamp_ntz"))


def _from_unscaled(text: Column, kind: DecimalType) -> Column:
    """A decimal out of base64 of its unscaled bytes (Connect's Decimal); null when it is not one that fits."""
    from pyspark.sql import functions as f

    one, two_to_64 = f.lit(1).cast("decimal(1,0)"), f.lit(str(1 << 64)).cast("decimal(20,0)")

    def scaled(unscaled: Column) -> Column:
        negative = unscaled.rlike("^[89A-F]")
        positive = f.when(negative, complement(unscaled)).otherwise(unscaled)
        digits = f.when(f.length(unscaled).between(2, 32), f.lpad(positive, 32, "0"))
        high, low = (f.conv(f.substring(digits, start, 16), 16, 10).cast("decimal(20,0)") for start in (1, 17))
        magnitude = f.try_add(f.try_multiply(high, two_to_64), low).try_cast("decimal(38,0)")
        number = f.when(negative, f.concat(f.lit("-"), f.try_add(magnitude, one).cast("string")))
        exponent = f.lit(f"E-{kind.scale}")
        return f.concat(f.coalesce(number, magnitude.cast("string")), exponent).try_cast(kind)

    return bound(f.hex(f.try_to_binary(text, f.lit("base64"))), scaled)


def complement(digits: Column) -> Column:
    """Hexadecimal digits with every bit turned."""
    from pyspark.sql import functions as f

    return f.translate(digits, "0123456789ABCDEF", "FEDCBA9876543210")


def bound(expression: Column, use: Callable[[Column], Column]) -> Column:
    """`use(expression)` with the expression evaluated once, however often `use` names it."""
    from pyspark.sql import functions as f

    return f.transform(f.array(expression), use).getItem(0)
