"""A lake of each format in a directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from connectx.connectors.lake.delta import DeltaSink
from connectx.connectors.lake.iceberg import IcebergSink
from connectx.connectors.lake.parquet import ParquetSink
from tests.support.lake import Lake, delta_files, iceberg_files

Files = Callable[[str], Sequence[str]]
"""The data files of a table."""


def parquet(folder: Path) -> tuple[Lake, Files]:
    return Lake(ParquetSink.Task, {"path": str(folder)}), lambda table: [f"{folder}/{table}/*.parquet"]


def partitioned(folder: Path) -> tuple[Lake, Files]:
    settings = {"path": str(folder), "partition.by": "id"}
    return Lake(ParquetSink.Task, settings), lambda table: [f"{folder}/{table}/id=*/*.parquet"]


def delta(folder: Path) -> tuple[Lake, Files]:
    return Lake(DeltaSink.Task, {"path": str(folder)}), lambda table: delta_files(folder / table)


def iceberg(folder: Path) -> tuple[Lake, Files]:
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri()}
    settings = {f"iceberg.catalog.{name}": text for name, text in catalog.items()}
    return Lake(IcebergSink.Task, settings), lambda table: iceberg_files(catalog, f"default.{table}")


FORMATS: Mapping[str, Callable[[Path], tuple[Lake, Files]]] = {
    "parquet": parquet,
    "partitioned": partitioned,
    "delta": delta,
    "iceberg": iceberg,
}


class Tables:
    """The tables of a lake, as DuckDB reads them."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._connection = duckdb.connect()

    def sql(self, statement: str, table: str = "rows") -> list[tuple[Any, ...]]:
        """Rows of a query; FROM lake stands for the table."""
        source = f"read_parquet({list(self._files(table))}, union_by_name=true, hive_partitioning=true)"
        found: list[tuple[Any, ...]] = self._connection.execute(
            statement.replace("FROM lake", f"FROM {source}")
        ).fetchall()
        return found

    def ids(self, table: str = "rows") -> list[int]:
        """The column id, sorted."""
        return [row[0] for row in self.sql("SELECT id FROM lake ORDER BY id", table)]


@pytest.fixture(params=FORMATS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Lake, Tables]:
    lake, files = FORMATS[request.param](tmp_path)
    return lake, Tables(files)


@pytest.fixture
def lake(made: tuple[Lake, Tables]) -> Lake:
    """Writes in each format."""
    return made[0]


@pytest.fixture
def tables(made: tuple[Lake, Tables]) -> Tables:
    """Reads what `lake` writes."""
    return made[1]
