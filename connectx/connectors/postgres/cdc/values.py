"""Values of PostgreSQL's types, written as text by the server, as Arrow columns in Debezium's forms.

Pure. Debezium 3.6: PostgresValueConverter, TemporalPrecisionMode, SchemaFactory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.connect_schema import NO_NAME, TIME_NAME, SchemaName
from connectx.errors import ReplicationMessageError, TableMismatchError

Convert: TypeAlias = "Callable[[pa.StringArray], pa.Array]"

BOOL, BYTEA, INT8, INT2, INT4, OID, FLOAT4, FLOAT8 = 16, 17, 20, 21, 23, 26, 700, 701
BPCHAR, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, TIMETZ, NUMERIC = 1042, 1082, 1083, 1114, 1184, 1186, 1266, 1700
INET: Final = 869
TEXT: Final = 25
_NAMED_TEXTS: Final = {114: "data.Json", 3802: "data.Json", 2950: "data.Uuid", 142: "data.Xml", 3614: "data.Tsvector"}
"""Schemas of types whose values are texts."""

_ARRAYS: Final = {
    **{1000: BOOL, 1001: BYTEA, 1005: INT2, 1007: INT4, 1016: INT8, 1028: OID, 1021: FLOAT4, 1022: FLOAT8},
    **{1182: DATE, 1183: TIME, 1115: TIMESTAMP, 1185: TIMESTAMPTZ, 1187: INTERVAL, 1270: TIMETZ, 1231: NUMERIC},
    **{1014: BPCHAR, 1002: 18, 1003: 19, 1009: 25, 1015: 1043, 2951: 2950, 199: 114, 3807: 3802, 143: 142, 1041: 869},
    **{651: 650, 1040: 829, 775: 774, 3905: 3904, 3907: 3906, 3909: 3908, 3911: 3910, 3913: 3912, 3927: 3926},
}
"""Type of the elements, by oid of the array type."""

_NUMBERS: Final = {
    INT2: pa.int16(), INT4: pa.int32(), INT8: pa.int64(), OID: pa.int64(), FLOAT4: pa.float32(), FLOAT8: pa.float64(),
}  # fmt: skip
_INFINITE_US: Final = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}
"""Debezium's numbers for infinite timestamps (PGStatement.DATE_POSITIVE_INFINITY and DATE_NEGATIVE_INFINITY)."""

_DAY_US: Final = 86_400_000_000
_MONTH_DAYS: Final = Decimal("365.25") / 12
_INTERVAL: Final = re.compile(
    r"(?:(-?\+?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?))?"
)
_UTC: Final = r"^(\d+-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.(\d+))?\+00$"
_VARIABLE_SCALE: Final = pa.struct([pa.field("scale", pa.int32(), False), pa.field("value", pa.binary(), False)])


@dataclass(frozen=True, slots=True)
class Modes:
    """decimal.handling.mode, time.precision.mode, binary.handling.mode, unavailable.value.placeholder."""

    decimals: str = "precise"
    times: str = "adaptive"
    binary: str = "bytes"
    placeholder: str = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """How values of a column are read.

    Attributes:
        arrow: type of the column that `convert` makes of texts.
        unavailable: value in place of one that an update did not change and PostgreSQL did not send.
        absent: what Debezium writes for a null in a column that is NOT NULL, as in the old row of a delete.
        is_cast_differently: a cast to text gives another text than the type's output function, which the stream has.
        schema: name of the schema of its values.
    """

    arrow: pa.DataType
    convert: Convert
    unavailable: Any = None
    absent: Any = None
    is_cast_differently: bool = False
    schema: SchemaName = NO_NAME

    def field(self, name: str, *, is_nullable: bool) -> pa.Field:
        """A field of a struct that holds values of the column."""
        made = pa.field(name, self.arrow, is_nullable)
        return self.schema.on(made) if self.schema else made


def debezium_schema(name: str, *, doc: str = "", **parameters: str) -> SchemaName:
    """The name of one of Debezium's schemas, below `io.debezium`."""
    return SchemaName(f"io.debezium.{name}", 1, doc, tuple(parameters.items()))


