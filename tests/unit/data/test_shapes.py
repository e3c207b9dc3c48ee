"""Columns whose values have several types."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connectx.data.shapes import divided, is_united, mapped, nulls_of, parts_of, united

INT = pa.array([1, 3, None])
TEXT = pa.array(["a", "b"])


def numbered(*parts: tuple[list[int], pa.Array]) -> list[tuple[Any, pa.Array]]:
    return [(np.array(rows), values) for rows, values in parts]


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32])
def test_rows_may_be_numbers_of_any_type(kind: type) -> None:
    rows: list[Any] = [np.array([1, 3], kind), np.array([0, 2], kind)]
    assert united(zip(rows, [pa.array([1, 3]), pa.nulls(2)], strict=True)).to_pylist() == [None, 1, None, 3]
    assert united(zip(rows, [pa.array([1, 3]), TEXT], strict=True)).to_pylist() == ["a", 1, "b", 3]


def test_values_of_several_types_keep_their_types_and_rows() -> None:
    both = united(numbered(([0, 2, 4], INT), ([3, 1], TEXT), ([5], pa.nulls(1))))
    both.validate(full=True)
    assert both.to_pylist() == [1, "b", 3, "a", None, None]
    assert nulls_of(both).to_pylist() == [False, False, False, False, True, True]
    assert nulls_of(pa.chunked_array([both[4:], both[:4]])).to_pylist() == [True, True, False, False, False, False]
    assert [(rows.tolist(), part.to_pylist()) for rows, part in parts_of(both)] == [
        ([0, 2, 4, 5], [1, 3, None, None]),
        ([1, 3], ["b", "a"]),
    ]


def test_a_slice_has_the_values_of_its_rows() -> None:
    both = united(numbered(([0, 2, 4], INT), ([3, 1], TEXT)))
    for first, end in itertools.combinations(range(6), 2):
        part = both[first:end]
        assert united(parts_of(part)).to_pylist() == both.to_pylist()[first:end]
        assert nulls_of(part).to_pylist() == [value is None for value in part.to_pylist()]
        table = pa.table({"value": both}).slice(first, end - first)
        rows = {row: value for rows, one in divided(table) for row, value in zip(rows, one["value"], strict=True)}
        assert [rows[row].as_py() for row in sorted(rows)] == part.to_pylist()


def test_one_type_is_an_ordinary_array() -> None:
    assert united(numbered(([1, 0, 3], INT), ([2], pa.nulls(1)))).equals(pa.array([3, 1, None, None]))
    assert united(numbered(([0, 1, 2], INT))).equals(INT)
    assert united(numbered(([1], pa.nulls(1, pa.string())), ([0], pa.nulls(1)))).type == pa.string()
    assert united([]).equals(pa.nulls(0))


def test_names_of_schemas_and_defaults_tell_types_apart() -> None:
    kinds = [pa.struct([pa.field("a", pa.int32(), metadata={"connect.default": text})]) for text in ("1", "2")]
    both = united(numbered(*(([row], pa.array([{"a": row}], kind)) for row, kind in enumerate(kinds))))
    assert [part.type.field("a").metadata for _, part in parts_of(both)] == [kind.field("a").metadata for kind in kinds]


@pytest.mark.parametrize("count", [127, 128, 1_000])
def test_a_column_may_have_any_number_of_shapes(count: int) -> None:
    order = random.Random(1).sample(range(count), count)
    column = united(numbered(*(([row], pa.array([{f"f{row}": row}])) for row in order)))
    column.validate(full=True)
    rows = [{f"f{row}": row} for row in range(count)]
    assert column.to_pylist() == rows
    assert len(parts_of(column)) == count
    chosen = column.take(pa.array([5, None, count - 1])).filter(pa.array([True, True, True]))[1:]
    assert chosen.to_pylist() == [None, rows[-1]]
    assert nulls_of(chosen).to_pylist() == [True, False]
    again = united(parts_of(pa.chunked_array([column[:100], column[100:]])))
    assert again.to_pylist() == rows


def test_a_function_gets_values_of_one_type() -> None:
    both = united(numbered(([0, 2, 4], INT), ([3, 1], TEXT)))
    texts = mapped(lambda part: part.cast(pa.string()), both)
    assert texts.equals(pa.array(["1", "b", "3", "a", None]))
    assert mapped(pc.negate, INT).equals(pc.negate(INT))


def test_tables_are_divided_by_keys_and_values() -> None:
    key = united(numbered(([0, 1], INT[:2]), ([2, 3], TEXT)))
    value = united(numbered(([0, 2], TEXT), ([1, 3], INT[:2])))
    sides = {"key": key, "value": value}
    fields = [
        pa.field("offset", pa.int64()),
        *(pa.field(name, one.type, metadata={"connect.name": name}) for name, one in sides.items()),
    ]
    table = pa.table([pa.array([7, 8, 9, 10]), key, value], pa.schema(fields))
    parts = divided(table)
    assert [(rows.tolist(), part.to_pylist()) for rows, part in parts] == [
        ([0], [{"offset": 7, "key": 1, "value": "a"}]),
        ([1], [{"offset": 8, "key": 3, "value": 1}]),
        ([2], [{"offset": 9, "key": "a", "value": "b"}]),
        ([3], [{"offset": 10, "key": "b", "value": 3}]),
    ]
    for _, part in parts:
        assert not any(is_united(kind) for kind in part.schema.types)
        assert part.schema.field("key").metadata == {b"connect.name": b"key"}
    assert divided(table.slice(0, 0))[0][1].num_rows == 0
    assert divided(table.select(["offset"]))[0][1].num_rows == 4
