"""Values of PostgreSQL's types, written as text by the server, as Arrow columns in Debezium's forms.

Pure. Debezium 3.6: PostgresValueConverter, TemporalPrecisionMode, SchemaFactory.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from enum import IntEnum
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.shared.postgres import INFINITE_US
from connectx.connectors.shared.unavailable import PLACEHOLDER, json_placeholder, placeholder, uuid_placeholder
from connectx.data.connect_schema import NO_NAME, TIME_NAME, SchemaName
from connectx.errors.databases import ReplicationMessageError, TableMismatchError

Convert: TypeAlias = "Callable[[pa.StringArray], pa.Array]"


class Oid(IntEnum):
    """Types that have a separate form or name (PostgreSQL: pg_type.dat)."""

    BOOL = 16
    BYTEA = 17
    INT8 = 20
    INT2 = 21
    INT4 = 23
    TEXT = 25
    OID = 26
    JSON = 114
    XML = 142
    FLOAT4 = 700
    FLOAT8 = 701
    MONEY = 790
    INET = 869
    BPCHAR = 1042
    DATE = 1082
    TIME = 1083
    TIMESTAMP = 1114
    TIMESTAMPTZ = 1184
    INTERVAL = 1186
    TIMETZ = 1266
    BIT = 1560
    VARBIT = 1562
    NUMERIC = 1700
    UUID = 2950
    TSVECTOR = 3614
    JSONB = 3802


_NAMED_TEXTS: Final[Mapping[int, str]] = {
    Oid.JSON: "data.Json",
    Oid.JSONB: "data.Json",
    Oid.UUID: "data.Uuid",
    Oid.XML: "data.Xml",
    Oid.TSVECTOR: "data.Tsvector",
}
"""Schemas of types whose values are texts."""

_ARRAYS: Final[Mapping[int, int]] = {
    1000: 16,
    1001: 17,
    1005: 21,
    1007: 23,
    1016: 20,
    1028: 26,
    1021: 700,
    1022: 701,
    1182: 1082,
    1183: 1083,
    1115: 1114,
    1185: 1184,
    1187: 1186,
    1270: 1266,
    1231: 1700,
    1014: 1042,
    1002: 18,
    1003: 19,
    1009: 25,
    1015: 1043,
    2951: 2950,
    199: 114,
    3807: 3802,
    143: 142,
    1041: 869,
    651: 650,
    1040: 829,
    775: 774,
    3905: 3904,
    3907: 3906,
    3909: 3908,
    3911: 3910,
    3913: 3912,
    3927: 3926,
}
"""Type of the elements, by oid of the array type."""

_NUMBERS: Final[Mapping[int, pa.DataType]] = {
    Oid.INT2: pa.int16(),
    Oid.INT4: pa.int32(),
    Oid.INT8: pa.int64(),
    Oid.OID: pa.int64(),
    Oid.FLOAT4: pa.float32(),
    Oid.FLOAT8: pa.float64(),
}
_INFINITE_DAYS: Final = {"infinity": -2_147_472_692, "-infinity": -2_147_472_691}
"""Debezium's numbers for infinite dates (PostgresValueConverter.POSITIVE_INFINITY_LOCAL_DATE and its opposite)."""

_DAY_US: Final = 86_400_000_000
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_USUAL: Final = r"^\d{4}-[-\d:. ]*$"
"""Dates and timestamps without a zone that Arrow can read: others are infinite, BC or after the year 9999."""

_MOMENT: Final = re.compile(
    r"(?P<year>\d+)-(?P<month>\d\d)-(?P<day>\d\d)"
    r"( (?P<clock>\d\d:\d\d:\d\d)(\.(?P<fraction>\d+))?(\+00)?)?(?P<era> BC)?"
)
_MONTH_DAYS: Final = Decimal("365.25") / 12
_INTERVAL: Final = re.compile(
    r"(?:(-?\+?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?))?"
)
_UTC: Final = r"^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.(\d+))?\+00$"
_MONEY: Final = re.compile(r"[(-]?[^\d.,()-]*-?(?P<amount>\d{1,3}(,\d{3})*(\.\d+)?)\)?")
_NO_NUMBERS: Final = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
_EXACT: Final = Context(prec=1_000_000)
_MONEY_DIGITS: Final = 19
"""How many digits a value of the type money has at most."""

MOST_FRACTION_DIGITS: Final = 38 - _MONEY_DIGITS
"""How many more a Decimal can have."""

_NO_LENGTH: Final = 2_147_483_647
"""Debezium's length of `bit varying` without one."""

