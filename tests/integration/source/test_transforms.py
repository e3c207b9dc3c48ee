"""Source tasks with transformations: what is dropped, what is committed, what a failure of a record means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import connectx as cx
from connectx.core.messages import TaskStopped
from connectx.model.events import EventKind
from tests.support.profiles import dotted
from tests.support.records import read_all
from tests.support.task_harness import Place
from tests.support.waiting import until

JSON = "org.apache.kafka.connect.json.JsonConverter"
NAME = __name__


class StartsWith(cx.Predicate):
    """Lines that begin with a text."""

    config = cx.ConfigDef().define("text", str)

    def test(self, table: pa.Table) -> pa.Array:
        return pc.starts_with(table["value"].combine_chunks(), self.settings["text"])


class Number(cx.Transform):
    """Lines as numbers."""

    def apply(self, table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index("value"), "value", table["value"].cast(pa.int64()))


def config(path: Path, topic: str, **more: str) -> dict[str, str]:
    given = {"connector.class": "FileStreamSource", "file": str(path), "topic": topic, "batch.size": "2"}
    return {**given, **dotted(more)}


DROPPING = {
    "transforms": "drop,hoist,tag",
    "transforms_drop_type": "Filter",
    "transforms_drop_predicate": "noise",
    "transforms_hoist_type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms_hoist_field": "line",
    "transforms_tag_type": "InsertField$Value",
    "transforms_tag_topic_field": "topic",
    "transforms_tag_static_field": "by",
    "transforms_tag_static_value": "me",
    "predicates": "noise",
    "predicates_noise_type": f"{NAME}.StartsWith",
    "predicates_noise_text": "#",
    "value_converter": JSON,
    "value_converter_schemas_enable": "false",
}


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_dropped_records_are_counted_and_go_with_the_transaction_that_covers_them(place: Place, tmp_path: Path) -> None:
    path, topic = tmp_path / "in.txt", place.create_topic(f"{place.group}-t")
    write(path, "a", "# half", "# all", "# of it", "b", "c")
    task = place.task(config(path, topic, **DROPPING)).begin()
    found = [json.loads(value) for value in place.wait_for_values(topic, 3)]
    assert found == [{"line": line, "topic": topic, "by": "me"} for line in ("a", "b", "c")]
    until(lambda: place.committed({"filename": str(path)}) == {"position": path.stat().st_size}, "the offset")
    write(path, "# nothing but", "# noise")
    until(lambda: sum(event.data["records"] for event in task.recorded(EventKind.RECORDS_FILTERED)) == 5, "5 dropped")
    assert not task.recorded(EventKind.RECORDS_SKIPPED)
    commits = len(task.recorded(EventKind.TRANSACTION_COMMITTED))
    task.stop()
    assert len(task.recorded(EventKind.TRANSACTION_COMMITTED)) == commits, "a slice without records commits nothing"
    assert place.committed({"filename": str(path)}) == {"position": len("a# half# all# of itbc") + 6}
    again = place.task(config(path, topic, **DROPPING), instance=2).begin()
    write(path, "d")
    assert [json.loads(value)["line"] for value in place.wait_for_values(topic, 4)] == ["a", "b", "c", "d"]
    again.stop()
    assert place.committed({"filename": str(path)}) == {"position": path.stat().st_size}


def numbers(**more: str) -> dict[str, str]:
    return {"transforms": "number", "transforms_number_type": f"{NAME}.Number", **more}


def test_a_record_that_a_transformation_cannot_take_fails_the_task(place: Place, tmp_path: Path) -> None:
    path, topic = tmp_path / "in.txt", place.create_topic(f"{place.group}-t")
    write(path, "1", "two")
    failed = place.task(config(path, topic, **numbers())).begin_and_fail()
    assert "Transformation number (Number) failed" in failed.trace
    assert "(row 2 of the slice)" in failed.trace
    assert place.values(topic) == []


def test_with_tolerance_only_the_records_at_fault_are_skipped(place: Place, tmp_path: Path) -> None:
    path, topic = tmp_path / "in.txt", place.create_topic(f"{place.group}-t")
    write(path, "1", "two", "three", "four", "5")
    task = place.task(config(path, topic, **numbers(errors_tolerance="all"))).begin()
    assert place.wait_for_values(topic, 2) == ["1", "5"]
    skipped = task.recorded(EventKind.RECORDS_SKIPPED)
    assert [event.data["records"] for event in skipped] == [1, 2]
    assert "Transformation number (Number) failed" in skipped[0].data["reason"]
    task.stop()
    assert task.said(TaskStopped)


@pytest.mark.parametrize(("converter", "header"), [("Simple", b"x"), ("Json", b'"x"')])
def test_records_are_routed_keyed_and_get_headers(place: Place, tmp_path: Path, converter: str, header: bytes) -> None:
    path, topic = tmp_path / "in.txt", place.create_topic(f"{place.group}-t")
    target = place.create_topic(f"{place.group}-routed")
    write(path, "x")
    chain: dict[str, Any] = {
        "transforms": "hoist,key,head,route",
        "transforms_hoist_type": "HoistField$Value",
        "transforms_hoist_field": "line",
        "transforms_key_type": "ValueToKey",
        "transforms_key_fields": "line",
        "transforms_head_type": "HeaderFrom$Value",
        "transforms_head_fields": "line",
        "transforms_head_headers": "line",
        "transforms_head_operation": "copy",
        "transforms_route_type": "RegexRouter",
        "transforms_route_regex": "(.*)-t",
        "transforms_route_replacement": "$1-routed",
        "key_converter": JSON,
        "key_converter_schemas_enable": "false",
        "value_converter": JSON,
        "header_converter": converter,
        "header_converter_schemas_enable": "false",
    }
    task = place.task(config(path, topic, **chain)).begin()
    (record,) = until(lambda: read_all(place.bootstrap_servers, target), "the record")
    assert record.key() == b'{"line":"x"}'
    assert record.headers() == [("line", header)]
    assert json.loads(record.value()) == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "string", "optional": False, "field": "line"}],
            "optional": False,
        },
        "payload": {"line": "x"},
    }
    task.stop()
