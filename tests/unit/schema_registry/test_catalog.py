"""Subjects, versions and ids: what a registry answers and writes. Each change is applied as if it was read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from connectx.data.protobuf.files import encoded, file_of
from connectx.schema_registry.catalog import Catalog, Change
from connectx.schema_registry.records import schema_key
from connectx.schema_registry.refusals import RefusedError

FIRST = {"schema": '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'}
SECOND = {"schema": FIRST["schema"].replace("]}", ', {"name": "b", "type": ["null", "int"], "default": null}]}')}
OTHER = {"schema": FIRST["schema"].replace("]}", ', {"name": "c", "type": "string"}]}')}


class Registry:
    """A catalog whose records are read back at once, and can be read by another."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.log: list[tuple[str, bytes | None]] = []

    def do(self, change: Change) -> Any:
        self.log += change.records
        for key, value in change.records:
            self.catalog.apply(key.encode(), value)
        return change.answer

    def register(self, subject: str, request: dict[str, Any]) -> int:
        return int(self.do(self.catalog.register(subject, request))["id"])

    def read_again(self) -> Catalog:
        """What another registry makes of the topic once it was compacted."""
        catalog = Catalog()
        for key, value in dict(self.log).items():
            catalog.apply(key.encode(), value)
        return catalog


@pytest.fixture
def registry() -> Registry:
    return Registry()


def refused(call: Callable[[], object]) -> tuple[int, int]:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.status, caught.value.code


def test_a_schema_has_one_id_in_all_subjects_and_its_next_version_another(registry: Registry) -> None:
    assert [registry.register("s", FIRST), registry.register("t", FIRST), registry.register("s", SECOND)] == [1, 1, 2]
    assert registry.register("s", FIRST) == 1
    assert registry.catalog.versions("s") == [1, 2]
    assert {one.subject for one in registry.catalog.by_id(1)} == {"s", "t"}


def test_another_registry_reads_the_same_from_the_topic(registry: Registry) -> None:
    registry.register("s", FIRST)
    registry.register("s", SECOND)
    registry.do(registry.catalog.set_level("s", "none"))
    registry.do(registry.catalog.set_mode(None, "READONLY"))
    again = registry.read_again()
    assert again.all() == registry.catalog.all()
    assert (again.level("s"), again.mode(None)) == ("NONE", "READONLY")


def test_records_are_those_of_confluents_registry(registry: Registry) -> None:
    registry.register("s", FIRST)
    key, value = registry.log[0]
    assert key == '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    assert value == (
        b'{"subject":"s","version":1,"id":1,"schema":"{\\"type\\":\\"record\\",\\"name\\":\\"R\\",\\"fields\\":'
        b'[{\\"name\\":\\"a\\",\\"type\\":\\"int\\"}]}","deleted":false}'
    )


def test_records_of_confluents_registry_are_read_with_what_newer_ones_add() -> None:
    catalog = Catalog()
    catalog.apply(b'{"keytype":"NOOP","magic":0}', None)
    catalog.apply(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}')
    value = {"subject": "s", "version": 3, "id": 9, "md5": "x", "schema": '"int"', "deleted": False, "ts": 1}
    catalog.apply(schema_key("s", 3).encode(), json.dumps(value).encode())
    assert catalog.level(None) == "FULL"
    found = catalog.version("s", "latest")
    assert (found.version, found.schema_id, found.others) == (3, 9, {"md5": "x", "ts": 1})


def test_an_incompatible_schema_is_refused_with_the_version_and_what_differs(registry: Registry) -> None:
    registry.register("s", FIRST)
    with pytest.raises(RefusedError, match=r'"s", details: .*READER_FIELD_MISSING_DEFAULT_VALUE.*oldSchemaVersion: 1'):
        registry.register("s", OTHER)
    registry.do(registry.catalog.set_level("s", "NONE"))
    assert registry.register("s", OTHER) == 2


def test_transitive_levels_compare_all_versions(registry: Registry) -> None:
    back = {"schema": FIRST["schema"].replace('"int"', '"string"')}
    registry.register("s", FIRST)
    registry.do(registry.catalog.set_level("s", "NONE"))
    empty = {"schema": '{"type": "record", "name": "R", "fields": []}'}
    registry.register("s", empty)
    defaulted = {"schema": back["schema"].replace('"type": "string"', '"type": "string", "default": ""')}
    registry.do(registry.catalog.set_level("s", "BACKWARD"))
    assert registry.catalog.check("s", defaulted, None) == []
    registry.do(registry.catalog.set_level("s", "BACKWARD_TRANSITIVE"))
    assert "TYPE_MISMATCH" in registry.catalog.check("s", defaulted, None)[0]


def test_a_soft_deleted_schema_keeps_its_id_readable_and_its_version_number_taken(registry: Registry) -> None:
    registry.register("s", FIRST)
    registry.register("s", SECOND)
    assert registry.do(registry.catalog.delete_version("s", "2", permanent=False)) == 2
    assert registry.catalog.versions("s") == [1]
    assert registry.catalog.by_id(2)[0].deleted
    assert refused(lambda: registry.catalog.delete_version("s", "2", permanent=False)) == (404, 40406)
    assert registry.register("s", SECOND) == 2
    assert registry.catalog.versions("s") == [1, 3]


