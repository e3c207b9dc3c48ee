"""Columns of Arrow tables as columns of DataFrames. Timestamps without a time zone stay without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """Columns of a DataFrame for these of a table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def as_spark_takes(schema: pa.Schema) -> pa.Schema:
    """The types that rows of these columns must have where Spark reads record batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(spark_schema(schema))
