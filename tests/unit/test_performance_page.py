"""The figures of docs/performance.md are those of its result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench import plot

KINDS = ("lanes", "connectors", "tail", "json")
RESULTS = ("performance.json", *(f"performance-{kind}.json" for kind in KINDS))
WRITTEN = ("performance.md", "performance-rates.svg", "performance-cpu.svg")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    for name in (*WRITTEN, *RESULTS):
        shutil.copy(plot.DOCS / name, tmp_path / name)
    return tmp_path


def test_the_page_and_the_plots_are_those_of_the_result(docs: Path) -> None:
    for result in RESULTS:
        plot.main(plot.Result.read(docs / result), docs)
    for name in WRITTEN:
        assert (docs / name).read_text() == (plot.DOCS / name).read_text(), f"run python -m bench.plot for {name}"


def test_another_result_replaces_the_table_and_leaves_out_what_it_does_not_have(docs: Path) -> None:
    found = json.loads((docs / "performance.json").read_text())
    figures = [figure for figure in found["figures"] if figure["measure"].startswith("file_sink")]
    figures[0] |= {"connectx": 123_456.0, "kafka_connect": 12_500.0, "ratio": 9.876}
    (docs / "performance.json").write_text(json.dumps(found | {"figures": [*figures, {"measure": "idle"}]}))
    plot.main(plot.Result.read(docs / "performance.json"), docs)
    page = (docs / "performance.md").read_text()
    assert "| FileStreamSink, records/s | 123,456 | 12,500 | 9.9 |" in page
    assert "PostgresSink / Debezium, upsert" not in page
    assert "123,456" in (docs / "performance-rates.svg").read_text()


def test_figures_beside_debezium_and_apicurio_fill_their_tables_and_are_kept_in_their_file(docs: Path) -> None:
    found = json.loads((docs / "performance-connectors.json").read_text())
    compared = {"kafka_connect": 20_000.0, "connectx": 123_000.0, "ratio": 6.3}
    measures = ("cdc_snapshot_records_per_s", "cdc_latency_p50_ms", "avro_read_worker_cpu_us_per_record")
    figures = [{"measure": measure, **compared} for measure in measures]
    (docs / "connectors.json").write_text(json.dumps(found | {"figures": figures}))
    result = plot.Result.read(docs / "connectors.json")
    plot.main(result, docs)
    page = (docs / "performance.md").read_text()
    assert result.file == "performance-connectors.json"
    assert "| measure | connectx | Debezium 3.6 | ratio |" in page
    for title in ("First snapshot, changes/s", "FileStreamSink that reads Avro, worker's CPU in us a record"):
        assert f"| {title} | 123,000 | 20,000 | 6.3 |" in page


def test_rates_of_connectors_fill_their_table_and_are_kept_in_their_file(docs: Path) -> None:
    found = json.loads((docs / "performance-tail.json").read_text())
    figures = [
        {"measure": "jdbc_source", "dialect": "duckdb", "rows": 1_000_000, "rows_per_s": 212_345},
        {"measure": "http_sink", "batch": 100, "records": 50_000, "records_per_s": 9_876},
    ]
    (docs / "tail.json").write_text(json.dumps(found | {"figures": figures}))
    result = plot.Result.read(docs / "tail.json")
    plot.main(result, docs)
    page = (docs / "performance.md").read_text()
    assert result.file == "performance-tail.json"
    assert "| JdbcSource, exactly-once, duckdb, incrementing | 1,000,000 | 212,345 |" in page
    assert "| HttpSink, at-least-once, batch.max.size=100 | 50,000 | 9,876 |" in page
    assert "Generator, exactly-once" not in page


def test_kinds_of_json_fill_a_table_with_both_directions_and_are_kept_in_their_file(docs: Path) -> None:
    found = json.loads((docs / "performance-tail.json").read_text())
    figure = {"measure": "json", "direction": "read", "schemas.enable": "true", "records": "one list"}
    (docs / "kinds.json").write_text(
        json.dumps(found | {"figures": [figure | {"cpu_us_per_record": 1.05, "ratio_to_flat": 1.4}]})
    )
    result = plot.Result.read(docs / "kinds.json")
    plot.main(result, docs)
    assert result.file == "performance-json.json"
    assert "| one list |  |  |  | 1.05 (1.4) |" in (docs / "performance.md").read_text()


LANES = (
    {"measure": "lake_sink", "connector": "DeltaSink", "rows_per_s": 200_000, "process_cpu_us_per_record": 2.5}
    | {"median_rows_of_a_commit": 190_000, "commit_p50_ms": 60.0, "few_rows_commit_p50_ms": 20.0},
    {"measure": "iceberg_rows_per_s", "kafka_connect": 100_000.0, "connectx": 150_000.0, "ratio": 1.5},
    {"measure": "bulk", "connector": "SparkSource", "lane": "bulk", "master": "local[2]", "records": 600_000}
    | {"records_per_s": 50_000}
    | {"worker_us_per_record": 0.2, "spark_jvm_us_per_record": 20.0, "executors_python_us_per_record": 5.0}
    | {"worker_idle_ms_per_s": 7.5, "jobs": 3, "worker_ms_per_job": 41.0},
    {"measure": "bulk_computed", "connector": "SparkSource", "cores": 16, "records_per_s": 640_000},
)


def test_figures_of_lanes_fill_their_own_tables_and_leave_those_beside_kafka_connect(docs: Path) -> None:
    found = json.loads((docs / "performance.json").read_text())
    (docs / "lanes.json").write_text(json.dumps(found | {"figures": LANES}))
    before = (docs / "performance.md").read_text()
    plot.main(plot.Result.read(docs / "lanes.json"), docs)
    page = (docs / "performance.md").read_text()
    assert "| DeltaSink | 200,000 | 2.5 | 190,000 | 60 | 20 |" in page
    assert "| SparkSource | bulk | local[2] | 600,000 | 50,000 | 0.2 | 20 | 5 | 3 | 41 | 7.5 |" in page
    assert "| SparkSource | 16 | 640,000 |" in page
    assert "| 150,000 | 100,000 | 1.5 |" in page
    of_peer = [text.partition("<!-- peer -->")[2].partition("<!-- /peer -->")[0] for text in (before, page)]
    assert of_peer[0] == of_peer[1] != ""
