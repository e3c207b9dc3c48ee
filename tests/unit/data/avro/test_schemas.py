"""Avro schemas of Arrow types: the text is what Confluent's AvroData registers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectx.data.avro.schemas import schema_of, scrubbed
from connectx.data.avro.types import parse, value_type
from connectx.data.connect_schema import DEFAULT, SchemaName
from connectx.errors.plugins import ConversionError

DATA = "org.apache.kafka.connect.data."


def field_type(kind: pa.DataType, *, nullable: bool = False) -> str:
    text = schema_of(pa.struct([pa.field("f", kind, nullable)]))
    head = (
        '{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro","fields":[{"name":"f","type":'
    )
    assert text.startswith(head)
    return text.removeprefix(head).removesuffix("}]}")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int8(), '{"type":"int","connect.type":"int8"}'),
        (pa.int16(), '{"type":"int","connect.type":"int16"}'),
        (pa.int32(), '"int"'),
        (pa.int64(), '"long"'),
        (pa.float32(), '"float"'),
        (pa.float64(), '"double"'),
        (pa.bool_(), '"boolean"'),
        (pa.string(), '"string"'),
        (pa.binary(), '"bytes"'),
        (pa.dictionary(pa.int8(), pa.string()), '"string"'),
        (pa.date32(), f'{{"type":"int","connect.version":1,"connect.name":"{DATA}Date","logicalType":"date"}}'),
        (
            pa.timestamp("us", "UTC"),
            f'{{"type":"long","connect.version":1,"connect.name":"{DATA}Timestamp","logicalType":"timestamp-millis"}}',
        ),
        (
            pa.time32("ms"),
            f'{{"type":"int","connect.version":1,"connect.name":"{DATA}Time","logicalType":"time-millis"}}',
        ),
        (
            pa.decimal128(10, 2),
            '{"type":"bytes","scale":2,"precision":10,"connect.version":1,"connect.parameters":{"scale":"2",'
            f'"connect.decimal.precision":"10"}},"connect.name":"{DATA}Decimal","logicalType":"decimal"}}',
        ),
        (pa.list_(pa.field("item", pa.int32(), False)), '{"type":"array","items":"int"}'),
        (pa.map_(pa.string(), pa.field("value", pa.int32(), True)), '{"type":"map","values":["null","int"]}'),
        (
            pa.map_(pa.int32(), pa.field("value", pa.string(), False)),
            '{"type":"array","items":{"type":"record","name":"MapEntry","fields":[{"name":"key","type":"int"},'
            '{"name":"value","type":"string"}]}}',
        ),
    ],
)
def test_a_type_has_the_schema_that_avro_data_gives_it(kind: pa.DataType, text: str) -> None:
    assert field_type(kind) == text


def test_an_optional_field_is_a_union_with_null_first_whose_default_is_null() -> None:
    assert field_type(pa.int32(), nullable=True) == '["null","int"],"default":null'


def test_a_default_comes_first_in_the_union_and_is_in_the_type_too() -> None:
    one = pa.field("f", pa.int32(), True, {DEFAULT: "5"})
    text = schema_of(pa.struct([one]))
    assert '{"name":"f","type":[{"type":"int","connect.default":5},"null"],"default":5}' in text


def test_nested_records_are_counted_and_equal_ones_are_one_record() -> None:
    inner = pa.struct([pa.field("x", pa.int32(), False)])
    other = pa.struct([pa.field("y", pa.int32(), False)])
    kind = pa.struct([pa.field("a", inner, False), pa.field("b", inner, False), pa.field("c", other, False)])
    text = schema_of(kind)
    assert '{"name":"a","type":{"type":"record","name":"ConnectDefault2","fields":[' in text
    assert '{"name":"b","type":"ConnectDefault2"}' in text
    assert '{"name":"c","type":{"type":"record","name":"ConnectDefault3","fields":[' in text
    assert value_type(parse(text)) == kind


def test_a_named_record_has_its_namespace_and_its_inner_records_the_default_one() -> None:
    inner = pa.struct([pa.field("x", pa.int32(), False)])
    kind = pa.struct([pa.field("a", inner, False), pa.field("b", inner, False)])
    text = schema_of(kind, SchemaName("com.acme.Order"))
    assert text.startswith('{"type":"record","name":"Order","namespace":"com.acme","fields":[')
    assert text.endswith('"connect.name":"com.acme.Order"}')
    assert '"name":"ConnectDefault","namespace":"io.confluent.connect.avro"' in text
    assert '{"name":"b","type":"io.confluent.connect.avro.ConnectDefault"}' in text
    assert value_type(parse(text)) == kind


@pytest.mark.parametrize(
    ("name", "made"),
    [("ok_1", "ok_1"), ("1st", "x1st"), ("a b", "a_b"), ("a-b", "a_b"), ("é", "_C3_A9"), ("$x", "_24x"), ("", "")],
)
def test_names_are_scrubbed_as_confluent_scrubs_them(name: str, made: str) -> None:
    assert scrubbed(name) == made


def test_a_name_that_avro_does_not_take_is_refused_unless_it_may_be_scrubbed() -> None:
    kind = pa.struct([pa.field("a b", pa.int32(), False)])
    with pytest.raises(ConversionError, match=r"'a b'.*scrub\.invalid\.names=true"):
        schema_of(kind)
    assert '"name":"a_b"' in schema_of(kind, scrub=True)


@pytest.mark.parametrize("kind", [pa.uint32(), pa.float16(), pa.duration("s")])
def test_a_type_that_connect_does_not_have_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ConversionError, match="AvroConverter"):
        field_type(kind)
