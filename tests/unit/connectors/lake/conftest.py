"""A lake of each format in a directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from connectx.connectors.lake.parquet import ParquetSink
from tests.support.lake import Lake


def parquet(folder: Path) -> tuple[Lake, str]:
    return Lake(ParquetSink.Task, {"path": str(folder)}), f"read_parquet('{folder}/{{}}/*.parquet', union_by_name=true)"


FORMATS: Mapping[str, Callable[[Path], tuple[Lake, str]]] = {"parquet": parquet}


class Tables:
    """The tables of a lake, as DuckDB reads them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._connection = duckdb.connect()

    def sql(self, statement: str, table: str = "rows") -> list[tuple[Any, ...]]:
        """Rows of a query; FROM lake stands for the table."""
        source = self._source.format(table)
        found: list[tuple[Any, ...]] = self._connection.execute(
            statement.replace("FROM lake", f"FROM {source}")
        ).fetchall()
        return found

    def ids(self, table: str = "rows") -> list[int]:
        """The column id, sorted."""
        return [row[0] for row in self.sql("SELECT id FROM lake ORDER BY id", table)]


@pytest.fixture(params=FORMATS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Lake, Tables]:
    lake, source = FORMATS[request.param](tmp_path)
    return lake, Tables(source)


@pytest.fixture
def lake(made: tuple[Lake, Tables]) -> Lake:
    """Writes in each format."""
    return made[0]


@pytest.fixture
def tables(made: tuple[Lake, Tables]) -> Tables:
    """Reads what `lake` writes."""
    return made[1]
