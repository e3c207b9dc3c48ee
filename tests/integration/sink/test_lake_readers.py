"""Spark's readers of Delta Lake and Apache Iceberg read what the sinks write, with the same rows and statistics."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from connectx.connectors.lake.delta import DeltaSink
from connectx.connectors.lake.iceberg import IcebergSink
from connectx.jvm import jars
from connectx.jvm.java import find_java
from tests.support.lake import Lake, batch, partition, write
from tests.support.options import SPARK_4_0, WHOLE

pytestmark = [SPARK_4_0, WHOLE]

ROOT: Final = Path(__file__).parents[3]
_LOCK: Final = ROOT / "tests/support/lake_readers.lock.json"
Row = dict[str, Any]


def kind(number: pa.DataType) -> pa.DataType:
    """The type of values; `number` is that of the column n."""
    part = pa.struct([("a", pa.int64()), ("b", pa.string())])
    return pa.struct([
        ("id", pa.int64()), ("n", number), ("half", pa.float64()), ("flag", pa.bool_()), ("text", pa.string()),
        ("raw", pa.binary()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)), ("tags", pa.list_(pa.field("element", pa.string()))), ("part", part),
    ])  # fmt: skip


def row(number: int) -> Row:
    """Every third row has nulls."""
    if number % 3 == 2:
        return {**dict.fromkeys(kind(pa.int32()).names), "id": number}
    day = datetime.datetime(2026, 1, 1, 3, 4, 5, 678901, datetime.UTC) + datetime.timedelta(number)
    return {
        "id": number, "n": -number, "half": number / 2, "flag": number % 2 == 0, "text": f"tea \u00e9 {number}",
        "raw": bytes([255, number]), "day": day.date(), "at": day, "price": Decimal(number) / 4,
        "tags": ["a", None], "part": {"a": number, "b": None},
    }  # fmt: skip


NARROW: Final = kind(pa.int32())
WIDE: Final = kind(pa.int64())
DIVIDED: Final = {"partition_by": "text,flag,day,at,price"}
UPSERT: Final = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id", **DIVIDED}
CONDITIONS: Final[Mapping[str, Callable[[Row], bool]]] = {
    "id >= 7": lambda row: row["id"] >= 7,
    "id > 14": lambda row: row["id"] > 14,
    "n < -5": lambda row: row["n"] is not None and row["n"] < -5,
    "n IS NULL": lambda row: row["n"] is None,
    "text = 'tea \u00e9 4'": lambda row: row["text"] == "tea \u00e9 4",
}
EXPRESSIONS: Final = ["count(*)", "min(id)", "max(id)", "min(n)", "max(n)"]


class Form:
    """One table in a form that it can have; `rows` are those that are wanted."""

    def __init__(self, lake: Lake, name: str) -> None:
        self._lake, self._place, self._end = lake, partition(topic=name), 0
        self.rows: dict[int, Row] = {}

    def tail(self, *numbers: int, kind: pa.DataType = NARROW, **settings: str) -> None:
        """Write rows as the worker does."""
        write(self._lake.opened(self._place, **settings), self._batch(numbers, kind))

    def bulk(self, *numbers: int, kind: pa.DataType = NARROW, **settings: Any) -> None:
        """Write rows as executors and the worker do."""
        task, rows = self._lake.opened(self._place, **settings), self._batch(numbers, kind)
        token = f"job-{self._end}"
        messages = self._lake.task(**settings).stage(task.plan(token, self._place.topic), token, iter([rows]))
        task.commit(token, rows.ranges, [*messages])

    def _batch(self, numbers: tuple[int, ...], kind: pa.DataType) -> Any:
        new = [{**row(number), "half": 0.5} if number in self.rows else row(number) for number in numbers]
        self.rows |= {one["id"]: one for one in new}
        first, self._end = self._end, self._end + len(new)
        return batch(first, new, kind, place=self._place)


def written(lake: Lake, compact: Callable[[str], object]) -> dict[str, Form]:
    """A table whose rows are appended in both lanes while a column is widened, and one whose rows are replaced.

    The latter has partitions, so that executors write null and all kinds of values as such.
    """
    appended, changed = Form(lake, "appended"), Form(lake, "changed")
    appended.tail(*range(4))
    appended.bulk(*range(4, 8))
    compact("appended")
    appended.tail(12, 13, kind=WIDE)
    appended.bulk(8, 11, kind=WIDE)
    appended.bulk(14, 15, 16, kind=WIDE)
    changed.tail(*range(4), **UPSERT)
    changed.tail(*range(2, 9), **UPSERT)
    changed.bulk(10, 11, **UPSERT)
    compact("changed")
    changed.tail(3, 9, **UPSERT)
    changed.bulk(4, 5, 12, **UPSERT)
    changed.bulk(13, 14, **UPSERT)
    return {"appended": appended, "changed": changed}


def read(folder: Path, tables: Mapping[str, tuple[str, Path]]) -> dict[str, Any]:
    """The results of `tests.support.lake_readers`."""
    asked = {name: [kind, str(path), [*CONDITIONS], EXPRESSIONS] for name, (kind, path) in tables.items()}
    (folder / "tables.json").write_text(json.dumps(asked))
    wanted = tuple(jars.Jar(**entry) for entry in json.loads(_LOCK.read_text())["lake-readers"])
    with patch.object(jars, "locked", lambda name: wanted):
        paths = jars.fetch("lake-readers", find_java())
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.lake_readers", str(folder), *map(str, paths)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "widgets")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return results


def test_sparks_readers_find_the_rows_of_tables_by_their_metadata_and_statistics(tmp_path: Path) -> None:
    delta = {"path": str(tmp_path / "delta")}
    warehouse = tmp_path / "iceberg"
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse.as_uri()}
    iceberg = {f"iceberg.catalog.{name}": text for name, text in catalog.items()}
    (tmp_path / "delta").mkdir()
    sinks: Mapping[str, tuple[Any, Mapping[str, str]]] = {
        "delta": (DeltaSink, delta),
        "iceberg": (IcebergSink, iceberg),
    }
    made = {
        f"{kind}-{name}": form
        for kind, (sink, config) in sinks.items()
        for name, form in written(Lake(sink.Task, config), partial(sink.compact, config)).items()
    }
    DeltaTable(str(tmp_path / "delta" / "appended")).create_checkpoint()

    def place(name: str) -> tuple[str, Path]:
        kind, _, table = name.partition("-")
        return kind, (warehouse / "default" if kind == "iceberg" else tmp_path / kind) / table

    results = read(tmp_path, {name: place(name) for name in made})
    for name, form in made.items():
        rows = [form.rows[number] for number in sorted(form.rows)]
        columns = pa.schema(list(WIDE if name.endswith("appended") else NARROW))
        assert pq.read_table(tmp_path / "rows" / f"{name}.parquet").cast(columns).to_pylist() == rows, name
        ids = {text: [row["id"] for row in rows if is_wanted(row)] for text, is_wanted in CONDITIONS.items()}
        assert results[name]["ids"] == ids, name
        numbers = [row["n"] for row in rows if row["n"] is not None]
        limits = [rows[0]["id"], rows[-1]["id"], min(numbers), max(numbers)]
        assert results[name]["values"] == [len(rows), *limits], name
