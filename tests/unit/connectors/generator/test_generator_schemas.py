"""Rows of schemas follow from seed, field and number alone; relations between tables hold."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.connectors.generator.rows import RowSchema, SchemaProblem, TextPattern
from connectx.connectors.generator.source import Generator
from connectx.errors.plugins import ConfigError
from tests.unit.connectors.generator.test_generator import Context

MANY = np.arange(2_000)


def schema(**fields: Any) -> str:
    """A record schema; values are types."""
    return json.dumps({"type": "record", "name": "t", "fields": [{"name": n, "type": t} for n, t in fields.items()]})


def of(kind: str, **properties: Any) -> dict[str, Any]:
    return {"type": kind, "arg.properties": properties}


def column(kind: Any, numbers: Any = MANY, seed: int = 0) -> list[Any]:
    return cast("list[Any]", RowSchema(schema(f=kind)).rows(numbers, seed)["f"].to_pylist())


def task(**config: str) -> Any:
    made = Generator.Task()
    made.start({"topic": "t", "rate": "0", **config}, cast("Any", Context()))
    return made


@pytest.mark.parametrize(
    ("kind", "arrow", "low", "high"),
    [
        (of("int", range={"min": -3, "max": 4}), pa.int32(), -3, 3),
        (of("long", range={"min": 10, "max": 20}), pa.int64(), 10, 19),
        (of("double", range={"min": 0.5, "max": 2}), pa.float64(), 0.5, 2.0),
        (of("float", range={"min": 0.0, "max": 1.0}), pa.float32(), 0.0, 1.0),
    ],
)
def test_numbers_fill_their_range(kind: Any, arrow: pa.DataType, low: float, high: float) -> None:
    values = column(kind)
    assert RowSchema(schema(f=kind)).rows(MANY, 0).schema.field("f").type == arrow
    assert low <= min(values) <= low + (high - low) / 5
    assert high - (high - low) / 5 <= max(values) <= high


def test_choices_enums_and_odds() -> None:
    assert set(column(of("string", options=["a", "b"]))) == {"a", "b"}
    assert set(column(of("int", options=[1, 5]))) == {1, 5}
    assert set(column({"type": "enum", "name": "e", "symbols": ["X", "Y", "Z"]})) == {"X", "Y", "Z"}
    assert 100 < sum(column(of("boolean", odds=0.1))) < 300
    assert column(of("boolean", odds=0)).count(True) == 0


def test_iterations_count_by_row() -> None:
    numbers = np.array([0, 1, 2, 3, 10])
    assert column(of("long", iteration={"start": 5, "step": 2}), numbers) == [5, 7, 9, 11, 25]
    assert column(of("int", iteration={"start": 1, "restart": 4}), numbers) == [1, 2, 3, 1, 2]
    assert column(of("string", iteration={"start": 0}), numbers) == ["0", "1", "2", "3", "10"]


def test_records_arrays_and_nulls_nest() -> None:
    inner = {"type": "record", "name": "r", "fields": [{"name": "x", "type": of("int", range={"min": 0, "max": 9})}]}
    kind = {"type": "array", "items": inner, "arg.properties": {"length": {"min": 0, "max": 3}}}
    values = column(kind)
    assert {len(value) for value in values} == {0, 1, 2}
    assert {item["x"] for value in values for item in value} == set(range(9))
    maybe = column(["null", "string"])
    assert 800 < maybe.count(None) < 1200
    assert all(re.fullmatch("[a-z]{8}", value) for value in maybe if value is not None)


@given(st.integers(0, 10**9), st.integers(1, 10), st.integers(-5, 5))
def test_a_row_is_the_same_whatever_rows_are_made_with_it(first: int, count: int, seed: int) -> None:
    address = {"type": "record", "name": "address", "fields": [{"name": "zip", "type": "long"}]}
    item, tags = of("string", regex="Item_[1-9][0-9]{0,2}"), {"type": "array", "items": "int"}
    made = RowSchema(
        schema(id=of("int", iteration={"start": 0}), item=item, units="double", address=address, tags=tags)
    )
    numbers = np.arange(first, first + count)
    whole = made.rows(numbers, seed).to_pylist()
    assert [made.rows(numbers[at : at + 1], seed).to_pylist()[0] for at in range(count)] == whole


def test_a_seed_and_a_field_give_values_of_their_own() -> None:
    one = RowSchema(schema(a="long", b="long")).rows(MANY, 1)
    assert one["a"] != one["b"]
    assert one["a"] != RowSchema(schema(a="long")).rows(MANY, 2)["a"]
    assert one["a"] == RowSchema(schema(z="string", a="long")).rows(MANY, 1)["a"]


def test_a_reference_has_only_keys_that_the_other_table_has() -> None:
    key = {"regex": "C-[0-9]{6}-[a-f]{4}"}
    customers = RowSchema(schema(id=of("string", **key), name="string")).rows(np.arange(50), 7)["id"].to_pylist()
    orders = RowSchema(schema(customer=of("string", **key, references={"field": "id", "rows": 50}))).rows(MANY, 7)
    assert len(set(customers)) == 50
    assert set(orders["customer"].to_pylist()) == set(customers)


def test_a_reference_to_a_counted_key_is_one_of_the_counted() -> None:
    kind = of("long", iteration={"start": 100, "step": 10}, references={"field": "id", "rows": 3})
    assert set(column(kind)) == {100, 110, 120}


@pytest.mark.parametrize(
    "pattern",
    ["User_[1-9]", r"\d{3}-\w+", "(cat|dog)s?", "[^aeiou]{2,4}", "a.b*", "(?:[A-Z]{2}){1,3}", "^x$", "", r"[\d_]-é"],
)
def test_texts_match_their_pattern(pattern: str) -> None:
    texts = (
        column(of("string", regex=pattern)) if pattern else TextPattern("").texts(3, lambda p, c: MANY[:3]).to_pylist()
    )
    assert all(re.fullmatch(pattern, text) for text in texts)
    assert len(texts) in (3, 2_000)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is no JSON"),
        ('{"type": "string"}', "not a schema of type record"),
        (schema(), "t has no fields"),
        ('{"type":"record","name":"t","fields":[{"name":"a"}]}', "without name or type"),
        ('{"type":"record","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}', "two fields of one name"),
        (schema(a="decimal"), "a: the type decimal cannot be generated"),
        (schema(a=of("int", ragne={})), "a: ragne is none of options"),
        (schema(a=of("int", range={"min": 4, "max": 4})), "a: the range from 4 to 4 is empty"),
        (schema(a=of("int", range={"min": 0, "max": 2**40})), "a: "),
        (schema(a=of("int", options=["x"])), "a: "),
        (schema(a=of("int", options=[])), "a: options must be a list"),
        (schema(a=of("string", regex="(")), "a: '\\(' is no regular expression"),
        (schema(a=of("string", regex=r"(a)\1")), "cannot be made for"),
        (schema(a=of("string", regex="a{100}")), "repeats more than 64 times"),
        (schema(a=of("string", references={"field": "b"})), "references needs rows"),
        (schema(a=["int", "string"]), "of unions only those of null and one type"),
        (schema(a=of("array", length=2)), "a: 'items'"),
    ],
)
def test_a_schema_that_rows_cannot_be_made_of_is_refused_by_field(text: str, problem: str) -> None:
    with pytest.raises(SchemaProblem, match=problem):
        RowSchema(text)
    with pytest.raises(ConfigError, match=r"Invalid value .* for configuration schema\.string"):
        Generator.config.parse({"topic": "t", "schema.string": text})


def test_tasks_divide_the_rows_of_a_schema() -> None:
    text = schema(n=of("long", iteration={"start": 0}))
    found = [
        task(**{"schema.string": text, "max.rows": "3", "generator.task": str(number), "generator.tasks": "2"})
        .poll(None, None)
        .rows["n"]
        .to_pylist()
        for number in range(2)
    ]
    assert found == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, 'Missing required configuration "topic"'),
        ({"topic": "t", "schema.string": schema(a="int"), "fields": "id:long"}, "both define the rows"),
        ({"topic": "t", "schema.string": schema(a="int"), "key.fields": "nothing"}, "no such field"),
        ({"topic": "t", "rate": "-1"}, "at least 0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(config: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Generator.Task().start(config, cast("Any", Context()))
