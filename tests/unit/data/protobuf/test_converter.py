"""ProtobufConverter: Confluent's wire format, the types of ProtobufData, and confluent-kafka as the other side."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from connectx.data.converter import Decoded
from connectx.data.protobuf.converter import ProtobufConverter
from connectx.data.protobuf.files import encoded, file_of
from connectx.data.protobuf.pools import descriptor_of
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
        ("by_number", pa.map_(pa.float64(), pa.string())),
        ("inner", pa.struct([("x", pa.list_(pa.struct([("y", pa.string())])))])),
    ]
)
FULL = {
    **{"id": 1, "tiny": 2, "small": 0.5, "large": 1e300, "flag": True, "text": "a", "raw": b"\0\xff"},
    **{"day": date(2026, 11, 23), "at": datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC), "price": Decimal("-1.25")},
    **{"list": [1, 2], "map": [("k", 1)], "by_number": [(0.5, "v")], "inner": {"x": [{"y": "z"}]}},
}
NOTHING: dict[str, Any] = {**dict.fromkeys(EVERYTHING.names), "tiny": 1, "list": [], "map": [], "by_number": []}
ORDER = """
syntax = "proto3";
package com.acme;
import "google/protobuf/wrappers.proto";
import "google/protobuf/timestamp.proto";
message Other { string name = 1; }
message Order {
  enum Color { RED = 0; BLUE = 5; }
  message Line { int32 count = 1; uint32 price = 2; }
  uint64 id = 1;
  oneof who { string person = 2; Line line = 3; }
  Color color = 4;
  repeated Line lines = 5;
  google.protobuf.Int32Value maybe = 6;
  google.protobuf.Timestamp at = 7;
  optional string note = 8;
  map<int32, Line> by_number = 9;
}
"""

Make = Callable[..., ProtobufConverter]


@pytest.fixture(params=["ptars", "google.protobuf"])
def make(request: pytest.FixtureRequest) -> Make:
    def made(is_key: bool = False, **settings: str) -> ProtobufConverter:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        given["protobuf.library"] = request.param
        return ProtobufConverter({"schema.registry.url": f"mock://{uuid.uuid4().hex}", **given}, is_key=is_key)

    return made


def client_of(converter: ProtobufConverter) -> SchemaRegistryClient:
    return converter._registry._client


def text_of(converter: ProtobufConverter, subject: str = "orders-value") -> str:
    return client_of(converter).get_latest_version(subject).schema.schema_str or ""


def message_class(name: str, text: str = ORDER) -> type[Message]:
    found: Any = descriptor_of(text).message_types_by_name[name.partition(".")[0]]
    for part in name.split(".")[1:]:
        found = found.nested_types_by_name[part]
    made: type[Message] = GetMessageClass(found)
    return made


def read(converter: ProtobufConverter, *messages: Message) -> Decoded:
    """Messages that confluent-kafka's serializer writes, as the converter reads them."""
    settings = {"use.deprecated.format": False, "skip.known.types": True}
    written = [ProtobufSerializer(type(one), client_of(converter), settings)(one, VALUE) for one in messages]
    return converter.from_bytes_arrow(pa.array(written))


def register(
    converter: ProtobufConverter, text: str, subject: str = "orders-value", *references: SchemaReference
) -> int:
    return client_of(converter).register_schema(subject, Schema(text, "PROTOBUF", list(references)))


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


@pytest.mark.parametrize("name", ["ProtobufConverter", "Protobuf", "io.confluent.connect.protobuf.ProtobufConverter"])
def test_a_connector_names_the_converter_as_in_kafka_connect(name: str) -> None:
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))
    config = {"value.converter": name, "value.converter.schema.registry.url": "mock://x"}
    assert isinstance(Plugins().converter("value", config, worker), ProtobufConverter)


