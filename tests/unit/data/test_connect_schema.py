"""Connect's schemas and Spark types say the same."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from connectx.data.connect_schema import default_value, schema_of, type_of
from connectx.data.diagnosis import NO_ENVELOPE, why_not
from connectx.errors import ConversionError

ROW = t.StructType([
    t.StructField("id", t.LongType(), False),
    t.StructField("price", t.DecimalType(10, 2)),
    t.StructField("on", t.DateType()),
    t.StructField("at", t.TimestampType()),
    t.StructField("tags", t.ArrayType(t.StringType(), False)),
    t.StructField("more", t.MapType(t.StringType(), t.FloatType())),
])  # fmt: skip


def test_a_schema_is_written_with_javas_order_of_keys() -> None:
    text = json.dumps(schema_of(to_arrow_type(ROW), optional=False), separators=(",", ":"))
    assert text == (
        '{"type":"struct","fields":['
        '{"type":"int64","optional":false,"field":"id"},'
        '{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,'
        '"parameters":{"scale":"2","connect.decimal.precision":"10"},"field":"price"},'
        '{"type":"int32","optional":true,"name":"org.apache.kafka.connect.data.Date","version":1,"field":"on"},'
        '{"type":"int64","optional":true,"name":"org.apache.kafka.connect.data.Timestamp","version":1,"field":"at"},'
        '{"type":"array","items":{"type":"string","optional":false},"optional":true,"field":"tags"},'
        '{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"float","optional":true},'
        '"optional":true,"field":"more"}],"optional":false}'
    )


def test_a_schema_read_back_is_the_type() -> None:
    assert type_of(schema_of(to_arrow_type(ROW))) == ROW
    for kind in (t.ByteType(), t.ShortType(), t.IntegerType(), t.DoubleType(), t.BooleanType(), t.BinaryType()):
        assert type_of(schema_of(to_arrow_type(kind))) == kind


def test_a_time_of_day_is_its_milliseconds_and_a_decimal_without_precision_is_as_wide_as_can_be() -> None:
    assert type_of({"type": "int32", "name": "org.apache.kafka.connect.data.Time"}) == t.IntegerType()
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "4"}}
    assert type_of(decimal) == t.DecimalType(38, 4)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({}, "must contain 'type'"),
        ({"type": "int33"}, "Unknown schema type: int33"),
        ({"type": "struct"}, '"fields" argument is not an array'),
        ({"type": "struct", "fields": [{"type": "int8"}]}, "field name not specified"),
        ({"type": "map", "keys": {"type": "int8"}, "values": {"type": "int8"}}, "keys that are not strings"),
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}, "needs the parameter 'scale'"),
        ("string", "must contain 'type'"),
    ],
)
def test_what_is_no_schema_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(ConversionError, match=problem):
        type_of(schema)


def test_a_type_that_connect_does_not_have_is_refused() -> None:
    with pytest.raises(ConversionError, match="no type for duration"):
        schema_of(pa.duration("us"))


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        (t.StringType(), "x", "x"),
        (t.DateType(), 1, date(1970, 1, 2)),
        (t.TimestampType(), 1500, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        (t.DecimalType(10, 2), "AJY=", Decimal("1.50")),
        (t.DecimalType(10, 2), 1.5, Decimal("1.5")),
        (t.BinaryType(), "/wA=", b"\xff\x00"),
    ],
)
def test_defaults_are_read_in_their_json_form(kind: t.DataType, default: Any, value: Any) -> None:
    assert default_value(kind, default) == value


def test_a_default_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConversionError, match="is no date"):
        default_value(t.DateType(), "tomorrow")
    with pytest.raises(ConversionError, match="not supported"):
        default_value(ROW, {})


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "it is empty"),
        (b'{"id": 1} {', "it is not JSON: Extra data"),
        (b'{"id": "\xff"}', "it is not UTF-8: invalid start byte at byte 8"),
        (b"[]", "the value should be an object, found an array"),
        (b'{"id": true}', "id should be an integer, found a boolean"),
        (b'{"id": 9223372036854775808}', "id does not fit bigint"),
        (b'{"tags": 1}', "tags should be an array, found an integer"),
        (b'{"more": {"x": "y"}}', "more.x should be a number, found text"),
    ],
)
def test_a_refused_record_gets_a_reason_without_its_data(record: bytes, reason: str) -> None:
    assert why_not(record, ROW).startswith(reason)


def test_without_an_envelope_the_setting_is_named() -> None:
    assert why_not(b'{"payload": 1}', ROW, in_envelope=True) == NO_ENVELOPE
    assert why_not(b'{"schema": {}, "payload": 1}', ROW, in_envelope=True).startswith("the value should be an object")
