"""The demo measures from outside: file, topic and table give the same numbers, and notice what is wrong."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from connectx.demo.database import database
from connectx.demo.flights import COLUMNS, KEY, NULL_TEXT, TABLE, unpack
from connectx.demo.measures import measure_file, measure_table, measure_topic, query
from connectx.errors.demo import DemoError
from connectx.kafka.broker.embedded import EmbeddedKafka

ROWS = 3_000


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("flights"), ROWS)


def records(path: Path, *, times_as_text: bool = False) -> Iterator[dict[str, Any]]:
    """Rows of the file as a sink or source would type them."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            typed: dict[str, Any] = {}
            for column in COLUMNS:
                text = row[column.name]
                typed[column.name] = None if text == NULL_TEXT else int(text) if column.spark_type == "INT" else text
            if not times_as_text:
                time = datetime.strptime(row["time_hour"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
                typed["time_hour"] = int(time.timestamp() * 1000)
            yield typed


def producer(kafka: EmbeddedKafka, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": transactional_id})
    made.init_transactions(30)
    return made


def send(made: Producer, topic: str, rows: Iterator[Mapping[str, Any]], *, commit: bool = True) -> None:
    made.begin_transaction()
    for row in rows:
        made.produce(topic, json.dumps(row).encode(), json.dumps({name: row[name] for name in KEY}).encode())
    if commit:
        made.commit_transaction(30)
    else:
        made.flush(30)


def test_a_part_of_the_flights_is_unpacked_with_its_header(flights: Path) -> None:
    lines = flights.read_text().splitlines()
    assert len(lines) == ROWS + 1
    assert lines[0].split(",") == [column.name for column in COLUMNS]


def test_the_file_is_measured_with_nulls_left_out(flights: Path) -> None:
    measures = measure_file(flights)
    rows = list(records(flights))
    assert (measures.rows, measures.keys) == (ROWS, ROWS)
    assert measures.sums["dep_delay"] == sum(row["dep_delay"] or 0 for row in rows)
    assert any(row["dep_delay"] is None for row in rows)


@pytest.mark.parametrize("times_as_text", [True, False])
def test_a_topic_with_every_flight_once_measures_as_the_file(
    kafka: EmbeddedKafka, topic: Callable[..., str], flights: Path, times_as_text: bool
) -> None:
    name = topic("measured", partitions=4)
    send(producer(kafka, name), name, records(flights, times_as_text=times_as_text))
    assert measure_topic(kafka.bootstrap_servers, name) == measure_file(flights)


def test_duplicates_and_losses_of_a_topic_are_counted(
    kafka: EmbeddedKafka, topic: Callable[..., str], flights: Path
) -> None:
    name = topic("measured", partitions=4)
    rows = list(records(flights))
    made = producer(kafka, name)
    send(made, name, iter(rows[:2_000]))
    send(made, name, iter(rows[1_990:2_500]))
    measures = measure_topic(kafka.bootstrap_servers, name)
    assert (measures.rows, measures.keys) == (2_510, 2_500)


def test_what_was_aborted_is_not_seen(kafka: EmbeddedKafka, topic: Callable[..., str], flights: Path) -> None:
    name = topic("measured", partitions=2)
    made = producer(kafka, name)
    send(made, name, records(flights), commit=False)
    made.abort_transaction(30)
    send(made, name, records(flights))
    assert measure_topic(kafka.bootstrap_servers, name).rows == ROWS


def test_a_topic_that_does_not_exist_is_an_error(kafka: EmbeddedKafka) -> None:
    with pytest.raises(DemoError, match="could not be read"):
        measure_topic(kafka.bootstrap_servers, "no-such-topic")


@pytest.fixture
def table(postgres: str) -> Iterator[str]:
    columns = ", ".join(f"{column.name} {column.postgres_type}" for column in COLUMNS)
    query(postgres, f"CREATE TABLE measured ({columns})")
    yield "measured"
    query(postgres, "DROP TABLE measured")


def copy(postgres: str, table: str, path: Path) -> None:
    """Fill a table from the file without any of connectx: the values as SQL text."""
    rows = []
    for row in records(path, times_as_text=True):
        values = (None if value is None else str(value) for value in row.values())
        rows.append("(" + ", ".join("NULL" if value is None else f"'{value}'" for value in values) + ")")
    query(postgres, f"INSERT INTO {table} VALUES {', '.join(rows)}")


def test_a_table_with_every_flight_once_measures_as_the_file(postgres: str, table: str, flights: Path) -> None:
    copy(postgres, table, flights)
    assert measure_table(postgres, table) == measure_file(flights)


def test_an_empty_table_measures_as_nothing(postgres: str, table: str) -> None:
    measures = measure_table(postgres, table)
    assert (measures.rows, measures.keys, measures.checksum) == (0, 0, 0)


@pytest.mark.parametrize(
    "damage",
    ["tailnum = 'N00000'", "arr_time = NULL", "time_hour = time_hour + interval '1 second'", "minute = minute + 1"],
)
def test_one_changed_value_changes_the_checksum(postgres: str, table: str, flights: Path, damage: str) -> None:
    copy(postgres, table, flights)
    query(postgres, f"UPDATE {table} SET {damage} WHERE ctid = (SELECT max(ctid) FROM {table})")
    measures = measure_table(postgres, table)
    assert measures.rows == ROWS
    assert measures.checksum != measure_file(flights).checksum


def test_a_row_twice_is_a_row_and_no_key_more(postgres: str, table: str, flights: Path) -> None:
    copy(postgres, table, flights)
    query(postgres, f"INSERT INTO {table} SELECT * FROM {table} LIMIT 7")
    measures = measure_table(postgres, table)
    assert (measures.rows, measures.keys) == (ROWS + 7, ROWS)


def test_a_table_that_does_not_exist_is_an_error(postgres: str) -> None:
    with pytest.raises(DemoError, match="no_such_table"):
        measure_table(postgres, "no_such_table")


def test_the_database_of_the_demo_has_the_table_and_is_gone_afterwards(tmp_path: Path) -> None:
    with database(tmp_path) as uri:
        names = query(uri, f"SELECT column_name FROM information_schema.columns WHERE table_name = '{TABLE}'")
        assert sorted(name for (name,) in names) == sorted(column.name for column in COLUMNS)
    with pytest.raises(DemoError, match="PostgreSQL did not answer"):
        query(uri, "SELECT 1")