_PAIR: Final = re.compile(r'"(?P<key>(?:[^"\\]|\\.)*)"=>(?:NULL|"(?P<value>(?:[^"\\]|\\.)*)")', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_VARIABLE_SCALE: Final = pa.struct([pa.field("scale", pa.int32(), False), pa.field("value", pa.binary(), False)])


@dataclass(frozen=True, slots=True)
class Modes:
    """Settings of the forms of values.

    Attributes:
        decimals: decimal.handling.mode.
        times: time.precision.mode.
        binary: binary.handling.mode.
        placeholder: unavailable.value.placeholder.
        hstore: hstore.handling.mode.
        money_digits: money.fraction.digits.
    """

    decimals: str = "precise"
    times: str = "adaptive"
    binary: str = "bytes"
    placeholder: str = PLACEHOLDER
    hstore: str = "json"
    money_digits: int = 2

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Modes:
        """The modes of a parsed configuration."""
        return cls(
            values["decimal.handling.mode"],
            values["time.precision.mode"],
            values["binary.handling.mode"],
            values["unavailable.value.placeholder"],
            values["hstore.handling.mode"],
            values["money.fraction.digits"],
        )


@dataclass(frozen=True, slots=True)
class ColumnType:
    """How values of a column are read.

    Attributes:
        arrow: type of the column that `convert` makes of texts.
        unavailable: value in place of one that an update did not change and PostgreSQL did not send; None: the type
            has none, and the update is refused.
        absent: what Debezium writes for a null in a column that is NOT NULL, as in the old row of a delete.
        is_cast_differently: a cast to text gives another text than the type's output function, which the stream has.
        schema: name of the schema of its values.
        setting: the setting that decides about its form, with its value; empty: there is none.
    """

    arrow: pa.DataType
    convert: Convert
    unavailable: Any = None
    absent: Any = None
    is_cast_differently: bool = False
    schema: SchemaName = NO_NAME
    setting: str = ""

    def field(self, name: str, *, is_nullable: bool) -> pa.Field:
        """A field of a struct that holds values of the column."""
        made = pa.field(name, self.arrow, is_nullable)
        return self.schema.on(made) if self.schema else made

    def values(self, texts: pa.BinaryArray, column: str, unchanged: Any = None) -> pa.Array:
        """A column of the UTF-8 texts of its values.

        Args:
            column: its name in an error.
            unchanged: a mask of values that PostgreSQL did not send.

        Raises:
            ReplicationMessageError: a record cannot represent a value.
        """
        try:
            array = self.convert(texts.cast(pa.string()))
        except (pa.ArrowException, ValueError, ArithmeticError) as error:
            setting = f", with {self.setting}" if self.setting else ""
            change = f"Change {self.setting.partition('=')[0]}, or exclude" if self.setting else "Exclude"
            raise ReplicationMessageError(
                f"The column {column} holds a value that its record cannot represent{setting}: {error}.",
                next_step=f"{change} the column with column.exclude.list, and restart the task.",
            ) from error
        if unchanged is None:
            return array
        if self.unavailable is None:
            raise ReplicationMessageError(
                f"PostgreSQL did not send a long value of the column {column} that an update did not change, and its "
                f"type ({self.arrow}) has no placeholder.",
                next_step="Set the table's REPLICA IDENTITY to FULL and take a new snapshot, or exclude the column "
                "with column.exclude.list. Then restart the task.",
            )
        return pc.if_else(pa.array(unchanged), pa.scalar(self.unavailable, self.arrow), array)


def debezium_schema(name: str, *, doc: str = "", **parameters: str) -> SchemaName:
    """The name of one of Debezium's schemas, below `io.debezium`."""
    return SchemaName(f"io.debezium.{name}", 1, doc, tuple(parameters.items()))


def column_type(oid: int, modifier: int, modes: Modes, column: str) -> ColumnType:
    """How a column of a type is read; types that are not known are texts.

    Raises:
        TableMismatchError: the column has a precision that no Arrow type has.
    """
    if (element := _ARRAYS.get(oid)) is not None:
        inner = column_type(element, modifier, modes, column)
        kind = array_type(inner, modes)
        return replace(kind, unavailable=uuid_placeholder(modes.placeholder)) if element == Oid.UUID else kind
    if (number := _NUMBERS.get(oid)) is not None:
        return ColumnType(number, lambda texts: texts.cast(number), None, 0)
    match oid:
        case Oid.BOOL:
            return ColumnType(pa.bool_(), lambda texts: pc.starts_with(texts, "t"), None, False)
        case Oid.BYTEA if modes.binary == "hex":
            return ColumnType(pa.string(), lambda texts: pc.utf8_slice_codeunits(texts, 2), modes.placeholder, "")
        case Oid.BYTEA:
            return ColumnType(pa.binary(), _bytes, modes.placeholder.encode(), b"")
        case Oid.BIT | Oid.VARBIT:
            return _bits(modifier, modes)
        case Oid.NUMERIC:
            return _numeric(modifier, modes, column)
        case Oid.MONEY:
            return _money(modes)
        case Oid.DATE:
            return _date(modes)
        case Oid.TIME:
            return _time(modifier, modes)
        case Oid.TIMESTAMP:
            return _timestamp(modifier, modes)
        case Oid.TIMESTAMPTZ:
            convert, schema = _zoned(modifier if 0 <= modifier <= 6 else 6), debezium_schema("time.ZonedTimestamp")
            return ColumnType(pa.string(), convert, None, "1970-01-01T00:00:00Z", schema=schema)
        case Oid.TIMETZ:
            return ColumnType(pa.string(), _zoned_time, None, "00:00:00Z", schema=debezium_schema("time.ZonedTime"))
        case Oid.INTERVAL:
            return ColumnType(pa.int64(), _intervals, None, 0, schema=debezium_schema("time.MicroDuration"))
        case _:  # types without a separate form are text
            schema = debezium_schema(_NAMED_TEXTS[oid]) if oid in _NAMED_TEXTS else NO_NAME
            return _texts(modes, schema, is_cast_differently=oid in (Oid.BPCHAR, Oid.INET))


def enum_type(labels: str, modes: Modes) -> ColumnType:
    """How a column with an enum is read; `labels` are its values in order, with commas between."""
    return _texts(modes, debezium_schema("data.Enum", allowed=labels))


def _texts(modes: Modes, schema: SchemaName, *, is_cast_differently: bool = False) -> ColumnType:
    return ColumnType(pa.string(), lambda texts: texts, modes.placeholder, "", is_cast_differently, schema)


def _of_each(
    kind: pa.DataType, convert: Callable[[str], Any], absent: Any, unavailable: Any = None, schema: SchemaName = NO_NAME
) -> ColumnType:
    """A column whose texts are converted one by one."""

    def values(texts: pa.StringArray) -> pa.Array:
        return pa.array([None if text is None else convert(text) for text in texts.to_pylist()], kind)

    return ColumnType(kind, values, unavailable, absent, schema=schema)


def _bytes(texts: pa.StringArray) -> pa.Array:
    return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()], pa.binary())


