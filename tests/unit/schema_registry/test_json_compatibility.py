"""Which change of a JSON Schema each level allows. The names of problems are Confluent's."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from connectx.data.json_schema.nodes import parse
from connectx.schema_registry.catalog import Catalog
from connectx.schema_registry.json_compatibility import problems
from connectx.schema_registry.levels import Level
from connectx.schema_registry.refusals import RefusedError

INT, TEXT, EMPTY = {"type": "integer"}, {"type": "string"}, dict[str, Any]()


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False, **more}


def open_object(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], **more}


def found(level: Level, new: Any, old: Any) -> list[str]:
    return [
        one.partition("'")[2].partition("'")[0]
        for one in problems(level, parse(json.dumps(new)), parse(json.dumps(old)))
    ]


# Each case: the original, the update, and why documents of the original are not all valid under the update.
CASES: list[tuple[Any, Any, list[str]]] = [
    (INT, INT, []),
    (INT, {"type": "number"}, []),
    ({"type": "number"}, INT, ["TYPE_NARROWED"]),
    (INT, TEXT, ["TYPE_CHANGED"]),
    (INT, True, []),
    (INT, {"type": ["integer", "null"]}, []),
    ({"type": ["integer", "null"]}, INT, ["TYPE_CHANGED"]),
    ({"oneOf": [INT, TEXT]}, {"oneOf": [TEXT, INT, {"type": "null"}]}, []),
    ({"oneOf": [INT, TEXT]}, {"oneOf": [INT]}, ["SUM_TYPE_NARROWED"]),
    ({"oneOf": [INT, TEXT]}, {"oneOf": [INT, {"type": "null"}]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]),
    ({"anyOf": [INT, TEXT]}, {"oneOf": [INT, TEXT]}, ["COMBINED_TYPE_CHANGED"]),
    ({"allOf": [INT, {"maximum": 5}]}, {"allOf": [INT]}, []),
    ({"not": INT}, {"not": {"type": "number"}}, ["NOT_TYPE_EXTENDED"]),
    ({"not": {"type": "number"}}, {"not": INT}, []),
    ({**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 6}, []),
    ({**TEXT, "maxLength": 6}, {**TEXT, "maxLength": 5}, ["MAX_LENGTH_DECREASED"]),
    (TEXT, {**TEXT, "minLength": 1}, ["MIN_LENGTH_ADDED"]),
    ({**INT, "minimum": 1}, {**INT, "minimum": 2}, ["MINIMUM_INCREASED"]),
    ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, ["PATTERN_CHANGED"]),
    ({**INT, "multipleOf": 4}, {**INT, "multipleOf": 2}, []),
    ({**INT, "multipleOf": 2}, {**INT, "multipleOf": 4}, ["MULTIPLE_OF_EXPANDED"]),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, []),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED"]),
    (closed({"a": INT}), closed({"a": INT, "b": TEXT}), []),
    (closed({"a": INT}), closed({"a": INT, "b": TEXT}, "b"), ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"]),
    (closed({"a": INT, "b": TEXT}), closed({"a": INT}), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
    (open_object({"a": INT}), open_object({"a": INT, "b": TEXT}), ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (open_object({"a": INT}), open_object({"a": INT, "b": EMPTY}), []),
    (open_object({"a": INT, "b": TEXT}), open_object({"a": INT}), []),
    (closed({"a": INT}), open_object({"a": INT}), []),
    (open_object({"a": INT}), closed({"a": INT}), ["ADDITIONAL_PROPERTIES_REMOVED"]),
    (open_object({}, additionalProperties=INT), open_object({"a": INT}, additionalProperties=INT), []),
    (
        open_object({}, additionalProperties=INT),
        open_object({"a": TEXT}, additionalProperties=INT),
        ["TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
    ),
    (open_object({"a": INT}), open_object({"a": INT}, "a"), ["REQUIRED_ATTRIBUTE_ADDED"]),
    (open_object({"a": INT}), open_object({"a": {**INT, "default": 1}}, "a"), []),
    (open_object({"a": open_object({"b": INT})}), open_object({"a": open_object({"b": TEXT})}), ["TYPE_CHANGED"]),
    (open_object({}), open_object({}, dependencies={"a": ["b"]}), ["DEPENDENCY_ARRAY_ADDED"]),
    ({"type": "array", "items": INT}, {"type": "array", "items": TEXT}, ["TYPE_CHANGED"]),
    ({"type": "array", "items": INT}, {"type": "array", "items": INT, "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED"]),
    ({"type": "array", "prefixItems": [INT]}, {"type": "array", "prefixItems": [INT, TEXT]},
     ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"]),
]  # fmt: skip


@pytest.mark.parametrize(("original", "update", "expected"), CASES)
def test_a_change_is_named_as_confluents_registry_names_it(original: Any, update: Any, expected: list[str]) -> None:
    assert found(Level.BACKWARD, update, original) == expected
    assert found(Level.FORWARD, original, update) == expected


def test_full_compatibility_asks_for_both_directions() -> None:
    assert found(Level.FULL, {"type": "number"}, INT) == ["TYPE_NARROWED"]


def test_recursive_schemas_are_compared() -> None:
    def tree(kind: Any) -> Any:
        node = open_object({"value": kind, "next": {"$ref": "#/definitions/Node"}})
        return {"$ref": "#/definitions/Node", "definitions": {"Node": node}}

    assert found(Level.FULL, tree(INT), tree(INT)) == []
    assert found(Level.BACKWARD, tree(TEXT), tree(INT)) == ["TYPE_CHANGED"]


def test_references_to_other_subjects_are_compared() -> None:
    schema = json.dumps(open_object({"a": {"$ref": "a.json"}}))
    new, old = parse(schema, [("a.json", json.dumps(TEXT))]), parse(schema, [("a.json", json.dumps(INT))])
    assert problems(Level.BACKWARD, new, old) == [
        "{errorType:'TYPE_CHANGED', description:'at path #/properties/a of the new schema'}"
    ]


@pytest.mark.parametrize("text", ["[]", "7", '{"type":"text"}', '{"$ref":"#/definitions/X"}'])
def test_what_is_no_json_schema_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        Catalog().register("s", {"schema": text, "schemaType": "JSON"})
    assert refused.value.code == 42201


def update_has_default(update: Any) -> bool:
    """A required property that has a default is taken as present, which a validator does not do."""
    return '"default"' in json.dumps(update)


DOCUMENTS: list[Any] = [
    *(1, 2, 2.5, 4, "", "a", "abcdef", None, True, [1], ["a"], [1, 1], {}, {"a": 1}, {"a": "x"}, {"b": "x"}),
    *({"a": 1, "b": "x"}, {"a": {"b": 1}}, {"a": {"b": "x"}}),
]


@pytest.mark.parametrize(("original", "update", "expected"), CASES)
def test_a_change_without_a_problem_keeps_every_document_valid(original: Any, update: Any, expected: list[str]) -> None:
    before, after = jsonschema_rs.validator_for(original), jsonschema_rs.validator_for(update)
    broken = [one for one in DOCUMENTS if before.is_valid(one) and not after.is_valid(one)]
    if not expected and not update_has_default(update):
        assert broken == []
