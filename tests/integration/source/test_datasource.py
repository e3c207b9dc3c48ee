"""PySpark data sources as source connectors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader

from connectx.connectors.spark.datasource import DataSourceSource
from connectx.core.messages import TaskFailed
from tests.support.profiles import JSON
from tests.support.records import read_all
from tests.support.task_harness import Place, Task
from tests.support.waiting import until

NONE: Mapping[str, str] = {}
CHAIN = {
    "transforms": "text,head",
    "transforms.text.type": "Cast$Value",
    "transforms.text.spec": "square:string",
    "transforms.head.type": "HeaderFrom$Value",
    "transforms.head.fields": "n",
    "transforms.head.headers": "number",
    "transforms.head.operation": "copy",
}


class Squares(DataSource):
    """n and its square, `step` rows at a time in two partitions, up to `last`."""

    @classmethod
    def name(cls) -> str:
        return "squares"

    def schema(self) -> str:
        return "n INT, square INT"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return SquaresReader(int(self.options["step"]), int(self.options["last"]), self.options.get("broken") == "yes")


class SquaresReader(DataSourceStreamReader):
    def __init__(self, step: int, last: int, broken: bool) -> None:
        self.step, self.last, self.broken = step, last, broken
        self.at = 0

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def latestOffset(self) -> dict[str, Any]:
        self.at = min(self.last, self.at + self.step)
        return {"n": self.at}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        middle = (start["n"] + end["n"]) // 2
        return [InputPartition((start["n"], middle)), InputPartition((middle, end["n"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        first, behind = partition.value
        if self.broken:
            raise ValueError("the source is broken")
        return ((n, n * n) for n in range(first, behind))


class Letters(DataSource):
    """One letter per read; its offset is nested."""

    def schema(self) -> str:
        return "letter STRING"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return LettersReader()


class LettersReader(SimpleDataSourceStreamReader):
    committed: Any = None

    def initialOffset(self) -> dict[str, Any]:
        return {"at": {"letter": 0}}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[str]], dict[str, Any]]:
        at = start["at"]["letter"]
        return (iter([(chr(97 + at),)]), {"at": {"letter": at + 1}}) if at < 3 else (iter([]), start)

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[str]]:
        return iter([(chr(97 + at),) for at in range(start["at"]["letter"], end["at"]["letter"])])

    def commit(self, end: dict[str, Any]) -> None:
        type(self).committed = end


def source(
    place: Place, cls: type[DataSource], own: Mapping[str, str] = NONE, *, instance: int = 1, **options: str
) -> Task:
    config = {
        "connector.class": "DataSourceSource",
        "datasource.class": f"{cls.__module__}.{cls.__qualname__}",
        "topic": f"{place.group}-t",
        **JSON,
        "bulk.mode": "never",
        **own,
        **{f"datasource.options.{name}": value for name, value in options.items()},
    }
    return place.task(config, instance=instance)


def test_partitions_of_a_stream_reader_are_read_by_spark_from_where_the_task_stopped(place: Place) -> None:
    first = source(place, Squares, step="100", last="250").begin()
    place.wait_for_values(f"{place.group}-t", 250)
    first.stop()
    assert place.committed({"datasource": "squares"}) == {"n": 250}
    second = source(place, Squares, instance=2, step="1000", last="400").begin()
    values = [json.loads(value) for value in place.wait_for_values(f"{place.group}-t", 400)]
    assert values == [{"n": n, "square": n * n} for n in range(400)]
    second.stop()


def test_executors_send_the_worker_s_records_of_a_stream_reader(place: Place) -> None:
    found = {}
    for mode in ("never", "always"):
        topic = place.create_topic(f"{place.group}-{mode}", partitions=3)
        own = {"name": mode, "topic": topic, "bulk.mode": mode, "key.fields": "n", **CHAIN}
        task = source(place, Squares, own, step="100", last="250").begin()
        place.wait_for_values(topic, 250)
        task.stop()
        messages = read_all(place.bootstrap_servers, topic)
        records = [(m.partition(), m.key(), m.value(), m.headers()) for m in messages]
        found[mode] = records, place.committed({"datasource": "squares"}, mode)
        assert (task.count("bulk_jobs") > 0) == (mode == "always")
    assert found["always"] == found["never"]
    records, offset = found["always"]
    assert offset == {"n": 250}
    values = sorted((json.loads(value) for _, _, value, _ in records), key=lambda value: value["n"])
    assert values == [{"n": n, "square": str(n * n)} for n in range(250)]
    assert all(headers == [("number", key)] for _, key, _, headers in records)


def test_a_simple_reader_runs_in_the_worker_and_hears_of_commits(place: Place) -> None:
    task = source(place, Letters).begin()
    values = [json.loads(value) for value in place.wait_for_values(f"{place.group}-t", 3)]
    assert [value["letter"] for value in values] == ["a", "b", "c"]
    until(lambda: LettersReader.committed == {"at": {"letter": 3}}, "the commit")
    task.stop()
    assert place.committed({"datasource": "Letters"}) == {"offset.json": '{"at": {"letter": 3}}'}


def test_a_spark_job_that_fails_fails_the_task_and_sends_nothing(place: Place) -> None:
    place.create_topic(f"{place.group}-t")
    task = source(place, Squares, step="10", last="10", broken="yes").begin()
    failed = task.said(TaskFailed)
    assert "A Spark job failed" in failed.trace
    assert "evaluated: ValueError: the source is broken." in failed.trace
    assert place.values(f"{place.group}-t", "read_uncommitted") == []


@pytest.mark.parametrize("path", ["no.such.Class", "json.JSONDecoder", "Plain", ""])
def test_a_class_that_is_no_data_source_is_refused_at_validation(path: str) -> None:
    (problem,) = DataSourceSource.validate({"datasource.class": path})["datasource.class"]
    assert "datasource.class" in problem
