"""Tables of records are cut by topic and partition, in order."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from connectx.errors import RecordRefusedError
from connectx.kafka.record_batches import split_by_target


def test_rows_without_targets_are_one_run_for_the_slices_topic() -> None:
    (records,) = split_by_target(pa.table({"value": [b"a", None]}), "t")
    assert (records.topic, records.partition, records.plain, records.nbytes) == ("t", None, True, 1)
    assert records.messages(0, 2) == [{"value": b"a"}, {"value": None}]


def test_rows_are_grouped_by_topic_and_partition_and_keep_their_order() -> None:
    rows = pa.table(
        {
            "key": [b"1", b"2", b"3", b"4"],
            "value": [b"a", b"b", b"c", b"d"],
            "topic": ["x", None, "x", "x"],
            "partition": pa.array([1, None, 1, None], pa.int32()),
        }
    )
    found = [(r.topic, r.partition, [m["value"] for m in r.messages(0, r.count)]) for r in split_by_target(rows, "t")]
    assert found == [("t", None, [b"b"]), ("x", None, [b"d"]), ("x", 1, [b"a", b"c"])]


def test_timestamps_and_headers_make_single_messages() -> None:
    rows = pa.table(
        {
            "value": [b"a", b"b"],
            "timestamp": pa.array([dt.datetime(1970, 1, 1, 0, 0, 1), None], pa.timestamp("us")),
            "headers": pa.array([[{"key": "h", "value": b"v"}], None]),
        }
    )
    (records,) = split_by_target(rows, "t")
    assert not records.plain
    assert records.messages(0, 2) == [
        {"value": b"a", "timestamp": 1000, "headers": [("h", b"v")]},
        {"value": b"b"},
    ]


def test_columns_that_hold_nothing_do_not_slow_a_table_down() -> None:
    rows = pa.table({"value": [b"a"], "headers": pa.nulls(1), "timestamp": pa.nulls(1, pa.int64())})
    (records,) = split_by_target(rows, "t")
    assert records.plain


def test_a_record_without_a_topic_is_refused() -> None:
    with pytest.raises(RecordRefusedError, match="no topic"):
        list(split_by_target(pa.table({"value": [b"a"]}), None))


def test_no_rows_are_no_runs() -> None:
    assert list(split_by_target(pa.table({"value": pa.array([], pa.binary())}), "t")) == []