def _numeric(modifier: int, modes: Modes, column: str) -> ColumnType:
    setting = f"decimal.handling.mode={modes.decimals}"
    if modes.decimals == "string":
        return ColumnType(pa.string(), _decimal_texts, modes.placeholder, "0")
    if modes.decimals == "double":
        return ColumnType(pa.float64(), lambda texts: texts.cast(pa.float64()), None, 0.0, setting=setting)
    if modifier < 4:
        schema, zero = debezium_schema("data.VariableScaleDecimal", doc="Variable scaled decimal"), b"\0"
        absent = {"scale": 0, "value": zero}
        unavailable = placeholder(_VARIABLE_SCALE, modes.placeholder)
        return ColumnType(_VARIABLE_SCALE, _variable_scale, unavailable, absent, schema=schema, setting=setting)
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    scale = scale - 2048 if scale > 1000 else scale
    if precision > 38 or not 0 <= scale <= precision:
        raise TableMismatchError(
            f"The column {column} is numeric({precision},{scale}), and a Decimal has at most 38 digits.",
            next_step="Set decimal.handling.mode to string or double, or exclude the column with column.exclude.list, "
            "and restart the task.",
        )
    kind = pa.decimal128(precision, scale)
    return ColumnType(kind, lambda texts: texts.cast(kind), None, Decimal(0), setting=setting)


def _decimal_texts(texts: pa.StringArray) -> pa.Array:
    """Texts of numeric, with Debezium's names of those that are no number (SpecialValueDecimal)."""
    special = pc.index_in(texts, pa.array(list(_NO_NUMBERS)))
    if special.null_count == len(texts):
        return texts
    return pc.coalesce(pa.array(_NO_NUMBERS.values()).take(special), texts)


def _variable_scale(texts: pa.StringArray) -> pa.Array:
    return pa.array([None if text is None else _scaled(text) for text in texts.to_pylist()], _VARIABLE_SCALE)


def _scaled(text: str) -> dict[str, Any]:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(f"{text} is not a finite number")
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "a finite number has a whole exponent"
    scale = max(0, -exponent)
    unscaled = int(number.scaleb(scale, _EXACT))  # int of a text takes 4,300 digits at most
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return {"scale": scale, "value": unscaled.to_bytes(length, "big", signed=True)}


