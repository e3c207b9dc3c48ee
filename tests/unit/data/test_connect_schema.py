"""Connect's schemas and Arrow types say the same."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.connect_schema import DEFAULT, SchemaName, default_value, schema_of, type_of
from connectx.errors.plugins import ConversionError

ROW = pa.struct([
    pa.field("id", pa.int64(), nullable=False),
    ("price", pa.decimal128(10, 2)),
    ("on", pa.date32()),
    ("at", pa.timestamp("us", "UTC")),
    ("tags", pa.list_(pa.field("item", pa.string(), nullable=False))),
    ("more", pa.map_(pa.string(), pa.float32())),
])  # fmt: skip


def test_a_schema_is_written_with_javas_order_of_keys() -> None:
    text = json.dumps(schema_of(ROW, optional=False), separators=(",", ":"))
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


def test_a_field_within_has_the_name_version_parameters_and_default_of_its_metadata() -> None:
    name = SchemaName("com.acme.Level", 2, "How loud", (("allowed", "low,high"),))
    field = name.on(pa.field("level", pa.string(), metadata={DEFAULT: '"low"'}))
    described = {"name": name.name, "version": 2, "doc": "How loud", "parameters": {"allowed": "low,high"}}
    expected = {"type": "string", "optional": True, **described, "default": "low"}
    assert SchemaName.of(field) == name
    for kind, found in (
        (pa.struct([field]), lambda schema: schema["fields"][0]),
        (pa.list_(field), lambda schema: schema["items"] | {"field": "level"}),
        (pa.map_(pa.string(), field), lambda schema: schema["values"] | {"field": "level"}),
    ):
        written = found(schema_of(kind))
        assert list(written.items()) == [*expected.items(), ("field", "level")]


def test_a_schema_read_back_is_the_type() -> None:
    assert type_of(schema_of(ROW)) == ROW
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.float64(), pa.bool_(), pa.binary()):
        assert type_of(schema_of(kind)) == kind


def test_a_time_of_day_is_its_milliseconds_and_a_decimal_without_precision_is_as_wide_as_can_be() -> None:
    assert type_of({"type": "int32", "name": "org.apache.kafka.connect.data.Time"}) == pa.int32()
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "4"}}
    assert type_of(decimal) == pa.decimal128(38, 4)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({}, "must contain 'type'"),
        ({"type": "int33"}, "Unknown schema type: int33"),
        ({"type": "struct"}, '"fields" argument is not an array'),
        ({"type": "struct", "fields": [{"type": "int8"}]}, "field name not specified"),
        ({"type": "map", "keys": {"type": "int33"}, "values": {"type": "int8"}}, "Unknown schema type: int33"),
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}, "needs the parameter 'scale'"),
        ("string", "must contain 'type'"),
        ({"type": "struct", "fields": [{"type": "int8", "field": "a"}] * 2}, "field name duplication a"),
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
        (pa.string(), "x", "x"),
        (pa.date32(), 1, date(1970, 1, 2)),
        (pa.timestamp("us", "UTC"), 1500, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        (pa.decimal128(10, 2), "AJY=", Decimal("1.50")),
        (pa.decimal128(10, 2), 1.5, Decimal("1.5")),
        (pa.binary(), "/wA=", b"\xff\x00"),
    ],
)
def test_defaults_are_read_in_their_json_form(kind: pa.DataType, default: Any, value: Any) -> None:
    assert default_value(kind, default) == value


def test_a_default_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConversionError, match="is no date32"):
        default_value(pa.date32(), "tomorrow")
    with pytest.raises(ConversionError, match="not supported"):
        default_value(ROW, {})
