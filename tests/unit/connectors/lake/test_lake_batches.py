"""No table, dead letter or first error of the sinks of tables in files depends on which records share a batch."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from connectx.errors.databases import TableMismatchError
from connectx.errors.plugins import RecordRejectedError
from tests.support.json_records import Record, json_batch
from tests.support.lake import Context, Lake, batch, partition, write
from tests.unit.connectors.lake.conftest import FORMATS, Tables
from tests.unit.connectors.lake.test_upserts import BY_KEY, BY_VALUE, DEBEZIUM

pytestmark = pytest.mark.rule("always.8")

P0, P1 = partition(0), partition(1)
COLUMNS = pa.struct([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
MODES: Mapping[str, Mapping[str, str]] = {"append": {}, "value": BY_VALUE, "key": BY_KEY, "envelope": DEBEZIUM}
CASES = [(kind, mode) for kind in ("delta", "iceberg") for mode in MODES] + [("parquet", "append")]

KEYS = st.sampled_from([1, 2, 3, None])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.sampled_from([None, 1, 2, 13, "x"]),
        "b": st.sampled_from([None, "x", "y", {"z": 1}]),
        "c": st.sampled_from([None, 1, 2.5]),
        "d": st.sampled_from([None, True, "x"]),
        "e": st.sampled_from([{"x": True}, {"y": "y"}, {"x": 1}]),
        "id": KEYS,
    },
)
ROWS = st.builds(
    lambda fields, order: dict(sorted(fields.items(), key=lambda field: order.index(field[0]))),
    FIELDS,
    st.permutations(["a", "b", "c", "d", "e", "id"]),
)
ENVELOPES = st.fixed_dictionaries(
    {"op": st.sampled_from(["c", "d", "u", "x"])}, optional={"before": ROWS, "after": ROWS}
)
OTHERS: st.SearchStrategy[Any] = st.sampled_from([None, 7, {}])


def records(mode: str) -> st.SearchStrategy[Record]:
    bodies = ENVELOPES if mode == "envelope" else ROWS
    values = st.one_of(bodies, bodies, bodies, OTHERS)
    return st.tuples(
        KEYS.map(lambda key: json.dumps({"id": key}).encode()) | KEYS.map(lambda key: json.dumps(key).encode()),
        values.map(lambda value: None if value is None else json.dumps(value).encode()),
    )


def prepared(kind: str, folder: Path) -> tuple[Lake, Tables]:
    """A table with a row; of Delta with a constraint."""
    lake, files = FORMATS[kind](folder)
    write(lake.opened(P1), batch(0, [{"id": 1, "a": 1, "b": "first", "c": 0.5}], COLUMNS, place=P1))
    if kind == "delta":
        DeltaTable(str(folder / "rows")).alter.add_constraint({"unlucky": "a <> 13"})
    return lake, Tables(files)


def outcome(
    kind: str, folder: Path, given: Mapping[str, str], batches: Sequence[Sequence[Record]], *, tolerate: bool
) -> tuple[Any, Sequence[str], str]:
    """Rows, records that are refused, and the error that ends the task."""
    lake, tables = prepared(kind, folder)
    task, start, error = lake.opened(P0, tolerate=tolerate, **given), 0, ""
    try:
        for each in batches:
            found, _ = json_batch(task.connector, task, task.settings, start, each, P0)
            task.put(found)
            start += len(each)
        task.flush()
    except RecordRejectedError as refused:
        error = re.findall(r"at offset \d+ of", refused.message)[0]
    except TableMismatchError as refused:
        error = refused.message
    assert isinstance(task.context, Context)
    try:
        held: Any = sorted(tables.sql("SELECT COLUMNS(*) FROM lake"), key=repr)
    except duckdb.Error:
        held = "no file"
    return held, task.context.reported, error


@pytest.mark.parametrize(("kind", "mode"), CASES)
@settings(max_examples=2)
@given(data=st.data())
def test_tables_and_errors_are_those_of_one_record_at_a_time(kind: str, mode: str, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(records(mode), min_size=2, max_size=8))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(drawn) - 1), max_size=2)))
    some = [drawn[slice(*part)] for part in pairwise([0, *cuts, len(drawn)])]
    alone = [[record] for record in drawn]
    given = {**MODES[mode], "auto_evolve": "false"}
    with tempfile.TemporaryDirectory() as folder:
        names = (Path(folder, str(number)) for number in itertools.count())

        def fresh() -> Path:
            (path := next(names)).mkdir()
            return path

        for tolerate in (True, False):
            together = outcome(kind, fresh(), given, some, tolerate=tolerate)
            assert together == outcome(kind, fresh(), given, alone, tolerate=tolerate)