@pytest.mark.parametrize("nullables", ["optional.for.nullables", "wrapper.for.nullables"])
def test_values_of_all_types_are_read_as_they_were_written(make: Make, nullables: str) -> None:
    converter = make(**{nullables: "true"})
    rows = pa.array([FULL, None, NOTHING], EVERYTHING)
    found = converter.from_bytes_arrow(converter.for_topic("orders").to_bytes_arrow(rows))
    assert found.error.null_count == 3
    assert found.value.to_pylist() == rows.to_pylist()
    assert found.value.type.field("tiny").type == pa.int8()


def test_null_is_read_as_zero_or_empty_unless_a_setting_keeps_it_as_in_kafka_connect(make: Make) -> None:
    converter = make()
    kind = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.struct([("d", pa.bool_())])), ("e", pa.date32())])
    written = converter.for_topic("orders").to_bytes_arrow(pa.array([dict.fromkeys("abce")], kind))
    assert converter.from_bytes_arrow(written).value.to_pylist() == [{"a": 0, "b": "", "c": None, "e": None}]


def test_schemas_are_those_of_confluents_protobuf_data(make: Make) -> None:
    converter = make(record__name="com.acme.Order", optional__for__nullables="true")
    kind = pa.struct(
        [
            pa.field("n", pa.int16(), False),
            ("s", pa.string()),
            ("p", pa.decimal128(10, 2)),
            ("l", pa.list_(pa.struct([("x", pa.int64())]))),
            ("m", pa.map_(pa.string(), pa.bool_())),
        ]
    )
    converter.for_topic("orders").to_bytes_arrow(pa.array([], kind))
    assert text_of(converter).split("\n") == [
        'syntax = "proto3";',
        "package com.acme;",
        'import "confluent/meta.proto";',
        'import "confluent/type/decimal.proto";',
        "",
        "message Order {",
        '  int32 n = 1 [(confluent.field_meta) = {params: [{key: "connect.type", value: "int16"}]}];',
        "  optional string s = 2;",
        "  optional .confluent.type.Decimal p = 3 [(confluent.field_meta) = "
        '{params: [{key: "precision", value: "10"}, {key: "scale", value: "2"}]}];',
        "  repeated ConnectDefault1 l = 4;",
        "  map<string, bool> m = 5;",
        "  message ConnectDefault1 {",
        "    optional int64 x = 1;",
        "  }",
        "}",
        "",
    ]


@pytest.mark.parametrize(
    ("value", "head"), [("a", b"\x02\x0e"), (5, b"\x02\x04"), (1.5, b"\0"), (True, b"\x02\x0c"), (b"x", b"\x02\x10")]
)
def test_a_single_value_is_a_wrapper_at_its_place_in_googles_file(make: Make, value: Any, head: bytes) -> None:
    converter = make(is_key=True)
    (written,) = converter.for_topic("orders").to_bytes_arrow(pa.array([value])).to_pylist()
    assert written[5:].startswith(head)
    assert converter.from_bytes_arrow(pa.array([written])).value.to_pylist() == [value]


def test_keys_and_values_of_two_single_types_keep_their_messages(make: Make) -> None:
    converter = make().for_topic("orders")
    texts, numbers = converter.to_bytes_arrow(pa.array(["a"])), converter.to_bytes_arrow(pa.array([7]))
    assert converter.from_bytes_arrow(texts).value.to_pylist() == ["a"]
    assert converter.from_bytes_arrow(numbers).value.to_pylist() == [7]


def test_confluents_deserializer_reads_what_the_converter_writes(make: Make) -> None:
    converter = make()
    written = converter.for_topic("orders").to_bytes_arrow(pa.array([FULL], EVERYTHING))[0].as_py()
    text = text_of(converter)
    # Confluent's registry serves its Python client descriptors, which this one has in place of texts.
    theirs = SchemaRegistryClient.new_client({"url": f"mock://{uuid.uuid4().hex}"})
    schema = Schema(encoded(file_of(text)), "PROTOBUF")
    assert theirs.register_schema("orders-value", schema) == int.from_bytes(written[1:5], "big")
    order = message_class("ConnectDefault1", text)
    message: Any = ProtobufDeserializer(order, {"use.deprecated.format": False}, theirs)(written, VALUE)
    assert (message.id, message.tiny, message.text, message.raw, message.large) == (1, 2, "a", b"\0\xff", 1e300)
    assert (message.day.year, message.at.seconds, message.at.nanos) == (2026, -1, 500_000_000)
    assert (message.price.value, message.price.scale, message.price.precision) == (b"\x83", 2, 10)
    assert (list(message.list), dict(message.map), message.inner.x[0].y) == ([1, 2], {"k": 1}, "z")


