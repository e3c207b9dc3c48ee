"""JSON without schemas as structs, for transformations."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.json.converter import JsonConverter
from connectx.errors.plugins import ConversionError


def read(*documents: bytes | None) -> tuple[Any, list[str | None], pa.DataType]:
    converter = JsonConverter({"schemas.enable": "false"})
    converter.infers_fields = True
    found = converter.from_bytes_arrow(pa.array(documents, pa.binary()), None)
    return found.value.to_pylist(), found.error.to_pylist(), found.value.type


def test_documents_are_structs_of_all_fields_of_the_batch() -> None:
    values, errors, kind = read(b'{"a":1}', None, b' {"b":{"c":1.5},"a":null}')
    assert values == [{"a": 1, "b": None}, None, {"a": None, "b": {"c": 1.5}}]
    assert errors == [None] * 3
    assert kind == pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.float64())]))])


def test_a_json_null_is_no_value_among_objects() -> None:
    assert read(b'{"a":1}', b" null ", b'{"a":2}')[:2] == ([{"a": 1}, None, {"a": 2}], [None] * 3)


def test_text_that_looks_like_a_time_stays_text() -> None:
    values, _, kind = read(b'{"at":"2026-11-21T10:00:00Z","l":["2026-11-21"]}')
    assert values == [{"at": "2026-11-21T10:00:00Z", "l": ["2026-11-21"]}]
    assert kind == pa.struct([("at", pa.string()), ("l", pa.list_(pa.string()))])


def test_a_document_that_is_no_json_is_an_error_of_its_own() -> None:
    values, errors, _ = read(b'{"a":1}', b'{"a":', b'{"a":2}')
    assert values == [{"a": 1}, None, {"a": 2}]
    assert [error is None for error in errors] == [True, False, True]


def test_documents_without_any_object_are_text() -> None:
    assert read(b'"x"', b"[1]", None)[:2] == (["x", "[1]", None], [None] * 3)


def test_beside_objects_another_document_is_an_error_of_its_own() -> None:
    values, errors, _ = read(b'"x"', b'{"a":1}', None, b"[1]", b'{"a":')
    assert values == [None, {"a": 1}, None, None, None]
    assert [error and "not an object" in error for error in errors] == [True, None, None, True, False]


def test_one_field_of_two_types_is_refused() -> None:
    with pytest.raises(ConversionError, match="different types"):
        read(b'{"a":1}', b'{"a":"x"}')


@pytest.mark.parametrize("text", ["[null,null]", '[null,"a"]', '[[null,null,"a"]]', '[{"x":[null,1]}]'])
def test_a_list_may_begin_with_nulls(text: str) -> None:
    documents = [f'{{"a":{text},"b":1}}'.encode(), b'{"a":[],"b":2}']
    assert read(*documents)[:2] == ([json.loads(document) for document in documents], [None, None])


def test_text_that_looks_like_a_constant_is_text_and_a_constant_is_refused() -> None:
    values, errors, _ = read(b'{"a":"see: NaN, Info"}', b'{"a":NaN}')
    assert values == [{"a": "see: NaN, Info"}, None]
    assert [error is None for error in errors] == [True, False]


LATER = [
    b'{"id":2.5,"at":"2026-11-21T10:00:00Z"}',
    b'{"id":2,"at":"yesterday"}',
    b'{"id":2,"at":null,"until":"2026-11-21T10:00:00Z","n":{"x":1}}',
    b'{"id":2,"none":"2026-11-21","n":{"x":"2026-11-21"}}',
    b'{"id":2,"at":7}',
    b'{"id":NaN}',
    b'{"id":2,"at":',
]


FIRST = {
    "a field without a type": b'{"id":1,"at":"2026-11-21T10:00:00Z","none":null}',
    "types of all fields": b'{"id":1,"at":"2026-11-21T10:00:00Z"}',
    "documents for several threads": b'{"id":1,"at":"2026-11-21T10:00:00Z","more":"%s"}' % (b"x" * 2_000),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("later", LATER)
def test_what_the_first_documents_hold_does_not_decide_how_later_ones_are_read(first: bytes, later: bytes) -> None:
    many = [first] * 2_000
    try:
        few = read(first, later)
    except ConversionError:
        with pytest.raises(ConversionError, match="different types"):
            read(*many, later)
        return
    values, errors, kind = read(*many, later)
    assert (values[-2:], errors[-2:], kind) == few
    assert all(value == few[0][0] for value in values[:-1])


def test_fields_that_several_threads_find_have_the_order_of_their_documents() -> None:
    filled = b'{"id":1,"more":"%s"}' % (b"x" * 2_000)
    new = [b'{"id":2,"n":{"f%d":1},"new%d":1}' % (number, number) for number in range(20)]
    values, errors, kind = read(*[document for one in new for document in [*[filled] * 100, one]])
    assert kind.names == ["id", "more", "n", *(f"new{number}" for number in range(20))]
    assert kind.field("n").type.names == [f"f{number}" for number in range(20)]
    assert [value["new7"] for value in values if value["new7"]] == [1]
    assert set(errors) == {None}


def test_a_document_may_be_longer_than_what_a_thread_parses_at_a_time() -> None:
    long = b'{"id":2,"more":"%s"}' % (b"x" * 3_000_000)
    values, errors, _ = read(*[b'{"id":1,"more":"y"}'] * 2_000, long, b'{"id":3,"more":"z"}')
    assert [value["id"] for value in values[-3:]] == [1, 2, 3]
    assert len(values[-2]["more"]) == 3_000_000
    assert set(errors) == {None}
