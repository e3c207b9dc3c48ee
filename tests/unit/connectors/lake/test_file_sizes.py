"""Files of Delta and Iceberg tables have about the size of file.size.bytes, however well they compress."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from connectx.connectors.lake.delta import DeltaSink
from connectx.connectors.lake.iceberg import IcebergSink
from connectx.plugins.slices import SinkBatch
from tests.support.lake import Lake, batch, partition, write
from tests.unit.connectors.lake.conftest import FORMATS, Files, Tables

P0, MIB = partition(), 1 << 20
ROW: Final = pa.struct([("id", pa.int64()), ("random", pa.binary()), ("same", pa.string()), ("kind", pa.string())])
UPSERT: Final[dict[str, Any]] = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"}
SIZE: Final[dict[str, Any]] = {"file_size_bytes": str(MIB)}
Put = Callable[[Lake, SinkBatch], None]


def values(mib: int, first: int = 0) -> SinkBatch:
    """Rows that fill files of so many MiB, and several times that in memory."""
    numbers, made = range(first, first + mib * 8192), random.Random(first)
    rows = [{"id": at, "random": made.randbytes(128), "same": "x" * 500, "kind": "k"} for at in numbers]
    return batch(first, rows, ROW)


def in_tail(lake: Lake, rows: SinkBatch) -> None:
    write(lake.opened(P0, **SIZE), rows)


def upserted(lake: Lake, rows: SinkBatch) -> None:
    write(lake.opened(P0, **SIZE, **UPSERT), rows)


def in_bulk(lake: Lake, rows: SinkBatch, **settings: str) -> None:
    write(lake.opened(P0, **settings), batch(0, [{"id": -1, "random": b"", "same": "", "kind": ""}], ROW, end=0))
    task = lake.opened(P0, **SIZE)
    messages = lake.task(**SIZE).stage(task.plan("token", "rows"), "token", iter([rows]))
    task.commit("token", rows.ranges, [*messages])


def divided_in_bulk(lake: Lake, rows: SinkBatch) -> None:
    in_bulk(lake, rows, partition_by="kind")


def sizes(files: Files) -> list[int]:
    return sorted(os.path.getsize(path) for path in files("rows"))


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Lake, Files]:
    return FORMATS[request.param](tmp_path)


@pytest.mark.parametrize(
    ("made", "put"),
    [("delta", in_tail), ("delta", divided_in_bulk), ("iceberg", in_tail), ("iceberg", upserted), ("iceberg", in_bulk)],
    indirect=["made"],
)
def test_rows_are_divided_into_files_of_the_wanted_size(made: tuple[Lake, Files], put: Put) -> None:
    lake, files = made
    put(lake, values(4))
    large = [size for size in sizes(files) if size > MIB // 4]
    assert len(large) in (4, 5), large
    assert max(large) < 1.3 * MIB
    assert [at for at in Tables(files).ids() if at >= 0] == list(range(4 * 8192))


@pytest.mark.parametrize("made", ["delta", "iceberg"], indirect=True)
def test_merged_files_have_the_wanted_size_and_are_not_merged_again(
    made: tuple[Lake, Files], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    lake, files = made
    task = lake.opened(P0)
    for number in range(4):
        write(task, values(1, number * 8192))
    sink: Any = DeltaSink if request.node.callspec.params["made"] == "delta" else IcebergSink
    config = {**lake.task().settings, "file.size.bytes": str(2 * MIB + MIB // 2)}
    assert (sink.compact(config, "rows").files_after, len(sizes(files))) == (2, 2)
    assert sink.compact(config, "rows").files_after == 2
    assert sizes(files)[0] > 1.9 * MIB
    assert Tables(files).ids() == list(range(4 * 8192))
