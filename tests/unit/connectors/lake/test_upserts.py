"""Tables with keys: a record replaces or deletes the row with its key, in one commit with the offsets."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from connectx.connectors.lake.delta import DeltaSink
from connectx.connectors.lake.iceberg import IcebergSink
from connectx.connectors.lake.parquet import ParquetSink
from connectx.data.converter import OTHER_FIELDS, with_others
from connectx.data.shapes import united
from connectx.errors.databases import TableMismatchError
from connectx.errors.plugins import RecordRejectedError
from connectx.plugins.errors import NotStageableError
from connectx.plugins.slices import SinkBatch
from tests.support.json_records import json_batch
from tests.support.lake import Context, Lake, batch, delta_files, partition, refusal, write
from tests.unit.connectors.lake.conftest import FORMATS, Tables

pytestmark = pytest.mark.rule("always.8")

P0, P1 = partition(0), partition(1)
Settings = dict[str, Any]
ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])
BY_VALUE: Settings = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"}
BY_KEY: Settings = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": "true"}
DEBEZIUM: Settings = {**BY_VALUE, "delete_enabled": "true", "value_envelope": "debezium"}
ENVELOPE = pa.struct([("before", ROW), ("after", ROW), ("op", pa.string()), ("ts_ms", pa.int64())])


@pytest.fixture(params=["delta", "iceberg"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Lake, Tables]:
    lake, files = FORMATS[request.param](tmp_path)
    return lake, Tables(files)


def named(**names: int) -> list[dict[str, Any]]:
    """Rows by name and id."""
    return [{"id": number, "name": name} for name, number in names.items()]


def keyed(first: int, *rows: tuple[int | None, str | None]) -> SinkBatch:
    """Records with ids as keys and names as values; None is a tombstone."""
    values = [None if name is None else {"name": name} for _, name in rows]
    keys = pa.array([number for number, _ in rows], pa.int64())
    return batch(first, values, pa.struct([("name", pa.string())]), keys=keys)


def events(first: int, *changes: tuple[Any, ...]) -> SinkBatch:
    """Envelopes of op, before and after; an op of "" is a tombstone."""
    values = [{"op": op, "before": old, "after": new} if op else None for op, old, new in changes]
    return batch(first, values, ENVELOPE)


def names(tables: Tables) -> dict[int, str]:
    rows = tables.sql("SELECT id, name FROM lake")
    assert len({row[0] for row in rows}) == len(rows), f"a key is there twice: {rows}"
    return dict(sorted(rows))


def reported(task: Any) -> list[str]:
    assert isinstance(task.context, Context)
    return task.context.reported


def test_a_record_replaces_the_row_with_its_key_and_others_stay(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **BY_VALUE)
    write(task, batch(0, named(a=1, b=2, c=3)))
    write(task, batch(3, named(B=2, d=4)))
    assert names(tables) == {1: "a", 2: "B", 3: "c", 4: "d"}
    assert lake.task(**BY_VALUE).open([P0]) == {P0: 5}


def test_the_last_record_of_a_key_counts_within_a_commit_also_over_several_batches(lake: Lake, tables: Tables) -> None:
    write(lake.opened(P0, **BY_VALUE), batch(0, named(a=1, b=1, c=2)), batch(3, named(d=1, e=2, f=2)))
    assert names(tables) == {1: "d", 2: "f"}


def test_a_tombstone_deletes_its_row_and_a_later_record_brings_it_back(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **BY_KEY)
    write(task, keyed(0, (1, "a"), (2, "b"), (3, None)))
    assert names(tables) == {1: "a", 2: "b"}
    write(task, keyed(3, (1, None), (2, None), (2, "B")))
    assert names(tables) == {2: "B"}
    write(task, keyed(6, (1, "back"), (2, "x"), (2, None)))
    assert names(tables) == {1: "back"}
    write(task, keyed(9, (1, None)))
    assert tables.sql("SELECT count(*) FROM lake" if names_exist(tables) else "SELECT 0") == [(0,)]


def names_exist(tables: Tables) -> bool:
    """Whether the table has any file."""
    try:
        tables.sql("SELECT 1 FROM lake LIMIT 0")
    except duckdb.Error:
        return False
    return True


def test_offsets_are_committed_with_changes_that_change_nothing(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **BY_KEY)
    write(task, keyed(0, (1, "a")))
    write(task, keyed(1, (7, None), (8, None)))
    assert lake.task(**BY_KEY).open([P0]) == {P0: 3}
    assert names(tables) == {1: "a"}


def test_the_first_commit_of_a_table_may_only_delete(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **BY_KEY)
    write(task, batch(0, [None], pa.null(), keys=pa.array([1], pa.int64())))
    assert lake.task(**BY_KEY).open([P0]) == {P0: 1}
    write(task, keyed(1, (1, "a")))
    assert names(tables) == {1: "a"}


def test_rows_are_deleted_one_by_one_until_none_is_left_and_new_ones_come(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **BY_KEY)
    write(task, keyed(0, *((number, "x") for number in range(5))))
    for number in range(5):
        write(task, keyed(5 + number, (number, None)))
    write(task, keyed(10, (9, "new")))
    assert names(tables) == {9: "new"}


def test_debezium_events_create_change_read_and_delete_rows(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **DEBEZIUM)
    a, b, c = named(a=1, b=2, c=3)
    write(task, events(0, ("r", None, a), ("c", None, b), ("c", None, c)))
    write(task, events(3, ("u", a, {"id": 1, "name": "A"}), ("d", b, None), ("", None, None)))
    assert names(tables) == {1: "A", 3: "c"}
    assert lake.task(**DEBEZIUM).open([P0]) == {P0: 6}
    assert {column for (column,) in tables.sql("SELECT column_name FROM (DESCRIBE SELECT * FROM lake)")} == {
        "id",
        "name",
    }


def test_a_changed_primary_key_of_debezium_is_a_delete_and_a_create(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **DEBEZIUM)
    write(task, events(0, ("c", None, *named(a=1)), ("d", *named(a=1), None), ("c", None, *named(a=2))))
    assert names(tables) == {2: "a"}


def test_a_batch_of_nothing_but_deletes_has_no_type_after(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **DEBEZIUM)
    write(task, events(0, ("c", None, *named(a=1)), ("c", None, *named(b=2))))
    only = pa.struct([("before", pa.struct([("id", pa.int64())])), ("after", pa.null()), ("op", pa.string())])
    write(task, batch(2, [{"before": {"id": 1}, "after": None, "op": "d"}], only))
    assert names(tables) == {2: "b"}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a'b", 'c"d', ""]),
        (pa.date32(), [datetime.date(2013, 1, day) for day in (1, 2, 3)]),
        (pa.timestamp("us"), [datetime.datetime(2013, 1, 1, hour, 0, 0, 5) for hour in (1, 2, 3)]),
        (pa.decimal128(10, 2), [decimal.Decimal(text) for text in ("1.10", "-2.20", "3.30")]),
        (pa.binary(), [b"\x00", b"\xff'", b"x"]),
    ],
    ids=str,
)
def test_keys_of_other_types_find_their_rows(lake: Lake, tables: Tables, kind: pa.DataType, values: list[Any]) -> None:
    row = pa.struct([("id", kind), ("name", pa.string()), ("tags", pa.list_(pa.int64()))])
    task = lake.opened(P0, **BY_VALUE)
    write(task, batch(0, [{"id": value, "name": "old", "tags": [1]} for value in values], row))
    write(task, batch(3, [{"id": values[1], "name": "new", "tags": [2]}], row))
    found = tables.sql("SELECT id, name, tags FROM lake ORDER BY name, id")
    assert found == [(values[1], "new", [2]), *((value, "old", [1]) for value in sorted([values[0], values[2]]))]


def test_a_key_of_several_fields_is_compared_as_a_whole(lake: Lake, tables: Tables) -> None:
    settings = {**BY_VALUE, "pk_fields": "id,part"}
    row = pa.struct([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])
    task = lake.opened(P0, **settings)
    write(task, batch(0, [{"id": number, "part": part, "n": 0} for number in (1, 2) for part in "ab"], row))
    write(task, batch(4, [{"id": 1, "part": "b", "n": 1}, {"id": 2, "part": "a", "n": 2}], row))
    found = tables.sql("SELECT id, part, n FROM lake ORDER BY id, part")
    assert found == [(1, "a", 0), (1, "b", 1), (2, "a", 2), (2, "b", 0)]


def test_many_keys_in_several_files_are_replaced(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **BY_VALUE)
    for at in range(0, 1000, 250):
        write(task, batch(at, [{"id": number, "name": "old"} for number in range(at, at + 250)]))
    write(task, batch(1000, [{"id": number, "name": "new"} for number in range(100, 700)]))
    assert tables.sql("SELECT name, count(*), min(id) FROM lake GROUP BY name ORDER BY name") == [
        ("new", 600, 100),
        ("old", 400, 0),
    ]


def test_columns_are_added_by_changes(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **BY_VALUE)
    write(task, batch(0, named(a=1, b=2)))
    more = pa.struct([("id", pa.int64()), ("name", pa.string()), ("more", pa.struct([("x", pa.int64())]))])
    write(task, batch(2, [{"id": 2, "name": "B", "more": {"x": 7}}], more))
    write(task, batch(3, named(c=3)))
    found = tables.sql("SELECT id, name, more.x FROM lake ORDER BY id")
    assert found == [(1, "a", None), (2, "B", 7), (3, "c", None)]


def test_rows_move_to_other_partitions_of_the_table(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **BY_VALUE, partition_by="name")
    write(task, batch(0, named(a=1, b=2)))
    write(task, batch(2, named(b=1)))
    assert sorted(tables.sql("SELECT id, name FROM lake")) == [(1, "b"), (2, "b")]


@pytest.mark.rule("618.8.3")
def test_a_zombie_that_upserts_after_its_successor_is_refused(lake: Lake, tables: Tables) -> None:
    zombie = lake.opened(P0, **BY_KEY)
    write(zombie, keyed(0, (1, "a"), (2, "b")))
    zombie.put(keyed(2, (1, "late"), (2, None)))
    successor = lake.opened(P0, **BY_KEY)
    write(successor, keyed(2, (1, "late"), (2, None), (1, "newest")))
    assert refusal(zombie.flush).committed == {P0: 5}
    assert names(tables) == {1: "newest"}
    write(zombie, keyed(5, (3, "c")))
    assert refusal(lambda: write(successor, keyed(5, (3, "c"), (4, "d")))).committed == {P0: 6}
    assert names(tables) == {1: "newest", 3: "c"}


@pytest.mark.rule("618.8.3")
def test_a_zombie_that_upserts_before_its_successor_wins_and_the_successor_reads_on(lake: Lake, tables: Tables) -> None:
    write(lake.opened(P0, **BY_KEY), keyed(0, (1, "a")))
    zombie, successor = lake.opened(P0, **BY_KEY), lake.opened(P0, **BY_KEY)
    zombie.put(keyed(1, (1, "b")))
    successor.put(keyed(1, (1, "b"), (1, None)))
    zombie.flush()
    assert refusal(successor.flush).committed == {P0: 2}
    write(successor, keyed(2, (1, None), (2, "c")))
    assert names(tables) == {2: "c"}


@pytest.mark.rule("618.8.3")
def test_a_zombie_that_only_deletes_is_refused_too(lake: Lake, tables: Tables) -> None:
    zombie = lake.opened(P0, **BY_KEY)
    write(zombie, keyed(0, (1, "a")))
    zombie.put(keyed(1, (9, None)))
    write(lake.opened(P0, **BY_KEY), keyed(1, (9, None), (1, "b")))
    assert refusal(zombie.flush).committed == {P0: 3}
    assert lake.task(**BY_KEY).open([P0]) == {P0: 3}


def test_tasks_of_different_partitions_change_rows_side_by_side(lake: Lake, tables: Tables) -> None:
    write(lake.opened(P0, **BY_VALUE), batch(0, named(a=1, b=2)))
    first, second = lake.opened(P0, **BY_VALUE), lake.opened(P1, **BY_VALUE)
    for number in range(3):
        write(first, batch(2 + number, [{"id": 1, "name": f"first {number}"}]))
        write(second, batch(number, [{"id": 2 + number, "name": f"second {number}"}], place=P1))
    assert names(tables) == {1: "first 2", 2: "second 0", 3: "second 1", 4: "second 2"}


def test_two_tasks_that_bring_the_same_new_key_make_one_row(lake: Lake, tables: Tables) -> None:
    write(lake.opened(P0, **BY_VALUE), batch(0, named(a=1)))
    first, second = lake.opened(P0, **BY_VALUE), lake.opened(P1, **BY_VALUE)
    first.put(batch(1, [{"id": 5, "name": "first"}]))
    second.put(batch(0, [{"id": 5, "name": "second"}], place=P1))
    first.flush()
    second.flush()
    assert names(tables) == {1: "a", 5: "second"}


def test_one_commit_has_all_changes_and_the_offset(tmp_path: Path) -> None:
    task = Lake(DeltaSink.Task, {"path": str(tmp_path)}).opened(P0, **BY_KEY)
    write(task, keyed(0, (1, "a"), (2, "b")))
    before = DeltaTable(tmp_path / "rows").version()
    write(task, keyed(2, (1, "A"), (2, None), (3, "c")))
    table = DeltaTable(tmp_path / "rows")
    assert table.version() == before + 1
    assert table.transaction_version("connectx/connect-lake/rows/0") == 5


def test_one_snapshot_of_iceberg_has_all_changes(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}
    lake = Lake(IcebergSink.Task, {f"iceberg.catalog.{name}": text for name, text in catalog.items()})
    task = lake.opened(P0, **BY_KEY)
    write(task, keyed(0, (1, "a"), (2, "b")))
    before = len(load_catalog("iceberg", **catalog).load_table("default.rows").snapshots())
    write(task, keyed(2, (1, "A"), (2, None), (3, "c")))
    table = load_catalog("iceberg", **catalog).load_table("default.rows")
    assert len(table.snapshots()) == before + 1
    assert table.properties["connectx.offsets.connect-lake.rows.0"] == "5"


@pytest.mark.parametrize(
    ("settings", "record", "cause"),
    [
        (BY_VALUE, batch(0, [None], ROW), "delete.enabled is false"),
        (BY_VALUE, batch(0, [{"id": None, "name": "x"}], ROW), r"its key \(pk.fields\) is null"),
        (BY_KEY, keyed(0, (None, "x")), r"its key \(pk.fields\) is null"),
        (DEBEZIUM, events(0, ("t", None, None)), r"op c, u, d or r"),
        (DEBEZIUM, batch(0, named(a=1)), "value.envelope=debezium"),
        ({**DEBEZIUM, "delete_enabled": "false"}, events(0, ("d", *named(a=1), None)), "delete.enabled is false"),
        ({**BY_VALUE, "pk_fields": "no"}, batch(0, named(a=1)), r"its value has no field no, which pk\.fields names"),
        ({**BY_KEY, "pk_fields": "a,b"}, keyed(0, (1, "x")), r"its key has no field a, which pk\.fields names"),
        ({**DEBEZIUM, "pk_fields": "no"}, events(0, ("c", None, *named(a=1))), "its value has no field no"),
    ],
)
def test_a_record_that_is_no_change_is_reported_with_the_cause(
    lake: Lake, settings: Settings, record: SinkBatch, cause: str
) -> None:
    with pytest.raises(RecordRejectedError, match=cause):
        lake.opened(P0, **settings).put(record)
    task = lake.opened(P0, tolerate=True, **settings)
    write(task, record)
    assert reported(task) == ["rows-0@0"]


@pytest.mark.parametrize("mode", [BY_VALUE, BY_KEY])
def test_a_record_of_debezium_without_op_is_refused_alone(lake: Lake, tables: Tables, mode: Settings) -> None:
    kind = pa.struct([("before", ROW), ("after", ROW)])
    with_op, values = pa.struct([("op", pa.string()), *kind]), [{"after": row} for row in named(a=1, b=2)]
    good, bad = pa.array([{"op": "c", **values[0]}, {"op": None, **values[1]}], with_op), pa.array(values[1:], kind)
    united_values = united([(np.array([0, 2]), good), (np.array([1]), bad), (np.array([3]), pa.array(["text"]))])
    made = batch(0, [None] * 4, keys=pa.array([1, 1, 1, 1]))
    rows = made.rows.set_column(made.rows.column_names.index("value"), "value", united_values)
    settings = {**mode, "delete_enabled": "true", "value_envelope": "debezium"}
    task = lake.opened(P0, tolerate=True, **settings)
    write(task, SinkBatch(rows, made.ranges))
    assert names(tables) == {1: "a"}
    assert reported(task) == ["rows-0@1", "rows-0@2", "rows-0@3"]


@pytest.mark.parametrize(
    ("settings", "record", "cause"),
    [
        (BY_VALUE, batch(0, [{"id": 1.5}], pa.struct([("id", pa.float64())])), r"cannot be a key"),
    ],
)
def test_records_without_a_usable_key_fail_the_task(
    lake: Lake, settings: Settings, record: SinkBatch, cause: str
) -> None:
    with pytest.raises(TableMismatchError, match=cause):
        lake.opened(P0, **settings).put(record)


def test_values_are_read_in_the_tables_types_without_evolution(lake: Lake) -> None:
    write(lake.opened(P0, **BY_KEY), keyed(0, (1, "a")))
    by_key = lake.opened(P0, **BY_KEY, auto_evolve="false")
    assert by_key.value_type("rows") == with_others(pa.struct([("name", pa.string())]), ["id"])
    by_value = lake.opened(P0, **DEBEZIUM, auto_evolve="false")
    kind = by_value.value_type("rows")
    assert kind is not None
    assert [field.name for field in kind] == ["op", "before", "after", OTHER_FIELDS]


@pytest.mark.parametrize(
    ("settings", "setting", "cause"),
    [
        ({"insert.mode": "upsert"}, "pk.mode", "needs pk.mode=record_key or"),
        ({"insert.mode": "upsert", "pk.mode": "record_key"}, "pk.fields", "identify a row"),
        ({"delete.enabled": "true"}, "delete.enabled", "needs insert.mode=upsert"),
        ({"value.envelope": "debezium"}, "value.envelope", "needs insert.mode=upsert"),
        (
            {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id", "delete.enabled": "true"},
            "delete.enabled",
            "a tombstone has no value",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], setting: str, cause: str) -> None:
    found = DeltaSink.validate({"path": "x", **settings})
    assert list(found) == [setting]
    assert cause in found[setting][0]
    assert IcebergSink.validate({"iceberg.catalog.type": "sql", **settings}) == found


@pytest.mark.parametrize("setting", ["insert.mode=upsert", "delete.enabled=true", "value.envelope=debezium"])
def test_files_without_a_table_format_refuse_changes_in_one_sentence(setting: str) -> None:
    name, _, text = setting.partition("=")
    assert ParquetSink.validate({name: text}) == {
        name: [f"ParquetSink only appends rows, so {setting} is not possible; use DeltaSink or IcebergSink"]
    }
    assert ParquetSink.validate({"insert.mode": "append", "delete.enabled": "false"}) == {}


def test_changes_leave_files_without_their_keys_alone(tmp_path: Path) -> None:
    task = Lake(DeltaSink.Task, {"path": str(tmp_path)}).opened(P0, **BY_VALUE)
    write(task, batch(0, named(a=1, b=2)))
    write(task, batch(2, named(c=10, d=11)))
    before = set(delta_files(tmp_path / "rows"))
    write(task, batch(4, named(C=10)))
    assert len(before & set(delta_files(tmp_path / "rows"))) == 1


@pytest.mark.parametrize("evolves", ["true", "false"])
def test_a_key_without_schema_is_its_field_or_stands_for_it(lake: Lake, tables: Tables, evolves: str) -> None:
    if evolves == "false":
        write(lake.opened(P1, **BY_VALUE), batch(0, named(z=1), place=P1))
    task = lake.opened(P0, **BY_KEY, auto_evolve=evolves)
    connector = task.connector
    first = [(b'{"id":7}', b'{"name":"a"}'), (b"8", b'{"name":"b"}'), (b' {"id":8,"x":1}', b'{"name":"c"}')]
    for start, records in ((0, first), (3, [(b"7", None), (b'{"id":9}', b'{"name":"d"}')])):
        found, problems = json_batch(connector, task, task.settings, start, records, P0)
        assert problems == []
        write(task, found)
    assert {number: name for number, name in names(tables).items() if number > 1} == {8: "c", 9: "d"}


def test_keys_and_values_without_schemas_have_the_types_of_their_columns(lake: Lake, tables: Tables) -> None:
    columns = pa.struct([("id", pa.decimal128(20, 0)), ("price", pa.decimal128(12, 2)), ("day", pa.date32())])
    write(lake.opened(P1, **BY_VALUE), batch(0, [], columns, place=P1), batch(0, [{"id": 1}], columns, place=P1))
    task = lake.opened(P0, **BY_KEY, auto_evolve="false")
    records = [
        (b"12345678901234567891", b'{"price":"1250","day":"2024-05-06"}'),
        (b'{"id":2}', b'{"price":"AJY="}'),
        (b'{"id":3}', b'{"day":"2024"}'),
        (b'"x"', b"{}"),
    ]
    found, problems = json_batch(task.connector, task, task.settings, 0, records, P0)
    assert len(problems) == 3
    write(task, found)
    large = decimal.Decimal("12345678901234567891")
    wanted = (large, decimal.Decimal("1250.00"), datetime.date(2024, 5, 6))
    assert wanted in tables.sql("SELECT id, price, day FROM lake")


LONG = pa.struct(
    [
        ("id", pa.int64()),
        ("short", pa.string()),
        ("long", pa.string()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.int32())),
    ]
)
MARK = "__debezium_unavailable_value"
FULL = {"short": "a", "long": "x" * 9, "raw": b"\x01", "tags": [1, 2]}
KEPT = {"long": MARK, "raw": MARK.encode(), "tags": [*MARK.encode()]}


@pytest.mark.parametrize("envelope", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_a_value_that_the_source_did_not_change_is_kept(
    lake: Lake, tables: Tables, envelope: bool, together: bool
) -> None:
    row: dict[str, Any] = {"id": 1, **FULL}
    changes = [
        row,
        {"id": 2, **FULL},
        {**row, "short": "b", **KEPT},
        {**row, "long": "new", "raw": None, "tags": KEPT["tags"]},
    ]
    changes += [{**row, "short": "c", **KEPT}]
    settings, kind, values = BY_VALUE, LONG, changes
    if envelope:
        settings, kind = DEBEZIUM, pa.struct([("before", LONG), ("after", LONG), ("op", pa.string())])
        values = [{"op": "u", "after": change} for change in changes]
    task = lake.opened(P0, **settings)
    batches = [batch(at, [value], kind) for at, value in enumerate(values)]
    for group in [batches] if together else [[one] for one in batches]:
        write(task, *group)
    assert tables.sql("SELECT short, long, raw, tags FROM lake ORDER BY id") == [
        ("c", "new", None, [1, 2]),
        ("a", "x" * 9, b"\x01", [1, 2]),
    ]


def test_a_value_that_no_row_has_is_refused_with_the_setting_of_the_source(lake: Lake) -> None:
    task = lake.opened(P0, **BY_VALUE)
    write(task, batch(0, [{"id": 1, **FULL}], LONG))
    task.put(batch(1, [{"id": 2, "short": "b", **KEPT}], LONG))
    with pytest.raises(TableMismatchError, match="REPLICA IDENTITY FULL"):
        task.flush()


def test_rows_with_values_to_keep_are_not_staged(lake: Lake, tables: Tables) -> None:
    task = lake.opened(P0, **BY_VALUE)
    write(task, batch(0, [{"id": 1, **FULL}], LONG))
    staged = lake.task(**BY_VALUE).stage(
        task.plan("job", P0.topic), "job", iter([batch(1, [{"id": 1, "short": "b", **KEPT}], LONG)])
    )
    with pytest.raises(NotStageableError):
        list(staged)
