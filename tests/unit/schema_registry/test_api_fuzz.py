"""Whatever a client sends to the registry, the answer is never a failure of the registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.registry_requests import Answer, Sent, answers_of, failures
from tests.support.registry_words import PROTOBUF


@pytest.mark.parametrize("seed", [1, 2])
def test_no_request_is_a_failure_of_the_registry(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    found = failures(seed, 600)
    assert not [place for place in found if place != "slow"], found
    assert capfd.readouterr().err == ""  # as the parser of Protobuf printed schemas of others


def version_of(subject: str, schema: Any, kind: str = "AVRO", refers: tuple[str, ...] = (), **more: int) -> Sent:
    """The request that registers a schema; `refers` are subjects whose first version it refers to by their names."""
    references = [{"name": one, "subject": one, "version": 1} for one in refers]
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = {"schema": text, "schemaType": kind, "references": references, **more}
    return Sent("POST", f"/subjects/{subject}/versions", json.dumps(body).encode())


def mode(name: str) -> Sent:
    return Sent("PUT", "/mode?force=true", json.dumps({"mode": name}).encode())


def statuses(answers: list[Answer]) -> list[int]:
    return [one.status for one in answers]


def test_versions_that_refer_to_each_other_in_a_circle_end_no_request() -> None:
    requests = [
        mode("IMPORT"),
        version_of("a", "{}", "JSON", id=1, version=1),
        version_of("b", {"$ref": "a"}, "JSON", ("a",), id=2, version=1),
        version_of("a", {"$ref": "b"}, "JSON", ("b",), id=3, version=1),
        mode("READWRITE"),
        version_of("c", {"properties": {"x": {"$ref": "a"}}}, "JSON", ("a",)),
        version_of("d", '"int"', refers=("a",)),
        Sent("GET", "/subjects/a/versions/1/referencedby", b""),
    ]
    assert {*statuses(answers_of(requests))} <= {200, 422}


def doubling_json(innermost: str) -> dict[str, Any]:
    """A schema each of whose levels refers to the next one twice."""
    levels: dict[str, Any] = {"d0": {"type": innermost}}
    for number in range(1, 30):
        below = {"$ref": f"#/definitions/d{number - 1}"}
        either = [{"type": "array", "items": below}, {"type": "object", "properties": {"x": below}}]
        levels[f"d{number}"] = {"anyOf": either}
    return {"properties": {"q": {"$ref": "#/definitions/d29"}}, "definitions": levels}


def doubling_avro(innermost: str, levels: int = 22) -> Any:
    """A union of two records on each level, both of the next level."""
    if not levels:
        return innermost
    below = {"name": "f", "type": doubling_avro(innermost, levels - 1)}
    names = ("A", "B") if innermost == "int" else ("C", "D")
    other = {"name": "f", "type": innermost if levels == 1 else [f"{name}{levels - 1}" for name in names]}
    return [
        {"type": "record", "name": f"{names[0]}{levels}", "fields": [below]},
        {"type": "record", "name": f"{names[1]}{levels}", "fields": [other]},
    ]


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("JSON", doubling_json("string"), doubling_json("number")),
        ("AVRO", doubling_avro("int"), doubling_avro("string")),
        ("JSON", {"type": "number", "multipleOf": 1}, {"type": "number", "multipleOf": [1]}),
        ("JSON", {"maximum": 10**400}, {"maximum": 1}),
    ],
    ids=["JSON that doubles on each level", "Avro that does", "no number", "a number beyond floating point"],
)
def test_schemas_that_cannot_be_compared_are_refused(kind: str, old: Any, new: Any) -> None:
    answers = answers_of([version_of("s", old, kind), version_of("s", new, kind)])
    assert statuses(answers) == [200, 422]


def test_numbers_of_versions_and_ids_end_at_31_bits() -> None:
    largest = 2**31 - 1
    requests = [
        mode("IMPORT"),
        version_of("s", '"int"', id=largest, version=largest),
        version_of("s", '"int"', id=2**31, version=1),
        mode("READWRITE"),
        version_of("s", '["null","int"]'),
    ]
    assert statuses(answers_of(requests)) == [200, 200, 400, 200, 422]


def test_protobuf_with_errors_of_syntax_is_refused_and_not_guessed() -> None:
    (answer,) = answers_of([version_of("s", PROTOBUF[0].replace("int32 a", "int32 a b"), "PROTOBUF")])
    assert answer.status == 422
    assert b"line 1, column" in answer.body
