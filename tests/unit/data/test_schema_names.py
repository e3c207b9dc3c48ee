"""Names, versions, documentation, parameters and defaults of Connect's schemas in the formats of a registry.

The texts are what Confluent's AvroData, JsonSchemaData and ProtobufData give to the schemas of Debezium's events.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectx.connectors.cdc.events import Changes, Column, Origin, RowTexts, TableShape
from connectx.connectors.cdc.values import Modes, column_type, enum_type
from connectx.data.avro.converter import AvroConverter
from connectx.data.avro.types import parse, value_type
from connectx.data.connect_schema import DEFAULT, ColumnSchema, SchemaName, described, name_of
from connectx.data.converters import decode, encode
from connectx.data.json.converter import JsonConverter
from connectx.data.json_schema.converter import JsonSchemaConverter
from connectx.data.protobuf.converter import ProtobufConverter
from connectx.data.registry.converter import RegistryConverter
from connectx.errors.plugins import ConversionError

TOPIC = "shop.public.orders"
VALUE = SerializationContext(TOPIC, MessageField.VALUE)
DATA = "org.apache.kafka.connect.data."
COLUMNS = (
    ("id", 23, -1, b"7"),
    ("at", 1114, -1, b"2026-11-23 08:00:00.000001"),
    ("day", 1082, -1, b"2026-11-23"),
    ("clock", 1083, -1, b"00:00:01"),
    ("price", 1700, (10 << 16 | 2) + 4, b"1.25"),
    ("any_scale", 1700, -1, b"1.5"),
    ("other_scale", 1700, -1, b"2"),
    ("note", 3802, -1, b"{}"),
    ("key", 2950, -1, b"00000000-0000-0000-0000-000000000001"),
    ("zoned", 1184, -1, b"2026-11-23 08:00:00+00"),
    ("times", 1115, -1, b'{"2026-11-23 08:00:00"}'),
)


def cdc_table(modes: Modes | None = None) -> pa.Table:
    """Key and value of one insert, as PostgresCdcSource yields them."""
    modes = modes or Modes()
    columns = [
        Column(name, column_type(oid, modifier, modes, name), name != "id") for name, oid, modifier, _ in COLUMNS
    ]
    columns.append(Column("level", enum_type("low,high", modes), True))
    texts = [pa.array([text], pa.binary()) for *_, text in COLUMNS] + [pa.array([b"low"])]
    one, none = pa.array([1], pa.int64()), pa.nulls(1, pa.int64())
    moments = pa.array([1_000_000], pa.int64())
    markers = pa.array(["c"]), None, RowTexts(texts), one, none, one, moments, pa.array(["false"])
    return Changes(TableShape("public", "orders", tuple(columns), (0,)), *markers).table(
        TOPIC, Origin("1", "shop", "db"), 0
    )


def names_in(kind: pa.DataType, path: str = "") -> Iterator[tuple[str, SchemaName]]:
    """Path and name of each inner schema that has one."""
    inner = list(kind) if pa.types.is_struct(kind) else [kind.value_field] if pa.types.is_list(kind) else []
    for field in inner:
        if name_of(field):
            yield f"{path}{field.name}", name_of(field)
        yield from names_in(field.type, f"{path}{field.name}.")


Make = Callable[..., RegistryConverter]


@pytest.fixture
def make() -> Make:
    def made(of: type[RegistryConverter], is_key: bool = False, **settings: str) -> RegistryConverter:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        return of({"schema.registry.url": f"mock://{uuid.uuid4().hex}", **given}, is_key=is_key)

    return made


def text_of(converter: RegistryConverter, side: str = "value", topic: str = TOPIC) -> str:
    return client_of(converter).get_latest_version(f"{topic}-{side}").schema.schema_str or ""


def client_of(converter: RegistryConverter) -> SchemaRegistryClient:
    return converter._registry._client


def written(converter: RegistryConverter, kind: pa.DataType, rows: list[Any], name: str = "", **more: Any) -> pa.Array:
    """Records of rows with the schema's name."""
    return (
        converter.with_schema(ColumnSchema(SchemaName(name, **more)))
        .for_topic("t")
        .to_bytes_arrow(pa.array(rows, kind))
    )


