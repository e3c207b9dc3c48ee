"""Bodies of Avro records: the same bytes as fastavro's, in both directions, for schemas of all kinds."""

from __future__ import annotations

import decimal
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectx.data.avro.codec import AvroCodec
from connectx.data.avro.schemas import schema_of
from connectx.data.avro.types import parse
from connectx.errors.plugins import ConversionError

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=8)
MOMENTS = st.integers(-(2**44), 2**44).map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
DECIMALS = st.integers(-(10**9) + 1, 10**9 - 1).map(lambda number: decimal.Decimal(number).scaleb(-2))
SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), INT32),
    (pa.int64(), INT64),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), MOMENTS),
]
BYTES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.binary(), st.binary(max_size=8)),
    (pa.decimal128(9, 2), DECIMALS),
]
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


@st.composite
def typed(draw: Callable[[Any], Any], scalars: list[Typed], depth: int = 2) -> Typed:
    """A type and a strategy for its values, which are never null on their own."""
    shape = draw(st.sampled_from(["scalar", "scalar", "list", "map", "struct"] if depth else ["scalar"]))
    if shape == "scalar":
        found: Typed = draw(st.sampled_from(scalars))
        return found
    nullable = draw(st.booleans())

    def optional(values: st.SearchStrategy[Any], of: bool) -> st.SearchStrategy[Any]:
        return st.none() | values if of else values

    if shape == "struct":
        parts = [
            (f"f{n}", *draw(typed(scalars, depth - 1)), draw(st.booleans())) for n in range(draw(st.integers(1, 4)))
        ]
        kind = pa.struct([pa.field(name, one, of) for name, one, _, of in parts])
        return kind, st.fixed_dictionaries({name: optional(values, of) for name, _, values, of in parts})
    inner, values = draw(typed(scalars, depth - 1))
    if shape == "list":
        return pa.list_(pa.field("item", inner, nullable)), st.lists(optional(values, nullable), max_size=3)
    pairs = st.dictionaries(TEXT, optional(values, nullable), max_size=3).map(lambda found: list(found.items()))
    return pa.map_(pa.string(), pa.field("value", inner, nullable)), pairs


