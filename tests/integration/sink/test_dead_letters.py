"""The dead letter queue: what lies there, what its headers tell, and that no offset passes an unsafe report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.events import EventKind
from tests.support.databases import Table
from tests.support.profiles import dotted
from tests.support.records import read_all
from tests.support.waiting import until

Make = Callable[..., Any]
JSON = "org.apache.kafka.connect.json.JsonConverter"
BROKEN = b'{"id":'


def queue(name: str, **more: str) -> dict[str, str]:
    given = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": name,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    return given | dotted(more)


def files(path: Path, topic: str, **more: str) -> dict[str, str]:
    config = {
        "connector.class": "FileStreamSink",
        "file": str(path),
        "topics": topic,
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }
    return config | more


def context(record: Any) -> dict[str, str]:
    return {
        key.removeprefix("__connect.errors."): value.decode()
        for key, value in record.headers()
        if key.startswith("__connect.errors.")
    }


def test_a_record_that_cannot_be_read_lies_in_the_queue_as_it_was_with_its_story(
    kafka: EmbeddedKafka, sink_task: Make, produce: Make, committed: Make, topic: Make, tmp_path: Path
) -> None:
    source, dead = topic("dead"), f"{topic('dead')}-queue"
    produce(source, [b'{"id":1}', BROKEN, b'{"id":2}'], keys=[b"a", b"b", b"c"])
    out = tmp_path / "out.txt"
    task = sink_task("dlq-1", files(out, source, **queue(dead), **{"errors.log.enable": "true"})).begin()
    until(lambda: out.exists() and out.read_text().split() == ["{id=1}", "{id=2}"])
    until(lambda: committed("connect-dlq-1", source) == {f"{source}-0": 3})
    counted = task.runner.errors
    assert (counted.record_failures, counted.record_errors, counted.errors_logged) == (1, 0, 1)
    assert (counted.dead_letters, counted.failed_dead_letters) == (1, 0)
    (skipped,) = task.recorded(EventKind.RECORDS_SKIPPED)
    assert (skipped.data["records"], skipped.data["dead_letters"]) == (1, 1)
    until(lambda: task.runner.metrics()["active"] == 0)
    metrics = task.runner.metrics()
    assert metrics["commit_sequence"] == metrics["commits"] >= 1
    assert metrics["active_max"] >= 1
    assert "commit_ms_max" in metrics
    (record,) = read_all(kafka.bootstrap_servers, dead)
    (original,) = (each for each in read_all(kafka.bootstrap_servers, source) if each.value() == BROKEN)
    assert (record.key(), record.value(), record.timestamp()) == (b"b", BROKEN, original.timestamp())
    recorded = context(record)
    assert list(recorded) == [
        *("topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name"),
        *("exception.class.name", "exception.message", "exception.stacktrace"),
    ]
    assert [recorded[name] for name in ("topic", "partition", "offset", "connector.name", "task.id")] == [
        *(source, "0", "1", "dlq-1", "0"),
    ]
    assert (recorded["stage"], recorded["class.name"]) == ("VALUE_CONVERTER", JSON)
    assert "cannot be read" in recorded["exception.message"]


def test_headers_hide_what_stood_behind_placeholders(
    kafka: EmbeddedKafka, sink_task: Make, produce: Make, topic: Make, tmp_path: Path
) -> None:
    source, dead, secrets = topic("dead"), f"{topic('dead')}-hidden", tmp_path / "secrets.properties"
    secrets.write_text("cause=cannot be read\n")
    produce(source, [BROKEN])
    sink_task("dlq-4", files(tmp_path / "out.txt", source, **queue(dead), note=f"${{file:{secrets}:cause}}")).begin()
    found = until(lambda: read_all(kafka.bootstrap_servers, dead), "a dead letter")
    recorded = context(found[0])
    for name in ("exception.message", "exception.stacktrace"):
        assert "[hidden]" in recorded[name]
        assert "cannot be read" not in recorded[name]


def test_failures_of_transformations_and_of_the_target_are_reported_too(
    kafka: EmbeddedKafka, postgres: str, sink_task: Make, produce: Make, topic: Make
) -> None:
    database = Table(postgres, topic("rows"))
    database.sql(f'ALTER TABLE "{database.table}" ADD CHECK (id <> 2)')
    dead = f"{database.table}-queue"
    produce(database.table, [b'{"id":"%s","name":"n"}' % number for number in (b"1", b"x", b"2", b"3")])
    cast = {"transforms": "c", "transforms.c.type": "Cast$Value", "transforms.c.spec": "id:int64"}
    task = sink_task("dlq-2", {**database.config(), **queue(dead), **cast}).begin()
    until(lambda: database.ids() == [1, 3])
    assert task.runner.errors.record_failures == task.runner.errors.dead_letters == 2
    records = read_all(kafka.bootstrap_servers, dead)
    stages = {context(record)["stage"]: (record.value(), context(record)["offset"]) for record in records}
    assert stages == {
        "TRANSFORMATION": (b'{"id":"x","name":"n"}', "1"),
        "TASK_PUT": (b'{"id":"2","name":"n"}', "2"),
    }


@pytest.mark.parametrize(("tolerance", "cause"), [("all", "larger than"), ("none", "cannot be read")])
def test_no_offset_is_committed_past_a_record_whose_report_is_refused(
    sink_task: Make,
    produce: Make,
    committed: Make,
    topic: Make,
    tmp_path: Path,
    kafka: EmbeddedKafka,
    tolerance: str,
    cause: str,
) -> None:
    source, dead = topic("dead"), topic("dead-tiny", max_message_bytes="100")
    produce(source, [b'{"id":1}', BROKEN + b"x" * 500, b'{"id":2}'])
    task = sink_task("dlq-3", files(tmp_path / "out.txt", source, **queue(dead, errors_tolerance=tolerance)))
    task.begin()
    assert cause in task.failure().splitlines()[-1]
    assert committed("connect-dlq-3", source) == {}
    counted = task.runner.errors
    assert (counted.dead_letters, counted.failed_dead_letters) == (1, 1)
    assert (counted.record_failures, counted.record_errors) == (1, 0 if tolerance == "all" else 1)