def test_the_converter_reads_what_confluents_serializer_writes(make: Make) -> None:
    Order: Any = message_class("Order")
    full = Order(id=7, person="p", color=5, note="", by_number={3: {"count": 2}})
    full.lines.add(count=1, price=2**32 - 1)
    full.maybe.value = 0
    full.at.FromMilliseconds(-1)
    found = read(make(), full, Order(line={"count": 9}), Order())
    lines = {"count": 9, "price": 0}
    empty = {"id": 0, "color": "RED", "lines": [], "maybe": None, "at": None, "note": None, "by_number": []}
    assert found.error.null_count == 3
    assert found.value.to_pylist() == [
        {
            **{"id": 7, "color": "BLUE", "lines": [{"count": 1, "price": 2**32 - 1}], "maybe": {"value": 0}},
            **{"who_0": {"person": "p", "line": None}, "note": "", "by_number": [(3, {"count": 2, "price": 0})]},
            "at": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
        },
        {**empty, "who_0": {"person": None, "line": lines}},
        {**empty, "who_0": None},
    ]


def test_settings_change_how_unions_enums_and_wrappers_are_read(make: Make) -> None:
    Order: Any = message_class("Order")
    one = Order(person="p", color=5)
    one.maybe.value = 3
    (plain,) = read(make(generate__index__for__unions="false", wrapper__for__nullables="true"), one).value.to_pylist()
    assert (plain["who"]["person"], plain["maybe"]) == ("p", 3)
    (flat,) = read(make(flatten__unions="true", int__for__enums="true"), one).value.to_pylist()
    assert (flat["person"], flat["line"], flat["color"]) == ("p", None, 5)


def test_the_indexes_before_a_body_name_its_message(make: Make) -> None:
    Line, Other = message_class("Order.Line"), message_class("Other")
    converter = make()
    assert read(converter, Line(count=1, price=2)).value.to_pylist() == [{"count": 1, "price": 2}]
    assert read(converter, Other(name="n")).value.to_pylist() == [{"name": "n"}]
    schema_id = register(converter, ORDER)
    bodies = [b"\x02\x08", b"\x04\x02", b"", b"\xff" * 12, b"\x01"]
    found = converter.from_bytes_arrow(pa.array([framed(schema_id, body) for body in bodies]))
    assert found.error.to_pylist() == [
        "The Protobuf schema has no message of the indexes [4].",
        *["The record does not begin with the indexes of a message."] * 4,
    ]


def test_a_record_that_is_no_such_message_has_an_error_and_others_are_read(make: Make) -> None:
    converter = make()
    schema_id = register(converter, 'syntax = "proto3"; message M { uint64 n = 1; string s = 2; }')
    bodies = [b"\x08\x01", b"\x08", b"\x12\x02\xff\xfe", b"\x08" + b"\xff" * 9 + b"\x01", b"\x08\x02"]
    found = converter.from_bytes_arrow(pa.array([framed(schema_id, b"\0" + body) for body in bodies]))
    assert [one and one["n"] for one in found.value.to_pylist()] == [1, None, None, None, 2]
    errors = found.error.to_pylist()
    assert (errors[0], errors[4]) == (None, None)
    assert all("Protobuf schema" in one for one in errors[1:4])


