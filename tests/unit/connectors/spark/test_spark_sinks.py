"""SparkSink and FunctionSink, without Spark: what is written when, and what a failure means."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from connectx.connectors.spark.errors import DataSourceWriteError
from connectx.connectors.spark.sinks import FunctionSink, SparkSink, token_of
from connectx.plugins.errors import NotStageableError
from tests.support import functions
from tests.support.lake import Context, batch, partition, rows

P0, P1 = partition(0), partition(1)
MORE = pa.struct([("more", pa.int64())])


class WithSpark(Context):
    """Its session keeps what is written, instead of Spark."""

    def __init__(self) -> None:
        super().__init__("connect-c", tolerate=False)
        self.written: list[tuple[Any, ...]] = []

    def spark(self) -> Any:
        return SimpleNamespace(createDataFrame=lambda table, kind: SimpleNamespace(write=Writer(self.written, table)))


class Writer:
    def __init__(self, written: list[tuple[Any, ...]], table: pa.Table) -> None:
        self._written, self._table, self._format = written, table, ""
        self._options: dict[str, str] = {}

    def format(self, name: str) -> Writer:
        self._format = name
        return self

    def options(self, **options: str) -> Writer:
        self._options = options
        return self

    def mode(self, mode: str) -> Writer:
        assert mode == "append"
        return self

    def save(self) -> None:
        self._written.append((self._format, self._options, self._table.to_pylist()))

    def json(self, path: str) -> None:
        self._written.append(("json", {"path": path}, self._table.to_pylist()))


def test_a_flush_appends_all_rows_in_the_format() -> None:
    context, sink = WithSpark(), SparkSink.Task()
    sink.start({"format": "orc", "format.options.path": "/data"}, context)
    sink.put(batch(0, rows(1, 2)))
    sink.put(batch(0, rows(3), place=P1))
    sink.flush()
    sink.flush()
    assert context.written == [("orc", {"path": "/data"}, rows(1, 2, 3))]


def test_a_function_gets_the_rows_their_ranges_and_a_token(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "FOLDER", [tmp_path])
    monkeypatch.setattr(functions, "CALLS", [])
    context, sink = WithSpark(), FunctionSink.Task()
    sink.start({"function": f"{functions.__name__}.save"}, context)
    sink.put(batch(0, rows(1, 2)))
    sink.put(batch(2, rows(3), end=7))
    sink.flush()
    assert [({P0: (0, 7)}, token_of("connect-c", {P0: (0, 7)}))] == functions.CALLS
    assert context.written == [("json", {"path": str(tmp_path)}, rows(1, 2, 3))]


def test_a_failure_names_the_target_and_the_first_line_of_the_cause() -> None:
    sink = FunctionSink.Task()
    sink.start({"function": f"{functions.__name__}.refuse"}, WithSpark())
    sink.put(batch(0, rows(1)))
    with pytest.raises(DataSourceWriteError, match=r"refuse could not write: ValueError: no space\. Correct"):
        sink.flush()


def test_a_token_is_the_same_for_the_same_ranges_only() -> None:
    assert token_of("g", {P0: (0, 5), P1: (1, 2)}) == token_of("g", {P1: (1, 2), P0: (0, 5)})
    assert len({token_of("g", {P0: (0, 5)}), token_of("g", {P0: (0, 6)}), token_of("h", {P0: (0, 5)})}) == 3


def test_executors_give_rows_in_the_columns_so_far_and_the_format_writes_their_dataframe() -> None:
    context, sink = WithSpark(), SparkSink.Task()
    sink.start({"format": "orc"}, context)
    with pytest.raises(NotStageableError, match="not known"):
        sink.plan("job-1", "t")
    sink.put(batch(0, rows(1)))
    sink.flush()
    plan = sink.plan("job-1", "t")
    (made,) = sink.stage(plan, "job-1", iter([batch(1, rows(2, 3))]))
    assert (made.schema, made.to_pylist()) == (plan, rows(2, 3))
    with pytest.raises(NotStageableError, match="other columns"):
        list(sink.stage(plan, "job-1", iter([batch(1, [{"more": 1}], MORE)])))
    sink.save("job-1", {P0: (1, 3)}, SimpleNamespace(write=Writer(context.written, made)))
    sink.commit("job-1", {P0: (1, 3)}, [])
    assert [written[2] for written in context.written] == [rows(1), rows(2, 3)]


def test_both_lanes_give_a_function_the_same_token_for_the_same_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(functions, "save", lambda frame, ranges, token: calls.append((ranges, token)))
    sink = FunctionSink.Task()
    sink.start({"function": f"{functions.__name__}.save"}, WithSpark())
    sink.put(batch(0, rows(1, 2)))
    sink.flush()
    sink.save("job-1", {P0: (0, 2)}, None)
    assert calls[0] == calls[1]


@pytest.mark.parametrize(
    "path", ["", "save", "no.such.save", f"{functions.__name__}.NUMBER", f"{functions.__name__}.no"]
)
def test_a_path_without_a_function_is_refused(path: str) -> None:
    (problem,) = FunctionSink.validate({"function": path})["function"]
    assert problem.startswith(f"Invalid value {path} for configuration function")


def test_the_function_that_is_there_is_accepted() -> None:
    assert FunctionSink.validate({"function": f"{functions.__name__}.save"}) == {}


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_a_check_reads_files_on_this_machine(tmp_path: Path, kind: str) -> None:
    config = {"format": kind, "format.options.path": str(tmp_path / "out")}
    stored = SparkSink.stored(config, "t")
    assert stored is not None
    assert list(stored.read()) == [], "before the first job"
    write = {"parquet": parquet.write_table, "orc": orc.write_table}[kind]
    (tmp_path / "out").mkdir()
    for number in range(2):
        write(pa.table({"id": [number]}), tmp_path / f"out/{number}.{kind}")
    assert sorted(row["id"] for table in stored.read() for row in table.to_pylist()) == [0, 1]


@pytest.mark.parametrize("more", [{"format": "jdbc"}, {"format.options.path": "s3://bucket/out"}])
def test_a_check_needs_a_target_for_what_it_cannot_read(more: dict[str, str]) -> None:
    assert SparkSink.stored({"format": "parquet", "format.options.path": "out", **more}, "t") is None
    assert SparkSink.stored({"format": "parquet"}, "t") is None
