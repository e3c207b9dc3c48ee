"""Whole sink tasks on a real broker, with the file sink as the plugin that shows what was put."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectx.connectors.files.stream_sink import FileStreamSink
from connectx.core.messages import BeginTask, CancelTask, TaskFailed, TaskStateReached, TaskStopped, TopicUsed
from connectx.errors.databases import DatabaseUnavailableError
from connectx.model.events import EventKind
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.states import TargetState
from connectx.plugins.slices import SinkBatch
from tests.support.profiles import dotted
from tests.support.task_harness import Task
from tests.support.waiting import until

Make = Callable[..., Any]
JSON = "org.apache.kafka.connect.json.JsonConverter"
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
"""The group protocols of Kafka; of `consumer` (KIP-848) the embedded broker has the session."""


def config(topic: str, path: Path, **more: str) -> dict[str, str]:
    settings = {"connector.class": "FileStreamSink", "topics": topic, "file": str(path)}
    return settings | dotted(more)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_records_become_lines_and_offsets_are_committed_after_them(
    sink_task: Make, topic: Make, produce: Make, committed: Make, tmp_path: Path
) -> None:
    name, out = topic("file"), tmp_path / "out.txt"
    produce(name, [b"one", None, "drei \u00fc".encode()])
    task = sink_task("file-1", config(name, out)).begin()
    until(lambda: lines_of(out) == ["one", "null", "drei \u00fc"])
    until(lambda: committed("connect-file-1", name) == {f"{name}-0": 3})
    until(lambda: task.runner.metrics()["lag"] == 0)
    assert task.runner.metrics()["records"] == 3
    assert [stimulus for stimulus in task.stimuli if isinstance(stimulus, TopicUsed)] == [
        TopicUsed(TaskId("file-1", 0), name)
    ]
    (commit,) = until(lambda: task.recorded(EventKind.OFFSETS_COMMITTED))
    assert commit.data == {"records": 3, "offsets": {f"{name}-0": 3}}


def test_partitions_are_opened_again_while_the_target_is_away(
    sink_task: Make, topic: Make, produce: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def open_third_time(self: FileStreamSink.Task, partitions: object) -> dict[TopicPartition, int]:
        tries.append(partitions)
        if len(tries) < 3:
            raise DatabaseUnavailableError("The database restarts.")
        return {}

    monkeypatch.setattr(FileStreamSink.Task, "open", open_third_time, raising=False)
    name, out = topic("opened"), tmp_path / "out.txt"
    produce(name, [b"one"])
    sink_task("file-opened", config(name, out)).begin()
    until(lambda: lines_of(out) == ["one"])
    assert tries == [(TopicPartition(name, 0),)] * 3


def test_a_stopped_task_commits_what_it_put_and_the_next_one_goes_on_there(
    sink_task: Make, topic: Make, produce: Make, committed: Make, tmp_path: Path
) -> None:
    name, out = topic("stop"), tmp_path / "out.txt"
    settings = config(name, out)
    produce(name, [b"1", b"2"])
    first = sink_task("stop-1", settings).begin()
    until(lambda: lines_of(out) == ["1", "2"])
    first.stop()
    assert committed("connect-stop-1", name) == {f"{name}-0": 2}
    produce(name, [b"3"])
    sink_task("stop-1", settings).begin()
    until(lambda: lines_of(out) == ["1", "2", "3"])


def test_a_paused_task_stays_a_member_and_reads_nothing(
    sink_task: Make, topic: Make, produce: Make, tmp_path: Path
) -> None:
    name, out = topic("pause"), tmp_path / "out.txt"
    task: Task = sink_task("pause-1", config(name, out)).begin()
    until(lambda: bool(task.recorded(EventKind.PARTITIONS_ASSIGNED)))
    task.set_state(TargetState.PAUSED)
    until(lambda: task.stimuli[-1] == TaskStateReached(task.order.task, task.order.instance, paused=True))
    produce(name, [b"1"])
    until(lambda: task.runner.metrics()["lag"] == 1)
    assert lines_of(out) == []
    task.set_state(TargetState.STARTED)
    until(lambda: lines_of(out) == ["1"])
    assert task.recorded(EventKind.PARTITIONS_REVOKED) == []


def test_two_tasks_share_the_partitions_and_lines_of_one_file(
    sink_task: Make, topic: Make, produce: Make, tmp_path: Path
) -> None:
    name, out = topic("two", partitions=4), tmp_path / "out.txt"
    # A member whose heartbeats come late would lose its partitions, and the other task would write lines again.
    settings = config(name, out, consumer_override_session_timeout_ms="30000")
    tasks = [sink_task("two-1", settings, task=number).begin() for number in range(2)]

    until(lambda: [len(task.runner.metrics()["positions"]) for task in tasks] == [2, 2])
    for partition in range(4):
        produce(name, [f"{partition}-{row}".encode() for row in range(1000)], partition=partition)
    until(lambda: len(lines_of(out)) == 4000)
    assert sorted(lines_of(out)) == sorted(f"{partition}-{row}" for partition in range(4) for row in range(1000))


@PROTOCOLS
def test_a_killed_task_commits_nothing_and_its_successor_repeats_at_most_what_was_not_committed(
    protocol: str, sink_task: Make, topic: Make, produce: Make, committed: Make, tmp_path: Path
) -> None:
    name, out, sink = topic("kill"), tmp_path / "out.txt", f"kill-{protocol}"
    settings = config(name, out, consumer_override_session_timeout_ms="1500", consumer_override_group_protocol=protocol)
    first = sink_task(sink, settings).begin()
    produce(name, [b"1"])
    until(lambda: committed(f"connect-{sink}", name) == {f"{name}-0": 1})
    produce(name, [b"2"])
    until(lambda: lines_of(out) == ["1", "2"])
    first.kill()
    assert first.runner.join(60.0)
    assert [type(stimulus) for stimulus in first.stimuli if isinstance(stimulus, (TaskStopped, TaskFailed))] == []
    at_kill = committed(f"connect-{sink}", name)[f"{name}-0"]
    sink_task(sink, settings).begin()
    produce(name, [b"3"])
    expected = ["1", "2", *(["2"] if at_kill == 1 else []), "3"]
    until(lambda: lines_of(out) == expected)


def test_a_cancelled_task_commits_nothing(
    sink_task: Make,
    topic: Make,
    produce: Make,
    committed: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, out = topic("cancel"), tmp_path / "out.txt"
    task: Task = sink_task("cancel-1", config(name, out))
    put = FileStreamSink.Task.put

    def put_and_freeze(self: FileStreamSink.Task, batch: SinkBatch) -> None:
        put(self, batch)
        task.unfrozen.clear()

    monkeypatch.setattr(FileStreamSink.Task, "put", put_and_freeze)
    task.begin()
    produce(name, [b"1"])
    until(lambda: not task.unfrozen.is_set(), "a record that is put and not committed")
    task.runner.execute(CancelTask(task.order.task, task.order.instance))
    task.unfrozen.set()
    task.said(TaskStopped)
    assert task.runner.metrics()["records"] == 1
    assert committed("connect-cancel-1", name) == {}


@PROTOCOLS
def test_a_frozen_task_loses_its_partitions_and_commits_nothing_when_it_wakes_up(
    protocol: str, sink_task: Make, topic: Make, produce: Make, committed: Make, tmp_path: Path
) -> None:
    name, sink = topic("zombie"), f"zombie-{protocol}"
    settings = config(name, tmp_path / "zombie.txt", consumer_override_max_poll_interval_ms="6000")
    settings |= {"consumer.override.session.timeout.ms": "1500", "consumer.override.group.protocol": protocol}
    zombie: Task = sink_task(sink, settings).begin()
    produce(name, [b"1"])
    until(lambda: committed(f"connect-{sink}", name) == {f"{name}-0": 1})
    produce(name, [b"2"])
    until(lambda: lines_of(tmp_path / "zombie.txt")[-1:] == ["2"])
    zombie.unfrozen.clear()
    settings["file"] = str(tmp_path / "next.txt")
    successor: Task = sink_task(sink, settings, worker="worker-2").begin()
    until(lambda: bool(successor.recorded(EventKind.PARTITIONS_ASSIGNED)))
    produce(name, [b"3"])
    until(lambda: lines_of(tmp_path / "next.txt")[-1:] == ["3"])
    until(lambda: committed(f"connect-{sink}", name) == {f"{name}-0": 3})
    zombie.unfrozen.set()
    if protocol == "classic":
        until(lambda: bool(zombie.recorded(EventKind.PARTITIONS_REVOKED)))
        (refused,) = until(lambda: zombie.recorded(EventKind.COMMIT_REFUSED))
        assert refused.data["reason"].startswith("UNKNOWN_MEMBER_ID")
    else:  # its partitions are lost, so it has nothing to commit
        until(lambda: bool(zombie.recorded(EventKind.PARTITIONS_LOST)))
    assert committed(f"connect-{sink}", name) == {f"{name}-0": 3}


def test_a_record_that_the_converter_cannot_read_fails_the_task_and_names_it(
    sink_task: Make, topic: Make, produce: Make, committed: Make, tmp_path: Path
) -> None:
    name, out = topic("bad"), tmp_path / "out.txt"
    long = "org.apache.kafka.connect.converters.LongConverter"
    produce(name, [(7).to_bytes(8, "big"), b"seven"])
    trace = sink_task("bad-1", config(name, out, value_converter=long)).begin().failure()
    assert trace.startswith(
        f"The record at offset 1 of {name}-0 cannot be read: Converting the value from bytes failed"
    )
    assert "errors.tolerance=all" in trace
    assert lines_of(out) == []
    assert committed("connect-bad-1", name) == {}


def test_tolerated_records_are_skipped_and_told(
    sink_task: Make, topic: Make, produce: Make, committed: Make, tmp_path: Path
) -> None:
    name, out = topic("skip"), tmp_path / "out.txt"
    long = "org.apache.kafka.connect.converters.LongConverter"
    produce(name, [(7).to_bytes(8, "big"), b"seven", (9).to_bytes(8, "big")])
    task = sink_task("skip-1", config(name, out, value_converter=long, errors_tolerance="all")).begin()
    until(lambda: lines_of(out) == ["7", "9"])
    (skipped,) = until(lambda: task.recorded(EventKind.RECORDS_SKIPPED))  # told behind the write
    assert skipped.data["records"] == 1
    assert f"offset 1 of {name}-0" in skipped.data["reason"]
    until(lambda: committed("connect-skip-1", name) == {f"{name}-0": 3})


def test_a_file_that_cannot_be_opened_fails_the_task_with_a_next_step(
    sink_task: Make, topic: Make, tmp_path: Path
) -> None:
    task = sink_task("nofile-1", config(topic("nofile"), tmp_path / "missing" / "out.txt"))
    task.runner.start()
    task.runner.execute(BeginTask(task.order.task, task.order.instance))
    trace = task.failure()
    assert "cannot be opened: No such file or directory" in trace
    assert "correct the path" in trace


def test_a_line_that_a_crash_has_cut_is_ended_before_others_follow(
    sink_task: Make, topic: Make, produce: Make, tmp_path: Path
) -> None:
    name, out = topic("torn"), tmp_path / "out.txt"
    out.write_text("1\ncut of")
    produce(name, [b"2"])
    sink_task("torn-1", config(name, out)).begin()
    until(lambda: lines_of(out) == ["1", "cut of", "2"])


@pytest.mark.parametrize(("setting", "value"), [("topics.regex", "regex-[0-9]+"), ("topics.regex", "^regex-.*$")])
def test_topics_can_be_a_regular_expression_of_whole_names(
    sink_task: Make, topic: Make, produce: Make, tmp_path: Path, setting: str, value: str
) -> None:
    name, other, out = topic("regex"), topic("not-regex"), tmp_path / "out.txt"
    produce(other, [b"wrong"])
    produce(name, [b"right"])
    settings = {"connector.class": "FileStreamSink", setting: value, "file": str(out)}
    task = sink_task(f"regex-{name}", settings).begin()
    until(lambda: "right" in lines_of(out))
    assert f"{other}-0" not in task.runner.metrics()["positions"]
    assert "wrong" not in lines_of(out)