def _bits(modifier: int, modes: Modes) -> ColumnType:
    """One bit as a boolean, more as bytes, the lowest ones first and without those that are zero at the end."""
    if modifier == 1:
        return ColumnType(pa.bool_(), lambda texts: pc.equal(texts, "1"), None, False)
    schema = debezium_schema("data.Bits", length=str(modifier if modifier > 0 else _NO_LENGTH))
    return _of_each(pa.binary(), _packed, b"", modes.placeholder.encode(), schema)


def _packed(bits: str) -> bytes:
    number = int(bits or "0", 2)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def _money(modes: Modes) -> ColumnType:
    zero = Decimal(0).scaleb(-modes.money_digits)
    match modes.decimals:
        case "string":
            return _of_each(pa.string(), lambda text: f"{_amount(text):f}", f"{zero:f}")
        case "double":
            return _of_each(pa.float64(), lambda text: float(_amount(text)), 0.0)
        case _:
            kind, context = pa.decimal128(_MONEY_DIGITS + modes.money_digits, modes.money_digits), Context(prec=38)
            return _of_each(kind, lambda text: _amount(text).quantize(zero, ROUND_HALF_UP, context), zero)


def _amount(text: str) -> Decimal:
    """The number of money as locales with a decimal point write it."""
    found = _MONEY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is not written as 1,234.50, which lc_monetary of the database decides")
    amount = Decimal(found["amount"].replace(",", ""))
    return -amount if "-" in text or text.startswith("(") else amount


def hstore_type(modes: Modes) -> ColumnType:
    """How a column with an hstore is read. Its keys are in the order of PostgreSQL."""
    mark = modes.placeholder
    if modes.hstore == "map":
        return _of_each(pa.map_(pa.string(), pa.string()), _pairs, [], [(mark, mark)])
    schema = debezium_schema("data.Json")
    return _of_each(pa.string(), lambda text: _json(dict(_pairs(text))), "{}", json_placeholder(mark), schema)


def _pairs(text: str) -> list[tuple[str, str | None]]:
    """Keys and values of an hstore as PostgreSQL writes it: `"a"=>"1", "b"=>NULL`."""
    found = [(pair["key"], pair["value"]) for pair in _PAIR.finditer(text)]
    return [(_ESCAPED.sub(r"\1", key), value and _ESCAPED.sub(r"\1", value)) for key, value in found]


def _json(pairs: dict[str, str | None]) -> str:
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


def _date(modes: Modes) -> ColumnType:
    setting = f"time.precision.mode={modes.times}"
    if modes.times == "connect":
        return ColumnType(pa.date32(), lambda texts: _days(texts).cast(pa.date32()), None, 0, setting=setting)
    return ColumnType(pa.int32(), _days, None, 0, schema=debezium_schema("time.Date"), setting=setting)


def _days(texts: pa.StringArray) -> pa.Array:
    """Days since 1970, in the proleptic Gregorian calendar."""
    return _read(texts, lambda usual: usual.cast(pa.date32()).cast(pa.int32()), _day)


def _micros(texts: pa.StringArray) -> pa.Array:
    """Microseconds since 1970 of timestamps without a zone."""
    return _read(texts, lambda usual: usual.cast(pa.timestamp("us")).cast(pa.int64()), _micro)


def _read(texts: pa.StringArray, usual: Convert, other: Callable[[str], Any]) -> pa.Array:
    """Convert texts as a whole if Arrow can read them all."""
    try:
        return usual(texts)
    except pa.ArrowInvalid:
        return _divided(texts, _USUAL, usual, other)


def _divided(texts: pa.StringArray, pattern: str, usual: Convert, other: Callable[[str], Any]) -> pa.Array:
    """Convert texts that match a pattern as a whole, and others one by one."""
    matches = pc.match_substring_regex(texts, pattern)
    others = pc.fill_null(pc.invert(matches), False)
    if not others.true_count:
        return usual(texts)
    found = usual(pc.if_else(matches, texts, pa.scalar(None, pa.string())))
    rest = pa.array([other(text) for text in texts.filter(others).to_pylist()], found.type)
    return pc.replace_with_mask(found, others, rest)


def _day(text: str) -> int:
    if text in _INFINITE_DAYS:
        return _INFINITE_DAYS[text]
    moment = _moment(text)
    cycles, year = divmod(_year(moment) - 1, _CYCLE_YEARS)
    day = datetime.date(year + 1, int(moment["month"]), int(moment["day"]))
    return cycles * _CYCLE_DAYS + day.toordinal() - _EPOCH


