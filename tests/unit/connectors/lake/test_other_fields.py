"""Without `auto.evolve` JSON without schemas is refused record by record if it has fields that the table lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from connectx.errors.plugins import RecordRejectedError
from tests.support.json_records import Record, json_batch
from tests.support.lake import Context, Lake, batch, partition, write
from tests.unit.connectors.lake.conftest import Tables
from tests.unit.connectors.lake.test_upserts import BY_KEY, BY_VALUE, DEBEZIUM, Settings

pytestmark = pytest.mark.rule("always.8")

P0, TOKEN = partition(), "rows-0-abc-1"
INNER = pa.struct([("x", pa.int64())])
COLUMNS = pa.struct([("id", pa.int64()), ("name", pa.string()), ("one", INNER), ("many", pa.list_(INNER))])
Put = Callable[[Lake, Settings, Sequence[Record], bool], Any]


def in_tail(lake: Lake, settings: Settings, records: Sequence[Record], tolerate: bool) -> Any:
    """The task that has put records."""
    task = lake.opened(P0, **settings, auto_evolve="false", tolerate=tolerate)
    found, problems = json_batch(task.connector, task, task.settings, 1, records, P0)
    assert problems == []
    write(task, found)
    return task


def in_bulk(lake: Lake, settings: Settings, records: Sequence[Record], tolerate: bool) -> Any:
    """The task of the executor that has staged records, which another one has committed."""
    task = lake.opened(P0, **settings, auto_evolve="false")
    executor = lake.task(**settings, auto_evolve="false", tolerate=tolerate)
    found, problems = json_batch(task.connector, task, task.settings, 1, records, P0)
    assert problems == []
    messages = [*executor.stage(task.plan(TOKEN, "rows"), TOKEN, iter([found]))]
    task.commit(TOKEN, {P0: (1, 1 + len(records))}, messages)
    return executor


@pytest.fixture(params=[in_tail, in_bulk])
def put(request: pytest.FixtureRequest) -> Put:
    found: Put = request.param
    return found


def with_table(lake: Lake) -> None:
    write(lake.opened(P0), batch(0, [{"id": 0, "name": "0", "one": {"x": 0}, "many": [{"x": 0}]}], COLUMNS))


def values(*documents: bytes) -> list[Record]:
    return [(None, document) for document in documents]


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (b'{"id":2,"more":1}', "more"),
        (b'{"id":2,"more":1,"a,b":[]}', "more, a,b"),
        (b'{"id":2,"one":{"x":1,"y":{"z":1}}}', "one.y"),
        (b'{"id":2,"many":[{"x":1},null,{"y":false},{"y":1}]}', "many.y"),
    ],
)
def test_a_field_without_a_column_refuses_its_record_alone_at_every_depth(
    lake: Lake, tables: Tables, put: Put, document: bytes, name: str
) -> None:
    with_table(lake)
    records = values(b'{"id":1,"name":"1"}', document, b'{"id":3,"more":null,"one":{"y":null}}')
    task = put(lake, {}, records, True)
    assert task.context.reported == ["rows-0@2"]
    assert tables.ids() == [0, 1, 3]


def test_without_tolerance_the_task_fails_and_the_error_names_the_record_and_its_field(lake: Lake, put: Put) -> None:
    with_table(lake)
    with pytest.raises(RecordRejectedError, match=r"offset 2 of rows-0: .* field more,"):
        put(lake, {}, values(b'{"id":1}', b'{"id":2,"more":1}', b'{"id":3,"other":1}'), False)


def by_value(document: bytes) -> Record:
    return None, document


def by_key(document: bytes) -> Record:
    return document[: document.index(b",")] + b"}", document


def enveloped(document: bytes) -> Record:
    return None, b'{"op":"u","before":{"id":1,"gone":1},"after":%b,"source":{"db":"x"},"ts_ms":5}' % document


@pytest.mark.parametrize(
    ("settings", "record"), [(BY_VALUE, by_value), (BY_KEY, by_key), (DEBEZIUM, enveloped)], ids=["value", "key", "cdc"]
)
@pytest.mark.parametrize("made", ["delta", "iceberg"], indirect=True)
def test_upserts_are_refused_likewise_but_not_for_what_is_not_written(
    lake: Lake, tables: Tables, put: Put, settings: Settings, record: Callable[[bytes], Record]
) -> None:
    with_table(lake)
    documents = (b'{"id":1,"name":"1"}', b'{"id":2,"more":1}', b'{"id":1,"one":{"y":1}}', b'{"id":3,"more":null}')
    task = put(lake, settings, [record(document) for document in documents], True)
    assert task.context.reported == ["rows-0@2", "rows-0@3"]
    assert tables.sql("SELECT id, name FROM lake WHERE id IN (1, 2, 3) ORDER BY id") == [(1, "1"), (3, None)]


def test_a_column_that_was_added_meanwhile_takes_later_records(lake: Lake, tables: Tables) -> None:
    with_table(lake)
    task = lake.opened(P0, auto_evolve="false", tolerate=True)
    other = partition(1)
    write(lake.opened(other), batch(0, [{"more": 5}], pa.struct([("more", pa.int64())]), place=other))
    for start in (1, 2):
        found, _ = json_batch(task.connector, task, task.settings, start, values(b'{"id":%d,"more":1}' % start), P0)
        write(task, found)
    assert isinstance(task.context, Context)
    assert task.context.reported == ["rows-0@1"]
    assert tables.sql("SELECT more FROM lake WHERE id = 2") == [(1,)]