def test_a_subject_is_deleted_softly_before_it_is_deleted_for_good(registry: Registry) -> None:
    registry.register("s", FIRST)
    assert refused(lambda: registry.catalog.delete_subject("s", permanent=True)) == (404, 40405)
    assert registry.do(registry.catalog.delete_subject("s", permanent=False)) == [1]
    assert registry.catalog.subjects() == []
    assert registry.catalog.subjects(deleted=True) == ["s"]
    assert refused(lambda: registry.catalog.delete_subject("s", permanent=False)) == (404, 40404)
    assert registry.do(registry.catalog.delete_subject("s", permanent=True)) == [1]
    assert registry.catalog.subjects(deleted=True) == []
    assert registry.read_again().subjects(deleted=True) == []


def test_a_reference_is_resolved_checked_and_kept(registry: Registry) -> None:
    registry.register("inner", FIRST)
    outer = {
        "schema": '{"type": "record", "name": "O", "fields": [{"name": "r", "type": "R"}]}',
        "references": [{"name": "R", "subject": "inner", "version": 1}],
    }
    assert registry.register("outer", outer) == 2
    assert registry.catalog.version("outer", "1").to_json()["references"] == outer["references"]
    assert refused(lambda: registry.catalog.delete_subject("inner", permanent=False)) == (422, 42206)
    missing = {**outer, "references": [{"name": "R", "subject": "inner", "version": 7}]}
    assert refused(lambda: registry.catalog.register("outer", missing)) == (422, 42201)


def test_json_schemas_are_compared_and_their_references_resolved(registry: Registry) -> None:
    def schema(kind: str, *references: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps({"type": "object", "properties": {"a": {"type": kind}, "b": {"$ref": "b.json"}}})
        return {"schemaType": "JSON", "schema": text, "references": list(references)}

    reference = {"name": "b.json", "subject": "b", "version": 1}
    registry.register("b", {"schemaType": "JSON", "schema": '{"type":"string"}'})
    registry.register("s", schema("integer", reference))
    assert registry.register("s", schema("number", reference)) == 3
    assert registry.catalog.check("s", schema("string", reference), "latest")[0].startswith("{errorType:'TYPE_CHANGED'")
    assert refused(lambda: registry.catalog.register("s", schema("string", reference))) == (409, 409)
    assert refused(lambda: registry.catalog.register("s", schema("number"))) == (422, 42201)


def test_protobuf_schemas_are_kept_as_text_and_compared(registry: Registry) -> None:
    def schema(text: str) -> dict[str, Any]:
        return {"schemaType": "PROTOBUF", "schema": f'syntax = "proto3";\n\nmessage M {{\n  {text}\n}}\n'}

    first = schema("int32 a = 1;")
    registry.register("s", first)
    as_base64 = {**first, "schema": encoded(file_of(first["schema"]))}
    assert registry.register("s", as_base64) == 1
    assert registry.catalog.find("s", as_base64, deleted=False, normalize=False).text == first["schema"]
    assert registry.register("s", schema("int64 b = 1;")) == 2
    assert refused(lambda: registry.catalog.register("s", schema("string b = 1;"))) == (409, 409)
    assert refused(lambda: registry.catalog.register("s", schema("Nowhere b = 1;"))) == (422, 42201)


def test_modes_say_who_may_write(registry: Registry) -> None:
    registry.register("s", FIRST)
    registry.do(registry.catalog.set_mode("s", "READONLY"))
    assert refused(lambda: registry.catalog.register("s", SECOND)) == (422, 42205)
    assert refused(lambda: registry.catalog.set_mode("s", "IMPORT")) == (422, 42205)
    registry.do(registry.catalog.set_mode("i", "IMPORT"))
    assert refused(lambda: registry.catalog.register("i", FIRST)) == (422, 42205)
    assert registry.register("i", {**SECOND, "id": 77, "version": 5}) == 77
    assert registry.catalog.versions("i") == [5]


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda catalog: catalog.versions("x"), (404, 40401)),
        (lambda catalog: catalog.version("s", "9"), (404, 40402)),
        (lambda catalog: catalog.version("s", "zero"), (422, 42202)),
        (lambda catalog: catalog.version("s", "0"), (422, 42202)),
        (lambda catalog: catalog.by_id(99), (404, 40403)),
        (lambda catalog: catalog.find("s", SECOND, deleted=False, normalize=False), (404, 40403)),
        (lambda catalog: catalog.find("x", FIRST, deleted=False, normalize=False), (404, 40401)),
        (lambda catalog: catalog.level("s"), (404, 40408)),
        (lambda catalog: catalog.mode("s"), (404, 40409)),
        (lambda catalog: catalog.set_level("s", "SOME"), (422, 42203)),
        (lambda catalog: catalog.set_mode("s", "SOME"), (422, 42204)),
        (lambda catalog: catalog.register("s", {"schema": ""}), (422, 42201)),
        (lambda catalog: catalog.register("s", {"schema": "{}", "schemaType": "XML"}), (422, 42201)),
        (lambda catalog: catalog.register("s", {**FIRST, "references": [{}]}), (422, 42201)),
    ],
)
def test_what_is_not_there_or_not_valid_has_confluents_code(
    registry: Registry, ask: Callable[[Catalog], object], error: tuple[int, int]
) -> None:
    registry.register("s", FIRST)
    assert refused(lambda: ask(registry.catalog)) == error


def test_the_layout_of_a_text_makes_no_other_schema_and_normalized_ones_may_have_another_order(
    registry: Registry,
) -> None:
    registry.register("s", FIRST)
    assert registry.register("s", {"schema": FIRST["schema"].replace(" ", "\n")}) == 1
    turned = {"schema": '{"name":"R","type":"record","fields":[{"type":"int","name":"a"}]}'}
    assert registry.catalog.register("s", turned, normalize=True).answer["id"] == 1
    assert registry.register("s", turned) == 2
