"""SparkSource without Spark: settings, and Delta and Iceberg tables whose commits the worker reads."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.shared.errors import LakeError
from connectx.connectors.spark.errors import TableChangedError, TableRewrittenError
from connectx.connectors.spark.source import SparkSource
from connectx.connectors.spark.tables import Part, TableReader, rows_of, skipped
from connectx.errors.base import MissingExtraError
from connectx.errors.plugins import ConfigError
from connectx.model.source_offsets import SourceOffset
from connectx.plugins.slices import Slice
from tests.support.growing_tables import DeltaGrowing, GrowingTable, IcebergGrowing, numbered
from tests.support.jdbc import Context, values_of
from tests.support.profiles import dotted

NO_SPARK: Any = None  # tables are read without a session


class Source:
    """A task over a table, which keeps its offset over restarts."""

    def __init__(self, table: GrowingTable, **more: str) -> None:
        self._config = {"topic": "t", **table.settings, **dotted(more)}
        self.offset: SourceOffset | None = None
        self.restart()

    def restart(self) -> None:
        self.task = SparkSource.Task()
        self.task.start(self._config, Context())

    def poll(self) -> Slice | None:
        piece = self.task.poll(NO_SPARK, self.offset)
        if piece is not None:
            self.offset = piece.offset
        return piece

    def slices(self) -> Iterator[Slice]:
        while (piece := self.poll()) is not None:
            yield piece

    def ids(self) -> list[int]:
        return [value["id"] for piece in self.slices() for value in values_of(piece)]


@pytest.fixture(params=[DeltaGrowing, IcebergGrowing])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> GrowingTable:
    made: GrowingTable = request.param(tmp_path)
    return made


def test_the_rows_of_a_table_come_first_and_then_each_added_one_once_over_restarts(table: GrowingTable) -> None:
    table.append(numbered(0, 10))
    table.append(numbered(10, 17))
    source = Source(table, slice_rows="4")
    found = []
    while (piece := source.poll()) is not None:
        found += [value["id"] for value in values_of(piece)]
        source.restart()
    assert sorted(found) == list(range(17))
    assert source.offset is not None
    assert source.offset["start"] == table.newest()
    table.append(numbered(17, 23))
    table.append(numbered(23, 30))
    assert source.ids() == list(range(17, 30))
    assert source.poll() is None
    source.restart()
    assert source.poll() is None


def test_an_offset_may_lie_within_a_file(table: GrowingTable) -> None:
    table.append(numbered(0, 10))
    source = Source(table, slice_rows="4")
    offsets = [(dict(piece.offset), len(values_of(piece))) for piece in source.slices()]
    where = {table.mode: table.newest(), "start": table.newest()}
    assert offsets == [({**where, "file": 0, "row": 4}, 4), ({**where, "file": 0, "row": 8}, 4), (where, 2)]


def test_reading_may_begin_after_a_commit(table: GrowingTable) -> None:
    table.append(numbered(0, 3))
    begin = table.newest()
    table.append(numbered(3, 6))
    source = Source(table, offset_start=str(begin))
    assert source.ids() == [3, 4, 5]
    assert source.offset == {table.mode: table.newest()}
    again = source.task.reread(NO_SPARK, None, source.offset)
    assert again is not None
    assert [value["id"] for piece in again for value in values_of(piece)] == [3, 4, 5]


def test_an_aborted_slice_comes_again(table: GrowingTable) -> None:
    table.append(numbered(0, 10))
    source = Source(table, slice_rows="4")
    source.poll()
    offset, piece = source.offset, source.poll()
    assert piece is not None
    source.offset = offset
    repeated = source.poll()
    assert repeated is not None
    assert values_of(repeated) == values_of(piece)


def test_a_commit_that_deletes_rows_fails_the_task_or_is_left_out(table: GrowingTable) -> None:
    table.append(numbered(0, 3))
    refusing, skipping = Source(table), Source(table, skip_change_commits="true")
    for source in (refusing, skipping):
        assert source.ids() == [0, 1, 2]
    table.delete("id = 1")
    table.append(numbered(3, 6))
    with pytest.raises(
        TableChangedError, match=r"rows deleted or updated in (version 1|snapshot \d+) \((?i:delete|overwrite)\)"
    ):
        refusing.poll()
    with pytest.raises(TableChangedError):
        refusing.poll()
    assert skipping.ids() == [3, 4, 5]


def test_merged_files_add_no_rows_and_move_the_offset(table: GrowingTable) -> None:
    for first in (0, 3):
        table.append(numbered(first, first + 3))
    source = Source(table)
    assert sorted(source.ids()) == list(range(6))
    table.compact()
    (piece,) = list(source.slices())
    assert (values_of(piece), piece.commits_offset, piece.offset[table.mode]) == ([], True, table.newest())
    table.append(numbered(6, 9))
    assert source.ids() == [6, 7, 8]


def test_a_table_that_has_forgotten_what_comes_next_is_reported(table: GrowingTable) -> None:
    table.append(numbered(0, 3))
    source = Source(table, slice_rows="2")
    source.poll()
    for first in (3, 6):
        table.append(numbered(first, first + 3))
    table.compact()
    table.forget()
    source.restart()
    with pytest.raises(TableRewrittenError, match=r"The table .* cannot be read further: .*(version|snapshot) "):
        list(source.slices())


def test_a_table_that_was_made_again_is_reported(tmp_path: Path) -> None:
    table = DeltaGrowing(tmp_path)
    table.append(numbered(0, 3))
    source = Source(table)
    source.offset = {"version": 7, "start": 0}
    with pytest.raises(TableRewrittenError, match="it is at version 0, and version 7 was already read"):
        source.poll()


def test_removed_files_are_reported(table: GrowingTable, tmp_path: Path) -> None:
    table.append(numbered(0, 3))
    source = Source(table)
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(TableRewrittenError, match="was removed"):
        source.poll()


def test_rows_between_any_two_offsets_can_be_read_again_in_slices_of_another_size(table: GrowingTable) -> None:
    table.append(numbered(0, 7))
    source = Source(table, slice_rows="3")
    places: list[tuple[SourceOffset | None, int]] = [(None, 0)]

    def read_on() -> None:
        for piece in source.slices():
            places.append((piece.offset, places[-1][1] + len(values_of(piece))))

    read_on()
    table.append(numbered(7, 12))
    table.compact()
    read_on()
    assert [at for _, at in places] == [0, 3, 6, 7, 10, 12, 12]
    other = Source(table, slice_rows="2").task
    for start, first in places:
        for end, last in places:
            if first <= last and end is not None:
                again = other.reread(NO_SPARK, start, end)
                assert again is not None
                assert [value["id"] for piece in again for value in values_of(piece)] == list(range(first, last)), (
                    start,
                    end,
                )
    again = other.reread(NO_SPARK, places[1][0], None)
    assert again is not None
    assert [value["id"] for piece in again for value in values_of(piece)] == list(range(3, 12))


def test_partition_columns_and_new_columns_are_in_the_rows(tmp_path: Path) -> None:
    table = DeltaGrowing(tmp_path, partition_by="name")
    table.append(pa.table({"id": [1, 2], "name": ["a b/ü%", "c=d"]}))
    source = Source(table)
    assert sorted(str(value) for piece in source.slices() for value in values_of(piece)) == [
        "{'id': 1, 'name': 'a b/ü%'}",
        "{'id': 2, 'name': 'c=d'}",
    ]
    table.append(pa.table({"id": [3], "name": ["e"], "price": [1.5]}))
    assert [value for piece in source.slices() for value in values_of(piece)] == [{"id": 3, "name": "e", "price": 1.5}]


def test_a_renamed_column_of_an_iceberg_table_keeps_its_values(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    table = IcebergGrowing(tmp_path)
    table.append(numbered(0, 1))
    given = {name.removeprefix("iceberg.catalog."): text for name, text in table.settings.items() if "catalog." in name}
    with load_catalog("iceberg", **given).load_table("default.rows").update_schema() as update:
        update.rename_column("name", "title")
    table.append(pa.table({"id": [1], "title": ["row 1"]}))
    values = [value for piece in Source(table).slices() for value in values_of(piece)]
    assert sorted(value["title"] for value in values) == ["row 0", "row 1"]


def test_key_fields_make_the_key_and_a_column_called_value_is_a_field(tmp_path: Path) -> None:
    table = DeltaGrowing(tmp_path)
    table.append(pa.table({"id": [1], "value": ["x"]}))
    (piece,) = list(Source(table).slices())
    assert values_of(piece) == [{"id": 1, "value": "x"}]
    (piece,) = list(Source(table, key_fields="id").slices())
    rows: Any = piece.rows
    assert rows.to_pylist() == [{"key": 1, "value": {"id": 1, "value": "x"}}]


def test_the_size_of_waiting_files_is_known_once_the_task_has_polled(table: GrowingTable) -> None:
    table.append(numbered(0, 10))
    source = Source(table, slice_rows="4")
    assert source.task.waiting_bytes(None) is None
    source.task.poll(object(), None)  # type: ignore[arg-type]  # it is not used
    whole = source.task.waiting_bytes(None)
    assert whole is not None
    assert whole > 0
    source.ids()
    source.task.poll(object(), source.offset)  # type: ignore[arg-type]
    assert source.task.waiting_bytes(source.offset) == 0
    table.append(numbered(10, 20))
    assert source.task.waiting_bytes(source.offset) not in (None, 0)


def test_executors_read_the_same_rows_from_pickled_parts(table: GrowingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[Any] = []

    def read(spark: Any, parts: list[Part], schema: pa.Schema) -> Any:
        groups.append((parts, schema))
        return "frame"

    monkeypatch.setattr("connectx.connectors.spark.tables.read_by_executors", read)
    table.append(numbered(0, 10))
    source = Source(table, slice_rows="4")
    source.poll()
    for first in (10, 15):
        table.append(numbered(first, first + 5))
    reader = source.task._reader
    assert isinstance(reader, TableReader)
    small = reader.frame(NO_SPARK, source.offset, 1)
    assert small is not None
    whole = reader.frame(NO_SPARK, source.offset, 1 << 30)
    assert whole is not None
    found = [
        [value["id"] for batch in rows_of(pickle.loads(pickle.dumps(parts))) for value in batch.to_pylist()]
        for parts, _ in groups
    ]
    assert found == [list(range(4, 10)), list(range(4, 20))]
    assert whole[1][table.mode] == table.newest()
    source.offset = whole[1]
    assert source.ids() == []
    assert reader.frame(NO_SPARK, source.offset, 1) is None


def test_a_bulk_slice_ends_where_the_columns_change(table: GrowingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(
        "connectx.connectors.spark.tables.read_by_executors",
        lambda spark, parts, schema: taken.append(len(parts)),
    )
    table.append(numbered(0, 3))
    begin = table.newest()
    table.append(numbered(3, 6))
    table.append(numbered(6, 9))
    table.append(pa.table({"id": [9], "name": ["x"], "price": [1.5]}))
    reader = Source(table, offset_start=str(begin)).task._reader
    first = reader.frame(NO_SPARK, None, 1 << 30)
    assert first is not None
    assert reader.frame(NO_SPARK, first[1], 1 << 30) is not None
    assert taken == [2, 1]


def test_rows_are_skipped_over_batches() -> None:
    batches = numbered(0, 10).to_batches(max_chunksize=3)
    assert [[row["id"] for row in batch.to_pylist()] for batch in skipped(batches, 4)] == [[4, 5], [6, 7, 8], [9]]


def test_a_missing_table_is_named(table: GrowingTable) -> None:
    with pytest.raises(LakeError, match=r"The table .* does not exist\."):
        Source(table).poll()


def test_an_offset_of_another_mode_is_refused(table: GrowingTable) -> None:
    table.append(numbered(0, 1))
    source = Source(table)
    source.offset = {"id": 5}
    with pytest.raises(ConfigError, match="is not one of a"):
        source.poll()


def test_a_missing_library_is_named(table: GrowingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectx.extras.find_spec", lambda name: None)
    for module in ("deltalake", "pyiceberg"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingExtraError, match=r"offset.mode=(version|snapshot) needs (deltalake|pyiceberg)"):
        Source(table)


COLUMN = {"format": "parquet", "offset.mode": "column", "offset.columns": "id", "format.options.path": "/p"}
VERSION = {"format": "delta", "offset.mode": "version", "format.options.path": "/p"}
SNAPSHOT = {"format": "iceberg", "offset.mode": "snapshot", "format.options.path": "a.b", "iceberg.catalog.type": "sql"}


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        (COLUMN, ""),
        (VERSION, ""),
        (SNAPSHOT, ""),
        ({**COLUMN, "schema": "id INT"}, ""),
        ({**COLUMN, "offset.columns": " "}, "offset.columns"),
        ({**COLUMN, "offset.start": "3"}, "offset.start"),
        ({**VERSION, "format": "parquet"}, "format"),
        ({**SNAPSHOT, "format": "delta"}, "format"),
        ({**VERSION, "format.options.path": ""}, "offset.mode"),
        ({**VERSION, "schema": "id INT"}, "schema"),
        ({**SNAPSHOT, "iceberg.catalog.type": ""}, "iceberg.catalog"),
    ],
)
def test_what_an_offset_mode_needs_is_validated(config: Mapping[str, str], wrong: str) -> None:
    assert list(SparkSource.validate(config)) == ([wrong] if wrong else [])
