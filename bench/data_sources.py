"""What the connectors for user code run in `bench.bulk`: a PySpark DataSource to read, one to write, and a function."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

_PARTS = 4


class Rows(DataSource):
    """Rows of three columns, option `count` of them, as Python tuples."""

    def schema(self) -> str:
        return "id BIGINT, name STRING, amount DOUBLE"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Reader(int(self.options["count"]))


@dataclass
class _Range(InputPartition):
    first: int
    end: int


class _Reader(DataSourceStreamReader):
    """All rows in one slice, in four parts."""

    def __init__(self, count: int) -> None:
        self._count = count

    def initialOffset(self) -> dict[str, Any]:
        return {"row": 0}

    def latestOffset(self) -> dict[str, Any]:
        return {"row": self._count}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, count = start["row"], end["row"] - start["row"]
        cuts = [first + count * part // _PARTS for part in range(_PARTS + 1)]
        return [_Range(*cut) for cut in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, _Range)
        return ((number, f"name {number}", number / 4) for number in range(partition.first, partition.end))


class Files(DataSource):
    """Parquet files in the folder of option `path`, renamed when they are committed."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer(Path(self.options["path"]))


@dataclass
class _File(WriterCommitMessage):
    path: str


class _Writer(DataSourceArrowWriter):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f".{uuid4()}"
        parquet.write_table(pa.Table.from_batches(list(iterator)), path)
        return _File(str(path))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        for message in messages:
            assert isinstance(message, _File), "each part of a job writes a file"
            os.rename(message.path, self._folder / f"{uuid4()}.parquet")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        for message in messages:
            if isinstance(message, _File):
                os.remove(message.path)


def count_cities(frame: DataFrame, ranges: Mapping[Any, tuple[int, int]], token: str) -> None:
    """Aggregate on Spark: a small result of all rows."""
    frame.groupBy("city").count().collect()