def by_fastavro(schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return body.getvalue()


def for_fastavro(value: Any, kind: pa.DataType) -> Any:
    """Maps as dicts; fastavro takes all else as Arrow gives it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {one.name: for_fastavro(value[one.name], one.type) for one in kind}
    if pa.types.is_list(kind):
        return [for_fastavro(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return {key: for_fastavro(one, kind.item_type) for key, one in value}
    return value


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
@pytest.mark.parametrize("scalars", [SCALARS, SCALARS + BYTES], ids=["whole columns", "one by one"])
def test_bytes_are_those_of_fastavro_and_come_back_as_they_were(scalars: list[Typed], data: st.DataObject) -> None:
    inner, values = data.draw(typed(scalars))
    kind = pa.struct([pa.field("v", inner, True)])
    rows = data.draw(st.lists(st.fixed_dictionaries({"v": st.none() | values}), min_size=1, max_size=4))
    column = pa.array(rows, kind)
    schema = json.loads(schema_of(kind))
    codec = AvroCodec(parse(json.dumps(schema)))
    bodies = codec.write(column).to_pylist()
    assert bodies == [by_fastavro(schema, for_fastavro(row, kind)) for row in column.to_pylist()]
    read = codec.read(pa.array(bodies))
    assert read.error.null_count == len(rows)
    assert read.value.type == kind
    assert read.value.to_pylist() == column.to_pylist()
    read.value.validate(full=True)


@pytest.mark.parametrize("extra", ["int", "bytes"])
def test_only_the_record_that_cannot_be_read_has_an_error(extra: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": extra}]}
    value = 1 if extra == "int" else b"x"
    good = [by_fastavro(schema, {"a": f"{n}", "b": value}) for n in range(5)]
    bodies = [*good[:3], b"\x20x", *good[3:], b""]
    read = AvroCodec(parse(json.dumps(schema))).read(pa.array(bodies))
    assert [error is None for error in read.error.to_pylist()] == [True, True, True, False, True, True, False]
    assert [row and row["a"] for row in read.value.to_pylist()] == ["0", "1", "2", None, "3", "4", None]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        ["null", {"type": "enum", "name": "E", "symbols": ["A", "B"]}],
    ],
)
def test_an_enum_is_text_and_takes_its_symbols_only(schema: Any) -> None:
    codec = AvroCodec(parse(json.dumps(schema)))
    assert codec.write(pa.array(["B", "A"])).to_pylist() == [by_fastavro(schema, "B"), by_fastavro(schema, "A")]
    assert codec.read(pa.array([by_fastavro(schema, "B")])).value.to_pylist() == ["B"]
    with pytest.raises(ConversionError, match=r"'C'.*enum E"):
        codec.write(pa.array(["A", "C"]))


def test_a_fixed_decimal_is_filled_with_its_sign() -> None:
    schema = {"type": "fixed", "name": "F", "size": 6, "logicalType": "decimal", "precision": 9, "scale": 2}
    codec = AvroCodec(parse(json.dumps(schema)))
    values = pa.array([decimal.Decimal("-0.01"), decimal.Decimal("1.00")])
    bodies = codec.write(values).to_pylist()
    assert bodies == [by_fastavro(schema, value) for value in values.to_pylist()]
    assert codec.read(pa.array(bodies)).value.to_pylist() == values.to_pylist()


def test_a_union_of_several_types_is_a_struct_of_which_one_field_has_a_value() -> None:
    record = {"type": "record", "name": "n.R", "fields": [{"name": "x", "type": "int"}]}
    schema = ["null", "string", "long", record]
    bodies = [by_fastavro(schema, value) for value in ("a", 5, {"x": 1}, None)]
    read = AvroCodec(parse(json.dumps(schema))).read(pa.array(bodies))
    empty = {"string": None, "long": None, "R": None}
    assert read.value.to_pylist() == [empty | {"string": "a"}, empty | {"long": 5}, empty | {"R": {"x": 1}}, None]


def test_a_union_whose_values_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(ConversionError, match="int and long"):
        AvroCodec(parse('["int", "long"]'))


def test_a_value_outside_its_type_is_an_error_of_its_record() -> None:
    codec = AvroCodec(parse('{"type": "int", "connect.type": "int8"}'))
    read = codec.read(pa.array([by_fastavro("int", 1), by_fastavro("int", 300)]))
    assert read.value.to_pylist() == [1, None]
    assert "300" in read.error[1].as_py()


def test_bytes_alone_are_written_as_they_are_as_confluents_serializer_does() -> None:
    codec = AvroCodec(parse('"bytes"'))
    assert codec.write(pa.array([b"ab"])).to_pylist() == [b"ab"]
    assert codec.read(pa.array([b"ab"])).value.to_pylist() == [b"ab"]


def test_rows_are_written_with_a_schema_that_names_its_fields_in_another_order() -> None:
    fields = [
        {"name": "b", "type": "string"},
        {"name": "a", "type": "long"},
        {"name": "c", "type": "int", "default": 7},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    written = AvroCodec(parse(json.dumps(schema))).write(pa.array([{"a": 1, "b": "x"}]))
    assert written.to_pylist() == [by_fastavro(schema, {"a": 1, "b": "x", "c": 7})]


@pytest.mark.parametrize(
    ("fields", "row", "sentence"),
    [
        ([{"name": "a", "type": "int"}, {"name": "b", "type": "int"}], {"a": 1}, "needs the field b"),
        ([{"name": "a", "type": "int"}], {"a": 1, "b": 2}, "has no field b"),
        ([{"name": "a", "type": "int"}], {"a": None}, "a is null, which its Avro schema does not allow"),
        ([{"name": "a", "type": "int"}], {"a": 2**40}, "cannot write a as int"),
        ([{"name": "a", "type": "int"}], {"a": "x"}, "cannot write a of type string as int"),
    ],
)
def test_rows_that_a_schema_does_not_take_are_refused_with_the_field(
    fields: list[Any], row: dict[str, Any], sentence: str
) -> None:
    kind = pa.struct([(name, pa.string() if isinstance(value, str) else pa.int64()) for name, value in row.items()])
    codec = AvroCodec(parse(json.dumps({"type": "record", "name": "R", "fields": fields})))
    with pytest.raises(ConversionError, match=sentence):
        codec.write(pa.array([row], kind))


EMPTY = {"type": "record", "name": "E", "fields": []}


@pytest.mark.parametrize(
    "items",
    [
        EMPTY,
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "O", "fields": [{"name": "e", "type": EMPTY}]},
    ],
)
def test_arrays_whose_items_take_no_bytes_are_refused(items: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    with pytest.raises(ConversionError, match="take no bytes"):
        AvroCodec(parse(json.dumps(schema)))
