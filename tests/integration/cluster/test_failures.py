"""A connector and each of its tasks fail apart: each has a state, a trace and a restart of its own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import connectx as cx
from connectx.errors.rest import ConnectorFailedError, RestError
from connectx.errors.spark import SparkJobError
from connectx.model.causes import AutomaticRestart
from connectx.model.events import EventKind
from connectx.model.source_offsets import SourceOffset
from connectx.plugins.contexts import ConnectorContext, SourceTaskContext
from tests.support.clusters import events
from tests.support.records import Reader
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Fragile(cx.SourceConnector):
    """Numbers from each of its tasks; parts of it fail while a file with a certain name lies in `folder`."""

    config = cx.ConfigDef().define("folder", str).define("topic", str)

    def start(self, config: Mapping[str, str], context: ConnectorContext) -> None:
        super().start(config, context)
        self.context = context
        self.check("start")

    def check(self, where: str) -> None:
        folder = Path(self.settings["folder"])
        if (folder / f"connector-{where}").exists():
            raise ValueError(f"the connector failed in {where}")
        if (folder / f"connector-{where}-exit").exists():
            sys.exit(f"the connector left in {where}")

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        self.check("task_configs")
        return [{**self.settings, "number": str(number)} for number in range(max_tasks)]

    class Task(cx.SourceTask):
        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            super().start(config, context)
            self.partition = {"number": config["number"]}
            self.check("start")

        def check(self, where: str) -> None:
            name = f"task-{self.settings['number']}-{where}"
            if (Path(self.settings["folder"]) / name).exists():
                raise ValueError(f"task {self.settings['number']} failed in {where}")
            if (Path(self.settings["folder"]) / f"{name}-exit").exists():
                sys.exit(f"task {self.settings['number']} left in {where}")

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> cx.Slice | None:
            self.check("poll")
            next_row = offset["next"] if offset else 0
            if (Path(self.settings["folder"]) / f"task-{self.settings['number']}-spark").exists():
                rows: Any = spark.range(3).selectExpr("raise_error('the job went wrong') AS value")
                return cx.Slice(rows, {"next": next_row + 1}, topic=self.settings["topic"])
            if next_row >= 10:
                return None
            value = f"{self.settings['number']} {next_row}"
            return cx.Slice(pa.table({"value": [value]}), {"next": next_row + 1}, topic=self.settings["topic"])


class Place:
    """A Fragile connector with two tasks, and its switches."""

    def __init__(self, cluster: cx.Cluster, name: str, folder: Path) -> None:
        self.cluster, self.name, self.folder = cluster, name, folder
        self.config = {
            "connector.class": Fragile,
            "folder": str(folder),
            "topic": f"{name}-topic",
            "tasks.max": "2",
        }

    def switch(self, name: str, on: bool = True) -> None:
        if on:
            (self.folder / name).touch()
        else:
            (self.folder / name).unlink()

    def create(self) -> cx.Connector:
        return self.cluster.create(self.name, self.config)

    def states(self) -> tuple[str, list[str]]:
        status = self.cluster.status(self.name)
        return status["connector"]["state"], [task["state"] for task in status["tasks"]]

    def wait(self, connector: str, *tasks: str) -> None:
        until(lambda: self.states() == (connector, list(tasks)), f"{connector} and {tasks}")

    def starts(self, since: int) -> list[int | None]:
        """Which of connector (None) and tasks have been started since."""
        found = [
            *events(self.cluster, EventKind.CONNECTOR_STATE, since, connector=self.name, state="RUNNING"),
            *events(self.cluster, EventKind.TASK_STATE, since, connector=self.name, state="RUNNING"),
        ]
        return [event.task for event in sorted(found, key=lambda event: -1 if event.task is None else event.task)]

    def check_all_rows_once(self) -> None:
        topic = Reader(self.cluster.bootstrap_servers, f"{self.name}-topic", 1, "read_committed")
        try:
            until(lambda: len(topic.values()) >= 20, "20 records")
            assert sorted(topic.values()) == sorted(f"{task} {row}" for task in (0, 1) for row in range(10))
        finally:
            topic.close()


@pytest.fixture
def place(cluster: cx.Cluster, numbers: Iterator[int], tmp_path: Path) -> Place:
    return Place(cluster, f"fragile{next(numbers)}", tmp_path)


def wait_for_tasks(connector: cx.Connector, count: int) -> None:
    until(lambda: [task.state for task in connector.tasks] == ["RUNNING"] * count, f"{count} tasks")


def test_a_failed_task_does_not_fail_its_connector_nor_its_sister(place: Place) -> None:
    place.switch("task-1-poll")
    connector = place.create()
    place.wait("RUNNING", "RUNNING", "FAILED")
    assert "ValueError: task 1 failed in poll" in connector.tasks[1].trace
    with pytest.raises(ConnectorFailedError, match="task 1 is FAILED") as caught:
        connector.wait("RUNNING", WAIT_S)
    assert "ValueError" in caught.value.trace
    assert "restart" in caught.value.next_step
    for form in (repr(connector), connector._repr_html_(), repr(connector.tasks[1]), connector.tasks[1]._repr_html_()):
        assert "task 1 failed in poll" in form
    place.switch("task-1-poll", on=False)
    since = place.cluster.events.last_seq
    connector.restart(include_tasks=True, only_failed=True)
    connector.wait("RUNNING", WAIT_S)
    assert place.starts(since) == [1], "only what had failed"
    place.check_all_rows_once()


def test_a_task_that_fails_before_it_begins_says_so_and_can_be_restarted(place: Place) -> None:
    place.switch("task-0-start")
    connector = place.create()
    place.wait("RUNNING", "FAILED", "RUNNING")
    connector.tasks[0].restart()
    until(
        lambda: len(events(place.cluster, EventKind.TASK_STATE, connector=place.name, task=0, state="FAILED")) == 2,
        "a second failure",
    )
    place.switch("task-0-start", on=False)
    connector.tasks[0].restart()
    connector.wait("RUNNING", WAIT_S)
    place.check_all_rows_once()


def test_a_failed_task_is_restarted_with_growing_pauses_up_to_its_limit_and_the_history_says_why(place: Place) -> None:
    place.switch("task-0-poll")
    place.config |= {"task.restart.max": "3", "task.restart.backoff.ms": "50"}
    connector = place.create()

    def restarts() -> list[AutomaticRestart]:
        found = events(place.cluster, EventKind.TASK_STATE, connector=place.name, task=0)
        return [event.why for event in found if isinstance(event.why, AutomaticRestart)]

    until(lambda: len(restarts()) >= 3 and place.states() == ("RUNNING", ["FAILED", "RUNNING"]), "the last restart")
    assert [(why.count, why.limit, why.pause_ms) for why in restarts()] == [(1, 3, 50), (2, 3, 100), (3, 3, 200)]
    assert {why.error for why in restarts()} == {"ValueError: task 0 failed in poll"}
    place.switch("task-0-poll", on=False)
    connector.restart(include_tasks=True, only_failed=True)
    connector.wait("RUNNING", WAIT_S)
    assert len(restarts()) == 3
    place.check_all_rows_once()


def test_a_connector_that_cannot_start_has_no_tasks_and_starts_after_a_restart(place: Place) -> None:
    place.switch("connector-start")
    connector = place.create()
    place.wait("FAILED")
    assert "ValueError: the connector failed in start" in connector.status()["connector"]["trace"]
    with pytest.raises(ConnectorFailedError, match="the connector is FAILED"):
        connector.wait("RUNNING", WAIT_S)
    place.switch("connector-start", on=False)
    connector.restart()
    connector.wait("RUNNING", WAIT_S)
    place.check_all_rows_once()


def test_a_connector_that_could_not_start_can_be_stopped_and_resumed(place: Place) -> None:
    place.switch("connector-start")
    connector = place.create()
    place.wait("FAILED")
    connector.stop()
    connector.wait("STOPPED", WAIT_S)
    place.switch("connector-start", on=False)
    connector.resume()
    connector.wait("RUNNING", WAIT_S)
    place.check_all_rows_once()


def test_a_failed_connector_leaves_its_tasks_running(place: Place) -> None:
    connector = place.create()
    connector.wait("RUNNING", WAIT_S)
    place.switch("connector-start")
    with pytest.raises(RestError, match="Failed to start connector") as caught:
        connector.restart()
    assert caught.value.status == 500
    place.wait("FAILED", "RUNNING", "RUNNING")
    place.check_all_rows_once()
    place.switch("connector-start", on=False)
    since = place.cluster.events.last_seq
    connector.restart(include_tasks=True, only_failed=True)
    connector.wait("RUNNING", WAIT_S)
    assert place.starts(since) == [None]


def test_task_configs_that_cannot_be_made_fail_the_connector(place: Place) -> None:
    place.switch("connector-task_configs")
    connector = place.create()
    place.wait("FAILED")
    assert "the connector failed in task_configs" in connector.status()["connector"]["trace"]
    place.switch("connector-task_configs", on=False)
    connector.restart()
    connector.wait("RUNNING", WAIT_S)
    place.check_all_rows_once()


@pytest.mark.parametrize("switch", ["connector-start-exit", "connector-task_configs-exit", "task-0-poll-exit"])
def test_a_plugin_that_wants_to_end_the_process_only_fails_itself(place: Place, switch: str) -> None:
    place.switch(switch)
    connector = place.create().wait("FAILED", WAIT_S)
    status = connector.status()
    assert any("SystemExit" in part.get("trace", "") for part in (status["connector"], *status["tasks"]))
    place.switch(switch, on=False)
    connector.restart(include_tasks=True, only_failed=True)
    connector.wait("RUNNING", WAIT_S)
    place.check_all_rows_once()


def test_a_failed_spark_job_fails_the_task_with_its_cause_and_loses_nothing(place: Place) -> None:
    place.switch("task-0-spark")
    connector = place.create()
    place.wait("RUNNING", "FAILED", "RUNNING")
    trace = connector.tasks[0].trace
    assert SparkJobError.__name__ in trace
    assert "the job went wrong" in trace
    assert trace.startswith("A Spark job failed")
    place.switch("task-0-spark", on=False)
    connector.restart(include_tasks=True, only_failed=True)
    connector.wait("RUNNING", WAIT_S)
    place.check_all_rows_once()


def test_fewer_and_more_tasks_come_with_the_configuration(place: Place) -> None:
    connector = place.create()
    connector.wait("RUNNING", WAIT_S)
    for count in (1, 3, 2):
        connector.config.update({"tasks.max": str(count)})
        wait_for_tasks(connector, count)
    assert len(list(itertools.chain(*(worker.task_metrics for worker in place.cluster.workers)))) >= 2
