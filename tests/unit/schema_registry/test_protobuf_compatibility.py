"""Which change of a Protobuf schema each level allows. The names of problems are Confluent's."""

from __future__ import annotations

import pytest

from connectx.data.protobuf.pools import descriptor_of as parse
from connectx.schema_registry.catalog import Catalog
from connectx.schema_registry.levels import Level
from connectx.schema_registry.protobuf_compatibility import problems
from connectx.schema_registry.refusals import RefusedError


def message(fields: str, more: str = "") -> str:
    return f'syntax = "proto3"; package p; message M {{ {fields} }} {more}'


def old_message(fields: str) -> str:
    return f'syntax = "proto2"; message M {{ {fields} }}'


def found(level: Level, new: str, old: str) -> list[str]:
    return [one.partition("'")[2].partition("'")[0] for one in problems(level, parse(new), parse(old))]


PAIR = "int32 a = 1; int32 b = 2;"
ONEOF = "oneof o { int32 a = 1; int32 b = 2; }"

# Each case: the original, the update, and why records of the original are not read with the update.
CASES: list[tuple[str, str, list[str]]] = [
    (message(PAIR), message(PAIR), []),
    (message("int32 a = 1;"), message(PAIR), []),
    (message(PAIR), message("int32 a = 1;"), []),
    (message("int32 a = 1;"), message("int32 renamed = 1;"), []),
    (message("int32 a = 1;"), message("uint64 a = 1;"), []),
    (message("bool a = 1;"), message("E a = 1;", "enum E { X = 0; }"), []),
    (message("string a = 1;"), message("bytes a = 1;"), []),
    (message("string a = 1;"), message("repeated string a = 1;"), []),
    (message("int32 a = 1;"), message("sint32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("int32 a = 1;"), message("string a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("float a = 1;"), message("double a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("optional int32 a = 1;"), message("repeated int32 a = 1;"), ["FIELD_NUMERIC_LABEL_CHANGED"]),
    (message("int32 a = 1;"), message("N a = 1;", "message N { }"), ["FIELD_KIND_CHANGED"]),
    (message("N a = 1;", "message N { } message O { }"), message("O a = 1;", "message N { } message O { }"),
     ["FIELD_NAMED_TYPE_CHANGED"]),
    (message("map<string, int32> a = 1;"), message("map<string, string> a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("message N { int32 x = 1; }"), message("message N { bytes x = 1; }"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("", "message N { }"), message(""), ["MESSAGE_REMOVED"]),
    (message(""), 'syntax = "proto3"; package q; message M { }', ["PACKAGE_CHANGED"]),
    (message("enum E { X = 0; }"), message("enum E { Y = 0; Z = 1; }"), []),
    (message(ONEOF), message("oneof o { int32 a = 1; }"), ["ONEOF_FIELD_REMOVED"]),
    (message(ONEOF), message(""), []),
    (message(ONEOF), message(PAIR), []),
    (message(PAIR), message(ONEOF), ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"]),
    (message("oneof o { int32 a = 1; } int32 b = 2;"), message(ONEOF), ["FIELD_MOVED_TO_EXISTING_ONEOF"]),
    (message("int32 a = 1;"), message("oneof o { int32 a = 1; int32 b = 2; }"), []),
    (old_message("optional int32 a = 1;"), old_message("optional int32 a = 1; required int32 b = 2;"),
     ["REQUIRED_FIELD_ADDED"]),
    (old_message("required int32 a = 1;"), old_message(""), ["REQUIRED_FIELD_REMOVED"]),
]  # fmt: skip


@pytest.mark.parametrize(("original", "update", "expected"), CASES)
def test_a_change_is_named_as_confluents_registry_names_it(original: str, update: str, expected: list[str]) -> None:
    assert found(Level.BACKWARD, update, original) == expected
    assert found(Level.FORWARD, original, update) == expected


def test_messages_of_other_subjects_are_compared_and_circles_end() -> None:
    text = 'syntax = "proto3"; import "n.proto"; message M { n.N a = 1; M next = 2; }'
    old = 'syntax = "proto3"; package n; message N { int32 x = 1; }'
    new = 'syntax = "proto3"; package n; message N { bytes x = 1; }'
    before, after = parse(text, [("n.proto", old)]), parse(text, [("n.proto", new)])
    assert problems(Level.FULL, before, before) == []
    assert problems(Level.BACKWARD, after, before) == [
        "{errorType:'FIELD_NAMED_TYPE_CHANGED', description:'at path #/M/1 of the new schema'}"
    ]


@pytest.mark.parametrize("text", ["message {", 'syntax = "proto3"; message M { X x = 1; }', 'import "x.proto";'])
def test_what_is_no_protobuf_schema_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        Catalog().register("s", {"schema": text, "schemaType": "PROTOBUF"})
    assert refused.value.code == 42201
