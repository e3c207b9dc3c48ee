"""How SparkSource reads in one of its offset modes: what the modes have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from connectx.connectors.spark.errors import JdbcDriverError, SparkFormatError
from connectx.model.source_offsets import SourceOffset, SourcePartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT_OPTIONS: Final = "format.options."
"""Prefix of settings that are options of the format, as with SparkSink."""
_UNKNOWN: Final = "DATA_SOURCE_NOT_FOUND"
_NO_DRIVER: Final = re.compile("No suitable driver|ClassNotFoundException")


class Reader(Protocol):
    """Reads rows after an offset, in slices with fixed bounds: the same offsets always enclose the same rows."""

    @property
    def partition(self) -> SourcePartition:
        """Names what is read."""

    def slices(self, spark: SparkSession, offset: SourceOffset | None) -> Iterator[tuple[pa.Table, SourceOffset]]:
        """Rows that are there now, each table with the offset after it; a table without rows only moves the offset."""

    def waiting_bytes(self, spark: SparkSession, offset: SourceOffset | None) -> int | None:
        """Estimated size of what comes after an offset; None if executors cannot read it."""

    def frame(
        self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int
    ) -> tuple[DataFrame, SourceOffset] | None:
        """About so many bytes as a DataFrame that executors evaluate, in order, and the offset after it."""

    def again(
        self, spark: SparkSession, start: SourceOffset | None, end: SourceOffset | None
    ) -> Iterator[tuple[pa.Table, SourceOffset]]:
        """Rows between two offsets, again; `end` None: up to what there is now."""


def load(
    spark: SparkSession, name: str, options: Mapping[str, str], schema: str | None, path: str | None = None
) -> tuple[DataFrame, StructType]:
    """The rows of a format as they are now, and their columns.

    Raises:
        SparkFormatError: Spark does not know the format.
        JdbcDriverError: it has no driver for the database.
    """
    reader = spark.read.format(name).options(**options)
    try:
        frame = (reader if schema is None else reader.schema(schema)).load(path)
        return frame, frame.schema  # Spark Connect reports errors with the columns
    except Exception as error:
        if _UNKNOWN in str(error):
            raise SparkFormatError(name) from error
        if name == "jdbc" and _NO_DRIVER.search(str(error)):
            raise JdbcDriverError from error
        raise
