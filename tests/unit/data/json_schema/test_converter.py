"""JsonSchemaConverter: Confluent's wire format, the types of JsonSchemaData, and confluent-kafka as the other side."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectx.data.connect_schema import DEFAULT
from connectx.data.converter import Decoded
from connectx.data.json_schema.converter import JsonSchemaConverter
from connectx.errors.plugins import ConversionError
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins

VALUE = SerializationContext("orders", MessageField.VALUE)
EVERYTHING = pa.struct(
    [
        ("id", pa.int64()),
        pa.field("tiny", pa.int8(), nullable=False),
        ("small", pa.float32()),
        ("large", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("list", pa.list_(pa.int16())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("by_number", pa.map_(pa.int32(), pa.string())),
        ("inner", pa.struct([("x", pa.list_(pa.struct([("y", pa.string())])))])),
    ]
)
FULL = {
    **{"id": 1, "tiny": 2, "small": 0.5, "large": 1e300, "flag": True, "text": 'a "b"', "raw": b"\0\xff"},
    **{"day": date(2026, 11, 23), "at": datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC), "price": Decimal("-1.25")},
    **{"list": [1, None], "map": [("k", 1)], "by_number": [(7, "v"), (8, None)], "inner": {"x": [{"y": "z"}]}},
}
EMPTY: dict[str, Any] = {**dict.fromkeys(EVERYTHING.names), "tiny": 1}
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}

Make = Callable[..., JsonSchemaConverter]


@pytest.fixture
def make() -> Make:
    def made(is_key: bool = False, **settings: str) -> JsonSchemaConverter:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        url = f"mock://{uuid.uuid4().hex}"
        return JsonSchemaConverter({"schema.registry.url": url, **given}, is_key=is_key)

    return made


def client_of(converter: JsonSchemaConverter) -> SchemaRegistryClient:
    return converter._registry._client


def schema_of(converter: JsonSchemaConverter, subject: str = "orders-value") -> Any:
    return json.loads(client_of(converter).get_latest_version(subject).schema.schema_str or "")


def read(
    converter: JsonSchemaConverter,
    schema: Any,
    values: Sequence[Any],
    references: Sequence[tuple[str, Any]] = (),
    *,
    validate: bool = False,
) -> Decoded:
    """Values that confluent-kafka's serializer writes with a schema, as the converter reads them."""
    client = client_of(converter)
    named: list[SchemaReference] = []
    for name, one in references:
        client.register_schema(f"of-{name}", Schema(json.dumps(one), "JSON", list(named)))
        named.append(SchemaReference(name, f"of-{name}", 1))
    written_with = Schema(json.dumps(schema), "JSON", named)
    write = JSONSerializer(written_with, client, conf={"validate": validate})
    return converter.from_bytes_arrow(pa.array([write(value, VALUE) for value in values]))


@pytest.mark.parametrize("name", ["JsonSchemaConverter", "JsonSchema", "io.confluent.connect.json.JsonSchemaConverter"])
def test_a_connector_names_the_converter_as_in_kafka_connect(name: str) -> None:
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))
    config = {"value.converter": name, "value.converter.schema.registry.url": "mock://x"}
    assert isinstance(Plugins().converter("value", config, worker), JsonSchemaConverter)


@pytest.mark.parametrize("decimals", ["BASE64", "numeric"])
def test_values_of_all_types_are_read_as_they_were_written_and_are_valid_under_their_schema(
    make: Make, decimals: str
) -> None:
    converter = make(json__fail__invalid__schema="true", decimal__format=decimals)
    rows = pa.array([FULL, None, EMPTY], EVERYTHING)
    written = converter.for_topic("orders").to_bytes_arrow(rows)
    found = converter.from_bytes_arrow(written)
    assert found.error.null_count == 3
    assert found.value.to_pylist() == rows.to_pylist()
    reader = JSONDeserializer(None, schema_registry_client=client_of(converter), conf={"validate": True})
    full, tombstone, empty = (reader(one, VALUE) for one in written.to_pylist())
    assert full is not None
    assert tombstone is None
    assert empty == EMPTY
    assert full["price"] == ("gw==" if decimals == "BASE64" else -1.25)
    assert (full["day"], full["at"], full["raw"]) == (20_780, -500, "AP8=")
    assert (full["map"], full["by_number"][0]) == ({"k": 1}, {"key": 7, "value": "v"})


