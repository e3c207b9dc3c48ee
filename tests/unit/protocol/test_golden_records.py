"""Every record that a real Kafka Connect 4.3 worker wrote is understood, and written again byte for byte."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from connectx.core.config_log import ConfigLog
from connectx.core.status_log import StatusLog
from connectx.model.config_records import IgnoredRecord
from connectx.model.ids import TaskId
from connectx.model.states import State, TargetState
from connectx.protocol.config_topic import decode_config_record, encode_config_record
from connectx.protocol.offsets_topic import (
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from connectx.protocol.status_topic import decode_status_record, encode_status_record


def _golden() -> dict[str, list[tuple[int, bytes, bytes | None]]]:
    records: dict[str, list[tuple[int, bytes, bytes | None]]] = {}
    topic = ""
    for line in (Path(__file__).parent / "connect-4.3-records.txt").read_text().splitlines():
        if line.startswith("## "):
            topic = line[3:]
            records[topic] = []
        elif not line.startswith("#"):
            _, log_offset, key_and_value = line.split(" ", 2)
            key, _, value = key_and_value.partition("' ")
            records[topic].append((int(log_offset), ast.literal_eval(key + "'"), ast.literal_eval(value)))
    return records


GOLDEN = _golden()


def test_the_golden_file_holds_all_three_topics() -> None:
    assert {topic: len(records) for topic, records in GOLDEN.items()} == {"config": 27, "status": 45, "offset": 3}


@pytest.mark.parametrize(("key", "value"), [record[1:] for record in GOLDEN["config"]])
def test_a_config_record_keeps_its_bytes(key: bytes, value: bytes | None) -> None:
    record = decode_config_record.value("a record", key, value)
    assert not isinstance(record, IgnoredRecord)
    assert encode_config_record(record) == (key.decode(), value)


@pytest.mark.parametrize(("key", "value"), [record[1:] for record in GOLDEN["status"]])
def test_a_status_record_keeps_its_bytes(key: bytes, value: bytes | None) -> None:
    record = decode_status_record.value("a record", key, value)
    assert encode_status_record(record) == (key.decode(), value)


@pytest.mark.parametrize(("key", "value"), [record[1:] for record in GOLDEN["offset"]])
def test_an_offset_record_keeps_its_bytes(key: bytes, value: bytes | None) -> None:
    decoded = decode_offset_key.value("a key", key)
    assert encode_offset_key(*decoded) == key
    assert encode_offset_value(decode_offset_value.value("an offset", value)) == value


def test_the_config_topic_replays_to_what_the_worker_showed() -> None:
    log = ConfigLog()
    for log_offset, key, value in GOLDEN["config"]:
        log.apply(log_offset, decode_config_record.value("a record", key, value))
    assert log.offset == 49
    assert log.connectors() == ("f1", "f2", "snk")
    assert {name: log.task_count(name) for name in log.connectors()} == {"f1": 1, "f2": 1, "snk": 2}
    assert {name: log.target_state(name) for name in ("f1", "f2", "f3")} == {
        "f1": TargetState.STARTED,
        "f2": TargetState.PAUSED,
        "f3": None,
    }
    assert log.task_config_generation("f1") == 1
    assert (log.task_config(TaskId("f1", 0)) or {})["topic"] == "ft1b"
    assert not log.pending_fencing("f1")
    assert log.pending_fencing("snk")
    assert log.task_count_record("f3") == 1


def test_the_status_topic_replays_to_what_the_worker_showed() -> None:
    log = StatusLog()
    for _, key, value in GOLDEN["status"]:
        log.apply(decode_status_record.value("a record", key, value))
    assert log.connectors() == ("f1", "f2", "snk")
    assert log.topic_connectors() == ("f1", "f2", "snk")
    assert log.topics("snk") == ("ft1", "ft2")
    shown = log.connector_status("snk")
    assert shown is not None
    assert (shown.state, shown.generation, shown.version) == (State.UNASSIGNED, 16, "4.3.0")
