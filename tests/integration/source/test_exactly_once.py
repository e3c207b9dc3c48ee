"""Exactly-once source tasks: transactions, fencing, faults in the middle of a transaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectx.core.messages import (
    BeginTask,
    CancelTask,
    InitTaskProducer,
    SetTaskTargetState,
    StopTask,
    TaskFailed,
    TaskPrepared,
    TaskStateReached,
    TaskStopped,
)
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.configdef import ConfigDef
from connectx.model.events import EventKind
from connectx.model.source_offsets import SourceOffset
from connectx.model.states import TargetState
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.slices import Slice
from connectx.plugins.tasks import SourceTask
from tests.support.options import GATE
from tests.support.profiles import dotted
from tests.support.task_harness import Place, Task
from tests.support.waiting import until

pytestmark = pytest.mark.rule("always.1", "always.2")

INTERVAL = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "600000"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "in.txt"
    made.write_text("")
    return made


@pytest.fixture
def lines(place: Place, path: Path) -> Callable[..., Task]:
    """A FileStreamSource task over `path` into topic `<group>-t`."""

    def make(instance: int = 1, paused: bool = False, bootstrap_servers: str | None = None, **more: str) -> Task:
        config = {"connector.class": "FileStreamSource", "file": str(path), "topic": topic(place)}
        given = dotted(more)
        return place.task({**config, **given}, instance=instance, paused=paused, bootstrap_servers=bootstrap_servers)

    return make


def topic(place: Place) -> str:
    return f"{place.group}-t"


def append(path: Path, *values: object) -> None:
    with path.open("a") as file:
        file.writelines(f"{value}\n" for value in values)


def uncommitted(place: Place, count: int) -> None:
    """Wait until so many records are in the topic, committed or not."""
    until(lambda: len(place.values(topic(place), "read_uncommitted")) >= count, f"{count} uncommitted records")


def test_a_worker_killed_in_the_middle_of_a_transaction_leaves_each_row_exactly_once(
    place: Place, lines: Callable[..., Task], path: Path
) -> None:
    place.create_topic(topic(place))
    append(path, *range(1000))
    first = lines(**INTERVAL).begin()
    uncommitted(place, 1000)
    first.runner.kill()
    assert first.runner.join(10)
    assert place.committed({"filename": str(path)}) is None
    assert not [s for s in first.stimuli if isinstance(s, TaskStopped | TaskFailed)]
    second = lines(2).begin()
    append(path, *range(1000, 1500))
    values = place.wait_for_values(topic(place), 1500)
    assert values == [str(number) for number in range(1500)]
    assert len(place.values(topic(place), "read_uncommitted")) == 2500
    second.stop()


def test_a_kill_while_slices_are_being_sent_neither_loses_nor_repeats(
    place: Place, lines: Callable[..., Task], path: Path
) -> None:
    place.create_topic(topic(place))
    append(path, *(f"{number:0100d}" for number in range(200_000)))
    first = lines(batch_size="5000").begin()
    until(lambda: first.count("commits") >= 3, "three commits")
    first.runner.kill()
    assert first.runner.join(10)
    second = lines(2).begin()
    values = place.wait_for_values(topic(place), 200_000)
    assert values == [f"{number:0100d}" for number in range(200_000)]
    second.stop()


@pytest.mark.rule("618.3.6")
def test_the_older_of_two_instances_is_fenced_and_says_so(place: Place, lines: Callable[..., Task], path: Path) -> None:
    place.create_topic(topic(place))
    append(path, "a", "b")
    older = lines(**INTERVAL).begin()
    uncommitted(place, 2)
    newer = lines(2).begin()
    assert place.wait_for_values(topic(place), 2) == ["a", "b"]
    older.runner.execute(StopTask(older.order.task, 1))
    failed = older.said(TaskFailed)
    assert failed.fenced
    assert f"fenced by a newer producer with the same transactional id {place.group}-c-0" in failed.trace
    (fenced,) = older.recorded(EventKind.PRODUCER_FENCED)
    assert fenced.data["transactional_id"] == f"{place.group}-c-0"
    assert fenced.producer_epoch == 0
    assert older.recorded(EventKind.TRANSACTION_ABORTED)[0].data == {"records": 2, "reason": "fenced"}
    assert not older.recorded(EventKind.TRANSACTION_COMMITTED)
    append(path, "c")
    assert place.wait_for_values(topic(place), 3) == ["a", "b", "c"]
    (epoch, older_epoch) = newer.recorded(EventKind.TRANSACTION_COMMITTED)[0].producer_epoch, fenced.producer_epoch
    assert epoch is not None
    assert older_epoch is not None
    assert epoch > older_epoch
    newer.stop()


@pytest.mark.rule("618.6.2")
def test_pause_commits_the_open_transaction_and_resume_goes_on(
    place: Place, lines: Callable[..., Task], path: Path
) -> None:
    place.create_topic(topic(place))
    append(path, "a", "b")
    task = lines(**INTERVAL).begin()
    uncommitted(place, 2)
    assert place.values(topic(place)) == []
    task.runner.execute(SetTaskTargetState(task.order.task, 1, TargetState.PAUSED))
    assert task.said(TaskStateReached, 2).paused
    assert place.values(topic(place)) == ["a", "b"]
    append(path, "c")
    task.runner.execute(SetTaskTargetState(task.order.task, 1, TargetState.STARTED))
    assert not task.said(TaskStateReached, 3).paused
    uncommitted(place, 3)
    task.stop()
    assert place.values(topic(place)) == ["a", "b", "c"]


def test_a_paused_task_starts_its_plugin_only_when_resumed(
    place: Place, lines: Callable[..., Task], path: Path
) -> None:
    append(path, "a")
    task = lines(paused=True).begin()
    assert task.said(TaskStateReached).paused
    task.runner.execute(SetTaskTargetState(task.order.task, 1, TargetState.STARTED))
    assert place.wait_for_values(topic(place), 1) == ["a"]
    task.stop()


def test_a_transaction_that_was_open_too_long_fails_the_task_and_names_the_settings(
    place: Place, lines: Callable[..., Task], path: Path
) -> None:
    place.create_topic(topic(place))
    append(path, "a")
    task = lines(**INTERVAL, **{"producer.override.transaction.timeout.ms": "1500"}).begin()
    uncommitted(place, 1)
    marker = until(lambda: _end_offset(place) >= 2 or None, "the broker's abort marker")
    assert marker
    task.runner.execute(StopTask(task.order.task, 1))
    failed = task.said(TaskFailed)
    assert not failed.fenced
    assert "expired" in failed.trace
    assert "transaction.timeout.ms is 1500 ms" in failed.trace
    assert not task.recorded(EventKind.PRODUCER_FENCED)
    again = lines(2).begin()
    assert place.wait_for_values(topic(place), 1) == ["a"]
    again.stop()


def _end_offset(place: Place) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": place.bootstrap_servers, "group.id": "end"})
    end: int = consumer.get_watermark_offsets(TopicPartition(topic(place), 0), 10)[1]
    consumer.close()
    return end


def test_a_record_that_is_too_large_fails_the_task_with_its_size_and_nothing_of_the_slice_is_seen(
    place: Place, lines: Callable[..., Task], path: Path
) -> None:
    append(path, "small", "x" * 200_000)
    failed = lines(**{"producer.override.max.request.size": "100000"}).begin_and_fail()
    assert "A record of 200000 bytes" in failed.trace
    assert "max.request.size" in failed.trace
    again = lines(2).begin()
    assert place.wait_for_values(topic(place), 2) == ["small", "x" * 200_000]
    again.stop()


def test_a_record_that_the_topic_refuses_fails_the_task_and_aborts(
    place: Place, lines: Callable[..., Task], path: Path
) -> None:
    place.create_topic(topic(place), max_message_bytes="1000")
    append(path, "small", "x" * 5000)
    task = lines()
    assert "max.message.bytes" in task.begin_and_fail().trace
    assert task.recorded(EventKind.TRANSACTION_ABORTED)[0].data == {"records": 2, "reason": "delivery"}
    assert place.values(topic(place)) == []


def test_a_topic_that_cannot_be_created_fails_the_task_and_names_the_settings(
    place: Place, lines: Callable[..., Task], path: Path
) -> None:
    append(path, "a")
    creation = {"topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "7"}
    failed = lines(**creation).begin_and_fail()
    assert "could not be created" in failed.trace
    assert "topic.creation.default.partitions and .replication.factor" in failed.trace
    again = lines(2, **{**creation, "topic.creation.default.replication.factor": "1"}).begin()
    assert place.wait_for_values(topic(place), 1) == ["a"]
    again.stop()


@pytest.mark.rule("618.6.5")
def test_a_task_may_not_write_to_the_topic_of_its_own_offsets(place: Place, path: Path) -> None:
    append(path, "a")
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": place.offsets_topic}
    assert "its own source offsets go to" in place.task(config).begin_and_fail().trace
    assert place.values(place.offsets_topic) == []


@GATE
def test_a_broker_that_is_gone_for_a_while_only_holds_the_task_up(
    kafka: EmbeddedKafka, place: Place, lines: Callable[..., Task], path: Path
) -> None:
    assert kafka.gate is not None
    append(path, "a")
    task = lines(bootstrap_servers=kafka.worker_bootstrap_servers).begin()
    assert place.wait_for_values(topic(place), 1) == ["a"]
    kafka.gate.cut("w1")
    append(path, "b")
    until(lambda: task.runner.metrics()["records"] == 2, "the second record handed over")
    kafka.gate.heal("w1")
    assert place.wait_for_values(topic(place), 2) == ["a", "b"]
    task.stop()


@pytest.mark.rule("618.3.4")
def test_a_setting_that_a_task_cannot_use_is_refused_before_anything_starts(lines: Callable[..., Task]) -> None:
    task = lines(transaction_boundary="sometimes")
    assert "transaction.boundary" in task.begin_and_fail().trace
    assert not [stimulus for stimulus in task.stimuli if isinstance(stimulus, TaskPrepared)]


class Blocked(SourceConnector):
    """Its second poll blocks until the test lets it go."""

    config = ConfigDef()

    class Task(SourceTask):
        gate: Any = None
        topic = ""

        def poll(self, spark: Any, offset: SourceOffset | None) -> Slice | None:
            import pyarrow as pa

            made = int(offset["rows"]) if offset else 0
            if made:
                type(self).gate.wait(60)
            return Slice(pa.table({"value": [f"row {made}"]}), {"rows": made + 1}, topic=self.topic)

    task_class = Task


def test_a_cancelled_task_commits_nothing_when_its_call_returns_and_reports_its_end(place: Place) -> None:
    import threading

    Blocked.Task.gate, Blocked.Task.topic = threading.Event(), topic(place)
    name = place.plugins.register(Blocked)
    task = place.task({"connector.class": name}).begin()
    assert place.wait_for_values(topic(place), 1) == ["row 0"]
    task.runner.execute(StopTask(task.order.task, 1))
    task.runner.execute(CancelTask(task.order.task, 1))
    Blocked.Task.gate.set()
    task.said(TaskStopped)
    assert task.runner.join(10)
    assert place.values(topic(place), "read_uncommitted") == ["row 0"]


def test_a_frozen_task_goes_on_after_the_thaw(place: Place, lines: Callable[..., Task], path: Path) -> None:
    append(path, "a")
    task = lines().begin()
    assert place.wait_for_values(topic(place), 1) == ["a"]
    task.unfrozen.clear()
    append(path, "b")
    task.unfrozen.set()
    assert place.wait_for_values(topic(place), 2) == ["a", "b"]
    task.stop()


@pytest.mark.rule("618.3.5")
def test_a_stop_that_comes_before_the_producer_leaves_the_newer_instance_alone(
    place: Place, lines: Callable[..., Task], path: Path
) -> None:
    late = lines()
    late.runner.start()
    late.said(TaskPrepared)
    newer = lines(2).begin()
    late.runner.execute(StopTask(late.order.task, 1))
    late.runner.execute(InitTaskProducer(late.order.task, 1))
    late.runner.execute(BeginTask(late.order.task, 1))
    late.said(TaskStopped)
    append(path, "a")
    assert place.wait_for_values(topic(place), 1) == ["a"]
    newer.stop()