AVRO_NAME = '"connect.version":1,"connect.name":"io.debezium.'
AVRO_FIELDS = {
    "id": '"int"}',
    "at": f'["null",{{"type":"long",{AVRO_NAME}time.MicroTimestamp"}}],"default":null}}',
    "day": f'["null",{{"type":"int",{AVRO_NAME}time.Date"}}],"default":null}}',
    "clock": f'["null",{{"type":"long",{AVRO_NAME}time.MicroTime"}}],"default":null}}',
    "price": (
        '["null",{"type":"bytes","scale":2,"precision":10,"connect.version":1,"connect.parameters":{"scale":"2",'
        f'"connect.decimal.precision":"10"}},"connect.name":"{DATA}Decimal","logicalType":"decimal"}}],"default":null}}'
    ),
    "any_scale": (
        '["null",{"type":"record","name":"VariableScaleDecimal","namespace":"io.debezium.data","fields":['
        '{"name":"scale","type":"int"},{"name":"value","type":"bytes"}],"connect.doc":"Variable scaled decimal",'
        f'{AVRO_NAME}data.VariableScaleDecimal"}}],"default":null}}'
    ),
    "other_scale": '["null","io.debezium.data.VariableScaleDecimal"],"default":null}',
    "note": f'["null",{{"type":"string",{AVRO_NAME}data.Json"}}],"default":null}}',
    "key": f'["null",{{"type":"string",{AVRO_NAME}data.Uuid"}}],"default":null}}',
    "zoned": f'["null",{{"type":"string",{AVRO_NAME}time.ZonedTimestamp"}}],"default":null}}',
    "times": (
        f'["null",{{"type":"array","items":["null",{{"type":"long",{AVRO_NAME}time.MicroTimestamp"}}]}}],"default":null}}'
    ),
    "level": (
        '["null",{"type":"string","connect.version":1,"connect.parameters":{"allowed":"low,high"},'
        '"connect.name":"io.debezium.data.Enum"}],"default":null}'
    ),
}


def test_debeziums_event_has_the_avro_schema_that_confluents_converter_registers(make: Make) -> None:
    key, value = make(AvroConverter, is_key=True), make(AvroConverter)
    encode(cdc_table(), key, value)
    fields = ",".join(f'{{"name":"{name}","type":{text}' for name, text in AVRO_FIELDS.items())
    row = f'{{"type":"record","name":"Value","fields":[{fields}],"connect.name":"{TOPIC}.Value"}}'
    source = '"type":"record","name":"Source","namespace":"io.debezium.connector.postgresql"'
    marker = (
        '{"name":"snapshot","type":[{"type":"string","connect.version":1,"connect.parameters":{"allowed":"true,first,'
        'first_in_data_collection,last_in_data_collection,last,false,incremental"},"connect.default":"false",'
        '"connect.name":"io.debezium.data.Enum"},"null"],"default":"false"}'
    )
    text = text_of(value)
    assert text.startswith(
        f'{{"type":"record","name":"Envelope","namespace":"{TOPIC}","fields":[{{"name":"before","type":["null",{row}],'
        f'"default":null}},{{"name":"after","type":["null","Value"],"default":null}},{{"name":"source","type":{{{source}'
    )
    assert marker in text
    assert f'],{AVRO_NAME}connector.postgresql.Source"}}}}' in text
    assert '{"type":"record","name":"block","namespace":"event","fields":[' in text
    assert text.endswith(f'"connect.version":2,"connect.name":"{TOPIC}.Envelope"}}')
    assert text_of(key, "key") == (
        f'{{"type":"record","name":"Key","namespace":"{TOPIC}","fields":[{{"name":"id","type":"int"}}],'
        f'"connect.name":"{TOPIC}.Key"}}'
    )


@pytest.mark.parametrize("of", [AvroConverter, JsonSchemaConverter])
@pytest.mark.parametrize("times", ["adaptive", "connect"])
def test_names_of_debezium_come_back_from_the_registry(make: Make, of: type[RegistryConverter], times: str) -> None:
    table, key, value = cdc_table(Modes(times=times)), make(of, is_key=True), make(of)
    found = decode(encode(table, key, value), key, value)
    assert found["error"].to_pylist() == [None]
    kind, given = found["value"].type, table["value"].type
    assert dict(names_in(kind)) == dict(names_in(given))
    assert ("after.at", SchemaName("io.debezium.time.MicroTimestamp", 1)) in names_in(kind) or times == "connect"
    assert ("after.clock", SchemaName(f"{DATA}Time", 1)) in names_in(kind) or times == "adaptive"
    assert kind.field("source").type.field("snapshot").metadata[DEFAULT.encode()] == b'"false"'
    if times == "adaptive":
        assert found["value"].to_pylist() == table["value"].to_pylist()


