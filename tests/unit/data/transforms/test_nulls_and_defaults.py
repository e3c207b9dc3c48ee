"""Nulls that have a schema are values, defaults replace nulls, and the schema of the whole keeps what Java keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.connect_schema import SchemaName, described
from connectx.data.converter import Converter
from connectx.data.headers import HeaderConverter
from connectx.data.json.converter import JsonConverter
from connectx.data.simple import IntegerConverter, StringConverter
from connectx.data.transforms.chain import Chain, Step
from connectx.data.transforms.encoding import Encoded, transform_and_encode
from tests.support.shipped import PACKAGE, TRANSFORMS

NAME = SchemaName("shop.Envelope", 2, "A change", (("origin", "db"),))
LEVEL = described(pa.field("level", pa.int32()), SchemaName(), 44)
NEEDED = pa.field("needed", pa.string(), nullable=False)
ROW = pa.struct([LEVEL, NEEDED, pa.field("note", pa.string())])
WITHOUT = JsonConverter({"schemas.enable": "false", "replace.null.with.default": "false"})
EXTRACT_NOTE = ("ExtractField$Value", {"field": "note"})


def encoded(
    rows: list[Any], converter: Converter, *steps: tuple[str, Mapping[str, str]], tolerant: bool = False
) -> Encoded:
    value = NAME.on(pa.field("value", ROW))
    table = pa.table({"value": pa.array(rows, ROW)}, pa.schema([value]))
    chain = Chain(tuple(Step(name, TRANSFORMS[PACKAGE + name](dict(settings))) for name, settings in steps))
    headers = HeaderConverter(None)
    return transform_and_encode(table, "t", chain, converter, converter, headers, skip_unwritable=tolerant)


def values(rows: list[Any], converter: Converter, *steps: tuple[str, Mapping[str, str]]) -> list[Any]:
    made = encoded(rows, converter, *steps)
    assert not made.failures
    return [None if text is None else text.decode() for text in made.records["value"].to_pylist()]


def row(level: int | None = 1, note: str | None = "n") -> dict[str, Any]:
    return {"level": level, "needed": "x", "note": note}


def test_a_null_field_that_is_extracted_is_a_value_and_a_tombstone_stays_one() -> None:
    rows = [row(note=None), None, row(note="a"), row(note=None)]
    assert values(rows, WITHOUT, EXTRACT_NOTE) == ["null", None, '"a"', "null"]
    with_schema = values(rows, JsonConverter(), EXTRACT_NOTE)
    assert with_schema[1] is None
    assert json.loads(with_schema[0]) == {"schema": {"type": "string", "optional": True}, "payload": None}
    assert json.loads(with_schema[2]) == {"schema": {"type": "string", "optional": True}, "payload": "a"}


def test_transformations_see_the_time_that_a_record_without_one_gets() -> None:
    rows = pa.table({"value": pa.array([{"a": 1}, {"a": 2}]), "timestamp": pa.array([5, None], pa.int64())})
    steps = [
        ("TimestampRouter", {"topic.format": "${topic}-${timestamp}", "timestamp.format": "SSS"}),
        ("InsertField$Value", {"timestamp.field": "at"}),
    ]
    chain = Chain(tuple(Step(name, TRANSFORMS[PACKAGE + name](settings)) for name, settings in steps))
    made = transform_and_encode(rows, "t", chain, WITHOUT, WITHOUT, HeaderConverter(None), now_ms=7)
    assert made.records["value"].to_pylist() == [b'{"a":1,"at":5}', b'{"a":2,"at":7}']
    assert made.records["timestamp"].to_pylist() == [5, 7]
    assert made.records["topic"].to_pylist() == ["t-005", "t-007"]
    assert chain.reads_time
    assert not Chain((Step("i", TRANSFORMS[PACKAGE + "InsertField$Value"]({"topic.field": "t"})),)).reads_time


def test_text_has_no_null_and_numbers_refuse_a_null_whose_schema_is_of_text() -> None:
    assert values([row(note=None)], StringConverter(), EXTRACT_NOTE) == [None]
    made = encoded([None, row(note=None)], IntegerConverter(), EXTRACT_NOTE, tolerant=True)
    assert made.records["value"].to_pylist() == [None]
    assert list(made.unwritable) == [1]


def test_a_null_that_was_extracted_passes_other_transformations_as_a_value() -> None:
    more = [("InsertField$Value", {"topic.field": "t"}), ("Cast$Value", {"spec": "a:string"})]
    assert values([row(note=None), None], WITHOUT, EXTRACT_NOTE, *more) == ["null", None]
    hoisted = ("HoistField$Value", {"field": "h"})
    assert values([row(note=None), None], WITHOUT, EXTRACT_NOTE, hoisted) == ['{"h":null}', '{"h":null}']
    found = [json.loads(text) for text in values([row(note=None), None], JsonConverter(), EXTRACT_NOTE, hoisted)]
    assert [each["schema"] and each["schema"]["type"] for each in found] == ["struct", None]


def test_a_null_of_a_required_schema_is_an_error_and_no_tombstone() -> None:
    outer = pa.struct([pa.field("inner", pa.struct([NEEDED]))])
    table = pa.table({"value": pa.array([{"inner": None}, {"inner": {"needed": "x"}}], outer)})
    step = Step(
        "t", TRANSFORMS[f"{PACKAGE}ExtractField$Value"]({"field": "inner.needed", "field.syntax.version": "V2"})
    )
    made = transform_and_encode(
        table, "t", Chain((step,)), WITHOUT, WITHOUT, HeaderConverter(None), skip_unwritable=True
    )
    assert made.records["value"].to_pylist() == [b'"x"']
    assert list(made.unwritable) == [0]


@pytest.mark.parametrize(
    ("step", "settings", "replaced", "kept"),
    [
        ("MaskField$Value", {"fields": "level"}, 0, None),
        ("Cast$Value", {"spec": "level:string"}, "44", None),
        ("InsertField$Value", {"static.field": "s", "static.value": "x"}, 44, None),
        ("ReplaceField$Value", {"exclude": "note"}, 44, None),
        ("SetSchemaMetadata$Value", {"schema.name": "n"}, 44, None),
        ("TimestampConverter$Value", {"field": "nope", "target.type": "unix"}, 44, None),
        ("Flatten$Value", {}, 44, 44),
        ("HeaderFrom$Value", {"fields": "note", "headers": "h", "operation": "move"}, 44, None),
    ],
)
def test_a_transformation_writes_defaults_unless_it_is_not_to(
    step: str, settings: dict[str, str], replaced: Any, kept: Any
) -> None:
    for setting, wanted in (({}, replaced), ({"replace.null.with.default": "false"}, kept)):
        given = settings | ({} if step.startswith("Flatten") else setting)
        (text,) = values([row(level=None)], WITHOUT, (step, given))
        assert json.loads(text)["level"] == wanted, setting


def test_extracted_fields_headers_and_keys_have_the_default() -> None:
    extract = ("ExtractField$Value", {"field": "level"})
    assert values([row(level=None)], WITHOUT, extract) == ["44"]
    kept = ("ExtractField$Value", {"field": "level", "replace.null.with.default": "false"})
    assert values([row(level=None)], WITHOUT, kept) == ["null"]
    assert json.loads(values([row(level=None)], JsonConverter(), kept)[0]) == {
        "schema": {"type": "int32", "optional": True, "default": 44},
        "payload": 44,
    }
    copied = ("HeaderFrom$Value", {"fields": "level", "headers": "h", "operation": "copy"})
    made = encoded([row(level=None)], WITHOUT, copied, ("ValueToKey", {"fields": "level"}))
    assert made.records["headers"].to_pylist() == [[{"key": "h", "value": b"44"}]]
    assert made.records["key"].to_pylist() == [b'{"level":44}']


@pytest.mark.parametrize(
    ("step", "settings"),
    [
        ("InsertField$Value", {"topic.field": "t"}),
        ("ReplaceField$Value", {"exclude": "note"}),
        ("MaskField$Value", {"fields": "note"}),
        ("Cast$Value", {"spec": "level:string"}),
        ("Flatten$Value", {}),
        ("TimestampConverter$Value", {"field": "nope", "target.type": "unix"}),
        ("RegexRouter", {"regex": "t", "replacement": "u"}),
        ("InsertHeader", {"header": "h", "value.literal": "1"}),
    ],
)
def test_a_chain_keeps_name_version_doc_and_parameters_of_the_whole(step: str, settings: dict[str, str]) -> None:
    (text,) = values([row()], JsonConverter(), (step, settings))
    schema = json.loads(text)["schema"]
    assert {name: schema.get(name) for name in ("name", "version", "doc", "parameters", "optional")} == {
        "name": "shop.Envelope",
        "version": 2,
        "doc": "A change",
        "parameters": {"origin": "db"},
        "optional": False,
    }


def test_a_whole_that_is_cast_keeps_its_name_and_whether_it_is_optional() -> None:
    (text,) = values([row()], JsonConverter(), EXTRACT_NOTE, ("Cast$Value", {"spec": "boolean"}))
    assert json.loads(text)["schema"] == {"type": "boolean", "optional": True}
