"""At-least-once source tasks: offsets follow acknowledged records, refusals, repetition after a kill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from connectx.core.messages import TaskFailed
from connectx.model.configdef import ConfigDef
from connectx.model.events import EventKind
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.slices import Slice
from connectx.plugins.tasks import SourceTask
from tests.support.task_harness import Place, Task
from tests.support.waiting import until


class Tables(SourceConnector):
    """One slice with a table for each of two topics."""

    config = ConfigDef().define("topics", list, doc="Topics of the tables.")

    class Task(SourceTask):
        def poll(self, spark: Any, offset: Any) -> Slice | None:
            topics = self.settings["topics"].split(",")
            return Slice(tuple(pa.table({"value": ["v"], "topic": [topic]}) for topic in topics), {"lsn": 9})

    task_class = Task


def lines(
    place: Place,
    path: Path,
    more: Mapping[str, str] = MappingProxyType({}),
    *,
    instance: int = 1,
    flush_ms: int = 600_000,
) -> Task:
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": f"{place.group}-t", **more}
    worker = {"offset.flush.interval.ms": str(flush_ms)}
    return place.task(config, instance=instance, exactly_once=False, worker=worker)


def test_offsets_are_committed_at_the_flush_interval(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    task = lines(place, path, flush_ms=100).begin()
    until(lambda: place.committed({"filename": str(path)}) == {"position": 8}, "the offset")
    assert place.values(f"{place.group}-t") == ["one", "two"]
    (commit,) = task.recorded(EventKind.OFFSETS_COMMITTED)
    assert commit.data["records"] == 2
    task.stop()


def test_a_stop_commits_what_was_sent(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{number}\n" for number in range(50_000)))
    task = lines(place, path, {"batch.size": "7000"}).begin()
    until(lambda: task.runner.metrics()["records"] == 50_000, "all lines sent")
    task.stop()
    assert place.committed({"filename": str(path)}) == {"position": path.stat().st_size}
    assert place.values(f"{place.group}-t") == [str(number) for number in range(50_000)]


def test_a_kill_before_the_commit_repeats_but_loses_nothing(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{number}\n" for number in range(1000)))
    first = lines(place, path).begin()
    place.wait_for_values(f"{place.group}-t", 1000)
    first.runner.kill()
    assert first.runner.join(10)
    second = lines(place, path, instance=2).begin()
    values = place.wait_for_values(f"{place.group}-t", 2000)
    assert values == [str(number) for number in range(1000)] * 2
    second.stop()


def test_a_record_that_kafka_refuses_fails_the_task_and_commits_nothing(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("small\n" + "x" * 5000 + "\n")
    place.create_topic(f"{place.group}-t", max_message_bytes="1000")
    failed = lines(place, path, flush_ms=50).begin_and_fail()
    assert "A record of 5000 bytes" in failed.trace
    assert "max.message.bytes" in failed.trace
    assert place.committed({"filename": str(path)}) is None


def test_a_task_that_fails_between_two_tables_of_a_slice_commits_nothing(place: Place) -> None:
    place.plugins.register(Tables)
    topics = f"{place.group}-t,{place.offsets_topic}"
    failed = place.task({"connector.class": "Tables", "topics": topics}, exactly_once=False).begin_and_fail()
    assert place.offsets_topic in failed.trace
    assert place.values(f"{place.group}-t") == ["v"]
    assert place.committed({}) is None


def test_with_tolerance_a_refused_record_is_skipped_and_counted(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("small\n" + "x" * 5000 + "\n")
    place.create_topic(f"{place.group}-t", max_message_bytes="1000")
    tolerant = {"errors.tolerance": "all", "producer.override.batch.num.messages": "1"}
    task = lines(place, path, tolerant, flush_ms=50).begin()
    until(lambda: place.committed({"filename": str(path)}) == {"position": 5007}, "the offset")
    assert place.values(f"{place.group}-t") == ["small"]
    (skipped,) = task.recorded(EventKind.RECORDS_SKIPPED)
    assert skipped.data == {"records": 1, "reason": "refused by Kafka"}
    task.stop()


def test_a_converter_that_does_not_take_the_value_fails_the_task(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\n")
    integer = {"value.converter": "org.apache.kafka.connect.converters.IntegerConverter"}
    failed = lines(place, path, integer).begin_and_fail()
    assert "IntegerConverter" in failed.trace
    assert "value.converter" in failed.trace
    assert place.committed({"filename": str(path)}) is None


def test_with_tolerance_what_a_converter_does_not_take_is_skipped(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    more = {
        "value.converter": "org.apache.kafka.connect.converters.IntegerConverter",
        "errors.tolerance": "all",
    }
    task = lines(place, path, more).begin()
    (skipped,) = until(lambda: task.recorded(EventKind.RECORDS_SKIPPED), "skipped records")
    assert skipped.data["records"] == 2
    task.stop()
    assert place.committed({"filename": str(path)}) is None
    assert not [stimulus for stimulus in task.stimuli if isinstance(stimulus, TaskFailed)]