def test_confluents_deserializers_read_debeziums_event(make: Make) -> None:
    avro, json_schema = make(AvroConverter), make(JsonSchemaConverter)
    table = cdc_table()
    (record,) = encode(table, make(AvroConverter, is_key=True), avro)["value"].to_pylist()
    expected = table["value"].to_pylist()[0]
    assert AvroDeserializer(client_of(avro))(record, VALUE) == expected
    (record,) = encode(table, make(JsonSchemaConverter, is_key=True), json_schema)["value"].to_pylist()
    found = JSONDeserializer(None, schema_registry_client=client_of(json_schema), conf={"validate": True})(
        record, VALUE
    )
    assert found is not None
    assert (found["after"]["at"], found["after"]["level"], found["source"]["snapshot"]) == (
        expected["after"]["at"],
        "low",
        "false",
    )


def test_debeziums_event_has_titles_versions_and_parameters_in_json_schema(make: Make) -> None:
    converter = make(JsonSchemaConverter)
    encode(cdc_table(), make(JsonSchemaConverter, is_key=True), converter)
    schema = json.loads(text_of(converter))
    assert (schema["title"], schema["connect.version"]) == (f"{TOPIC}.Envelope", 2)
    properties = schema["properties"]
    nothing, row = properties["after"]["oneOf"]
    assert (nothing, row["title"], row["type"]) == ({"type": "null"}, f"{TOPIC}.Value", "object")
    assert row["properties"]["at"]["oneOf"][1] == {
        "title": "io.debezium.time.MicroTimestamp", "type": "integer", "connect.type": "int64", "connect.version": 1,
    }  # fmt: skip
    assert row["properties"]["any_scale"]["oneOf"][1]["description"] == "Variable scaled decimal"
    marker = properties["source"]["properties"]["snapshot"]
    assert marker["connect.index"] == 4
    assert marker["oneOf"][1]["default"] == "false"
    assert marker["oneOf"][1]["connect.parameters"].keys() == {"allowed"}


def test_structs_of_debeziums_event_are_messages_of_their_names_in_protobuf(make: Make) -> None:
    key, value = make(ProtobufConverter, is_key=True), make(ProtobufConverter, optional__for__nullables="true")
    table = cdc_table(Modes(times="adaptive_time_microseconds"))
    records = encode(table, key, value)
    lines = [line.strip() for line in text_of(value).split("\n")]
    assert lines[1] == f"package {TOPIC};"
    assert lines[lines.index("message Envelope {") + 1 :][:4] == [
        "optional Value before = 1;",
        "optional Value after = 2;",
        "Source source = 3;",
        "optional block transaction = 4;",
    ]
    assert lines.count("message Value {") == lines.count("message VariableScaleDecimal {") == 1
    found = decode(records, key, value)
    assert found["error"].to_pylist() == [None]
    (after,) = (row["after"] for row in found["value"].to_pylist())
    assert after == table["value"].to_pylist()[0]["after"]
    assert dict(names_in(found["value"].type))["after"] == SchemaName("Value")


def test_protobufs_names_are_read_in_full_on_request_and_a_time_is_a_time_of_day(make: Make) -> None:
    converter = make(ProtobufConverter, enhanced__protobuf__schema__support="true")
    clock = SchemaName(f"{DATA}Time", 1).on(pa.field("clock", pa.int32()))
    inner = SchemaName("com.acme.Inner").on(pa.field("Inner", pa.struct([clock])))
    records = written(converter, pa.struct([inner]), [{"Inner": {"clock": 1000}}], "com.acme.Outer")
    assert "google.type.TimeOfDay clock = 1;" in text_of(converter, topic="t")
    found = converter.from_bytes_arrow(records)
    assert found.value.to_pylist() == [{"Inner": {"clock": 1000}}]
    assert dict(names_in(found.value.type)) == {
        "Inner": SchemaName("com.acme.Outer.InnerMessage"),
        "Inner.clock": SchemaName(f"{DATA}Time", 1),
    }


NAMED = SchemaName("com.acme.Level", 3, "How loud", (("unit", "dB"),))
AVRO_NAMED = '"connect.doc":"How loud","connect.version":3,"connect.parameters":{"unit":"dB"}'


