"""Converters on a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connectx.data.converters import decode
from connectx.data.json.converter import JsonConverter
from tests.support.conversions import KEY, Read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType


@pytest.fixture
def read(spark: SparkSession) -> Read:
    """`read(records, converter, target=None)`: values, and errors without their common head."""

    def run(
        records: list[bytes | None], converter: JsonConverter, target: DataType | None = None
    ) -> tuple[list[Any], list[str | None]]:
        table = pa.table({
            "key": pa.nulls(len(records), pa.binary()),
            "value": pa.array(records, pa.binary()),
            "topic": ["t"] * len(records),
        })  # fmt: skip
        types = None if target is None else {"t": target}
        decoded = decode(table, KEY, converter, types, lambda: spark)
        errors = [
            e and e.removeprefix("Converting the value from bytes failed: ") for e in decoded["error"].to_pylist()
        ]
        return decoded["value"].to_pylist(), errors

    return run
