"""Placeholders of values that were not sent are found in the forms of all types and converters."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.shared.unavailable import (
    PLACEHOLDER,
    is_placeholder,
    json_placeholder,
    placeholder,
    unavailable,
    uuid_placeholder,
)

DATA = PLACEHOLDER.encode()
MAP = pa.map_(pa.string(), pa.string())
VARIABLE = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
NUMBERS = (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2))
TIMES = (pa.date32(), pa.time32("ms"), pa.time64("us"), pa.timestamp("ms"), pa.timestamp("us"))
ARRAYS = tuple(pa.list_(item) for item in (*NUMBERS, *TIMES, pa.bool_(), pa.string(), pa.binary(), VARIABLE))
WITH = (pa.string(), pa.binary(), MAP, VARIABLE, *ARRAYS)


@pytest.mark.parametrize("kind", WITH, ids=str)
def test_a_placeholder_is_found_in_a_column_of_its_type(kind: pa.DataType) -> None:
    column = pa.chunked_array([pa.array([placeholder(kind), None], kind), pa.array([placeholder(kind)], kind)])
    assert unavailable(column).to_pylist() == [True, False, True]
    assert unavailable(column.slice(1)).to_pylist() == [False, True]
    other = pa.array([placeholder(kind, "other"), None], kind)
    assert unavailable(other).to_pylist() == [False, False]
    assert unavailable(other, "other").to_pylist() == [True, False]


@pytest.mark.parametrize(
    "kind", [*NUMBERS, *TIMES, pa.bool_(), pa.list_(pa.decimal128(4, 2)), pa.struct([("a", pa.int32())])], ids=str
)
def test_other_types_have_none(kind: pa.DataType) -> None:
    assert placeholder(kind) is None
    assert unavailable(pa.nulls(2, kind)).to_pylist() == [False, False]


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        (pa.string(), "__debezium_unavailable_value"),
        (pa.binary(), b"__debezium_unavailable_value"),
        (pa.list_(pa.string()), ["__debezium_unavailable_value"]),
        (pa.list_(pa.binary()), [b"__debezium_unavailable_value"]),
        (pa.list_(pa.int32()), list(b"__debezium_unavailable_value")),
        (pa.list_(pa.int64()), list(b"__debezium_unavailable_value")),
    ],
    ids=str,
)
def test_forms_are_those_of_debezium(kind: pa.DataType, form: Any) -> None:
    assert placeholder(kind) == form
    assert json_placeholder() == '{"__debezium_unavailable_value":"__debezium_unavailable_value"}'
    assert uuid_placeholder() == ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]


@pytest.mark.parametrize(
    "form",
    [
        *(PLACEHOLDER, DATA, base64.b64encode(DATA).decode(), DATA.hex(), json_placeholder()),
        *([PLACEHOLDER], [DATA], [base64.b64encode(DATA).decode()], uuid_placeholder(), [(PLACEHOLDER, PLACEHOLDER)]),
        *(
            {PLACEHOLDER: PLACEHOLDER},
            [json_placeholder()],
            list(DATA),
            [float(byte) for byte in DATA],
            [Decimal(byte) for byte in DATA],
        ),
        *({"scale": 0, "value": DATA}, {"scale": 0, "value": base64.b64encode(DATA).decode()}),
    ],
    ids=str,
)
def test_each_converter_form_is_found(form: Any) -> None:
    assert is_placeholder(form)
    array = pa.array([form, None], MAP if form == [(PLACEHOLDER, PLACEHOLDER)] else None)
    assert unavailable(array).to_pylist() == [True, False]


@pytest.mark.parametrize("value", [None, 7, "", "__debezium", [], [1], ["a", "b"], {"a": "b"}, b"", list(DATA[1:])])
def test_other_values_are_none(value: Any) -> None:
    assert not is_placeholder(value)
    assert unavailable(pa.array([value])).to_pylist() == [False]
