"""Values of several shapes as columns of one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectx.connectors.http.requests import texts_of
from connectx.connectors.lake.changes import DELETED, UpsertSettings, changes_of
from connectx.connectors.shared.uniting import columns_of, united_columns, united_tables
from connectx.data.json.documents import read_documents
from connectx.errors.databases import TableMismatchError


def column(*values: Any) -> pa.ChunkedArray:
    """Documents as a sink's converter reads them."""
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return pa.chunked_array([read_documents(pa.array(texts, pa.binary())).value])


def test_a_column_has_the_type_of_all_shapes_and_null_for_a_missing_field() -> None:
    table = columns_of(column({"a": 1, "b": "x"}, {"b": None}, {"a": 2.5}, {"c": {"d": 1}}, {"c": {"e": "y"}}, 7))
    inner = pa.struct([("d", pa.int64()), ("e", pa.string())])
    assert table.schema == pa.schema([("a", pa.float64()), ("b", pa.string()), ("c", inner), ("value", pa.int64())])
    assert table.to_pylist() == [
        {"a": 1.0, "b": "x", "c": None, "value": None},
        {"a": None, "b": None, "c": None, "value": None},
        {"a": 2.5, "b": None, "c": None, "value": None},
        {"a": None, "b": None, "c": {"d": 1, "e": None}, "value": None},
        {"a": None, "b": None, "c": {"d": None, "e": "y"}, "value": None},
        {"a": None, "b": None, "c": None, "value": 7},
    ]


SCALARS = st.sampled_from([None, True, 0, 12, 2**40, 0.5, "", "text"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=4,
)
ROWS = st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), min_size=2, max_size=8)


@settings(max_examples=100)
@given(rows=ROWS, data=st.data())
def test_columns_do_not_depend_on_which_records_share_a_batch(rows: list[Any], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows) - 1))))
    ends = list(pairwise([0, *cuts, len(rows)]))

    def outcome(parts: Sequence[tuple[int, int]]) -> Any:
        try:
            tables = [(np.arange(*part), columns_of(column(*rows[slice(*part)]))) for part in parts]
            made = united_tables(tables)
        except TableMismatchError:
            return "refused"
        return {name: made[name].type for name in made.column_names}, made.to_pylist()

    assert outcome(ends) == outcome([(0, len(rows))])


def test_elements_of_lists_have_one_type_too() -> None:
    together: list[dict[str, Any]] = [{"l": [1, 2.5, None]}]
    apart: list[dict[str, Any]] = [{"l": [1]}, {"l": [2.5]}, {"l": []}, {"l": None}]
    for documents in (together, apart):
        table = columns_of(column(*documents))
        assert table.schema.field("l").type == pa.list_(pa.float64())
        assert table["l"].to_pylist() == [one["l"] for one in documents]
    objects = columns_of(column({"l": [{"a": 1}, {"b": "x"}]}, {"l": None}))
    assert objects["l"].to_pylist() == [[{"a": 1, "b": None}, {"a": None, "b": "x"}], None]


def test_fields_of_objects_may_come_in_any_order() -> None:
    def orders(inner: Any) -> list[dict[str, Any]]:
        return [{"a": inner({"x": 1, "y": "p"})}, {"a": inner({"y": "q", "x": 2.5, "z": 3})}, {"a": None}]

    for inner in (lambda one: one, lambda one: [one, None], lambda one: {"deep": one}):
        documents = orders(inner)
        table = columns_of(column(*documents))
        first, second = {"x": 1.0, "y": "p", "z": None}, {"x": 2.5, "y": "q", "z": 3}
        assert table.to_pylist() == [{"a": inner(first)}, {"a": inner(second)}, {"a": None}]


def test_long_integers_are_decimals_beside_integers() -> None:
    table = columns_of(column({"n": 1}, {"n": 10**30}))
    assert table["n"].to_pylist() == [Decimal(1), Decimal(10**30)]


@pytest.mark.parametrize("documents", [[{"a": 1}, {"a": "x"}], [{"a": [1, "x"]}]])
def test_types_that_no_column_holds_are_an_error(documents: list[Any]) -> None:
    with pytest.raises(TableMismatchError) as raised:
        columns_of(column(*documents))
    assert raised.value.code == TableMismatchError.code


def test_columns_without_rows_take_the_widest_type_or_the_first() -> None:
    tables = [pa.table({"a": [1], "b": ["x"]}), pa.table({"b": [1], "a": [1.5]}), pa.table({"c": [True]})]
    found = united_columns(tables)
    assert found.schema == pa.schema([("a", pa.float64()), ("b", pa.string()), ("c", pa.bool_())])


def test_changes_have_the_order_of_their_records_whatever_their_shapes() -> None:
    keys, values = column({"id": 1}, 2, {"id": 3}, 1), column({"a": 1}, {"b": "x"}, b"null", {"a": 2, "b": "y"})
    upserts = UpsertSettings(("id",), from_record_key=True, deletes=True, debezium=False)
    changes = changes_of(pa.table({"key": keys, "value": values}), upserts)
    assert changes.good.to_pylist() == [True] * 4
    rows = [{name: row[name] for name in ("id", "a", "b", DELETED)} for row in changes.columns.to_pylist()]
    assert rows == [
        {"id": 1, "a": 1, "b": None, DELETED: False},
        {"id": 2, "a": None, "b": "x", DELETED: False},
        {"id": 3, "a": None, "b": None, DELETED: True},
        {"id": 1, "a": 2, "b": "y", DELETED: False},
    ]


def test_bodies_of_requests_are_those_of_each_record_alone() -> None:
    values = column({"a": 1}, {"a": 1.0}, "x", 12, [1, "y", {"b": None}], b"null", {})
    assert texts_of(values, as_json=False) == ['{"a":1}', '{"a":1.0}', "x", "12", '[1,"y",{"b":null}]', None, "{}"]
    assert texts_of(values, as_json=True)[2] == '"x"'
