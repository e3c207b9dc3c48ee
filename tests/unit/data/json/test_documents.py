"""JSON without schemas where fields are read: each document has the type that it has alone."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.data.json.converter import JsonConverter
from connectx.data.json.envelopes import NO_ENVELOPE
from connectx.data.shapes import parts_of

BIG = 12345678901234567890123


def read_column(*documents: bytes | None) -> tuple[pa.Array, list[str | None]]:
    converter = JsonConverter({"schemas.enable": "false"})
    converter.infers_fields = True
    found = converter.from_bytes_arrow(pa.array(documents, pa.binary()), None)
    found.value.validate(full=True)
    return found.value, found.error.to_pylist()


def test_payloads_of_the_schema_null_are_documents_without_a_schema() -> None:
    converter = JsonConverter({"schemas.enable": "true"})
    converter.infers_fields = True
    schema = '{"type":"int32","optional":false}'
    documents = ['null,"payload":{"a":[1,{"b":"x"}]}', 'null,"payload":{"a":1},"more":2', f'{schema},"payload":7']
    found = converter.from_bytes_arrow(pa.array([f'{{"schema":{each}}}'.encode() for each in documents]), None)
    assert found.value.to_pylist() == [{"a": [1, {"b": "x"}]}, None, 7]
    assert found.error.to_pylist() == [None, NO_ENVELOPE, None]


def read(*documents: bytes | None) -> tuple[list[Any], list[str | None]]:
    values, errors = read_column(*documents)
    return values.to_pylist(), errors


def exactly(value: Any) -> str:
    """With the difference between 12, 12.0 and true, and with the order of fields."""
    return repr(value)


@pytest.mark.parametrize("count", [9, 90, 900])
def test_records_without_a_value_stay_at_their_rows(count: int) -> None:
    documents = [None if row % 3 == 0 else b'{"n":%d}' % row for row in range(count)]
    values, errors = read(*documents)
    assert values == [None if row % 3 == 0 else {"n": row} for row in range(count)]
    assert errors == [None] * count


def test_zeros_before_a_number_are_skipped_and_texts_keep_them() -> None:
    values, errors = read(b'{"a":007,"b":[-00.5,00,1e-07],"c":"007"}', b'{"a":7}', b"-01", b'"01')
    assert exactly(values[:3]) == exactly([{"a": 7, "b": [-0.5, 0, 1e-07], "c": "007"}, {"a": 7}, -1])
    assert [error is None for error in errors] == [True, True, True, False]


SHAPES: dict[str, tuple[bytes, Any]] = {
    "a field": (b'{"a":1}', {"a": 1}),
    "the same field null": (b'{"a":null}', {"a": None}),
    "the same field as text": (b'{"a":"x"}', {"a": "x"}),
    "a fraction": (b'{"a":12.5}', {"a": 12.5}),
    "a whole number": (b'{"a":12}', {"a": 12}),
    "a fraction of zero": (b'{"a":12.0}', {"a": 12.0}),
    "another field": (b' {"b":{"c":1.5},"a":null}', {"b": {"c": 1.5}, "a": None}),
    "fields in another order": (b'{"a":null,"b":{"c":1.5}}', {"a": None, "b": {"c": 1.5}}),
    "no field": (b"{}", {}),
    "19 digits": (b'{"id":1234567890123456789}', {"id": 1234567890123456789}),
    "the largest long": (b'{"id":9223372036854775807}', {"id": 2**63 - 1}),
    "more than 64 bits": (b'{"id":%d,"n":1234567890123456789}' % BIG, {"id": Decimal(BIG), "n": 1234567890123456789}),
    "76 digits": (b"9" * 76, Decimal("9" * 76)),
    "a text": ('"text: ü \\ud83d\\ude00 \\n"'.encode(), "text: ü 😀 \n"),
    "half a surrogate pair": (b'{"t":"\\ud83d!"}', {"t": "?!"}),
    "a number": (b" 12", 12),
    "a list": (b"[1,null]", [1, None]),
    "a list of several types": (b'[1,2.5,"x",null,{"a":1},{"b":[]}]', [1, 2.5, "x", None, {"a": 1}, {"b": []}]),
    "lists of objects": (b'{"l":[{"a":[1]},{"a":[]},{"b":1}]}', {"l": [{"a": [1]}, {"a": []}, {"b": 1}]}),
    "a name twice": (b'{"a":1,"a":2}', {"a": 2}),
    "a name with escapes": (b'{"a\\"\\\\\\u00fc":1}', {'a"\\ü': 1}),
    "null": (b" null ", None),
}


@pytest.mark.parametrize("times", [1, 90])
def test_no_document_changes_how_others_are_read(times: int) -> None:
    documents = [document for document, _ in SHAPES.values()] * times
    values, errors = read(*documents, None)
    assert set(errors) == {None}
    assert exactly(values) == exactly([value for _, value in SHAPES.values()] * times + [None])


@pytest.mark.parametrize(("document", "value"), SHAPES.values(), ids=SHAPES)
def test_a_document_among_many_of_one_shape_is_read_as_alone(document: bytes, value: Any) -> None:
    many = [b'{"id":%d,"at":"2026-11-21T10:00:00Z"}' % number for number in range(300)]
    values, errors = read(*many[:150], document, *many[150:])
    assert exactly(values[150]) == exactly(value) == exactly(read(document)[0][0])
    assert exactly(values[:150] + values[151:]) == exactly([json.loads(each) for each in many])
    assert set(errors) == {None}


LIKE = {
    "the same": '{"id":1,"before":{"id":2,"note":"x"},"after":{"id":3,"note":null},"price":1.5}',
    "a whole number": '{"id":1,"before":{"id":2,"note":"x"},"after":{"id":3,"note":null},"price":2}',
    "null": '{"id":1,"before":null,"after":{"id":3,"note":null},"price":null}',
    "missing": '{"id":1,"before":{"id":2},"after":{"id":3,"note":null},"price":1.5}',
    "missing for another": '{"id":1,"before":{"note":"x"},"after":{"id":3,"note":null},"price":1.5}',
    "another order": '{"id":1,"after":{"id":3,"note":null},"before":{"id":2,"note":"x"},"price":1.5}',
    "another order within": '{"id":1,"before":{"note":"x","id":2},"after":{"id":3,"note":null},"price":1.5}',
    "one more": '{"id":1,"before":{"id":2,"note":"x"},"after":{"id":3,"note":null,"z":1},"price":1.5}',
    "spaces": '{ "id" : 1, "before": {"id": 2, "note":"x"}, "after" :{"id":3,"note":null},"price":1.5 }',
    "a text like a field": (
        '{"id":1,"before":{"id":2,"note":"\\"note\\":"},"after":{"id":3,"z":"\\"note\\":"},"price":1.5}'
    ),
}


@pytest.mark.parametrize("likes", [["the same"], list(LIKE)])
def test_documents_that_nearly_have_the_shape_of_the_others_keep_their_own(likes: list[str]) -> None:
    order = random.Random(7)
    texts = [LIKE[order.choice(likes)] for _ in range(1_500)]
    texts[100:100] = LIKE.values()
    values, errors = read(*map(str.encode, texts))
    assert exactly(values) == exactly([json.loads(text) for text in texts])
    assert set(errors) == {None}


REFUSED = {
    "no end": b'{"a":',
    "two documents": b'{"a":1}{"a":1}',
    "a constant": b'{"a":NaN}',
    "a number beyond a double": b'{"a":1e400}',
    "an integer of 77 digits": b"1" * 77,
    "an integer that Python does not read": b"1" * 5_000,
    "no UTF-8": b'{"a":"\xff"}',
    "too deep": b"[" * 100_000,
    "empty": b"",
}


@pytest.mark.parametrize("document", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("times", [1, 300])
def test_a_document_that_is_not_read_is_an_error_of_its_own(document: bytes, times: int) -> None:
    values, errors = read(*[b'{"a":1}'] * times, document, b'{"a":2}')
    assert values == [*[{"a": 1}] * times, None, {"a": 2}]
    assert [error is None for error in errors] == [*[True] * times, False, True]


@pytest.mark.parametrize("document", REFUSED.values(), ids=REFUSED)
def test_a_batch_may_hold_nothing_else(document: bytes) -> None:
    values, errors = read(*[document] * 120)
    assert values == [None] * 120
    assert None not in errors


@pytest.mark.parametrize("document", [b"7", b"{}", b"[]", b'""', b'{"a" : 1}', b'{"":2}'])
def test_a_batch_may_hold_nothing_but_small_documents(document: bytes) -> None:
    values, errors = read(*[document] * 120)
    assert exactly(values) == exactly([json.loads(document)] * 120)
    assert set(errors) == {None}


def test_the_first_document_need_not_have_the_common_shape() -> None:
    texts = ['{"rare":1}', '{"b":[1.5]}', *['{"a":1,"b":null}'] * 200, '{"rare":2}']
    values, errors = read(*map(str.encode, texts))
    assert exactly(values) == exactly([json.loads(text) for text in texts])
    assert set(errors) == {None}


def test_documents_of_one_shape_are_an_ordinary_column() -> None:
    kind = pa.struct([("id", pa.int64()), ("at", pa.string()), ("l", pa.list_(pa.float64()))])
    for times in (1, 200):
        found, _ = read_column(
            *[b'{"id":1,"at":"2026-11-21","l":[]}', b'{"id":null,"at":null,"l":[1.5]}', None] * times
        )
        assert found.type == kind


def test_a_thousand_shapes_are_read() -> None:
    documents = [json.dumps({f"f{number % 1_000}": number}).encode() for number in range(3_000)]
    found, errors = read_column(*documents)
    assert found.to_pylist() == [json.loads(document) for document in documents]
    assert len(parts_of(found)) == 1_000
    assert set(errors) == {None}


def test_a_document_may_be_longer_than_what_a_thread_parses_at_a_time() -> None:
    long = b'{"id":2,"more":"%s"}' % (b"x" * 3_000_000)
    values, errors = read(*[b'{"id":1,"more":"y"}'] * 2_000, long, b'{"id":3,"more":"z"}')
    assert [value["id"] for value in values[-3:]] == [1, 2, 3]
    assert len(values[-2]["more"]) == 3_000_000
    assert set(errors) == {None}


@pytest.mark.parametrize("text", ["[null,null]", '[null,"a"]', '[[null,null,"a"]]', '[{"x":[null,1]}]'])
def test_a_list_may_begin_with_nulls(text: str) -> None:
    documents = [f'{{"a":{text},"b":1}}'.encode(), b'{"a":[],"b":2}'] * 60
    assert read(*documents)[0] == [json.loads(document) for document in documents]


NAMES = st.sampled_from(["a", "b", "ü", 'q"', "\\", "x.y", "", "b_address", "billing_address", "shipping_address"])
SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(-1e9, 1e9) | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(values=st.lists(VALUES, min_size=1, max_size=5), order=st.randoms(use_true_random=False))
def test_any_documents_are_read_as_python_reads_them(values: list[Any], order: Any) -> None:
    chosen = [order.choice(values) for _ in range(order.choice([3, 150]))]
    documents = [json.dumps(value, ensure_ascii=order.random() < 0.5).encode() for value in chosen]
    found, errors = read(*documents)
    assert set(errors) == {None}
    assert exactly(as_python(found)) == exactly(chosen)


def as_python(value: Any) -> Any:
    """Decimals of long integers as integers."""
    if isinstance(value, list):
        return [as_python(each) for each in value]
    if isinstance(value, dict):
        return {name: as_python(each) for name, each in value.items()}
    return int(value) if isinstance(value, Decimal) else value
