"""Connectors with a bulk lane, one entry each in FLOWS: how `bench.bulk` configures them, and with how many records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import csv, parquet

SCHEMA: Final = "id INT, name STRING, amount DOUBLE, at TIMESTAMP, city STRING"


@dataclass(frozen=True)
class Run:
    """One run of a connector.

    Attributes:
        connector: value of `connector.class`.
        folder: where files are read and written.
        database: libpq URI of a PostgreSQL server; empty if no flow uses one.
        lane: value of `bulk.mode`; runs in different lanes write to different tables.
        count: number of records.
        topic: what a source writes and a sink reads.
    """

    connector: str
    folder: Path
    database: str
    lane: str
    count: int
    topic: str

    @property
    def table(self) -> str:
        """Table or folder that the connector writes to in this lane."""
        return f"{self.connector}-{self.lane}".lower()

    def rows_file(self) -> Path:
        """CSV lines of five columns, about 60 bytes each."""
        path = self.folder / f"rows-{self.count}.csv"
        if not path.exists():
            with path.open("w") as out:
                out.writelines(
                    f"{number},name {number},{number / 4},2020-01-01T00:00:{number % 60:02d}Z,city {number % 100}\n"
                    for number in range(self.count)
                )
        return path

    def rows_table(self) -> pa.Table:
        """The same rows in Arrow."""
        names = [column.split()[0] for column in SCHEMA.split(", ")]
        return csv.read_csv(self.rows_file(), read_options=csv.ReadOptions(column_names=names))


@dataclass(frozen=True)
class Flow:
    """How one connector is measured.

    Attributes:
        connector: value of `connector.class`.
        settings: its own settings. It also writes what a source reads.
        share: records of a measured run, as a multiple of `--records`; a run with a quarter of them warms up.
        on_every_master: whether it runs on all masters, or on the first one only.
        uses_database: whether it needs PostgreSQL.
    """

    connector: str
    settings: Callable[[Run], Mapping[str, str]]
    share: float
    on_every_master: bool = False
    uses_database: bool = False

    @property
    def is_source(self) -> bool:
        """Whether it writes a topic; a sink reads one."""
        return self.connector.endswith("Source")

    def config(self, run: Run) -> Mapping[str, str]:
        """Configuration of the connector."""
        more = {} if self.is_source else {"topics": run.topic}
        return {"connector.class": self.connector, "bulk.mode": run.lane, **more, **self.settings(run)}


def _file_source(run: Run) -> Mapping[str, str]:
    return {"file": str(run.rows_file()), "topic": run.topic, "schema": SCHEMA}


def _directory_source(run: Run) -> Mapping[str, str]:
    folder = run.folder / f"files-{run.count}"
    if not folder.exists():
        folder.mkdir()
        lines = run.rows_file().read_text().splitlines(keepends=True)
        for file in range(10):
            (folder / f"{file}.csv").write_text("".join(lines[file::10]))
    return {"path": str(folder), "topic": run.topic, "format": "csv", "header": "false", "schema": SCHEMA}


def _spark_source(run: Run) -> Mapping[str, str]:
    path = run.folder / f"rows-{run.count}.parquet"
    parquet.write_table(run.rows_table(), path)
    offsets = {"offset.mode": "column", "offset.columns": "id"}
    return {"format": "parquet", "format.options.path": str(path), "topic": run.topic, **offsets}


def _jdbc_source(run: Run) -> Mapping[str, str]:
    """The topic's name is that of the table after a prefix."""
    from adbc_driver_postgresql import dbapi

    prefix, _, table = run.topic.partition("-")
    with dbapi.connect(run.database, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(table, run.rows_table(), mode="create")
        cursor.execute(f'ALTER TABLE "{table}" ADD PRIMARY KEY (id)')
        cursor.execute(f'ANALYZE "{table}"')
    tracked = {"mode": "incrementing", "incrementing.column.name": "id"}
    return {"connection.url": run.database, "table.whitelist": table, "topic.prefix": f"{prefix}-", **tracked}


def _data_source_source(run: Run) -> Mapping[str, str]:
    reader = {"datasource.class": "bench.data_sources.Rows", "datasource.options.count": str(run.count)}
    return {**reader, "topic": run.topic}


_EACH_SECOND: Final = {"flush.interval.ms": "1000"}


def _files(run: Run) -> Mapping[str, str]:
    return {"path": str(run.folder), "table.name.format": run.table, **_EACH_SECOND}


def _iceberg(run: Run) -> Mapping[str, str]:
    catalog = {"type": "sql", "uri": f"sqlite:///{run.folder}/catalog.db", "warehouse": f"file://{run.folder}/iceberg"}
    settings = {f"iceberg.catalog.{name}": text for name, text in catalog.items()}
    return {**settings, "table.name.format": f"bench.{run.table}", **_EACH_SECOND}


def _jdbc_sink(run: Run) -> Mapping[str, str]:
    return {"connection.url": run.database, "table.name.format": run.table, "auto.create": "true"}


def _data_source_sink(run: Run) -> Mapping[str, str]:
    writer = {"datasource.class": "bench.data_sources.Files"}
    return {**writer, "datasource.options.path": str(run.folder / run.table), **_EACH_SECOND}


def _spark_sink(run: Run) -> Mapping[str, str]:
    return {"format": "parquet", "format.options.path": str(run.folder / run.table), **_EACH_SECOND}


def _function(run: Run) -> Mapping[str, str]:
    return {"function": "bench.data_sources.count_cities", **_EACH_SECOND}


FLOWS: Final = (
    Flow("FileSource", _file_source, 4, on_every_master=True),
    Flow("DirectorySource", _directory_source, 0.4),
    Flow("JdbcSource", _jdbc_source, 1, uses_database=True),
    Flow("SparkSource", _spark_source, 0.2),
    Flow("DataSourceSource", _data_source_source, 0.2),
    Flow("DeltaSink", _files, 4, on_every_master=True),
    Flow("IcebergSink", _iceberg, 1),
    Flow("ParquetSink", _files, 1),
    Flow("PostgresSink", _jdbc_sink, 0.4, uses_database=True),
    Flow("JdbcSink", _jdbc_sink, 0.4, uses_database=True),
    Flow("DataSourceSink", _data_source_sink, 0.4),
    Flow("SparkSink", _spark_sink, 0.4),
    Flow("FunctionSink", _function, 0.4),
)
"""In the order of their runs. FileSource comes first, because it fills the topics of sinks."""
