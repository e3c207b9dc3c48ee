"""Values that divide the files of a table (`partition.by`) are read back as they were written, in both lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.lake import Lake, batch, partition, write
from tests.unit.connectors.lake.conftest import FORMATS

P0 = partition(0)
ROW = pa.struct([("id", pa.int64()), ("kind", pa.string())])
TEXTS = [
    *("__HIVE_DEFAULT_PARTITION__", None, "__hive_default_partition__", "%5F_HIVE_DEFAULT_PARTITION__", "null"),
    *(
        "None",
        "a/b",
        "a=b",
        "..",
        ".",
        " ",
        "a ",
        "a+b",
        "a%20b",
        "é",
        "e\u0301",
        "A",
        "a",
        "~",
        "\\",
        "\x01\n",
        "7",
        "007",
    ),
]


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return FORMATS[request.param](tmp_path)[0]


def stored(lake: Lake, settings: dict[str, Any]) -> list[tuple[int, str | None]]:
    task = lake.task(**settings)
    found = task.connector.stored(task.settings, P0.topic)
    assert found is not None
    return sorted((row["id"], row["kind"]) for table in found.read() for row in table.to_pylist())


@pytest.mark.parametrize("lane", ["tail", "bulk"])
def test_every_text_divides_rows_by_itself(lake: Lake, lane: str) -> None:
    settings: dict[str, Any] = {"partition_by": "kind"}
    rows = [{"id": number, "kind": text} for number, text in enumerate(TEXTS)]
    task = lake.opened(P0, **settings)
    write(task, batch(0, rows[:1], ROW))
    if lane == "tail":
        write(task, batch(1, rows[1:], ROW))
    else:
        plan = task.plan("job", P0.topic)
        staged = list(lake.task(**settings).stage(plan, "job", iter([batch(1, rows[1:], ROW)])))
        task.commit("job", {P0: (1, len(rows))}, staged)
    assert stored(lake, settings) == list(enumerate(TEXTS))
