"""The public face of a cluster: every verb on connectors, on a real Kafka, checked from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

import connectx as cx
from connectx.errors.clusters import UnknownWorkerError
from connectx.errors.kafka import TopicNotCreatableError
from connectx.errors.plugins import PluginNotFoundError
from connectx.errors.rest import ConfigRejectedError, ConnectorExistsError, ConnectorNotFoundError, RestError
from connectx.history.log import EventLog
from connectx.model.events import EventKind
from connectx.protocol.offsets_topic import encode_offset_key
from connectx.recording.file import read_recordings
from connectx.recording.replay import first_difference
from tests.support.clusters import events
from tests.support.flows import Lines
from tests.support.waiting import WAIT_S, until

MakeLines = Callable[..., Lines]


def sink_config(lines: Lines, file: Path) -> dict[str, str]:
    return {"connector.class": "FileStreamSink", "file": str(file), "topics": lines.topic}


def written(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_a_line_goes_through_kafka_once_into_a_file(cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path) -> None:
    lines, out = make_lines(cluster, partitions=3), tmp_path / "out.txt"
    lines.append(1000)
    lines.start()
    cluster.create(f"{lines.name}-out", sink_config(lines, out))
    cluster.wait(f"{lines.name}-out", timeout=WAIT_S)
    until(lambda: len(written(out)) >= 1000, "1000 lines in the file")
    lines.append(10)
    until(lambda: len(written(out)) >= 1010, "appended lines in the file")
    assert sorted(written(out), key=lambda line: int(line.split()[1])) == lines.expected
    lines.check_exactly_once()
    assert cluster.topic_sizes([lines.topic, "nowhere"])[lines.topic] >= 1010
    cluster[f"{lines.name}-out"].pause()  # it commits
    name = f"{lines.name}-out p50"
    until(lambda: name in [line.name for line in cluster.latency().data], "its latency", WAIT_S)


def test_a_status_has_the_shape_of_kafka_connects_rest(cluster: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(cluster)
    connector = lines.start()
    workers = {worker.url.removeprefix("http://").rstrip("/") for worker in cluster.workers}
    status = cluster.status(lines.name)
    assert status["name"] == lines.name
    assert status["type"] == connector.type == "source"
    assert status["connector"]["state"] == connector.state == "RUNNING"
    assert status["connector"]["worker_id"] in workers
    assert [(task["id"], task["state"]) for task in status["tasks"]] == [(0, "RUNNING")]
    assert {*status["tasks"][0]} == {"id", "state", "worker_id", "version"}
    assert [task.worker for task in connector.tasks] == [lines.owner().name]
    assert lines.name in [found.name for found in cluster.connectors]


def test_a_paused_connector_reads_nothing_and_a_resumed_one_reads_all(
    cluster: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(cluster)
    connector = lines.start()
    lines.append(5)
    lines.wait_committed()
    connector.pause()
    connector.wait("PAUSED", WAIT_S)
    lines.append(5)
    assert any(lines.task in worker.tasks for worker in cluster.workers), "a paused task stays assigned"
    connector.resume()
    connector.wait("RUNNING", WAIT_S)
    lines.check_exactly_once()


def test_a_stopped_connector_gives_its_tasks_up_and_goes_on_where_it_was(
    cluster: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(cluster)
    connector = lines.start()
    lines.append(5)
    lines.wait_committed()
    connector.stop()
    connector.wait("STOPPED", WAIT_S)
    assert connector.tasks == []
    assert not any(lines.task in worker.task_metrics for worker in cluster.workers)
    lines.append(5)
    connector.resume()
    connector.wait("RUNNING", WAIT_S)
    lines.check_exactly_once()


def test_each_way_to_restart_restarts_what_it_says(cluster: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(cluster)
    connector = lines.start()
    lines.append(5)

    def starts(task: int | None, since: int) -> int:
        kind = EventKind.CONNECTOR_STATE if task is None else EventKind.TASK_STATE
        return len(events(cluster, kind, since, connector=lines.name, task=task, state="RUNNING"))

    before = cluster.events.last_seq
    connector.restart()
    until(lambda: starts(None, before) == 1, "the connector's start")
    connector.wait("RUNNING", WAIT_S)
    assert starts(0, before) == 0

    before = cluster.events.last_seq
    connector.restart(include_tasks=True)
    until(lambda: starts(None, before) == 1 and starts(0, before) == 1, "starts of connector and task")
    connector.wait("RUNNING", WAIT_S)

    before = cluster.events.last_seq
    connector.tasks[0].restart()
    until(lambda: starts(0, before) == 1, "the task's start")
    assert starts(None, before) == 0

    before = cluster.events.last_seq
    connector.restart(include_tasks=True, only_failed=True)
    until(lambda: events(cluster, EventKind.RESTART_REQUESTED, before, only_failed=True), "the restart record")
    connector.wait("RUNNING", WAIT_S)
    assert starts(None, before) == starts(0, before) == 0
    lines.append(5)
    lines.check_exactly_once()


def test_new_configuration_restarts_the_task_with_it(cluster: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(cluster)
    connector = lines.start()
    lines.append(5)
    lines.wait_committed()
    before = cluster.events.last_seq
    config = connector.config
    config.update({"batch.size": "2"})
    assert config["batch.size"] == "2"
    until(lambda: connector.config.get("batch.size") == "2", "the worker that is asked to read it")
    until(
        lambda: events(cluster, EventKind.TASK_STATE, before, connector=lines.name, state="RUNNING"), "the task's start"
    )
    lines.append(5)
    lines.check_exactly_once()

    def committed() -> list[int]:
        recorded = events(cluster, EventKind.TRANSACTION_COMMITTED, before, connector=lines.name)
        return [event.data["records"] for event in recorded]

    until(lambda: sum(committed()) >= 5, "the last commit in the history, which comes after its records")
    assert committed() == [2, 2, 1]
    config.update({"batch.size": None})
    until(lambda: "batch.size" not in connector.config, "the worker that is asked to read that it is gone")
    with pytest.raises(ConfigRejectedError, match=r"batch\.size"):
        config.update({"batch.size": "many"})
    assert "batch.size" not in connector.config


def test_source_offsets_can_be_read_altered_and_reset(cluster: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(cluster)
    connector = lines.start()
    lines.append(3)
    lines.wait_committed()
    partition = {"filename": str(lines.path)}
    size = lines.path.stat().st_size
    assert connector.offsets.get() == [{"partition": partition, "offset": {"position": size}}]
    with pytest.raises(RestError, match="must be in the STOPPED state"):
        connector.offsets.reset()
    connector.stop()
    connector.wait("STOPPED", WAIT_S)
    second_line = len(lines.expected[0]) + 1
    assert "altered" in connector.offsets.alter([{"partition": partition, "offset": {"position": second_line}}])
    assert connector.offsets.get() == [{"partition": partition, "offset": {"position": second_line}}]
    connector.resume()
    until(lambda: lines.committed.values() == lines.expected + lines.expected[1:], "the lines behind the set offset")
    connector.stop()
    connector.wait("STOPPED", WAIT_S)
    assert "reset" in connector.offsets.reset()
    assert connector.offsets.get() == []
    connector.resume()
    until(lambda: len(lines.committed.values()) == 8, "all lines again")
    assert lines.committed.values()[5:] == lines.expected


@pytest.mark.rule("618.6.9")
def test_offsets_in_a_topic_of_the_connectors_own_are_altered_only_behind_the_fencing_of_its_producers(
    cluster: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(cluster)
    own = f"{lines.name}-offsets"
    connector = lines.start(offsets_storage_topic=own)
    lines.append(3)
    lines.wait_committed()
    partition = {"filename": str(lines.path)}
    connector.stop()
    connector.wait("STOPPED", WAIT_S)
    zombie = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{cluster.config.group_id}-{lines.task}"}
    )
    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce(own, key=encode_offset_key(lines.name, partition), value=b'{"position":99}')
    zombie.flush(10)
    second_line = {"position": len(lines.expected[0]) + 1}
    connector.offsets.alter([{"partition": partition, "offset": second_line}])
    assert events(cluster, EventKind.FENCING_COMPLETED, connector=lines.name)[-1].data["task_count"] == 0
    with pytest.raises(KafkaException, match=r"fenced|FENCED|epoch"):
        zombie.commit_transaction(30)
    assert connector.offsets.get() == [{"partition": partition, "offset": second_line}]
    connector.resume()
    until(lambda: lines.committed.values() == lines.expected + lines.expected[1:], "the lines behind the set offset")
    connector.stop()
    connector.wait("STOPPED", WAIT_S)
    connector.offsets.reset()
    assert connector.offsets.get() == []
    assert "reset" in connector.offsets.reset(), "of a connector without offsets, too"


def test_sink_offsets_can_be_read_altered_and_reset(cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path) -> None:
    lines, out = make_lines(cluster), tmp_path / "out.txt"
    lines.start()
    lines.append(4)
    sink = cluster.create(f"{lines.name}-out", sink_config(lines, out)).wait("RUNNING", WAIT_S)
    until(lambda: len(written(out)) == 4, "four lines")
    sink.stop()
    sink.wait("STOPPED", WAIT_S)
    where = {"kafka_topic": lines.topic, "kafka_partition": 0}
    (entry,) = until(sink.offsets.get, "the last commit")
    assert entry["partition"] == where
    assert entry["offset"]["kafka_offset"] >= 4, "transaction markers count, too"
    sink.offsets.alter([{"partition": where, "offset": {"kafka_offset": 0}}])
    assert sink.offsets.get() == [{"partition": where, "offset": {"kafka_offset": 0}}]
    sink.resume()
    until(lambda: len(written(out)) == 8, "four lines again")
    sink.stop()
    sink.wait("STOPPED", WAIT_S)
    sink.offsets.alter([{"partition": where, "offset": None}])
    assert sink.offsets.get() == []
    sink.offsets.reset()
    assert "reset" in sink.offsets.reset(), "of a group that does not exist, too"
    sink.resume()
    until(lambda: len(written(out)) == 12, "four lines a third time")
    assert written(out) == lines.expected * 3


def test_topics_are_those_that_the_tasks_used(cluster: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(cluster)
    connector = lines.start()
    assert connector.topics() == []
    lines.append(1)
    until(lambda: connector.topics() == [lines.topic], "the topic")
    connector.reset_topics()
    until(lambda: connector.topics() == [], "no topic")


def test_a_deleted_connector_is_gone_and_its_name_free(cluster: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(cluster)
    connector = lines.start()
    with pytest.raises(ConnectorExistsError):
        cluster.create(lines.name, dict(connector.config))
    config = dict(connector.config)
    lines.append(3)
    lines.wait_committed()
    connector.delete()
    with pytest.raises(ConnectorNotFoundError):
        connector.status()
    until(lambda: not any(lines.task in worker.task_metrics for worker in cluster.workers), "the end of its task")
    lines.append(3)
    cluster.create(lines.name, config).wait("RUNNING", WAIT_S)
    lines.check_exactly_once()


def test_a_connector_can_be_created_stopped(cluster: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(cluster)
    config = {"connector.class": "FileStreamSource", "file": str(lines.path), "topic": lines.topic}
    connector = cluster.create(f"{lines.name} ", config, initial_state="STOPPED").wait("STOPPED", WAIT_S)
    assert connector.name == lines.name, "workers remove spaces around a name"
    assert connector.tasks == []
    lines.append(2)
    connector.resume()
    lines.check_exactly_once()


def test_all_problems_of_a_configuration_are_told_at_once_and_nothing_is_created(cluster: cx.Cluster) -> None:
    bad = {"connector.class": "FileStreamSource", "tasks.max": "none", "batch.size": "-1", "errors.tolerance": "some"}
    with pytest.raises(ConfigRejectedError) as caught:
        cluster.create("bad", bad)
    for key in ("tasks.max", "batch.size", "errors.tolerance", "file", "topic"):
        assert any(key in problem for problem in caught.value.problems), key
    assert "bad" not in [connector.name for connector in cluster.connectors]
    report = cluster.validate({"name": "bad", **bad})
    errors = {entry["value"]["name"] for entry in report["configs"] if entry["value"]["errors"]}
    assert errors >= {"tasks.max", "batch.size", "errors.tolerance", "file", "topic"}
    assert report["error_count"] == sum(len(entry["value"]["errors"]) for entry in report["configs"])


def test_an_unknown_connector_class_is_named_with_those_that_there_are(cluster: cx.Cluster) -> None:
    with pytest.raises(PluginNotFoundError, match="Nowhere") as caught:
        cluster.create("nowhere", {"connector.class": "Nowhere"})
    assert "FileStreamSource" in str(caught.value)
    with pytest.raises(ConnectorNotFoundError, match="nowhere"):
        cluster["nowhere"].status()
    with pytest.raises(UnknownWorkerError, match="worker-9"):
        cluster.kill("worker-9")
    for never in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="delay_s"):
            cluster.after(never)


def test_keys_that_have_no_effect_and_resemble_others_give_warnings(cluster: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(cluster)
    config = {"connector.class": "FileStreamSource", "file": str(lines.path), "topic": lines.topic, "task.max": "1"}
    with pytest.warns(UserWarning, match=r"task\.max has no effect.*Did you mean tasks\.max") as caught:
        connector = cluster.create(lines.name, config)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"errors\.tolerence") as caught:
        connector.config.update({"task.max": None, "errors.tolerence": "all"})
    assert caught[0].filename == __file__


def test_a_topic_that_cannot_be_created_fails_the_task_and_loses_nothing(
    cluster: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(cluster)
    lines.append(3)
    settings = {
        "connector.class": "FileStreamSource",
        "file": str(lines.path),
        "topic": f"{lines.name}-missing",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "3",
    }
    connector = cluster.create(lines.name, settings).wait("FAILED", WAIT_S)
    (task,) = connector.tasks
    assert TopicNotCreatableError.__name__ in task.trace
    assert "topic.creation.default" in task.trace
    assert connector.offsets.get() == []
    connector.config.update({"topic": lines.topic})
    connector.wait("RUNNING", WAIT_S)
    lines.check_exactly_once()


def test_every_object_has_a_text_form_and_a_script_free_html_form(cluster: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(cluster)
    connector = lines.start()
    lines.append(1)
    lines.wait_committed()
    worker = lines.owner()
    shown = [cluster, cluster.workers, worker, connector, connector.tasks[0], connector.config, connector.offsets]
    for thing in shown:
        text, html = repr(thing), thing._repr_html_()  # type: ignore[attr-defined]
        assert text, type(thing)
        assert "<script" not in html.lower()
        assert " on" not in [part[:3] for part in html.split("<")], "no event handler"
    for text in (repr(cluster), cluster._repr_html_()):
        assert lines.name in text
        assert worker.name in text
        assert cluster.bootstrap_servers in text
    assert "(leader)" in repr(cluster.workers)
    assert "RUNNING" in repr(connector)
    assert worker.name in repr(connector)


def test_the_history_goes_to_pandas_and_to_a_file_and_back(
    cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines = make_lines(cluster)
    lines.start()
    lines.append(2)
    lines.wait_committed()
    frame = cluster.events.to_pandas()
    assert frame["seq"].is_monotonic_increasing
    mine = frame[frame["connector"] == lines.name]
    assert {"connector_configured", "tasks_configured", "task_state", "transaction_committed"} <= set(mine["kind"])
    assert mine[mine["kind"] == "transaction_committed"]["producer_epoch"].notna().all()
    read_back = EventLog.from_jsonl(cluster.events.to_jsonl(tmp_path / "events.jsonl"))
    assert list(read_back)[: len(frame)] == list(cluster.events)[: len(frame)]
    assert cluster.timeline().data
    assert lines.name in [trace.name for trace in cluster.throughput().data]
    page = cluster.report(tmp_path / "report.html").read_text()
    assert "<script" not in page.lower()
    assert lines.name in page


def test_the_cores_of_live_workers_keep_their_rules_and_their_recordings_replay_without_a_difference(
    cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines = make_lines(cluster)
    lines.start()
    cluster.wait(lines.name, timeout=WAIT_S)
    recordings = read_recordings(cluster.record(tmp_path / "cores.jsonl"))
    assert [one.name for one in recordings if one.kind == "worker"] == [worker.name for worker in cluster.workers]
    assert [first_difference(recording) for recording in recordings] == [None] * len(recordings)
    assert sum(len(recording.entries) for recording in recordings) > 20
    assert [broken for worker in cluster.workers for broken in worker.check()] == []