@pytest.mark.parametrize(
    ("kind", "default", "avro", "value"),
    [
        (pa.string(), '"\\u0001é"', '"string"|"\\u0001é"', "\u0001é"),
        (pa.float64(), "5", '"double"|5.0', 5.0),
        (pa.binary(), '"AP8="', '"bytes"|"\\u0000ÿ"', b"\0\xff"),
        (pa.int16(), "-5", '"int"|-5', -5),
        (pa.bool_(), "true", '"boolean"|true', True),
    ],
)
def test_all_of_a_field_is_a_property_of_its_type_in_avro(
    make: Make, kind: pa.DataType, default: str, avro: str, value: Any
) -> None:
    converter = make(AvroConverter)
    field = described(pa.field("f", kind), NAMED, json.loads(default))
    records = written(converter, pa.struct([field]), [{"f": None}])
    spelled, spelled_default = avro.split("|")
    narrow = ',"connect.type":"int16"' if kind == pa.int16() else ""
    assert text_of(converter, topic="t") == (
        '{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro","fields":[{"name":"f","type":[{'
        f'"type":{spelled},{AVRO_NAMED},"connect.default":{spelled_default},"connect.name":"com.acme.Level"{narrow}}},'
        f'"null"],"default":{spelled_default}}}]}}'
    )
    found = converter.from_bytes_arrow(records).value
    assert found.to_pylist() == [{"f": value}]
    assert SchemaName.of(found.type.field("f")) == NAMED
    assert json.loads(found.type.field("f").metadata[DEFAULT.encode()]) == json.loads(default)


@pytest.mark.parametrize(
    ("of", "settings", "default"),
    [
        (AvroConverter, {}, "\x83"),
        (JsonSchemaConverter, {}, "gw=="),
        (JsonSchemaConverter, {"decimal__format": "NUMERIC"}, -1.25),
    ],
)
def test_a_decimal_has_its_default_as_its_format_spells_it_and_its_other_parameters(
    make: Make, of: type[RegistryConverter], settings: dict[str, str], default: Any
) -> None:
    converter = make(of, **settings)
    more = SchemaName(doc="Net", parameters=(("currency", "EUR"),))
    field = described(pa.field("p", pa.decimal128(10, 2)), more, "gw==")
    records = written(converter, pa.struct([field]), [{"p": None}, {"p": Decimal("0.50")}])
    found = converter.from_bytes_arrow(records).value
    assert found.to_pylist() == [{"p": Decimal("-1.25")}, {"p": Decimal("0.50")}]
    text = text_of(converter, topic="t")
    parameters = '{"scale":"2","connect.decimal.precision":"10","currency":"EUR"}'
    assert f'"connect.parameters":{parameters}' in text
    assert json.dumps(default, ensure_ascii=False) in text
    assert SchemaName.of(found.type.field("p")) == more


@pytest.mark.parametrize("of", [AvroConverter, JsonSchemaConverter])
def test_null_is_written_as_the_default_unless_a_setting_keeps_it(make: Make, of: type[RegistryConverter]) -> None:
    inner = pa.struct([pa.field("n", pa.int32(), metadata={DEFAULT: "7"})])
    rows = [{"s": {"n": None}, "t": "x"}, {"s": None, "t": None}]
    kind = pa.struct([("s", inner), pa.field("t", pa.string(), metadata={DEFAULT: '"y"'})])
    filled, kept = make(of), make(of, ignore__default__for__nullables="true")
    assert filled.from_bytes_arrow(written(filled, kind, rows)).value.to_pylist() == [
        {"s": {"n": 7}, "t": "x"},
        {"s": None, "t": "y"},
    ]
    if of is AvroConverter:
        assert kept.from_bytes_arrow(written(kept, kind, rows)).value.to_pylist() == rows
    else:
        assert [record[5:] for record in written(kept, kind, rows).to_pylist()] == [
            b'{"s":{"n":null},"t":"x"}', b'{"s":null,"t":null}',
        ]  # fmt: skip


def test_a_single_value_has_its_name_too(make: Make) -> None:
    avro, json_schema = make(AvroConverter), make(JsonSchemaConverter)
    for converter in (avro, json_schema):
        written(converter, pa.int64(), [5], "io.debezium.time.MicroTimestamp", version=1)
    assert text_of(avro, topic="t") == '{"type":"long",' + AVRO_NAME + 'time.MicroTimestamp"}'
    assert json.loads(text_of(json_schema, topic="t"))["title"] == "io.debezium.time.MicroTimestamp"


@pytest.mark.parametrize("of", [AvroConverter, ProtobufConverter])
def test_two_different_structs_of_one_name_are_refused(make: Make, of: type[RegistryConverter]) -> None:
    fields = [
        SchemaName("com.acme.One").on(pa.field(name, pa.struct([("x", inner)])))
        for name, inner in (("a", pa.int32()), ("b", pa.string()))
    ]
    with pytest.raises(ConversionError, match=r"name .*One"):
        written(make(of), pa.struct(fields), [], "com.acme.Outer")