def column_type(oid: int, modifier: int, modes: Modes, column: str) -> ColumnType:
    """How a column of a type is read; types that are not known are texts.

    Raises:
        TableMismatchError: the column has a precision that no Arrow type has.
    """
    if (element := _ARRAYS.get(oid)) is not None:
        return array_type(column_type(element, modifier, modes, column), column)
    if (number := _NUMBERS.get(oid)) is not None:
        return ColumnType(number, lambda texts: texts.cast(number), None, 0)
    match oid:
        case 16:
            return ColumnType(pa.bool_(), lambda texts: pc.starts_with(texts, "t"), None, False)
        case 17 if modes.binary == "hex":
            return ColumnType(pa.string(), lambda texts: pc.utf8_slice_codeunits(texts, 2), modes.placeholder, "")
        case 17:
            return ColumnType(pa.binary(), _bytes, modes.placeholder.encode(), b"")
        case 1700:
            return _numeric(modifier, modes, column)
        case 1082:
            return _date(modes)
        case 1083:
            return _time(modifier, modes)
        case 1114:
            return _timestamp(modifier, modes)
        case 1184:
            convert, schema = _zoned(modifier if 0 <= modifier <= 6 else 6), debezium_schema("time.ZonedTimestamp")
            return ColumnType(pa.string(), convert, None, "1970-01-01T00:00:00Z", schema=schema)
        case 1266:
            return ColumnType(pa.string(), _zoned_time, None, "00:00:00Z", schema=debezium_schema("time.ZonedTime"))
        case 1186:
            return ColumnType(pa.int64(), _intervals, None, 0, schema=debezium_schema("time.MicroDuration"))
        case _:  # types without a separate form are text
            schema = debezium_schema(_NAMED_TEXTS[oid]) if oid in _NAMED_TEXTS else NO_NAME
            return _texts(modes, schema, is_cast_differently=oid in (BPCHAR, INET))


def enum_type(labels: str, modes: Modes) -> ColumnType:
    """How a column with an enum is read; `labels` are its values in order, with commas between."""
    return _texts(modes, debezium_schema("data.Enum", allowed=labels))


def _texts(modes: Modes, schema: SchemaName, *, is_cast_differently: bool = False) -> ColumnType:
    return ColumnType(pa.string(), lambda texts: texts, modes.placeholder, "", is_cast_differently, schema)


# ------------------------------------------------------------------------------------------------------ numbers, bytes


def _bytes(texts: pa.StringArray) -> pa.Array:
    return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()], pa.binary())


def _numeric(modifier: int, modes: Modes, column: str) -> ColumnType:
    if modes.decimals == "string":
        return ColumnType(pa.string(), lambda texts: texts, modes.placeholder, "0")
    if modes.decimals == "double":
        return ColumnType(pa.float64(), lambda texts: texts.cast(pa.float64()), None, 0.0)
    if modifier < 4:
        schema = debezium_schema("data.VariableScaleDecimal", doc="Variable scaled decimal")
        return ColumnType(_VARIABLE_SCALE, _variable_scale, None, {"scale": 0, "value": b"\0"}, schema=schema)
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    scale = scale - 2048 if scale > 1000 else scale
    if precision > 38 or not 0 <= scale <= precision:
        raise TableMismatchError(
            f"The column {column} is numeric({precision},{scale}), and a Decimal has at most 38 digits.",
            next_step="Set decimal.handling.mode to string or double, and restart the task.",
        )
    kind = pa.decimal128(precision, scale)
    return ColumnType(kind, lambda texts: _decimals(texts, kind, column), None, Decimal(0))


def _decimals(texts: pa.StringArray, kind: pa.DataType, column: str) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowException:
        if pc.any(pc.match_substring_regex(texts, "[a-zA-Z]")).as_py():
            raise _no_number(column) from None
        raise


def _variable_scale(texts: pa.StringArray) -> pa.Array:
    return pa.array([None if text is None else _scaled(text) for text in texts.to_pylist()], _VARIABLE_SCALE)