def _micro(text: str) -> int:
    if text in INFINITE_US:
        return INFINITE_US[text]
    moment = _moment(text)
    hours, minutes, seconds = map(int, moment["clock"].split(":"))
    fraction = int((moment["fraction"] or "").ljust(6, "0"))
    return _day(text) * _DAY_US + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction


def _moment(text: str) -> re.Match[str]:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is not a date")
    return found


def _year(moment: re.Match[str]) -> int:
    """The year, with 0 for 1 BC."""
    return 1 - int(moment["year"]) if moment["era"] else int(moment["year"])


def _milliseconds(micros: pa.Array) -> pa.Array:
    """Microseconds as milliseconds, rounded down also before 1970."""
    return pc.divide(pc.subtract(micros, pc.if_else(pc.less(micros, 0), 999, 0)), 1000)


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
    setting = f"time.precision.mode={modes.times}"
    if modes.times == "connect":
        kind = pa.timestamp("ms")
        return ColumnType(kind, lambda texts: _milliseconds(_micros(texts)).cast(kind), None, 0, setting=setting)
    in_ms = 0 <= modifier <= 3
    schema = debezium_schema("time.Timestamp" if in_ms else "time.MicroTimestamp")
    convert = (lambda texts: _milliseconds(_micros(texts))) if in_ms else _micros
    return ColumnType(pa.int64(), convert, None, 0, schema=schema, setting=setting)


def _zoned(digits: int) -> Convert:
    """Timestamps with a zone, which the session writes in UTC: ISO 8601 with so many digits after the second."""

    def usual(texts: pa.StringArray) -> pa.Array:
        moments = pc.replace_substring_regex(texts, _UTC, r"\1T\2")
        if digits:
            fractions = pc.replace_substring_regex(texts, _UTC, r"\4")
            moments = pc.binary_join_element_wise(moments, pc.utf8_rpad(fractions, digits, "0"), ".")
        return pc.binary_join_element_wise(moments, "Z", "")

    def other(text: str) -> str:
        if text in INFINITE_US:
            return text
        moment = _moment(text)
        year, fraction = _year(moment), (moment["fraction"] or "").ljust(digits, "0")
        sign = "+" if year > 9999 else "-" if year < 0 else ""
        whole = f"{sign}{abs(year):04}-{moment['month']}-{moment['day']}T{moment['clock']}"
        return f"{whole}.{fraction}Z" if digits else f"{whole}Z"

    return lambda texts: _divided(texts, _UTC, usual, other)


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
        raise ValueError(f"the interval {text!r}")
    years, months, days, sign, hours, minutes, seconds = found.groups()
    whole_days = (int(years or 0) * 12 + int(months or 0)) * _MONTH_DAYS + int(days or 0)
    micros = int(whole_days * _DAY_US)
    clock = (int(hours or 0) * 3600 + int(minutes or 0) * 60) * 1_000_000 + int(Decimal(seconds or 0) * 1_000_000)
    return micros + (-clock if sign == "-" else clock)


def array_type(inner: ColumnType, modes: Modes, *, has_nulls: bool = True) -> ColumnType:
    """How a column with arrays is read. `has_nulls`: their elements are optional in the schema."""
    kind = pa.list_(inner.field("item", is_nullable=has_nulls))

    def convert(texts: pa.StringArray) -> pa.Array:
        offsets: list[int | None] = []
        flat: list[str | None] = []
        for text in texts.to_pylist():
            offsets.append(None if text is None else len(flat))
            if text is not None:
                flat += array_elements(text)
        offsets.append(len(flat))
        values = inner.convert(pa.array(flat, pa.string()))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)

    is_text = inner.unavailable is not None
    unavailable = [inner.unavailable] if is_text else placeholder(kind, modes.placeholder)
    return ColumnType(kind, convert, unavailable, [], setting=inner.setting)


def array_elements(text: str) -> list[str | None]:
    """Elements of an array with one dimension, as PostgreSQL writes it: `{1,NULL,"a,b"}`.

    Raises:
        ValueError: it has more dimensions.
    """
    body = text[text.index("=") + 1 :] if text.startswith("[") else text  # bounds that do not begin at 1
    if body == "{}":
        return []
    if '"' not in body and "{" not in body[1:]:
        return [None if part == "NULL" else part for part in body[1:-1].split(",")]
    return _quoted_elements(body)


def _quoted_elements(body: str) -> list[str | None]:
    elements: list[str | None] = []
    at, end = 1, len(body) - 1
    while at < end:
        if body[at] == "{":
            raise ValueError("an array with several dimensions")
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
