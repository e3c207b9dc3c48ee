"""No table and no dead letter of JdbcSink depends on which records share a batch."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectx.connectors.jdbc.sink import JdbcSink
from connectx.errors.plugins import RecordRejectedError
from tests.support.jdbc_sinks import Place, reported
from tests.unit.connectors.jdbc.test_jdbc_shapes import MODES, Record
from tests.unit.connectors.jdbc.test_jdbc_sink import duckdb_place, sqlite_place

COLUMNS = (
    "id bigint PRIMARY KEY, a bigint DEFAULT 9 CHECK (a <> 13), b varchar(50), c double precision NOT NULL DEFAULT 0.5"
)
PLACES: Mapping[str, Callable[[Path], Place]] = {"sqlite": sqlite_place, "duckdb": duckdb_place}

KEYS = st.sampled_from([1, 2, 3, 1.0, None, "x"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.sampled_from([None, 1, 2, 3, 13]),
        "b": st.sampled_from([None, "x", "y", "__debezium_unavailable_value"]),
        "c": st.sampled_from([None, 1, 2.5]),
        "d": st.sampled_from([None, 1]),
        "id": KEYS,
    },
)


BODIES = st.builds(
    lambda fields, order: json.dumps(dict(sorted(fields.items(), key=lambda field: order.index(field[0])))).encode(),
    FIELDS,
    st.permutations(["a", "b", "c", "d", "id"]),
)
RECORDS = st.tuples(
    KEYS.map(lambda key: json.dumps({"id": key}).encode()) | KEYS.map(lambda key: json.dumps(key).encode()),
    st.one_of(BODIES, BODIES, BODIES, st.sampled_from([None, b"7"])),
)


def outcome(place: Place, mode: Mapping[str, str], batches: Sequence[Sequence[Record]]) -> tuple[list[Any], list[int]]:
    """Rows, and the offsets of records that are refused, those that cannot be read included."""
    task = task_of(place, mode, tolerate=True)
    start = 0
    for batch in batches:
        place.put_json(task, start, *batch)
        start += len(batch)
    refused = [int(name.rpartition("@")[2]) for name in reported(task)]
    rows = place.rows()
    place.close()
    return rows, refused


def first_refused(place: Place, mode: Mapping[str, str], batches: Sequence[Sequence[Record]]) -> str | None:
    """The offset that the error names where no error is tolerated."""
    task, start = task_of(place, mode, tolerate=False), 0
    try:
        for batch in batches:
            place.put_json(task, start, *batch)
            start += len(batch)
    except RecordRejectedError as error:
        (named,) = re.findall(r"at offset (\d+) of", error.message)
        return str(named)
    finally:
        place.close()
    return None


def task_of(place: Place, mode: Mapping[str, str], *, tolerate: bool) -> JdbcSink.Task:
    place.create(COLUMNS)
    place.sql(f"INSERT INTO {place.table} VALUES (1, 1, 'first', 2.5)")
    return place.task(mode, tolerate=tolerate)


def compare(kind: str, given: Mapping[str, str], data: st.DataObject) -> None:
    """Divide drawn records into batches, and write them so and alone."""
    drawn = data.draw(st.lists(RECORDS, min_size=2, max_size=8))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(drawn) - 1), max_size=2)))
    some = [drawn[slice(*part)] for part in pairwise([0, *cuts, len(drawn)])]
    alone = [[record] for record in drawn]
    with tempfile.TemporaryDirectory() as folder:
        names = (Path(folder, str(number)) for number in itertools.count())

        def place() -> Place:
            (path := next(names)).mkdir()
            return PLACES[kind](path)

        assert outcome(place(), given, some) == outcome(place(), given, alone)
        assert first_refused(place(), given, some) == first_refused(place(), given, alone)


@pytest.mark.parametrize("evolves", [False, True], ids=["columns of the table", "new columns"])
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=8)
@given(data=st.data())
def test_tables_and_dead_letters_are_those_of_one_record_at_a_time(
    mode: str, evolves: bool, data: st.DataObject
) -> None:
    compare("sqlite", {**MODES[mode], "auto.evolve": str(evolves).lower()}, data)


@pytest.mark.parametrize("mode", ["upsert", "update"])
@settings(max_examples=2)
@given(data=st.data())
def test_so_are_those_of_a_database_whose_statements_write_many_rows(mode: str, data: st.DataObject) -> None:
    compare("duckdb", MODES[mode], data)


MANY = [(b"1", b'{"a":2}'), (b"1", b'{"a":13}'), (b"1", b'{"a":null}'), (b"1", None), (b"1", b'{"a":13,"b":"x"}'),
        (b"2", b'{"a":13}'), (b"1", b'{"b":"y"}'), (b"2", b'{"b":"z"}'), (b"2", b'{"a":3}')]  # fmt: skip


@pytest.mark.parametrize("mode", ["upsert", "update"])
@pytest.mark.parametrize("kind", PLACES)
def test_a_value_that_a_later_record_replaces_is_refused_all_the_same(kind: str, mode: str, tmp_path: Path) -> None:
    for folder in ("together", "alone"):
        (tmp_path / folder).mkdir()
    together = outcome(PLACES[kind](tmp_path / "together"), MODES[mode], [MANY])
    assert together == outcome(PLACES[kind](tmp_path / "alone"), MODES[mode], [[record] for record in MANY])
    assert together[1] == ([1, 4, 5] if mode == "upsert" else [1])


def test_a_record_whose_key_is_null_is_refused_alone_beside_one_without_a_key(tmp_path: Path) -> None:
    records: list[Record] = [
        (None, b'{"b":"x","a":null}'),
        (None, b'{"id":null,"b":"x"}'),
        (None, b'{"b":"x","id":null}'),
    ]
    rows, refused = outcome(sqlite_place(tmp_path), {**MODES["key in the value"], "auto.evolve": "true"}, [records])
    assert refused == [0, 1, 2]
    assert len(rows) == 1