def _scaled(text: str) -> dict[str, Any]:
    number = Decimal(text)
    if not number.is_finite():
        raise _no_number("")
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "a finite number has a whole exponent"
    scale = max(0, -exponent)
    unscaled = int(number.scaleb(scale)) if len(text) < 28 else int(text.replace(".", ""))
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return {"scale": scale, "value": unscaled.to_bytes(length, "big", signed=True)}


def _no_number(column: str) -> ReplicationMessageError:
    where = f"The column {column}" if column else "A numeric column"
    return ReplicationMessageError(
        f"{where} holds NaN or an infinite number, which decimal.handling.mode=precise has no form for.",
        next_step="Set decimal.handling.mode to string or double, and restart the task.",
    )


# ------------------------------------------------------------------------------------------------------ dates and times


def _date(modes: Modes) -> ColumnType:
    if modes.times == "connect":
        return ColumnType(pa.date32(), lambda texts: texts.cast(pa.date32()), None, 0)

    def days(texts: pa.StringArray) -> pa.Array:
        return texts.cast(pa.date32()).cast(pa.int32())

    return ColumnType(pa.int32(), days, None, 0, schema=debezium_schema("time.Date"))


def _time(modifier: int, modes: Modes) -> ColumnType:
    in_ms = modes.times == "connect" or (modes.times == "adaptive" and 0 <= modifier <= 3)

    def count(texts: pa.StringArray) -> pa.Array:
        end_of_day = pc.starts_with(texts, "24:")
        clocks = pc.if_else(end_of_day, pa.scalar("00:00:00"), texts)
        dated = pc.binary_join_element_wise(pa.scalar("1970-01-01"), clocks, " ")
        micros = dated.cast(pa.timestamp("us")).cast(pa.int64())
        micros = pc.if_else(end_of_day, pa.scalar(_DAY_US), micros)
        return pc.divide(micros, 1000).cast(pa.int32()) if in_ms else micros

    schema = debezium_schema("time.Time" if in_ms else "time.MicroTime")
    if modes.times == "connect":
        schema = SchemaName(TIME_NAME, 1)
    return ColumnType(pa.int32() if in_ms else pa.int64(), count, None, 0, schema=schema)


def _timestamp(modifier: int, modes: Modes) -> ColumnType:
    if modes.times == "connect":
        return ColumnType(
            pa.timestamp("ms"), lambda texts: _instants(texts).cast(pa.timestamp("ms"), safe=False), None, 0
        )
    in_ms = 0 <= modifier <= 3

    def count(texts: pa.StringArray) -> pa.Array:
        endless = pc.ends_with(texts, "infinity")
        if not pc.any(endless).as_py():
            micros = _instants(texts).cast(pa.int64())
            return pc.divide(micros, 1000) if in_ms else micros
        finite = _instants(pc.if_else(endless, pa.scalar(None, pa.string()), texts)).cast(pa.int64())
        finite = pc.divide(finite, 1000) if in_ms else finite
        above, below = (pa.scalar(_INFINITE_US[name]) for name in ("infinity", "-infinity"))
        return pc.if_else(endless, pc.if_else(pc.equal(texts, "infinity"), above, below), finite)

    return ColumnType(
        pa.int64(), count, None, 0, schema=debezium_schema("time.Timestamp" if in_ms else "time.MicroTimestamp")
    )


def _instants(texts: pa.StringArray) -> pa.Array:
    """Timestamps without a zone, as microseconds."""
    try:
        return texts.cast(pa.timestamp("us"))
    except pa.ArrowException as error:
        raise ReplicationMessageError(
            f"A timestamp is outside of the years 0001 to 9999: {error}.",
            next_step="Correct the value, or exclude the table with table.exclude.list, and restart the task.",
        ) from error


def _zoned(digits: int) -> Convert:
    """Timestamps with a zone, which the session writes in UTC: ISO 8601 with so many digits after the second."""

    def convert(texts: pa.StringArray) -> pa.Array:
        finite = pc.match_substring_regex(texts, _UTC)
        moments = pc.replace_substring_regex(texts, _UTC, r"\1T\2")
        if digits:
            fractions = pc.replace_substring_regex(texts, _UTC, r"\4")
            moments = pc.binary_join_element_wise(moments, pc.utf8_rpad(fractions, digits, "0"), ".")
        return pc.if_else(finite, pc.binary_join_element_wise(moments, "Z", ""), texts)

    return convert


