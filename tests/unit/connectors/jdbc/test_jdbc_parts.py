"""Parts of a table for executors: where they begin and end, what a reader of one returns, and who has none."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from connectx.connectors.jdbc.criteria import Criteria, Position
from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.jdbc.dialects import open_database
from connectx.connectors.jdbc.parts import Part, PartReader, divided
from connectx.connectors.jdbc.reading import Reading
from connectx.connectors.jdbc.source import JdbcSource
from connectx.connectors.jdbc.tables import TableName
from connectx.errors.databases import TableMismatchError
from tests.support.jdbc import Context, source_config, sqlite

MANY = 1_000_000_000
PART_BYTES = 8 << 20


class Table:
    """A table of SQLite with the even numbers up to 40 as ids."""

    def __init__(self, path: Path) -> None:
        rows = "WITH RECURSIVE c(n) AS (SELECT 2 UNION ALL SELECT n + 2 FROM c WHERE n < 40) SELECT n, 'n' || n FROM c"
        url = sqlite(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)", f"INSERT INTO t {rows}")
        self.settings = DatabaseSettings(url, password="geheim")
        self.database = open_database(self.settings)
        columns = self.database.columns(TableName("", "t"))
        criteria = Criteria(None, self.database.incrementing(columns[0]))
        source = self.database.source(TableName("", "t"), "")
        self.reading = Reading(source, [self.database.field(column) for column in columns], criteria)

    def divided(self, rows: int, row_bytes: int = 1, most: int = MANY, after: int | None = None) -> list[Part]:
        return divided(self.reading, self.database, Position(None, after), None, rows, most, row_bytes)

    def reader(self, parts: list[Part]) -> PartReader:
        statements = tuple(self.reading.statement(self.database, part.after, until=part.until) for part in parts)
        rows = tuple(part.rows for part in parts)
        return PartReader(self.settings, "t", None, statements, rows, tuple(self.reading.fields), 3)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "shop.db")


def bounds(parts: list[Part]) -> list[tuple[int | None, int | None, int]]:
    return [(part.after.incrementing, part.until.incrementing, part.rows) for part in parts]


def grouped(path: Path, *sizes: int) -> Reading:
    """A table whose rows share timestamps in groups of these sizes, as mode=timestamp reads it."""
    groups = [number for number, size in enumerate(sizes, 1) for _ in range(size)]
    rows = ", ".join(f"({number}, {group * 1000})" for number, group in enumerate(groups))
    url = sqlite(path, "CREATE TABLE g (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL)", f"INSERT INTO g VALUES {rows}")
    database = open_database(DatabaseSettings(url))
    name = TableName("", "g")
    columns = database.columns(name)
    criteria = Criteria(database.timestamp(columns[1:]), ties=("r.id",))
    return Reading(database.source(name, ""), [database.field(column) for column in columns], criteria)


def ids(reader: PartReader, number: int) -> list[int]:
    return [value["id"] for _, rows in reader.read(number) for value in rows["value"].to_pylist()]


def test_parts_have_equal_numbers_of_rows_and_end_at_the_last_one(table: Table) -> None:
    assert bounds(table.divided(MANY)) == [(None, 20, 10), (20, 40, 10)]
    assert bounds(table.divided(7, after=10)) == [(10, 18, 4), (18, 24, 3)]
    assert bounds(table.divided(MANY, after=38)) == [(38, 40, 1)]
    assert table.divided(MANY, after=40) == []


def test_large_rows_make_more_parts_and_connections_fewer(table: Table) -> None:
    assert len(table.divided(MANY, PART_BYTES // 4)) == 5
    assert len(table.divided(MANY, PART_BYTES // 4, most=3)) == 3
    assert len(table.divided(MANY, PART_BYTES // 4, most=1)) == 1


@pytest.mark.parametrize(
    ("sizes", "rows", "expected"),
    [
        ((3, 3, 3), MANY, [6, 3]),
        ((1, 1, 9, 1), 4, [2, 9]),
        ((20,), 5, [20]),
        ((2, 2), 4, [2, 2]),
    ],
)
def test_rows_with_the_same_timestamp_stay_in_one_part(
    tmp_path: Path, sizes: tuple[int, ...], rows: int, expected: list[int]
) -> None:
    path = tmp_path / "groups.db"
    reading = grouped(path, *sizes)
    database = open_database(DatabaseSettings(f"sqlite:{path}"))
    parts = divided(reading, database, Position(), None, rows, MANY, 1)
    assert [part.rows for part in parts] == expected
    statements = tuple(reading.statement(database, part.after, until=part.until) for part in parts)
    reader = PartReader(
        database.settings, "g", None, statements, tuple(part.rows for part in parts), tuple(reading.fields), 3
    )
    found = [one for number in range(len(parts)) for one in ids(reader, number)]
    assert found == list(range(sum(expected)))


def test_readers_that_were_pickled_return_the_rows_of_their_parts(table: Table) -> None:
    reader = pickle.loads(pickle.dumps(table.reader(table.divided(9))))
    assert [ids(reader, number) for number in (0, 1)] == [[2, 4, 6, 8, 10], [12, 14, 16, 18]]
    (rows,) = {rows.schema.field("value").metadata[b"connect.name"] for _, rows in reader.read(0)}
    assert rows == b"t"
    assert "geheim" not in repr(reader) + repr(reader.settings)


def test_a_part_with_other_rows_than_the_worker_has_found_is_refused(table: Table, tmp_path: Path) -> None:
    reader = table.reader(table.divided(9))
    sqlite(tmp_path / "shop.db", "INSERT INTO t VALUES (3, 'late')")
    with pytest.raises(TableMismatchError, match="read 6 rows of t where the worker had found 5"):
        ids(reader, 0)
    assert ids(reader, 1) == [12, 14, 16, 18]


@pytest.mark.parametrize(
    ("url", "more", "reason"),
    [
        ("postgresql://h/d", {"mode": "bulk"}, "mode=bulk reads a table in one statement"),
        ("postgresql://h/d", {"mode": "timestamp", "timestamp.column.name": "at"}, ""),
        ("postgresql://h/d", {"query": "SELECT 1 AS id"}, ""),
        ("postgresql://h/d", {"max.connections": "3", "tasks.max": "2"}, "leaves no connection for executors"),
        ("postgresql://h/d", {"max.connections": "4", "tasks.max": "2"}, ""),
        ("mysql://h/d", {}, ""),
        ("sqlite:x", {}, "a database of SQLite is a file on the worker's machine"),
        ("duckdb:x", {}, "a database of DuckDB is a file on the worker's machine"),
    ],
)
def test_what_executors_do_not_read_has_a_reason(url: str, more: dict[str, str], reason: str) -> None:
    task = JdbcSource.Task()
    config: dict[str, Any] = {**source_config(url, "incrementing", incrementing_column_name="id"), **more}
    task.start({**config, "tables": '[["", "t", ""]]'}, Context())
    assert reason in task.bulk_obstacle
    assert bool(task.bulk_obstacle) == bool(reason)


def test_fewer_connections_than_tasks_are_refused() -> None:
    config = source_config("sqlite:x", "incrementing") | {"max.connections": "2", "tasks.max": "3"}
    assert list(JdbcSource.validate(config)) == ["max.connections"]
