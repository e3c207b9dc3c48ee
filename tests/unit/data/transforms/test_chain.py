"""The chain: order of rows, parts with different fields, dropped rows, and rows at fault."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.transforms.api import Predicate, Transform
from connectx.data.transforms.chain import Chain, Step, in_order
from connectx.data.transforms.columns import HEADERS
from tests.support.profiles import dotted
from tests.support.shipped import PACKAGE, PREDICATES, TRANSFORMS


def rows(values: list[Any], **columns: list[Any]) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "topic": pa.array(columns.get("topic", ["t"] * count), pa.string()),
            "value": pa.array(values),
            "headers": pa.array(columns.get("headers", [None] * count), HEADERS),
        }
    )


def step(name: str, predicate: Predicate | None = None, *, negate: bool = False, **settings: str) -> Step:
    given = dotted(settings)
    return Step("a", TRANSFORMS[PACKAGE + name](given), predicate, negate)


def predicate(cls: str, **settings: str) -> Predicate:
    return PREDICATES[f"{PACKAGE}predicates.{cls}"](settings)


class Odd(Predicate):
    def test(self, table: pa.Table) -> pa.Array:
        return pc.equal(pc.bit_wise_and(table["value"].combine_chunks(), 1), 1)


class Refuses(Transform):
    calls = 0

    def apply(self, table: pa.Table) -> pa.Table:
        Refuses.calls += 1
        if 13 in table["value"].to_pylist():
            raise ValueError("thirteen")
        return table


def test_predicates_say_which_records_a_transformation_is_for() -> None:
    three = rows([1, 2, 3], topic=["a", "b", "a"], headers=[[("h", b"1")], None, [("x", b"1")]])
    for test, wanted in (
        (predicate("TopicNameMatches", pattern="a"), [True, False, True]),
        (predicate("TopicNameMatches", pattern="."), [True, True, True]),
        (predicate("HasHeaderKey", name="h"), [True, False, False]),
        (predicate("RecordIsTombstone"), [False, False, False]),
    ):
        assert test.test(three).to_pylist() == wanted
    assert predicate("RecordIsTombstone").test(rows([None, 1])).to_pylist() == [True, False]


def test_filtered_records_are_counted_and_the_others_keep_their_order() -> None:
    outcome = Chain((step("Filter", Odd({})),)).apply(rows([1, 2, 3, 4]))
    assert outcome.filtered == 2
    assert in_order(outcome.parts)["value"].to_pylist() == [2, 4]
    negated = Chain((step("Filter", Odd({}), negate=True),)).apply(rows([1, 2, 3, 4]))
    assert in_order(negated.parts)["value"].to_pylist() == [1, 3]


def test_a_record_of_which_a_predicate_can_say_nothing_is_not_lost() -> None:
    for negate, changed in ((False, [1]), (True, [None, 2])):
        chain = Chain((step("HoistField$Value", Odd({}), negate=negate, field="odd"),))
        outcome = chain.apply(rows([1, None, 2]))
        assert outcome.filtered == 0
        made = [value for part in outcome.parts for value in part["value"].to_pylist() if isinstance(value, dict)]
        assert made == [{"odd": value} for value in changed]
        assert sum(part.num_rows for part in outcome.parts) == 3


def test_a_slice_that_is_dropped_as_a_whole_leaves_no_parts() -> None:
    outcome = Chain((step("Filter"), step("HoistField$Value", field="f"))).apply(rows([1, 2]))
    assert (outcome.parts, outcome.filtered, outcome.failures) == ((), 2, ())
    assert Chain((step("Filter"),)).apply(rows([])).parts == ()


def test_records_with_different_fields_are_parts_and_go_together_in_order() -> None:
    outcome = Chain((step("HoistField$Value", Odd({}), field="odd"),)).apply(rows([1, 2, 3, 4]))
    assert [part["connectx_row"].to_pylist() for part in outcome.parts] == [[0, 2], [1, 3]]
    assert in_order(outcome.parts)["value"].to_pylist() == [{"odd": 1}, 2, {"odd": 3}, 4]
    named = Chain((step("InsertField$Value", predicate("HasHeaderKey", name="h"), topic_field="t"),))
    apart = named.apply(rows([{"n": 1}, {"n": 2}, {"n": 3}], headers=[None, [("h", b"")], None]))
    assert in_order(apart.parts)["value"].to_pylist() == [{"n": 1}, {"n": 2, "t": "t"}, {"n": 3}]


def test_a_record_without_a_value_beside_one_at_fault_has_the_type_of_the_others() -> None:
    made = Chain((step("Cast$Value", spec="a:int64"),)).apply(rows([{"a": "x"}, None, {"a": "1"}, {"a": "2"}]))
    assert [failure.row for failure in made.failures] == [0]
    table = in_order(made.parts)
    assert table["value"].to_pylist() == [None, {"a": 1}, {"a": 2}]


def test_only_the_records_at_fault_fail() -> None:
    outcome = Chain((Step("mine", Refuses({})),)).apply(rows([1, 13, 3, 4, 13, 6]))
    assert [failure.row for failure in outcome.failures] == [1, 4]
    assert outcome.failures[0].message == "Transformation mine (Refuses) failed: ValueError('thirteen')"
    assert in_order(outcome.parts)["value"].to_pylist() == [1, 3, 4, 6]
    assert outcome.filtered == 0


def test_what_fails_for_every_record_is_not_tried_record_by_record() -> None:
    hoisted = Chain((step("ExtractField$Value", field="x"),)).apply(rows([{"a": 1}] * 1000))
    assert len(hoisted.failures) == 1000


def test_a_transformation_that_loses_columns_says_so() -> None:
    class Loses(Transform):
        def apply(self, table: pa.Table) -> pa.Table:
            return table.select(["value"])

    outcome = Chain((Step("mine", Loses({})),)).apply(rows([1]))
    assert "did not give back its table with all of its columns" in outcome.failures[0].message


def test_an_object_that_is_null_in_a_record_has_no_fields_there() -> None:
    values = [{"a": {"b": {"c": 1}}}, {"a": {"b": None}}, {"a": None}, {"a": {"b": {"c": 2}}}]
    flat = [{"a.b.c": 1}, {"a.b": None}, {"a": None}, {"a.b.c": 2}]
    chain = Chain((step("Flatten$Value"), step("HoistField$Value", field="h")))
    for step_ in chain.steps:
        step_.transform.varied = frozenset({"value"})
    for chosen in (slice(None), *(slice(row, row + 1) for row in range(len(values)))):
        outcome = chain.apply(rows(values[chosen]))
        assert in_order(outcome.parts)["value"].to_pylist() == [{"h": each} for each in flat[chosen]]
