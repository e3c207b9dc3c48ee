"""Avro's schema resolution: which change of a schema each level allows, and Confluent's words for what it does not."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from connectx.schema_registry.avro_compatibility import parse, problems
from connectx.schema_registry.levels import Level
from connectx.schema_registry.refusals import RefusedError

INT = {"name": "a", "type": "int"}
PLAIN = {"name": "b", "type": "string"}
DEFAULTED = {**PLAIN, "default": ""}


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def found(level: Level, new: Any, old: Any) -> list[str]:
    return problems(level, parse(json.dumps(new)), parse(json.dumps(old)))


# Each case: what the new schema reads of the old one (backward), and the old of the new (forward).
CASES: list[tuple[Any, Any, str, str]] = [
    (record(INT), record(INT), "", ""),
    (record(INT, PLAIN), record(INT), "READER_FIELD_MISSING_DEFAULT_VALUE", ""),
    (record(INT, DEFAULTED), record(INT), "", ""),
    (record(INT), record(INT, PLAIN), "", "READER_FIELD_MISSING_DEFAULT_VALUE"),
    (record({"name": "z", "aliases": ["a"], "type": "int"}), record(INT), "", "READER_FIELD_MISSING_DEFAULT_VALUE"),
    (record(INT, name="S"), record(INT), "NAME_MISMATCH", "NAME_MISMATCH"),
    (record(INT, name="n.R"), record(INT), "", ""),
    ("long", "int", "", "TYPE_MISMATCH"),
    ("double", "float", "", "TYPE_MISMATCH"),
    ("string", "bytes", "", ""),
    ("string", "int", "TYPE_MISMATCH", "TYPE_MISMATCH"),
    (["null", "int"], "int", "", "MISSING_UNION_BRANCH"),
    (["null", "string"], ["null", "int"], "MISSING_UNION_BRANCH", "MISSING_UNION_BRANCH"),
    (["null", "long"], ["int", "null"], "", "MISSING_UNION_BRANCH"),
    (["null", record(INT, PLAIN)], ["null", record(INT)], "READER_FIELD_MISSING_DEFAULT_VALUE", ""),
    (enum("A", "B"), enum("A"), "", "MISSING_ENUM_SYMBOLS"),
    (enum("A", default="A"), enum("A", "B"), "", ""),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, "", "TYPE_MISMATCH"),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "TYPE_MISMATCH", "TYPE_MISMATCH"),
    (
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "fixed", "name": "F", "size": 3},
        "FIXED_SIZE_MISMATCH",
        "FIXED_SIZE_MISMATCH",
    ),
]


@pytest.mark.parametrize(("new", "old", "backward", "forward"), CASES)
def test_each_direction_names_what_a_reader_misses(new: Any, old: Any, backward: str, forward: str) -> None:
    for level, kind in ((Level.BACKWARD, backward), (Level.FORWARD, forward)):
        errors = found(level, new, old)
        assert [error for error in errors if not kind or f"errorType:'{kind}'" in error] == errors
        assert bool(errors) == bool(kind)
    assert bool(found(Level.FULL, new, old)) == bool(backward or forward)


@pytest.mark.parametrize(("new", "old", "backward", "forward"), CASES)
def test_the_library_reads_with_the_new_schema_what_the_old_has_written_where_that_is_backward_compatible(
    new: Any, old: Any, backward: str, forward: str
) -> None:
    values: dict[str, Any] = {"int": 1, "long": 2, "float": 1.5, "double": 2.5, "string": "a", "bytes": b"a"}

    def sample(schema: Any) -> Any:
        if isinstance(schema, str):
            return values[schema]
        if isinstance(schema, list):
            return sample(schema[-1]) if schema[-1] != "null" else sample(schema[0])
        match schema["type"]:
            case "record":
                return {field["name"]: sample(field["type"]) for field in schema["fields"]}
            case "enum":
                return schema["symbols"][-1]
            case "array":
                return [sample(schema["items"])]
            case "map":
                return {"k": sample(schema["values"])}
        return b"x" * int(schema["size"])

    if backward or new == record(INT, name="n.R"):  # fastavro compares names in full
        return
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(old), sample(old))
    body.seek(0)
    fastavro.schemaless_reader(body, fastavro.parse_schema(old), fastavro.parse_schema(new))  # raises where it cannot
    assert body.read() == b"", "the whole record was read"


def test_a_recursive_schema_is_compared() -> None:
    tree = record({"name": "left", "type": ["null", "R"]})
    other = record({"name": "left", "type": ["null", "R"]}, {"name": "n", "type": "int"})
    assert found(Level.FULL, tree, tree) == []
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in found(Level.BACKWARD, other, tree)[0]


def test_nothing_is_compared_without_a_level() -> None:
    assert found(Level.NONE, "string", "int") == []


@pytest.mark.parametrize("text", ["{", '{"type":"record","name":"R"}', '"unknown"', "3", '{"type":"enum","name":"E"}'])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse(text)
    assert (caught.value.status, caught.value.code) == (422, 42201)
