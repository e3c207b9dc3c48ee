"""Whatever a user names as a target becomes rows of text or of fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectx.errors.checks import CheckError
from connectx.plugins.stored import Stored
from connectx.verify.check.targets import target_of

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def held(stored: Stored) -> list[Any]:
    return [row for table in stored.read() for row in table.to_pylist()]


@pytest.mark.parametrize("given", [ROWS, pd.DataFrame(ROWS), pa.Table.from_pylist(ROWS), lambda: ROWS])
def test_rows_with_fields(given: Any) -> None:
    stored = target_of(given)
    assert not stored.lines
    assert held(stored) == ROWS
    assert held(stored) == ROWS, "a target is read more than once"


def test_lines_of_a_file_keep_their_order_and_the_last_one_needs_no_end(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_bytes("b\n\nä\r\nend".encode())
    stored = target_of(path)
    assert (stored.lines, stored.ordered, stored.place) == (True, True, "file out.txt")
    assert [row["line"] for row in held(stored)] == ["b", "", "ä\r", "end"]


def test_texts_are_lines() -> None:
    assert target_of(["a", "b"]).lines


def test_parquet_and_csv_files_have_fields(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("id,name\n1,a\n")
    assert held(target_of(tmp_path / "x.parquet")) == ROWS
    assert held(target_of(str(tmp_path / "x.csv"))) == [{"id": 1, "name": "a"}]


def test_what_a_function_returns_is_read_anew_each_time() -> None:
    rows = [{"id": 1}]
    stored = target_of(lambda: rows)
    rows.append({"id": 2})
    assert held(stored) == rows


@pytest.mark.parametrize("given", [5, {"a": 1}, Path("nowhere.txt")])
def test_anything_else_is_an_error_with_a_next_step(given: Any) -> None:
    with pytest.raises(CheckError) as caught:
        target_of(given)
    assert caught.value.next_step
