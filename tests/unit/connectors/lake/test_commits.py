"""Every format: rows and offsets are one commit, and a table refuses a zombie."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.lake.task import LakeTask
from connectx.connectors.shared.errors import LakeUnavailableError
from connectx.data.converter import with_others
from connectx.errors.databases import TableMismatchError
from connectx.errors.plugins import RecordRejectedError
from connectx.plugins.slices import SinkBatch
from tests.support.lake import Context, Lake, batch, partition, refusal, rows, write
from tests.unit.connectors.lake.conftest import FORMATS, Tables

pytestmark = pytest.mark.rule("always.8")

P0, P1 = partition(0), partition(1)
any_columns = pytest.mark.parametrize("made", [name for name in FORMATS if name != "partitioned"], indirect=True)
"""For rows without the column that the directories are named by."""


def reported(task: LakeTask) -> list[str]:
    assert isinstance(task.context, Context)
    return task.context.reported


def test_rows_are_visible_after_a_flush_and_a_successor_goes_on_after_them(lake: Lake, tables: Tables) -> None:
    task = lake.task()
    assert task.open([P0, P1]) == {}
    task.put(batch(0, rows(1, 2), end=4))
    task.put(batch(5, rows(3), place=P1))
    task.flush()
    assert tables.sql("SELECT id, name FROM lake ORDER BY id") == [(1, "row 1"), (2, "row 2"), (3, "row 3")]
    assert lake.task().open([P0, P1]) == {P0: 4, P1: 6}


def test_what_is_not_flushed_is_not_in_the_table(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0)
    write(task, batch(0, rows(1)))
    task.put(batch(1, rows(2)))
    assert tables.ids() == [1]
    assert lake.task().open([P0]) == {P0: 1}


@pytest.mark.rule("618.8.3")
def test_a_zombie_that_commits_after_its_successor_is_refused_and_reads_on_at_the_table(
    lake: Lake, tables: Tables
) -> None:
    zombie = lake.opened(P0)
    write(zombie, batch(0, rows(1, 2)))
    zombie.put(batch(2, rows(3, 4)))
    successor = lake.task()
    assert successor.open([P0]) == {P0: 2}
    write(successor, batch(2, rows(3, 4, 5)))
    assert refusal(zombie.flush).committed == {P0: 5}
    assert tables.ids() == [1, 2, 3, 4, 5]
    assert refusal(lambda: zombie.put(batch(4, rows(5)))).committed == {P0: 5}
    write(zombie, batch(5, rows(6)))
    assert refusal(lambda: write(successor, batch(5, rows(6, 7)))).committed == {P0: 6}
    assert tables.ids() == [1, 2, 3, 4, 5, 6]


@pytest.mark.rule("618.8.3")
def test_a_zombie_that_commits_before_its_successor_wins_and_the_successor_reads_on_after_it(
    lake: Lake, tables: Tables
) -> None:
    write(lake.opened(P0), batch(0, rows(1, 2)))
    zombie, successor = lake.opened(P0), lake.opened(P0)
    zombie.put(batch(2, rows(3)))
    successor.put(batch(2, rows(3, 4)))
    zombie.flush()
    assert refusal(successor.flush).committed == {P0: 3}
    write(successor, batch(3, rows(4)))
    assert tables.ids() == [1, 2, 3, 4]


@pytest.mark.rule("618.8.3")
def test_of_two_tasks_that_commit_first_one_is_refused(lake: Lake, tables: Tables) -> None:
    first, second = lake.opened(P0), lake.opened(P0)
    first.put(batch(0, rows(1, 2)))
    second.put(batch(0, rows(1, 2, 3)))
    first.flush()
    assert refusal(second.flush).committed == {P0: 2}
    assert tables.ids() == [1, 2]


@pytest.mark.rule("618.8.3")
def test_a_zombie_that_has_seen_its_successors_commit_is_still_refused(lake: Lake, tables: Tables) -> None:
    zombie = lake.opened(P0, P1)
    zombie.put(batch(0, rows(1)))
    write(lake.opened(P0), batch(0, rows(1)))
    zombie.open([P1])  # reads the newest state of the table
    zombie.put(batch(0, rows(9), place=P1))
    assert refusal(zombie.flush).committed == {P0: 1, P1: 0}
    assert tables.ids() == [1]


def test_tasks_of_different_partitions_commit_side_by_side(lake: Lake, tables: Tables) -> None:
    write(lake.opened(P0), batch(0, rows(1)))
    first, second = lake.opened(P0), lake.opened(P1)
    for number in range(3):
        write(first, batch(1 + number, rows(10 + number)))
        write(second, batch(number, rows(20 + number), place=P1))
    assert tables.ids() == [1, 10, 11, 12, 20, 21, 22]
    assert lake.task().open([P0, P1]) == {P0: 4, P1: 3}


def test_a_refusal_drops_rows_of_all_partitions_and_says_where_each_goes_on(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, P1)
    write(task, batch(0, rows(1)), batch(0, rows(2), place=P1))
    write(lake.opened(P0), batch(1, rows(3)))
    task.put(batch(1, rows(3)))
    task.put(batch(1, rows(4), place=P1))
    refused = refusal(task.flush).committed
    assert refused[P0] == 2
    write(task, batch(refused[P1], rows(4)[2 - refused[P1] - 1 :], place=P1))
    assert tables.ids() == [1, 2, 3, 4]


def test_a_batch_that_does_not_start_where_the_last_one_ended_is_refused(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0)
    task.put(batch(0, rows(1)))
    assert refusal(lambda: task.put(batch(5, rows(6)))).committed == {P0: 1}
    task.flush()
    assert tables.ids() == [1]


def test_rows_of_partitions_that_were_lost_are_dropped(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, P1)
    task.put(batch(0, rows(1)))
    task.put(batch(0, rows(2), place=P1))
    task.close([P0])
    task.flush()
    assert tables.ids() == [2]
    assert lake.task().open([P0, P1]) == {P1: 1}


def test_filtered_offsets_are_committed_with_the_next_rows(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0)
    write(task, batch(0, [], end=7))
    assert lake.task().open([P0]) == {}
    write(task, batch(7, rows(1)))
    assert lake.task().open([P0]) == {P0: 8}
    assert tables.ids() == [1]


def test_a_full_task_commits_before_it_takes_more(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, flush_size="2")
    task.put(batch(0, rows(1, 2)))
    task.put(batch(2, rows(3)))
    assert tables.ids() == [1, 2]


def test_a_refused_full_task_says_where_it_goes_on(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, flush_size="2")
    task.put(batch(0, rows(1, 2)))
    write(lake.opened(P0), batch(0, rows(1)))
    assert refusal(lambda: task.put(batch(2, rows(3)))).committed == {P0: 1}
    write(task, batch(1, rows(2, 3)))
    assert tables.ids() == [1, 2, 3]


def test_a_cancelled_task_commits_nothing_any_more(lake: Lake) -> None:
    task = lake.opened(P0)
    task.put(batch(0, rows(1)))
    task.cancel()
    with pytest.raises(LakeUnavailableError, match="cancelled"):
        task.flush()
    assert lake.task().open([P0]) == {}


def test_topics_go_to_tables_by_name_or_by_the_map(lake: Lake, tables: Tables) -> None:
    places = [partition(topic="a"), partition(topic="b"), partition(topic="c.d")]
    named: dict[str, Any] = {"table_name_format": "raw_${topic}", "topic_to_table_map": "b:both, c.d:both"}
    task = lake.opened(*places, **named)
    for number, place in enumerate(places):
        task.put(batch(0, rows(number), place=place))
    task.flush()
    assert (tables.ids("raw_a"), tables.ids("both")) == ([0], [1, 2])
    assert lake.task(**named).open(places) == dict.fromkeys(places, 1)


def test_a_transformation_that_changes_topics_is_refused_with_the_settings_to_use(lake: Lake) -> None:
    task = lake.opened(P0)
    changed = batch(0, rows(1))
    topic = changed.rows.column_names.index("topic")
    moved = SinkBatch(changed.rows.set_column(topic, "topic", pa.array(["other"])), changed.ranges)
    with pytest.raises(TableMismatchError, match=r"topic\.to\.table\.map"):
        task.put(moved)


def struct(**types: pa.DataType) -> pa.DataType:
    return pa.struct(list(types.items()))


@any_columns
def test_types_arrive_as_they_are(lake: Lake, tables: Tables) -> None:
    moment = datetime.datetime(2013, 1, 2, 3, 4, 5, 678000)
    row: dict[str, Any] = {"a": 1, "b": 2, "c": 1.5, "d": 2.5, "e": True, "f": "x", "g": b"\x00y", "h": moment.date()}
    row |= {"i": moment.replace(tzinfo=datetime.UTC), "j": decimal.Decimal("-1.25"), "k": [1, 2], "l": {"x": 7}}
    kinds = [pa.int16(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.date32()]
    kinds += [pa.timestamp("ms", "UTC"), pa.decimal128(10, 2), pa.list_(pa.int64()), struct(x=pa.int32())]
    kind = pa.struct(list(zip(row, kinds, strict=True)))
    write(lake.opened(P0), batch(0, [row, dict.fromkeys(row)], kind))
    shown = "SELECT a, b, c, d, e, f, g, h, epoch_ms(i), j, k, l FROM lake ORDER BY a NULLS LAST"
    expected = [*row.values()]
    expected[8] = int(moment.replace(tzinfo=datetime.UTC).timestamp() * 1000)
    assert tables.sql(shown) == [tuple(expected), (None,) * 12]


@any_columns
def test_values_without_fields_go_to_the_column_value(lake: Lake, tables: Tables) -> None:
    write(lake.opened(P0), batch(0, ["a", "b"], pa.string()))
    assert tables.sql("SELECT value FROM lake ORDER BY 1") == [("a",), ("b",)]


def test_columns_are_added_and_old_rows_are_null_there(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0)
    write(task, batch(0, rows(1)))
    more = struct(id=pa.int64(), name=pa.string(), place=struct(x=pa.int64()), empty=pa.null())
    write(task, batch(1, [{"id": 2, "name": "b", "place": {"x": 1}}], more))
    deeper = struct(id=pa.int64(), place=struct(x=pa.int64(), y=pa.string()))
    write(task, batch(2, [{"id": 3, "place": {"x": 2, "y": "z"}}], deeper))
    found = tables.sql("SELECT id, name, place.x, place.y FROM lake ORDER BY id")
    assert found == [(1, "row 1", None, None), (2, "b", 1, None), (3, None, 2, "z")]


@any_columns
def test_empty_lists_show_no_type_of_a_column(lake: Lake, tables: Tables) -> None:
    def tagged(kind: pa.DataType) -> pa.DataType:
        return pa.struct(
            [("id", pa.int64()), ("tags", pa.list_(kind)), ("seen", pa.struct([("places", pa.list_(kind))]))]
        )

    task = lake.opened(P0)
    write(task, batch(0, [{"id": 1, "tags": [], "seen": {"places": []}}], tagged(pa.null())))
    write(task, batch(1, [{"id": 2, "tags": ["a"], "seen": {"places": ["b"]}}], tagged(pa.string())))
    write(task, batch(2, [{"id": 3, "tags": [], "seen": {"places": []}}], tagged(pa.null())))
    found = tables.sql("SELECT id, tags, seen.places FROM lake ORDER BY id")
    assert found == [(1, None, None), (2, ["a"], ["b"]), (3, [], [])]


def test_a_column_that_another_task_added_is_kept(lake: Lake, tables: Tables) -> None:
    write(lake.opened(P0), batch(0, rows(1)))
    first, second = lake.opened(P0), lake.opened(P1)
    first.put(batch(1, [{"id": 2, "x": 1}], struct(id=pa.int64(), x=pa.int64())))
    second.put(batch(0, [{"id": 3, "y": 2}], struct(id=pa.int64(), y=pa.int64()), place=P1))
    first.flush()
    second.flush()
    assert tables.sql("SELECT id, x, y FROM lake ORDER BY id") == [(1, None, None), (2, 1, None), (3, None, 2)]


@any_columns
def test_integers_become_doubles_where_the_column_is_one(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0)
    write(task, batch(0, [{"x": 1.5}], struct(x=pa.float64())), batch(1, [{"x": 2}], struct(x=pa.int64())))
    assert tables.sql("SELECT x FROM lake ORDER BY x") == [(1.5,), (2.0,)]


WIDER = [
    (pa.int32(), pa.int64(), 1, 2**40),
    (pa.float32(), pa.float64(), 1.5, 1e300),
    (pa.decimal128(6, 2), pa.decimal128(12, 2), decimal.Decimal("1.25"), decimal.Decimal("1234567.89")),
]


@any_columns
@pytest.mark.parametrize(("narrow", "wide", "small", "large"), WIDER, ids=["integer", "float", "decimal"])
def test_a_column_becomes_wider_and_keeps_its_rows_and_offsets(
    lake: Lake, tables: Tables, narrow: pa.DataType, wide: pa.DataType, small: Any, large: Any
) -> None:
    task, other = lake.opened(P0), lake.task()
    write(task, batch(0, [{"x": small, "in": {"y": small}}], struct(**{"x": narrow, "in": struct(y=narrow)})))
    other.open([P1])
    write(task, batch(1, [{"x": large, "in": {"y": large}}], struct(**{"x": wide, "in": struct(y=wide)})))
    write(other, batch(0, [{"x": small}], struct(x=narrow), place=P1))
    found = tables.sql('SELECT x, "in".y FROM lake ORDER BY x, 2 NULLS LAST')
    assert found == [(small, small), (small, None), (large, large)]
    assert lake.task().open([P0, P1]) == {P0: 2, P1: 1}


@any_columns
@pytest.mark.rule("618.8.3")
def test_a_zombie_of_the_time_before_a_column_became_wider_is_refused(lake: Lake, tables: Tables) -> None:
    zombie = lake.opened(P0)
    write(zombie, batch(0, [{"x": 1}], struct(x=pa.int32())))
    zombie.put(batch(1, [{"x": 2}], struct(x=pa.int32())))
    write(lake.opened(P0), batch(1, [{"x": 2}, {"x": 2**40}], struct(x=pa.int64())))
    assert refusal(zombie.flush).committed == {P0: 3}
    assert tables.sql("SELECT x FROM lake ORDER BY x") == [(1,), (2,), (2**40,)]


@any_columns
@pytest.mark.parametrize(
    ("known", "found", "rest"),
    [
        (pa.int64(), pa.string(), "int64, and the records have string"),
        (pa.int64(), pa.float64(), "int64, and the records have double"),
        (pa.decimal128(6, 2), pa.decimal128(6, 3), r"decimal128\(6, 2\), and the records have decimal128\(6, 3\)"),
    ],
    ids=str,
)
def test_any_other_change_is_refused_with_column_types_and_next_step(
    lake: Lake, known: pa.DataType, found: pa.DataType, rest: str
) -> None:
    task = lake.opened(P0)
    value = {pa.string(): "1"}
    write(task, batch(0, [{"x": value.get(known, 1)}], struct(x=known)))
    with pytest.raises(
        TableMismatchError, match=f"column x of The table .*rows is of type {rest}: auto.evolve"
    ) as told:
        task.put(batch(1, [{"x": value.get(found, 1)}], struct(x=found)))
    assert "Cast transformation, or write them to another table" in told.value.next_step


def test_another_type_is_refused_with_the_setting_and_the_task_fails(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0)
    write(task, batch(0, rows(1)))
    with pytest.raises(TableMismatchError, match=r"column id of .* is of type int64, .*string: auto\.evolve adds"):
        task.put(batch(1, [{"id": "two"}], struct(id=pa.string())))
    assert tables.ids() == [1]


def test_without_auto_evolve_a_new_field_is_refused_and_values_are_read_in_the_tables_types(lake: Lake) -> None:
    write(lake.opened(P0), batch(0, rows(1)))
    task = lake.opened(P0, auto_evolve="false")
    assert task.value_type("rows") == with_others(pa.struct([("id", pa.int64()), ("name", pa.string())]), ())
    with pytest.raises(TableMismatchError, match=r"no column more, .* auto\.evolve is false"):
        task.put(batch(1, [{"more": 1}], struct(more=pa.int64())))


def test_a_tombstone_is_reported_and_the_others_are_written(lake: Lake, tables: Tables) -> None:
    with pytest.raises(RecordRejectedError, match=r"offset 1 of rows-0.*tombstone"):
        lake.opened(P0).put(batch(0, [*rows(1), None]))
    task = lake.opened(P0, tolerate=True)
    write(task, batch(0, [*rows(1), None, *rows(3)]))
    assert (tables.ids(), reported(task)) == ([1, 3], ["rows-0@1"])


@any_columns
def test_a_value_that_does_not_fit_its_column_is_reported(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, tolerate=True)
    write(task, batch(0, [{"x": 1.5}], struct(x=pa.float64())))
    write(task, batch(1, [{"x": 2}, {"x": 2**60 + 1}, {"x": 3}], struct(x=pa.int64())))
    assert tables.sql("SELECT x FROM lake ORDER BY x") == [(1.5,), (2.0,), (3.0,)]
    assert reported(task) == ["rows-0@2"]


def test_records_without_any_field_are_refused(lake: Lake) -> None:
    with pytest.raises(TableMismatchError, match="no field with a value"):
        lake.opened(P0).put(batch(0, [{"x": None}], struct(x=pa.null())))
