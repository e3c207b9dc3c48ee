"""SetSchemaMetadata: which name and version converters write into their schemas."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.avro.converter import AvroConverter
from connectx.data.connect_schema import SchemaName, default_of, described
from connectx.data.converter import Converter
from connectx.data.headers import HeaderConverter
from connectx.data.json.converter import JsonConverter
from connectx.data.json_schema.converter import JsonSchemaConverter
from connectx.data.protobuf.converter import ProtobufConverter
from connectx.data.registry.converter import RegistryConverter
from connectx.data.simple import StringConverter
from connectx.data.transforms.chain import Chain, Step, in_order
from connectx.data.transforms.columns import HEADERS
from connectx.data.transforms.encoding import transform_and_encode
from tests.support.shipped import PACKAGE, TRANSFORMS

ROWS = pa.table({"key": ["k", "l"], "value": pa.array([{"a": 1}, {"a": 2}])})
NAME = {"schema.name": "com.acme.Order"}
SET = ("SetSchemaMetadata$Value", {**NAME, "schema.version": "3"})


def records(converter: Converter, *steps: tuple[str, dict[str, str]]) -> list[Any]:
    chain = Chain(tuple(Step(name, TRANSFORMS[PACKAGE + name](settings)) for name, settings in steps))
    made = transform_and_encode(ROWS, "orders", chain, StringConverter(), converter, HeaderConverter(None))
    assert not made.failures
    values: list[Any] = made.records["value"].to_pylist()
    return values


def schema(*steps: tuple[str, dict[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(records(JsonConverter(), *steps)[0])["schema"]
    return found


def test_the_json_converter_writes_name_and_version_as_in_java() -> None:
    text = records(JsonConverter(), SET)[0].decode()
    assert text == (
        '{"schema":{"type":"struct","fields":[{"type":"int64","optional":true,"field":"a"}],"optional":false,'
        '"name":"com.acme.Order","version":3},"payload":{"a":1}}'
    )


def test_what_is_not_set_keeps_its_value() -> None:
    steps = [("SetSchemaMetadata$Value", NAME), ("SetSchemaMetadata$Value", {"schema.version": "4"})]
    assert (schema(*steps)["name"], schema(*steps)["version"]) == ("com.acme.Order", 4)
    assert "version" not in schema(steps[0])
    assert "name" not in schema(steps[1])


def test_changed_fields_leave_the_schema_its_name_and_another_schema_has_none() -> None:
    insert = ("InsertField$Value", {"static.field": "s", "static.value": "x"})
    assert schema(SET, insert)["name"] == "com.acme.Order"
    assert "name" not in schema(SET, ("HoistField$Value", {"field": "h"}))
    assert schema(("SetSchemaMetadata$Key", NAME)) == schema()


@pytest.mark.parametrize("kind", [AvroConverter, JsonSchemaConverter, ProtobufConverter])
def test_a_registry_gets_the_name_as_that_of_the_record(kind: type[RegistryConverter]) -> None:
    url = f"mock://{uuid.uuid4().hex}"
    settings = {"schema.registry.url": url, "value.subject.name.strategy": "RecordNameStrategy"}
    converter = kind({**settings, "record.name": "com.acme.Other"})
    assert converter.from_bytes_arrow(pa.array(records(converter, SET))).value.to_pylist() == [{"a": 1}, {"a": 2}]
    assert converter._registry._client.get_subjects() == ["com.acme.Order"]


@pytest.mark.parametrize("kind", [AvroConverter, JsonSchemaConverter])
def test_a_registry_gets_the_version_as_connect_version(kind: type[RegistryConverter]) -> None:
    converter = kind({"schema.registry.url": f"mock://{uuid.uuid4().hex}"})
    records(converter, SET)
    text = converter._registry._client.get_latest_version("orders-value").schema.schema_str or ""
    assert json.loads(text)["connect.version"] == 3


LEVEL = SchemaName("com.acme.Level", 2, "How loud", (("unit", "dB"),))
INNER = SchemaName("com.acme.Inner", 1)


def chained(*steps: tuple[str, dict[str, str]]) -> pa.Table:
    """A row with named schemas after some steps."""
    level = described(pa.field("level", pa.int64()), LEVEL, 5)
    inner = INNER.on(pa.field("inner", pa.struct([level])))
    table = pa.table({"value": pa.array([{"level": 7, "inner": {"level": 8}}], pa.struct([level, inner]))})
    chain = Chain(tuple(Step(name, TRANSFORMS[PACKAGE + name](settings)) for name, settings in steps))
    outcome = chain.apply(table.append_column("headers", pa.array([None], HEADERS)))
    assert not outcome.failures
    return in_order(outcome.parts)


def value_field(table: pa.Table, *path: str) -> pa.Field:
    found = table.schema.field("value")
    for name in path:
        found = found.type.field(name)
    return found


@pytest.mark.parametrize(
    ("step", "settings", "path", "name"),
    [
        ("ReplaceField$Value", {"renames": "level:loud"}, ("loud",), LEVEL),
        ("Flatten$Value", {}, ("inner.level",), LEVEL),
        ("ExtractField$Value", {"field": "level"}, (), LEVEL),
        ("ExtractField$Value", {"field": "inner"}, (), INNER),
        ("ExtractField$Value", {"field": "inner"}, ("level",), LEVEL),
        ("Cast$Value", {"spec": "level:string"}, ("level",), SchemaName()),
        ("Cast$Value", {"spec": "level:string"}, ("inner", "level"), LEVEL),
        ("TimestampConverter$Value", {"field": "level", "target.type": "Timestamp"}, ("level",), SchemaName()),
    ],
)
def test_a_field_keeps_the_name_of_its_schema_unless_its_type_changes_as_in_java(
    step: str, settings: dict[str, str], path: tuple[str, ...], name: SchemaName
) -> None:
    assert SchemaName.of(value_field(chained((step, settings)), *path)) == name


def test_the_whole_keeps_its_name_inside_a_struct_and_without_the_fields_that_are_headers() -> None:
    whole = ("SetSchemaMetadata$Value", NAME)
    hoisted = chained(whole, ("HoistField$Value", {"field": "h"}))
    assert SchemaName.of(value_field(hoisted, "h")) == SchemaName("com.acme.Order")
    moved = chained(whole, ("HeaderFrom$Value", {"fields": "level", "headers": "h", "operation": "move"}))
    assert SchemaName.of(value_field(moved)) == SchemaName("com.acme.Order")


def test_a_default_is_cast_with_its_field() -> None:
    assert default_of(value_field(chained(("Cast$Value", {"spec": "level:string"})), "level")) == "5"
