"""DataSourceSource, without Kafka and Spark: where its slices end, for readers of Spark 4.0 and of Spark 4.2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from connectx.connectors.spark.datasource import DataSourceSource, latest_offset
from connectx.connectors.spark.errors import ReadLimitError
from connectx.errors.base import ConnectxError


class Reader(DataSourceStreamReader):
    """Has ten rows."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([])


class Unlimited(Reader):
    """Its signature is that of Spark 4.0 and 4.1."""

    def latestOffset(self) -> dict[str, Any]:
        self.asked.append(())
        return {"n": 10}


class Limited(Reader):
    """Its signature is that of Spark 4.2 and later; it changes what it gets, and returns that."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override]
        self.asked.append((dict(start), limit))
        start["n"] = min(10, start["n"] + limit)
        return start

    def prepareForTriggerAvailableNow(self) -> None:
        raise AssertionError("the query is continuous")


class LimitedByDefault(Limited):
    def getDefaultReadLimit(self) -> Any:
        return 4


def reading(reader: Reader) -> DataSourceSource.Task:
    task = DataSourceSource.Task()
    task._reader, task._next = reader, None
    return task


def test_a_reader_of_spark_4_0_has_no_limit() -> None:
    assert latest_offset(Unlimited(), {"n": 3}) == {"n": 10}


def test_a_reader_of_spark_4_2_gets_the_start_of_the_slice_and_its_default_limit() -> None:
    reader, start = LimitedByDefault(), {"n": 3}
    assert latest_offset(reader, start) == {"n": 7}
    assert start == {"n": 3}
    assert reader.asked == [({"n": 3}, 4)]


def test_a_reader_without_a_limit_of_its_own_gets_that_of_spark_or_is_refused() -> None:
    reader = Limited()
    if hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        with pytest.raises(TypeError, match="ReadAllAvailable"):  # it adds the limit to a number
            latest_offset(reader, {"n": 3})
        assert type(reader.asked[0][1]).__name__ == "ReadAllAvailable"
    else:
        with pytest.raises(ConnectxError) as caught:
            latest_offset(reader, {"n": 3})
        assert caught.value.code == ReadLimitError.code


@pytest.mark.parametrize("reader", [Unlimited(), LimitedByDefault()])
def test_the_end_of_a_slice_is_asked_for_once_and_again_after_the_task_went_back(reader: Reader) -> None:
    task = reading(reader)
    for _ in range(2):
        assert task.waiting_bytes({"n": 6}) == 1
    assert task.waiting_bytes({"n": 10}) == 0
    assert task.waiting_bytes(None) == 1
    assert len(reader.asked) == 3
