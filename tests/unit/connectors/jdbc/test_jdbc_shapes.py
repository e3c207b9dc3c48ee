"""Records of several shapes in one batch: the table is what it would be if each record came alone."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.jdbc_sinks import Context, Place
from tests.unit.connectors.jdbc.test_jdbc_sink import sqlite_place

COLUMNS = "id bigint PRIMARY KEY, a bigint DEFAULT 9, b varchar(50), c double precision"
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}
MODES: dict[str, dict[str, str]] = {
    "upsert": UPSERT,
    "update": {**UPSERT, "insert.mode": "update"},
    "insert with deletes": {**UPSERT, "insert.mode": "insert"},
    "key in the value": {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"},
    "insert": {"insert.mode": "insert"},
}

Record = tuple[bytes | None, bytes | None]


def records(seed: int, *, deletes: bool) -> list[Record]:
    """Changes of few keys, each with some of the fields, in any order."""
    dice = random.Random(seed)
    made: list[Record] = []
    for number in range(40):
        key = dice.choice([int, float])(dice.randrange(5))
        fields: list[tuple[str, Any]] = [("a", number), ("b", f"text {number}"), ("c", dice.choice([number, 0.5]))]
        chosen = dict([("id", key), *dice.sample(fields, dice.randrange(4))])
        value = None if deletes and dice.random() < 0.2 else json.dumps(chosen).encode()
        made.append((str(key).encode() if dice.random() < 0.5 else json.dumps({"id": key}).encode(), value))
    return made


def outcome(place: Place, mode: dict[str, str], batches: Sequence[Sequence[Record]]) -> tuple[list[Any], list[str]]:
    """Rows, and what was refused, by offset."""
    place.create(COLUMNS)
    place.sql(f"INSERT INTO {place.table} VALUES (0, 1, 'first', 2.5)")
    task = place.task({**mode, "auto.evolve": "true"}, tolerate=True)
    start = 0
    for batch in batches:
        assert place.put_json(task, start, *batch) == []
        start += len(batch)
    context = task.context
    assert isinstance(context, Context)
    refused = sorted(name.rpartition("@")[2] for name in context.reported)
    rows = place.rows()
    place.close()
    return rows, refused


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(2))
def test_a_batch_has_the_outcome_of_its_records_one_by_one(tmp_path: Path, mode: str, seed: int) -> None:
    given = records(seed, deletes="delete.enabled" in MODES[mode])
    together = outcome(sqlite_place(tmp_path), MODES[mode], [given])
    alone = outcome(sqlite_place(tmp_path), MODES[mode], [[record] for record in given])
    assert together == alone


def test_a_new_table_has_the_columns_of_all_shapes(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)
    task = place.task({"auto.create": "true", "auto.evolve": "true"})
    values = [b'{"id":1,"price":12}', b'{"id":2,"price":12.5}', b'{"name":"x","id":3}', b'{"id":4,"more":null}']
    assert place.put_json(task, 0, *((None, value) for value in values)) == []
    found = place.sql(f"SELECT id, price, name FROM {place.table} ORDER BY 1")
    assert found == [(1, 12.0, None), (2, 12.5, None), (3, None, "x"), (4, None, None)]
    place.close()


def test_keys_that_a_collation_takes_for_one_are_written_in_order(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)
    place.create("id text PRIMARY KEY COLLATE NOCASE, a bigint")
    task = place.task(UPSERT)
    records = [(json.dumps(key).encode(), b'{"a":%d}' % number) for number, key in enumerate(["A", "a", "A"])]
    assert place.put_json(task, 0, *records) == []
    assert place.sql(f"SELECT a FROM {place.table}") == [(2,)]
    place.close()