def test_schemas_are_those_of_confluents_json_schema_data(make: Make) -> None:
    converter = make(record__name="com.acme.Order", object__additional__properties="false")
    kind = pa.struct(
        [
            pa.field("n", pa.int32(), False),
            pa.field("s", pa.string(), True, {DEFAULT: '"x"'}),
            pa.field("p", pa.decimal128(10, 2), False),
            pa.field("t", pa.time32("ms"), False),
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.bool_(), False)), False),
        ]
    )
    row: dict[str, Any] = {"n": 1, "s": None, "p": Decimal(1), "t": time(0, 0, 1), "m": []}
    converter.for_topic("orders").to_bytes_arrow(pa.array([row], kind))
    data = "org.apache.kafka.connect.data."
    assert schema_of(converter) == {
        "title": "com.acme.Order",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "connect.type": "int32", "connect.index": 0},
            "s": {"oneOf": [{"type": "null"}, {"type": "string", "default": "x"}], "connect.index": 1},
            "p": {
                **{"type": "string", "title": f"{data}Decimal", "connect.version": 1, "connect.type": "bytes"},
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                "connect.index": 2,
            },
            "t": {
                **{"type": "integer", "title": f"{data}Time", "connect.version": 1, "connect.type": "int32"},
                "connect.index": 3,
            },
            "m": {
                **{"type": "object", "connect.type": "map", "additionalProperties": {"type": "boolean"}},
                "connect.index": 4,
            },
        },
        "additionalProperties": False,
    }


def test_connect_index_orders_the_fields_and_connect_type_gives_their_width(make: Make) -> None:
    properties = {
        "b": {"type": "integer", "connect.index": 1},
        "a": {"type": "number", "connect.index": 0, "connect.type": "float32"},
    }
    found = read(make(), {"type": "object", "properties": properties}, [{"a": 0.5, "b": 2}])
    assert found.value.type == pa.struct([("a", pa.float32()), ("b", pa.int64())])
    assert found.value.to_pylist() == [{"a": 0.5, "b": 2}]


def test_a_required_property_that_is_missing_is_an_error_and_others_are_null_or_their_default(make: Make) -> None:
    schema = {**OBJECT, "properties": {**OBJECT["properties"], "c": {"type": "integer", "default": 7}}}  # type: ignore[dict-item]
    found = read(make(), schema, [{"a": 1}, {"b": "x"}, {"a": 2, "b": "y", "c": 3, "more": True}])
    assert found.value.to_pylist() == [{"a": 1, "b": None, "c": 7}, None, {"a": 2, "b": "y", "c": 3}]
    assert found.error.to_pylist() == [None, "a is required, and missing or null", None]


@pytest.mark.parametrize(
    ("settings", "prefix"),
    [
        ({}, "io.confluent.connect.json.OneOf.field."),
        ({"generalized__sum__type__support": "true"}, "connect_union_field_"),
    ],
)
def test_a_union_is_a_struct_with_a_field_for_each_type(make: Make, settings: dict[str, str], prefix: str) -> None:
    parts = [{"type": "string"}, {"type": "number"}, OBJECT, {"type": "null"}, {"type": "array", "items": OBJECT}]
    schema = {"type": "object", "properties": {"u": {"oneOf": parts}}}
    values = ["x", 1.25, {"a": 5}, None, [{"a": 6}], True]
    found = read(make(**settings), schema, [{"u": value} for value in values])
    rows: list[Any] = found.value.to_pylist()
    unions: list[dict[str, Any]] = [row["u"] or {} for row in rows[:-1]]
    branches = [[pair for pair in union.items() if pair[1] is not None] for union in unions]
    assert branches == [
        [(f"{prefix}0", "x")],
        [(f"{prefix}1", 1.25)],
        [(f"{prefix}2", {"a": 5, "b": None})],
        [],
        [(f"{prefix}3", [{"a": 6, "b": None}])],
    ]
    assert found.error.to_pylist()[-1] == "u is of none of the types of its union"


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        ({"type": ["integer", "null"]}, 5, pa.int64()),
        ({"anyOf": [{"type": "boolean"}]}, True, pa.bool_()),
        ({"type": "string", "enum": ["x", "y"]}, "x", pa.string()),
        ({"const": "x"}, "x", pa.string()),
        ({"type": "integer", "enum": [1, 2]}, 2, pa.int64()),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "boolean"}}}]},
         {"a": 1, "b": True}, pa.struct([("a", pa.int64()), ("b", pa.bool_())])),
        ({"type": "array", "items": {"$ref": "#/definitions/A"}, "definitions": {"A": {"type": "string"}}},
         ["x"], pa.list_(pa.string())),
    ],
)  # fmt: skip
def test_a_schema_has_the_type_that_json_schema_data_gives_it(
    make: Make, schema: Any, value: Any, kind: pa.DataType
) -> None:
    found = read(make(), schema, [value])
    assert found.value.type == kind
    assert found.value.to_pylist() == [value]


