"""What executors do with a bulk slice, without Spark: batches, counts, and who may send."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from connectx.data.headers import HeaderConverter
from connectx.data.simple import LongConverter, StringConverter
from connectx.data.transforms.chain import Chain
from connectx.kafka.producer.batching import PartitionsOf
from connectx.model.ids import TopicPartition
from connectx.plugins.slices import PartRead
from connectx.runtime.tasks.source import bulk_job
from connectx.runtime.tasks.source.bulk_job import Recipe, encode_rows, outcome_of, send_batches

PARTITIONS = {"t": PartitionsOf(3, range(3))}


@pytest.fixture(autouse=True)
def of_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_job, "_this_task", lambda: (2, 0))


def recipe(**more: Any) -> Recipe:
    parts: dict[str, Any] = {
        **{"slice_number": 1, "topic": "t", "partitions": PARTITIONS, "chain": Chain(()), "skip_bad": False},
        **{"key_converter": StringConverter(is_key=True), "value_converter": StringConverter()},
        **{"header_converter": HeaderConverter(None), "config": {"batch.size": 200}, "loan": None, "now_ms": 1_000},
    }
    return Recipe(**{**parts, **more})


def encoded(of: Recipe, *tables: pa.Table) -> list[dict[str, Any]]:
    return [row for batch in encode_rows(of, [(0, table) for table in tables]) for row in batch.to_pylist()]


def numbers(count: int) -> pa.Table:
    return pa.table({"value": [f"value {number}" for number in range(count)]})


def test_the_same_rows_give_the_same_batches_when_a_task_is_repeated() -> None:
    first = encoded(recipe(), numbers(100), numbers(50))
    assert first == encoded(recipe(), numbers(100), numbers(50))
    assert len({row["partition"] for row in first if row["data"]}) > 1


def test_batches_are_numbered_in_the_order_of_rows_and_the_last_row_counts_them() -> None:
    *batches, counts = encoded(recipe(), numbers(100))
    assert [row["number"] for row in batches] == list(range(len(batches)))
    assert {row["task"] for row in batches} == {2}
    assert sum(row["records"] for row in batches) == counts["records"] == 100
    assert counts["data"] is None


def test_a_row_that_no_converter_takes_fails_the_task_with_its_reason() -> None:
    (only,) = encoded(recipe(value_converter=LongConverter()), numbers(3))
    assert "LongConverter" in only["failed"]


def test_rows_that_no_converter_takes_are_counted_if_they_are_tolerated() -> None:
    (only,) = encoded(recipe(value_converter=LongConverter(), skip_bad=True), numbers(3))
    assert (only["records"], only["bad"], only["failed"]) == (0, 3, None)
    assert "LongConverter" in only["why"]


def test_a_topic_that_nothing_was_lent_for_fails_the_task() -> None:
    (only,) = encoded(recipe(), pa.table({"value": ["a"], "topic": ["other"]}))
    assert "other" in only["failed"]


def test_a_record_that_is_too_large_fails_the_task() -> None:
    (only,) = encoded(recipe(config={"message.max.bytes": 100}), pa.table({"value": ["x" * 200]}))
    assert "max.request.size" in only["failed"]


def test_a_second_attempt_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_job, "_this_task", lambda: (0, 1))
    batches = list(encode_rows(recipe(), [(0, numbers(10))]))
    outcome = outcome_of(row for batch in send_batches(recipe(), batches) for row in batch.to_pylist())
    assert outcome.records == 0
    assert outcome.failed is not None
    assert "second" in outcome.failed


def row(**columns: Any) -> dict[str, Any]:
    zeros = dict.fromkeys(("records", "bytes", "expected", "filtered", "bad"), 0)
    nones = dict.fromkeys(("topic", "why", "failed", "read"))
    return {**nones, "partition": -1, "late": False, **zeros, **columns}


def test_outcomes_of_tasks_are_added_up() -> None:
    counts = row(expected=5, filtered=1, bad=2, why="first")
    parts = [row(topic="t", partition=n, records=n + 1, bytes=10, late=n == 1) for n in range(2)]
    outcome = outcome_of([*parts, counts, row(expected=-2, why="second")])
    assert outcome.sent == {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2}
    assert (outcome.size_bytes, outcome.may_arrive_late, outcome.filtered, outcome.bad) == (20, True, 1, 2)
    assert (outcome.why, outcome.failed) == ("first", None)


def test_records_that_were_converted_and_not_sent_make_a_job_fail() -> None:
    outcome = outcome_of([row(topic="t", partition=0, records=4), row(expected=5)])
    assert outcome.failed == "executors converted 5 records, and sent 4"


def test_rows_and_ends_of_parts_are_counted_over_all_tasks() -> None:
    tables = [(3, numbers(10)), (3, numbers(5)), (3, None), (4, numbers(2)), (5, None)]
    *_, counts = [row for batch in encode_rows(recipe(), tables, counts_parts=True) for row in batch.to_pylist()]
    assert counts["records"] == 17
    outcome = outcome_of([row(read=counts["read"]), row(read="[[4, 8, 1]]"), row()])
    assert outcome.read == {3: PartRead(15, 1), 4: PartRead(10, 1), 5: PartRead(0, 1)}
    assert encoded(recipe(), numbers(1))[-1]["read"] is None
