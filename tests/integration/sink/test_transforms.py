"""Sink tasks with transformations: rows that fit a table which the records do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.events import EventKind
from tests.support.databases import Table
from tests.support.profiles import dotted
from tests.support.waiting import until

Make = Callable[..., Any]


@pytest.fixture
def database(postgres: str, topic: Make) -> Table:
    return Table(postgres, topic("rows"))


def chain(**more: str) -> dict[str, str]:
    given = {
        "transforms": "drop,names,types",
        "transforms_drop_type": "Filter",
        "transforms_drop_predicate": "deleted",
        "transforms_names_type": "ReplaceField$Value",
        "transforms_names_exclude": "noise",
        "transforms_names_renames": "number:id,label:name",
        "transforms_types_type": "Cast$Value",
        "transforms_types_spec": "id:int64,name:string",
        "predicates": "deleted",
        "predicates_deleted_type": "RecordIsTombstone",
        **more,
    }
    return dotted(given)


def documents(*numbers: Any) -> list[bytes]:
    return [json.dumps({"number": number, "label": 7, "noise": {"x": 1}}).encode() for number in numbers]


def test_fields_are_renamed_and_cast_and_tombstones_are_dropped(
    database: Table, sink_task: Make, produce: Make, committed: Make
) -> None:
    produce(database.table, [*documents("1", "2"), None, *documents("3")])
    task = sink_task("smt-1", {**database.config(), **chain()}).begin()
    until(lambda: database.ids() == [1, 2, 3])
    assert database.sql(f'SELECT DISTINCT name FROM "{database.table}"') == [("7",)]
    produce(database.table, [None, None])
    until(lambda: committed("connect-smt-1", database.table) == {f"{database.table}-0": 6})
    assert sum(event.data["records"] for event in task.recorded(EventKind.RECORDS_FILTERED)) == 3
    assert not task.recorded(EventKind.RECORDS_SKIPPED)


def test_a_record_that_cannot_be_transformed_obeys_the_tolerance(
    database: Table, sink_task: Make, produce: Make
) -> None:
    produce(database.table, documents("1", "x", "3"))
    strict = sink_task("smt-2", {**database.config(), **chain()})
    strict.begin()
    trace = strict.failure()
    assert f"{database.table}-0" in trace
    assert "Transformation types (Cast$Value) failed: Value (x) was out of range" in trace
    task = sink_task("smt-3", {**database.config(), **chain(), "errors.tolerance": "all"}).begin()
    until(lambda: database.ids() == [1, 3])
    until(lambda: [event.data["records"] for event in task.recorded(EventKind.RECORDS_SKIPPED)] == [1])
    task.stop()


def test_records_are_routed_to_tables(database: Table, sink_task: Make, produce: Make) -> None:
    other = Table(database.uri, f"{database.table}-other")
    produce(database.table, documents("1", "2"))
    routed = {
        "transforms": "names,types,route",
        "transforms_route_type": "RegexRouter",
        "transforms_route_regex": "(.*)",
        "transforms_route_replacement": "$1-other",
    }
    sink_task("smt-4", {**database.config(), **chain(**routed)}).begin()
    until(lambda: other.ids() == [1, 2])
    assert database.ids() == []


def test_a_header_can_become_a_reason_to_drop_a_record(
    database: Table, sink_task: Make, kafka: EmbeddedKafka, committed: Make
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number, header in ((1, b"1"), (2, b'{"broken"'), (3, None)):
        headers: list[tuple[str, str | bytes | None]] = [("old", header)] if header is not None else []
        producer.produce(database.table, json.dumps({"id": number, "name": "n"}).encode(), headers=headers)
    producer.flush(30)
    config = {
        **database.config(),
        "transforms": "drop",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "old",
        "predicates": "old",
        "predicates.old.type": "HasHeaderKey",
        "predicates.old.name": "old",
        "header.converter": "JsonConverter",
        "header.converter.schemas.enable": "false",
        "errors.tolerance": "all",
    }
    task = sink_task("smt-5", config).begin()
    until(lambda: database.ids() == [3])
    until(lambda: sum(committed("connect-smt-5", database.table).values()) == 3)
    assert sum(event.data["records"] for event in task.recorded(EventKind.RECORDS_FILTERED)) == 1
    assert sum(event.data["records"] for event in task.recorded(EventKind.RECORDS_SKIPPED)) == 1