def test_what_a_schema_does_not_describe_is_text_of_json(make: Make) -> None:
    found = read(make(), {"type": "object", "properties": {"any": {}}}, [{"any": {"x": [1]}}, {"any": "t"}])
    assert [row["any"] for row in found.value.to_pylist()] == ['{"x":[1]}', "t"]


def test_references_to_schemas_of_other_subjects_are_followed(make: Make) -> None:
    inner = {"type": "object", "properties": {"z": {"type": "integer"}}}
    outer = {"type": "object", "properties": {"in": {"$ref": "inner.json"}}}
    found = read(make(), {"$ref": "outer.json"}, [{"in": {"z": 1}}], [("inner.json", inner), ("outer.json", outer)])
    assert found.value.to_pylist() == [{"in": {"z": 1}}]


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"properties": {"o": {"$ref": "#"}}}, "The JSON Schema is recursive, which no column can hold."),
        ({"$ref": "#/definitions/B"}, "The JSON Schema refers to '#/definitions/B', which cannot be resolved."),
        ({"type": "array"}, "A JSON Schema of an array does not define its items."),
        ({"type": "null"}, "A JSON Schema of kind null has no type in Kafka Connect."),
    ],
)  # fmt: skip
def test_a_schema_that_no_column_can_hold_is_an_error_of_its_records(make: Make, schema: Any, error: str) -> None:
    converter = make()
    schema_id = client_of(converter).register_schema("s", Schema(json.dumps(schema), "JSON"))
    found = converter.from_bytes_arrow(pa.array([b"\0" + schema_id.to_bytes(4, "big") + b"{}"]))
    assert found.error.to_pylist() == [error]


def test_validation_is_asked_for_and_names_the_place_and_not_the_data(make: Make) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 5}}}
    strict, lenient = make(json__fail__invalid__schema="true"), make()
    assert read(lenient, schema, [{"x": 1}, {"x": 12345}]).error.null_count == 2
    found = read(strict, schema, [{"x": 1}, {"x": 12345}])
    assert found.value.to_pylist()[0] == {"x": 1}
    assert found.error.to_pylist() == [None, "it does not match its JSON Schema at /x (maximum)"]
    assert read(strict, {"$ref": "o.json"}, [{"x": 9}], [("o.json", schema)]).error.null_count == 0


def test_a_value_that_the_latest_schema_does_not_allow_is_not_written(make: Make) -> None:
    settings = {"auto__register__schemas": "false", "use__latest__version": "true"}
    converter = make(**settings, json__fail__invalid__schema="true")
    schema = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 5}}}
    schema_id = client_of(converter).register_schema("orders-value", Schema(json.dumps(schema), "JSON"))
    to_topic = converter.for_topic("orders")
    assert to_topic.to_bytes_arrow(pa.array([{"x": 3}]))[0].as_py() == b"\0" + schema_id.to_bytes(4, "big") + b'{"x":3}'
    with pytest.raises(ConversionError, match="at /x"):
        to_topic.to_bytes_arrow(pa.array([{"x": 3}, {"x": 6}]))


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("RecordNameStrategy", "com.acme.Order"), ("TopicRecordNameStrategy", "orders-com.acme.Order")],
)
def test_the_title_is_the_name_of_the_record(make: Make, strategy: str, subject: str) -> None:
    converter = make(value__subject__name__strategy=strategy, record__name="com.acme.Order")
    converter.for_topic("orders").to_bytes_arrow(pa.array([{"a": 1}]))
    assert client_of(converter).get_subjects() == [subject]
    with pytest.raises(ConversionError, match="the value is int64"):
        converter.for_topic("orders").to_bytes_arrow(pa.array([1]))


def test_records_that_cannot_be_read_have_an_error_and_others_are_read(make: Make) -> None:
    converter = make()
    avro_id = client_of(converter).register_schema("a", Schema('"string"', "AVRO"))
    json_id = client_of(converter).register_schema("j", Schema(json.dumps(OBJECT), "JSON"))
    bodies = [b"{}", b"\1\0\0\0\1{}", b"\0\0\0\0\x63{}", b"\0" + avro_id.to_bytes(4, "big") + b"\2a"]
    head = b"\0" + json_id.to_bytes(4, "big")
    bodies += [head + b'{"a":', head + b'{"a":"x"}', head + b'{"a":1}']
    found = converter.from_bytes_arrow(pa.array(bodies))
    errors = found.error.to_pylist()
    assert "fewer than the 5" in errors[0]
    assert "begins with byte 1" in errors[1]
    assert "does not have the schema 99" in errors[2]
    assert errors[3] == f"The schema {avro_id} is AVRO, not JSON Schema."
    assert "it is not JSON" in errors[4]
    assert "a should be an integer" in errors[5]
    assert errors[6] is None
    assert found.value.to_pylist()[6] == {"a": 1, "b": None}