def _zoned_time(texts: pa.StringArray) -> pa.Array:
    zoned = pc.replace_substring_regex(texts, r"([+-]\d\d)$", r"\1:00")
    return pa.array([None if text is None else _in_utc(text) for text in zoned.to_pylist()], pa.string())


def _in_utc(text: str) -> str:
    """A time of day with its zone's offset, in UTC."""
    at = max(text.rfind("+"), text.rfind("-"))
    clock, sign, offset = text[:at], text[at], text[at + 1 :]
    hours, minutes, seconds = clock.split(":")
    whole, _, fraction = seconds.partition(".")
    shift = [int(part) for part in offset.split(":")] + [0]
    moved = int(hours) * 3600 + int(minutes) * 60 + int(whole)
    moved += (-1 if sign == "+" else 1) * (shift[0] * 3600 + shift[1] * 60 + shift[2])
    moved %= 86400
    tail = f".{fraction}" if fraction else ""
    return f"{moved // 3600:02}:{moved // 60 % 60:02}:{moved % 60:02}{tail}Z"


def _intervals(texts: pa.StringArray) -> pa.Array:
    return pa.array([None if text is None else _interval_us(text) for text in texts.to_pylist()], pa.int64())


def _interval_us(text: str) -> int:
    """Microseconds of an interval in PostgreSQL's own style; a month has 365.25 / 12 days."""
    found = _INTERVAL.fullmatch(text.strip())
    if found is None:
        raise ReplicationMessageError(
            f"The interval {text!r} cannot be read.", next_step="Exclude its table, and restart the task."
        )
    years, months, days, sign, hours, minutes, seconds = found.groups()
    whole_days = (int(years or 0) * 12 + int(months or 0)) * _MONTH_DAYS + int(days or 0)
    micros = int(whole_days * _DAY_US)
    clock = (int(hours or 0) * 3600 + int(minutes or 0) * 60) * 1_000_000 + int(Decimal(seconds or 0) * 1_000_000)
    return micros + (-clock if sign == "-" else clock)


# -------------------------------------------------------------------------------------------------------------- arrays


def array_type(inner: ColumnType, column: str, *, has_nulls: bool = True) -> ColumnType:
    """How a column with arrays is read. `has_nulls`: their elements are optional in the schema."""
    unavailable = None if inner.unavailable is None else [inner.unavailable]
    kind = pa.list_(inner.field("item", is_nullable=has_nulls))

    def convert(texts: pa.StringArray) -> pa.Array:
        offsets: list[int | None] = []
        flat: list[str | None] = []
        for text in texts.to_pylist():
            offsets.append(None if text is None else len(flat))
            if text is not None:
                flat += array_elements(text, column)
        offsets.append(len(flat))
        values = inner.convert(pa.array(flat, pa.string()))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)

    return ColumnType(kind, convert, unavailable, [])


def array_elements(text: str, column: str) -> list[str | None]:
    """Elements of an array with one dimension, as PostgreSQL writes it: `{1,NULL,"a,b"}`.

    Raises:
        ReplicationMessageError: it has more dimensions.
    """
    body = text[text.index("=") + 1 :] if text.startswith("[") else text  # bounds that do not begin at 1
    if body == "{}":
        return []
    if '"' not in body and "{" not in body[1:]:
        return [None if part == "NULL" else part for part in body[1:-1].split(",")]
    return _quoted_elements(body, column)


def _quoted_elements(body: str, column: str) -> list[str | None]:
    elements: list[str | None] = []
    at, end = 1, len(body) - 1
    while at < end:
        if body[at] == "{":
            raise ReplicationMessageError(
                f"The column {column} holds an array with several dimensions.",
                next_step="Exclude its table with table.exclude.list, and restart the task.",
            )
        part: list[str] = []
        quoted = body[at] == '"'
        at += quoted
        while (body[at] != '"') if quoted else (at < end and body[at] != ","):
            at += body[at] == "\\"
            part.append(body[at])
            at += 1
        value = "".join(part)
        elements.append(None if value == "NULL" and not quoted else value)
        at += 2 if quoted else 1
    return elements