def test_imports_are_the_schemas_that_the_registry_refers_to(make: Make) -> None:
    converter = make()
    register(converter, 'syntax = "proto3"; package a; message A { int32 x = 1; }', "a")
    text = 'syntax = "proto3"; import "a.proto"; message B { a.A a = 1; }'
    schema_id = register(converter, text, "orders-value", SchemaReference("a.proto", "a", 1))
    found = converter.from_bytes_arrow(pa.array([framed(schema_id, b"\0\x0a\x02\x08\x05")]))
    assert found.value.to_pylist() == [{"a": {"x": 5}}]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('syntax = "proto3"; message M { M next = 1; }', "is recursive in M"),
        ('syntax = "proto3"; import "b.proto"; message M { }', "imports 'b.proto', which is neither"),
        ('syntax = "proto3"; message M { Nowhere x = 1; }', "Not a valid Protobuf schema"),
        ("message {", "Not a valid Protobuf schema"),
        ('syntax = "proto3";', "has no message"),
        ('edition = "2023"; message M { }', "with an edition cannot be read"),
    ],
)
def test_a_schema_that_cannot_be_used_is_an_error_of_its_records(make: Make, text: str, error: str) -> None:
    converter = make()
    found = converter.from_bytes_arrow(pa.array([framed(register(converter, text), b"\0")]))
    assert error in found.error.to_pylist()[0]


def test_the_latest_schema_is_written_with_when_the_converter_may_not_register(make: Make) -> None:
    converter = make(auto__register__schemas="false", use__latest__version="true")
    text = """syntax = "proto3";
      message M {
        enum E { A = 0; B = 3; }
        E e = 1; uint32 n = 2; string left_out = 3;
        oneof o { string s = 4; int32 i = 5; }
      }"""
    schema_id = register(converter, text)
    to_topic = converter.for_topic("orders")
    union = pa.struct([("s", pa.string()), ("i", pa.int32())])
    kind = pa.struct([("n", pa.int64()), ("e", pa.string()), ("o_0", union)])
    rows = pa.array([{"n": 7, "e": "B", "o_0": {"s": None, "i": 1}}], kind)
    assert to_topic.to_bytes_arrow(rows)[0].as_py() == framed(schema_id, b"\0\x08\x03\x10\x07\x28\x01")
    for row, error in (
        ({"e": "C"}, "e holds 'C', which is no symbol of its enum"),
        ({"n": -1}, "cannot write n as int64"),
        ({"n": "x"}, "cannot write n of type string as int64"),
        ({"x": 1}, "The Protobuf schema has no field x"),
        ({"o_0": {"s": "a", "i": 1}}, "o_0 has several members"),
    ):
        with pytest.raises(ConversionError, match=error):
            to_topic.to_bytes_arrow(pa.array([row]))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (pa.array([{"a b": 1}]), "does not take the name 'a b'"),
        (pa.array([{"a": [[1]]}]), "cannot write values of type list"),
        (pa.array([[1]]), "cannot write values of type list"),
        (pa.array([{"a": [1, None]}]), "a holds null in a list"),
    ],
)
def test_what_protobuf_does_not_have_is_refused(make: Make, values: pa.Array, error: str) -> None:
    with pytest.raises(ConversionError, match=error):
        make().for_topic("orders").to_bytes_arrow(values)


def test_invalid_names_are_made_valid_on_request(make: Make) -> None:
    converter = make(scrub__invalid__names="true")
    written = converter.for_topic("orders").to_bytes_arrow(pa.array([{"a b": 1}]))
    assert converter.from_bytes_arrow(written).value.to_pylist() == [{"a_b": 1}]


def test_decimals_of_other_scales_are_rescaled(make: Make) -> None:
    text = """syntax = "proto3"; import "confluent/type/decimal.proto"; import "confluent/meta.proto";
      message M { confluent.type.Decimal d = 1 [(confluent.field_meta).params = {key: "scale", value: "2"}]; }"""
    converter = make()
    head = framed(register(converter, text), b"\0")
    scales = (b"\1", b"\2", b"\3")
    bodies = [*(b"\x0a\x05\x0a\x01\x7d\x18" + scale for scale in scales), b"\x0a\0", b""]
    found = converter.from_bytes_arrow(pa.array([head + body for body in bodies]))
    values: list[Any] = [one and one["d"] for one in found.value.to_pylist()]
    assert values == [Decimal("12.50"), Decimal("1.25"), None, Decimal(0), None]
    assert "would cause data loss" in found.error.to_pylist()[2]
    assert found.error.null_count == 4