def test_without_metadata_avro_keeps_names_of_records_and_defaults_of_fields(make: Make) -> None:
    converter = make(AvroConverter, connect__meta__data="false")
    encode(cdc_table(), make(AvroConverter, is_key=True), converter)
    text = text_of(converter)
    assert "connect." not in text.replace("io.debezium.connector.", "")
    assert '{"name":"snapshot","type":["string","null"],"default":"false"}' in text
    assert '"name":"VariableScaleDecimal","namespace":"io.debezium.data"' in text


@pytest.mark.parametrize("metadata", ["true", "false"])
def test_a_map_with_a_name_and_other_keys_is_an_array_of_that_record(make: Make, metadata: str) -> None:
    converter = make(AvroConverter, connect__meta__data=metadata)
    field = SchemaName("com.acme.Prices").on(pa.field("m", pa.map_(pa.int32(), pa.string())))
    records = written(converter, pa.struct([field]), [{"m": [(1, "a")]}])
    text = text_of(converter, topic="t")
    assert '{"type":"record","name":"Prices","namespace":"com.acme","fields":[{"name":"key","type":"int"}' in text
    assert '"connect.internal.type":"MapEntry"}' in text
    assert ('"connect.name":"com.acme.Prices"' in text) == (metadata == "true")
    assert converter.from_bytes_arrow(records).value.to_pylist() == [{"m": [(1, "a")]}]


def test_a_schema_that_changes_only_in_its_names_is_registered_again(make: Make) -> None:
    converter = make(AvroConverter)
    for name in ("com.acme.A", "com.acme.B"):
        written(converter, pa.struct([SchemaName(name).on(pa.field("x", pa.int32()))]), [])
        assert f'"connect.name":"{name}"' in text_of(converter, topic="t")


def test_a_schema_of_another_avro_producer_gives_the_names_that_avro_data_gives() -> None:
    schema = {
        "type": "record", "name": "Order", "namespace": "com.acme",
        "fields": [
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW"]}},
            {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": [
                {"name": "n", "type": {"type": "int", "connect.default": 4}}]}]},
            {"name": "again", "type": "Inner", "connect.parameters": {"a": "b"}},
            {"name": "unnamed", "type": {"type": "record", "name": "ConnectDefault", "fields": [],
                                         "namespace": "io.confluent.connect.avro"}},
            {"name": "list", "type": {"type": "array", "items": {"type": "long", "connect.name": "a.Time"}}},
            {"name": "number", "type": "int", "default": 5},
        ],
    }  # fmt: skip
    kind = value_type(parse(json.dumps(schema)))
    assert dict(names_in(kind)) == {
        "clock": SchemaName(f"{DATA}Time", 1),
        "state": SchemaName("com.acme.State"),
        "inner": SchemaName("com.acme.Inner"),
        "again": SchemaName("com.acme.Inner", parameters=(("a", "b"),)),
        "list.item": SchemaName("a.Time"),
    }
    assert kind.field("number").metadata == {DEFAULT.encode(): b"5"}
    assert kind.field("inner").type.field("n").metadata == {DEFAULT.encode(): b"4"}


def test_json_with_schemas_keeps_the_names_as_well() -> None:
    table, converter = cdc_table(), JsonConverter()
    found = decode(encode(table, JsonConverter(is_key=True), converter), JsonConverter(is_key=True), converter)
    assert dict(names_in(found["value"].type)) == dict(names_in(table["value"].type))


def test_json_has_the_default_in_place_of_null_unless_a_setting_keeps_it() -> None:
    values = pa.array([{"n": None}], pa.struct([pa.field("n", pa.int32(), metadata={DEFAULT: "7"})]))
    for setting, text in (("true", b'{"n":7}'), ("false", b'{"n":null}')):
        converter = JsonConverter({"schemas.enable": "false", "replace.null.with.default": setting})
        assert converter.to_bytes_arrow(values).to_pylist() == [text]


@pytest.mark.parametrize("of", [AvroConverter, JsonSchemaConverter, ProtobufConverter])
def test_executors_get_a_converter_without_its_client_and_what_it_has_found_out(
    make: Make, of: type[RegistryConverter]
) -> None:
    converter = make(of, basic__auth__credentials__source="USER_INFO", basic__auth__user__info="ada:secret")
    kind, rows = pa.struct([NAMED.on(pa.field("f", pa.string()))]), [{"f": "x"}, None]
    (first, tombstone) = written(converter, kind, rows)
    sent: RegistryConverter = pickle.loads(pickle.dumps(converter.for_topic("t")))
    assert sent.to_bytes_arrow(pa.array(rows, kind))[0].as_py()[5:] == first.as_py()[5:]
    assert tombstone.as_py() is None
    assert sent.settings["basic.auth.user.info"].value == "ada:secret"
    assert client_of(sent) is not client_of(converter)
