"""Avro schemas as trees: names, references, and the Arrow types that sinks see."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.avro.types import parse, value_type
from connectx.data.connect_schema import SchemaName
from connectx.errors.plugins import ConversionError

UTC_US = pa.timestamp("us", "UTC")


def seen(schema: Any, *references: Any, full_labels: bool = False) -> pa.DataType:
    texts = [json.dumps(one) for one in references]
    return value_type(parse(json.dumps(schema), texts, full_labels=full_labels))


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "int", "logicalType": "time-millis"}, pa.int32()),
        ({"type": "long", "logicalType": "timestamp-millis"}, UTC_US),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.int64()),
        ({"type": "int", "connect.type": "int16"}, pa.int16()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}, pa.decimal128(38, 2)),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, pa.decimal128(9, 0)),
        ({"type": "fixed", "name": "F", "size": 4}, pa.binary()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        (["null", "string"], pa.string()),
        (["string"], pa.string()),
        ({"type": {"type": "string"}}, pa.string()),
    ],
)
def test_a_schema_has_connects_type(schema: Any, kind: pa.DataType) -> None:
    assert seen(schema) == kind


def test_fields_are_nullable_where_their_union_has_null() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": ["int", "null"], "default": 1}, {"name": "b", "type": "int"}],
    }
    assert seen(schema) == pa.struct([pa.field("a", pa.int32(), True), pa.field("b", pa.int32(), False)])


def test_a_union_of_several_types_is_a_struct_with_a_field_for_each() -> None:
    schema = ["null", "int", {"type": "record", "name": "a.b.R", "fields": [{"name": "x", "type": "int"}]}]
    record = pa.struct([pa.field("x", pa.int32(), False)])
    assert seen(schema) == pa.struct([pa.field("int", pa.int32()), pa.field("R", record)])
    assert seen(schema, full_labels=True) == pa.struct([pa.field("int", pa.int32()), pa.field("a.b.R", record)])


def test_the_struct_of_a_union_has_the_name_that_avro_data_gives_it() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "u", "type": ["null", "int", "string"]}, {"name": "o", "type": ["null", "int"]}],
    }
    union, optional = seen(schema)
    assert SchemaName.of(union).name == "io.confluent.connect.avro.Union"
    assert not SchemaName.of(optional)


def test_a_name_is_found_in_its_namespace_and_among_the_references() -> None:
    inner = {"type": "record", "name": "Inner", "namespace": "n", "fields": [{"name": "x", "type": "int"}]}
    outer = {"type": "record", "name": "Outer", "namespace": "n", "fields": [{"name": "i", "type": "Inner"}]}
    record = pa.struct([pa.field("x", pa.int32(), False)])
    assert seen(outer, inner) == pa.struct([pa.field("i", record, False)])


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, "recursive in R"),
        ({"type": "array", "items": "Unknown"}, "names the type Unknown"),
        ({"type": "array"}, "Not a valid Avro schema"),
        ("null", "Standalone null schemas are not supported"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 50}, "scale 50 cannot be read"),
    ],
)
def test_a_schema_that_no_column_can_hold_is_refused(schema: Any, sentence: str) -> None:
    with pytest.raises(ConversionError, match=sentence):
        seen(schema)
