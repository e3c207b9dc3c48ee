"""SparkSource on Spark and Kafka: growing columns, both lanes of all offset modes, and a killed worker."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import connectx as cx
from connectx.connectors.spark.columns import ColumnReader
from connectx.connectors.spark.errors import JdbcDriverError, OffsetColumnError, SparkFormatError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.source_offsets import SourceOffset
from connectx.model.worker_config import EMBEDDED_PROFILE
from tests.support.clusters import owner_of
from tests.support.growing_tables import DeltaGrowing, GrowingTable, IcebergGrowing, numbered
from tests.support.profiles import JSON, QUICK
from tests.support.records import read_all
from tests.support.task_harness import Place
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectx.spark.sessions import SparkProvider


class ParquetGrowing:
    """A directory of Parquet files, read by growing columns."""

    def __init__(self, folder: Path, columns: str = "id") -> None:
        self.path = folder / "column"
        self.path.mkdir()
        self.settings = {
            **{"format": "parquet", "format.options.path": str(self.path)},
            **{"offset.mode": "column", "offset.columns": columns},
        }
        self._files = 0

    def append(self, rows: pa.Table) -> None:
        self._files += 1
        hidden = self.path / f".{self._files}.parquet"
        pq.write_table(rows, hidden)
        hidden.rename(self.path / f"{self._files:05}.parquet")


def reader(path: Path, *columns: str, slice_rows: int = 3, name: str = "parquet", **options: str) -> ColumnReader:
    return ColumnReader(name, {"path": str(path), **options}, columns, None, slice_rows)


def stored(offset: SourceOffset) -> SourceOffset:
    """An offset as the offsets topic gives it back."""
    found: SourceOffset = json.loads(json.dumps(offset))
    return found


COLUMNS: Mapping[str, pa.Array] = {
    "small": pa.array([5, 1, 3, 3, 2, 4, 3, 3], pa.int16()),
    "price": pa.array([Decimal(f"{n}.50") for n in (20, 9, 10, 10, 9, 11, 10, 10)], pa.decimal128(10, 2)),
    "text": pa.array(["z", "Z", "a", "a", "Zürich", "aa", "a", "a"]),
    "day": pa.array([datetime.date(2020, 1, n) for n in (9, 1, 3, 3, 2, 4, 3, 3)]),
    "at": pa.array(
        [1_604_000_000_000_000 + n * 1_800_000_001 for n in (9, 1, 3, 3, 2, 4, 3, 3)], pa.timestamp("us", "UTC")
    ),
    "local": pa.array([1_604_000_000_000_000 + n for n in (9, 1, 3, 3, 2, 4, 3, 3)], pa.timestamp("us")),
}


def test_rows_come_in_the_order_of_columns_of_each_type_and_equal_ones_together(
    spark_provider: SparkProvider, tmp_path: Path
) -> None:
    table = ParquetGrowing(tmp_path)
    table.append(pa.table({"id": range(8), **COLUMNS}))
    spark, task = spark_provider.get(), reader(table.path, *COLUMNS, slice_rows=2)
    found = list(task.slices(spark, None))
    assert [sorted(rows["id"].to_pylist()) for rows, _ in found] == [[1, 4], [2, 3, 6, 7], [0, 5]]
    start, end = (stored(offset) for _, offset in found[:2])
    for column in COLUMNS:
        one = reader(table.path, column, slice_rows=9)
        (between,) = one.again(spark, {column: start[column]}, {column: end[column]})
        assert sorted(between[0]["id"].to_pylist()) == [2, 3, 6, 7], column
    table.append(pa.table({"id": [8, 9], **{name: values.take([4, 0]) for name, values in COLUMNS.items()}}))
    ((rest, _),) = reader(table.path, *COLUMNS, "id").slices(spark, {**end, "id": 7})
    assert rest["id"].to_pylist() == [5, 0, 9]


def test_rows_with_equal_columns_are_never_divided_and_bulk_slices_have_all_rows_in_order(
    spark_provider: SparkProvider, tmp_path: Path
) -> None:
    table = ParquetGrowing(tmp_path)
    table.append(pa.table({"day": [max(0, n - 39) // 3 for n in range(3_000)], "id": range(3_000)}))
    spark, task = spark_provider.get(), reader(table.path, "day")
    first, offset = next(task.slices(spark, None))
    assert first["id"].to_pylist() == list(range(42))
    ids, sizes = first["id"].to_pylist(), []
    waiting = task.waiting_bytes(spark, offset)
    while (piece := task.frame(spark, offset, waiting // 3 + 1)) is not None:
        rows = piece[0].toArrow()
        assert rows["day"].to_pylist() == sorted(rows["day"].to_pylist())
        assert piece[0].toArrow() == rows  # evaluated again
        sizes.append(rows.num_rows)
        ids += rows["id"].to_pylist()
        offset = stored(piece[1])
    assert sorted(ids) == list(range(3_000))
    assert len(sizes) in (3, 4)
    assert task.waiting_bytes(spark, offset) == 0


def test_columns_that_cannot_be_an_offset_and_unknown_formats_are_reported(
    spark_provider: SparkProvider, tmp_path: Path
) -> None:
    table = ParquetGrowing(tmp_path)
    table.append(pa.table({"id": [1, None, 3], "tags": [["a"], [], ["b"]], "rate": [1.0, 2.0, 3.0]}))
    spark = spark_provider.get()
    wrong = {
        "id": "1 rows have a null there",
        "nope": "there is no such column",
        "tags": "it is array<string>; take a whole number",
        "rate": "it is double; take a whole number",
    }
    for column, cause in wrong.items():
        with pytest.raises(OffsetColumnError, match=f"{column} in parquet .* cannot be the offset: {cause}"):
            next(reader(table.path, column).slices(spark, None))
    table.append(numbered(0, 1))
    with pytest.raises(OffsetColumnError, match="the committed offset has version"):
        next(reader(table.path, "id").slices(spark, {"version": 3}))
    with pytest.raises(SparkFormatError, match="parket"):
        next(reader(table.path, "id", name="parket").slices(spark, None))


def test_a_database_is_read_by_columns_of_each_type_over_restarts_and_in_bulk(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {"url": f"jdbc:derby:{tmp_path / 'derby'};create=true", "dbtable": "numbers"}
    options["driver"] = "org.apache.derby.jdbc.EmbeddedDriver"  # Spark brings it
    rows = spark.createDataFrame(pa.table({"id": range(8), **COLUMNS}))
    rows.write.format("jdbc").options(**options).save()
    columns = [name for name in COLUMNS if name != "text"]
    offset: SourceOffset | None = None
    found: list[list[int]] = []
    while piece := next(ColumnReader("jdbc", options, columns, None, 2).slices(spark, offset), None):
        found.append(sorted(piece[0]["id"].to_pylist()))
        offset = stored(piece[1])
    assert found == [[1, 4], [2, 3, 6, 7], [0, 5]]
    task = ColumnReader("jdbc", options, columns, None, 2)
    in_bulk = task.frame(spark, None, 2 * task.waiting_bytes(spark, None))
    assert in_bulk is not None
    assert in_bulk[0].toArrow()["small"].to_pylist() == sorted(COLUMNS["small"].to_pylist())
    assert in_bulk[1] == offset
    with pytest.raises(OffsetColumnError, match="databases order text"):
        next(ColumnReader("jdbc", options, ["text"], None, 2).slices(spark, None))
    with pytest.raises(JdbcDriverError, match="Spark finds no JDBC driver"):
        next(ColumnReader("jdbc", options | {"driver": "nowhere.Driver"}, ["id"], None, 2).slices(spark, None))


TABLES: Mapping[str, Any] = {"column": ParquetGrowing, "version": DeltaGrowing, "snapshot": IcebergGrowing}
ROWS = 2_000


def rich(first: int, end: int) -> pa.Table:
    """Rows with columns of several types."""
    ids = range(first, end)
    at = pa.array([1_600_000_000_000_000 + number for number in ids], pa.timestamp("us", "UTC"))
    tags = pa.array([[f"t{number}", None][: number % 3] for number in ids], pa.list_(pa.string()))
    nested = pa.array([{"half": number / 2, "day": datetime.date(2020, 1, 1)} for number in ids])
    return numbered(first, end).append_column("at", at).append_column("tags", tags).append_column("nested", nested)


def test_both_lanes_write_the_same_records_in_the_same_order(place: Place, tmp_path: Path) -> None:
    tasks = {}
    modes = ("column", "version")
    for mode in modes:
        table: GrowingTable = TABLES[mode](tmp_path)
        for first, end in pairwise((0, ROWS // 2, ROWS // 2 + 9, ROWS)):
            table.append(rich(first, end))
        for lane in ("never", "always"):
            name = f"{mode}-{lane}"
            own = {"name": name, "topic": place.create_topic(f"{place.group}-{name}"), "bulk.mode": lane}
            config = {"connector.class": "SparkSource", **table.settings, **own, **JSON}
            tasks[name] = place.task({**config, "key.fields": "id", "slice.rows": "300"}).begin()
    found = {}
    for name, task in tasks.items():
        topic = f"{place.group}-{name}"
        place.wait_for_values(topic, ROWS)
        task.stop()
        found[name] = [(message.key(), message.value()) for message in read_all(place.bootstrap_servers, topic)]
        assert (task.count("bulk_jobs") > 0) == name.endswith("always")
    for mode in modes:
        assert found[f"{mode}-always"] == found[f"{mode}-never"], mode
        assert sorted(json.loads(value)["id"] for _, value in found[f"{mode}-never"]) == list(range(ROWS)), mode


@pytest.fixture
def cluster(kafka: EmbeddedKafka, spark_provider: SparkProvider, numbers: Iterator[int]) -> Iterator[cx.Cluster]:
    """Two workers on the broker and the Spark of all tests."""
    config = {**EMBEDDED_PROFILE, **QUICK, "group.id": f"spark-source{next(numbers)}"}
    with cx.Cluster(2, config=config, bootstrap_servers=kafka.bootstrap_servers, faults=False) as made:
        yield made


def test_a_killed_worker_loses_and_doubles_no_row_of_any_mode(cluster: cx.Cluster, tmp_path: Path) -> None:
    tables: dict[str, GrowingTable] = {mode: made(tmp_path) for mode, made in TABLES.items()}
    topics = {mode: create_topic(cluster.bootstrap_servers, f"{cluster.config.group_id}-{mode}") for mode in tables}
    for mode, table in tables.items():
        table.append(numbered(0, 500))
        lane = "always" if mode in ("version", "snapshot") else "never"
        own = {"topic": topics[mode], "bulk.mode": lane, "slice.rows": "100"}
        cluster.create(mode, {"connector.class": "SparkSource", **table.settings, **own, **JSON})
    for mode in tables:
        cluster.wait_committed(mode, 100, timeout=WAIT_S)
    for first in (500, 1_000):
        for table in tables.values():
            table.append(numbered(first, first + 500))
    owner_of(cluster, "version-0").kill()
    for mode, table in tables.items():
        table.append(numbered(1_500, 2_000))
        cluster.wait_committed(mode, 2_000, timeout=WAIT_S)
    for mode, topic in topics.items():
        values = [json.loads(record.value())["id"] for record in read_all(cluster.bootstrap_servers, topic)]
        assert sorted(values) == list(range(2_000)), mode
    verdict = cluster.check(timeout=WAIT_S)
    assert verdict.answer == "valid", verdict
    assert {checked.found for checked in verdict.checked} == {2_000}
