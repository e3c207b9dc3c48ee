"""SetSchemaMetadata: which name and version converters write into their schemas."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.avro.converter import AvroConverter
from connectx.data.converter import Converter
from connectx.data.headers import HeaderConverter
from connectx.data.json.converter import JsonConverter
from connectx.data.json_schema.converter import JsonSchemaConverter
from connectx.data.protobuf.converter import ProtobufConverter
from connectx.data.registry.converter import RegistryConverter
from connectx.data.simple import StringConverter
from connectx.data.transforms.chain import Chain, Step
from connectx.data.transforms.encoding import transform_and_encode
from connectx.data.transforms.provided import PACKAGE, TRANSFORMS

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
