"""Plots and tables of docs/performance.md from results of `python -m bench NAME ... --json PATH`.

`python -m bench.plot RESULT` replaces the tables between the markers in `docs/performance.md` that the result has
figures for. Figures of `peer` also make `docs/performance-rates.svg` and `docs/performance-cpu.svg`. The result is kept
in `docs/performance.json`, that of `cdc_peer` and `avro_peer` in `docs/performance-connectors.json`, that of the
connectors' rates in `docs/performance-tail.json`, that of `json` in `docs/performance-json.json`, any other in
`docs/performance-lanes.json`.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[1] / "docs"
_TITLES: Final = {
    "source_exactly_once": "FileStreamSource, exactly-once",
    "source_at_least_once": "FileStreamSource, at-least-once",
    "mirror_exactly_once": "MirrorMaker 2, exactly-once",
    "file_sink": "FileStreamSink",
    "postgres_upsert": "PostgresSink / Debezium, upsert",
}
_RATE: Final = "_records_per_s"
_WHOLE_RUN: Final = "_whole_run_records_per_s"
_CPU: Final = "_worker_cpu_us_per_record"
_OTHERS: Final = {
    "latency_p50_ms": "Median latency from a producer to a line in the sink's file, ms",
    "memory_mb": "Memory of a worker, MB",
    "start_s": "Start of a worker until it serves requests, s",
    "rest_500_connectors_ms": "`GET /connectors` with status and info of 500 connectors, ms",
    "failover_s": "Failover after SIGKILL, session timeout 6 s, s",
}
_ICEBERG: Final = {
    "iceberg_rows_per_s": "Rows/s from the creation of the connector to the last commit",
    "iceberg_worker_cpu_us_per_record": "Worker's CPU in us a record",
}
_CDC_LOADS: Final = {
    "snapshot": "First snapshot",
    "transactions_of_10000": "Transactions of 10,000 rows",
    "transactions_of_100": "Transactions of 100 rows",
    "transactions_of_1": "Transactions of one row",
}
_CDC_FIGURES: Final = {
    "records_per_s": "changes/s",
    "whole_run_records_per_s": "changes/s with start and last commit",
    "worker_cpu_us_per_record": "worker's CPU in us a change",
    "server_cpu_us_per_record": "PostgreSQL's CPU in us a change",
}
_CDC_LATENCY: Final = "cdc_latency_p50_ms"
_AVRO: Final = {"avro_write": "FileStreamSource that writes Avro", "avro_read": "FileStreamSink that reads Avro"}
_TAIL: Final = {
    "file_sink": "FileStreamSink, tasks.max={tasks}, lines of 100 bytes",
    "generator": "Generator, exactly-once, three fields as JSON",
    "directory_source": "DirectorySource, exactly-once, ten CSV files",
    "jdbc_source": "JdbcSource, exactly-once, {dialect}, incrementing",
    "jdbc_sink": "JdbcSink, exactly-once, {dialect}, upsert",
    "mirror": "MirrorSource, exactly-once, lines of 100 bytes, partitions: {partitions}",
    "http_sink": "HttpSink, at-least-once, batch.max.size={batch}",
}
_WIDTH, _LABEL, _BAR, _ROW, _TOP = 760, 230, 400, 58, 54
_COLORS: Final = {"connectx": "#3f51b5", "kafka_connect": "#9e9e9e"}
_NAMES: Final = {"connectx": "connectx", "kafka_connect": "Kafka Connect 4.3"}


@dataclass(frozen=True)
class Result:
    """What was measured.

    Attributes:
        records: the option of that name.
        figures: by measure, those that have figures of both sides and their ratio.
        own: those of connectx alone.
    """

    date: str
    machine: Mapping[str, Any]
    records: int
    figures: Mapping[str, Mapping[str, Any]]
    own: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read what `--json` wrote."""
        found = json.loads(path.read_text(encoding="utf-8"))
        compared = {figure["measure"]: figure for figure in found["figures"] if "kafka_connect" in figure}
        own = [figure for figure in found["figures"] if "kafka_connect" not in figure]
        return cls(found["date"], found["machine"], found["records"], compared, own)

    @property
    def about(self) -> str:
        """When and on what it was measured."""
        machine = self.machine
        shown = f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, {machine['system']}"
        load = f"Load of the machine before: {machine['load_before']}."
        return f"Measured on {self.date} with `--records {self.records}`: {shown}, Python {machine['python']}. {load}"

    @property
    def is_beside_peer(self) -> bool:
        """Whether it has figures of `peer`."""
        return self.has_figures(*_TITLES)

    @property
    def is_of_tail(self) -> bool:
        """Whether it has rates of connectors in the tail lane."""
        return any(self.of(measure) for measure in _TAIL)

    def has_figures(self, *flows: str) -> bool:
        """Whether it has figures of one of these flows."""
        return any(f"{name}{_CPU}" in self.figures for name in flows)

    @property
    def file(self) -> str:
        """Name of the file in docs that keeps it."""
        if self.is_beside_peer:
            return "performance.json"
        if self.is_of_tail:
            return "performance-tail.json"
        if self.of("json"):
            return "performance-json.json"
        is_of_connectors = self.has_figures(*_AVRO) or _CDC_LATENCY in self.figures
        return "performance-connectors.json" if is_of_connectors else "performance-lanes.json"

    def of(self, measure: str) -> Sequence[Mapping[str, Any]]:
        """The figures of connectx alone that belong to a measure."""
        return [figure for figure in self.own if figure["measure"] == measure]


def peer_table(result: Result) -> str:
    """The figures of `peer` as Markdown, those that the result has."""
    return _compared({**_of_flows(_TITLES), **_OTHERS}, result)


def avro_table(result: Result) -> str:
    """The figures of `avro_peer` as Markdown."""
    return _compared(_of_flows(_AVRO), result, "Apicurio 2.6")


def cdc_table(result: Result) -> str:
    """The figures of `cdc_peer` as Markdown."""
    titles = {
        f"cdc_{load}_{figure}": f"{title}, {unit}"
        for figure, unit in _CDC_FIGURES.items()
        for load, title in _CDC_LOADS.items()
    }
    titles[_CDC_LATENCY] = "Median latency from a change to its record at a reader, ms"
    return _compared(titles, result, "Debezium 3.6")


def tail_table(result: Result) -> str:
    """Rates of connectors in the tail lane as Markdown."""
    found = [
        [title.format(**figure), _number(count), _number(figure.get("records_per_s") or figure["rows_per_s"])]
        for measure, title in _TAIL.items()
        for figure in result.of(measure)
        if (count := figure.get("records") or figure["rows"])
    ]
    return "\n".join([result.about, "", *_rows(("connector", "records", "records/s"), found), ""])


def json_table(result: Result) -> str:
    """CPU times of kinds of JSON records as Markdown, and their ratios to flat records."""
    cases = [(direction, schemas) for schemas in ("false", "true") for direction in ("write", "read")]
    figures = {
        (figure["records"], figure["direction"], figure["schemas.enable"]): figure for figure in result.of("json")
    }
    found = [
        [kind, *(_beside_flat(figures.get((kind, *case))) for case in cases)]
        for kind in dict.fromkeys(figure["records"] for figure in result.of("json"))
    ]
    head = ("records", "write", "read", "write with schemas", "read with schemas")
    return "\n".join([result.about, "", *_rows(head, found), ""])


def _beside_flat(figure: Mapping[str, Any] | None) -> str:
    return "" if figure is None else f"{_number(figure['cpu_us_per_record'])} ({_number(figure['ratio_to_flat'])})"


def lake_tables(result: Result) -> str:
    """The figures of `lake_sinks` and `iceberg_peer` as Markdown."""
    found = [
        [
            *(figure["connector"], _number(figure["rows_per_s"]), _number(figure["process_cpu_us_per_record"])),
            *(_number(figure["median_rows_of_a_commit"]), _number(figure["commit_p50_ms"])),
            _number(figure["few_rows_commit_p50_ms"]),
        ]
        for figure in result.of("lake_sink")
    ]
    head = ("sink", "rows/s", "CPU in us a row", "rows of a commit", "commit, p50 ms", "commit of a few rows, p50 ms")
    beside = _compared(_ICEBERG, result) if any(name in result.figures for name in _ICEBERG) else ""
    return "\n".join([result.about, "", *_rows(head, found), "", *beside.splitlines()[2:], ""])


def bulk_tables(result: Result) -> str:
    """The figures of `bulk` as Markdown: measured, and computed for more cores."""
    parts = ("worker", "spark_jvm", "executors_python")
    measured = [
        [
            *(figure["connector"], figure["lane"], figure["master"], _number(figure["records"])),
            *(_number(figure["records_per_s"]), *(_cpu(figure[f"{part}_us_per_record"]) for part in parts)),
            *((str(figure["jobs"]), _number(figure["worker_ms_per_job"])) if figure["lane"] == "bulk" else ("", "")),
            _number(figure["worker_idle_ms_per_s"]),
        ]
        for figure in result.of("bulk")
    ]
    head = (
        *("connector", "lane", "master", "records", "records/s"),
        *("worker, us", "Spark's JVM, us", "Python of executors, us"),
        *("jobs", "worker besides, ms a job", "worker without work, ms a second"),
    )
    computed = [
        [figure["connector"], str(figure["cores"]), _number(figure["records_per_s"])]
        for figure in result.of("bulk_computed")
    ]
    return "\n".join(
        [
            *(result.about, "", *_rows(head, measured), ""),
            *(
                "Computed, not measured:",
                "",
                *_rows(("connector", "executor cores", "records/s, computed"), computed),
                "",
            ),
        ]
    )


def _of_flows(flows: Mapping[str, str]) -> dict[str, str]:
    """Titles of the figures that each flow has, by measure."""
    figures = {
        _RATE: "records/s",
        _WHOLE_RUN: "records/s with start and last commit",
        _CPU: "worker's CPU in us a record",
    }
    return {f"{name}{suffix}": f"{title}, {unit}" for suffix, unit in figures.items() for name, title in flows.items()}


def _compared(titles: Mapping[str, str], result: Result, beside: str = _NAMES["kafka_connect"]) -> str:
    found = [
        [title, _number(figure["connectx"]), _number(figure["kafka_connect"]), f"{figure['ratio']:.2g}"]
        for measure, title in titles.items()
        if (figure := result.figures.get(measure)) is not None
    ]
    return "\n".join([result.about, "", *_rows(("measure", "connectx", beside, "ratio"), found), ""])


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def bars(title: str, suffix: str, result: Result) -> str:
    """An SVG with two bars for each flow that has a figure."""
    named = [(label, result.figures.get(f"{name}{suffix}")) for name, label in _TITLES.items()]
    rows = [(label, figure) for label, figure in named if figure is not None]
    longest = max(float(figure[side]) for _, figure in rows for side in _NAMES)
    height = _TOP + _ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{title}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="16" fill="#212121">{title}</text>',
    ]
    for at, (side, name) in enumerate(_NAMES.items()):
        x = 430 + 110 * at
        parts.append(f'<rect x="{x}" y="13" width="12" height="12" fill="{_COLORS[side]}"/>')
        parts.append(f'<text x="{x + 18}" y="24" fill="#212121">{name}</text>')
    for row, (label, figure) in enumerate(rows):
        parts += _row(_TOP + _ROW * row, label, figure, longest)
    return "\n".join([*parts, "</svg>", ""])


def _row(top: int, label: str, figure: Mapping[str, Any], longest: float) -> Sequence[str]:
    parts = [f'<text x="12" y="{top + 23}" fill="#212121">{label}</text>']
    for at, side in enumerate(_NAMES):
        y, length = top + 20 * at, round(_BAR * float(figure[side]) / longest, 1)
        parts.append(f'<rect x="{_LABEL}" y="{y}" width="{length}" height="16" fill="{_COLORS[side]}"/>')
        parts.append(f'<text x="{_LABEL + length + 6}" y="{y + 13}" fill="#212121">{_number(figure[side])}</text>')
    return parts


def _cpu(value: float) -> str:
    """Nothing for a time below zero: a process that was counted before has ended, so the time is not known."""
    return "" if value < 0 else _number(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(result: Result, docs: Path) -> None:
    """Write the tables that the result has figures for, and the plots."""
    tables: dict[str, str] = {}
    if result.is_beside_peer:
        tables["peer"] = peer_table(result)
        plots = {
            "rates": bars("Records per second", _RATE, result),
            "cpu": bars("CPU of the worker, us a record", _CPU, result),
        }
        for name, plot in plots.items():
            (docs / f"performance-{name}.svg").write_text(plot, encoding="utf-8")
    if _CDC_LATENCY in result.figures:
        tables["cdc"] = cdc_table(result)
    if result.has_figures(*_AVRO):
        tables["avro"] = avro_table(result)
    if result.is_of_tail:
        tables["tail"] = tail_table(result)
    if result.of("json"):
        tables["json"] = json_table(result)
    if result.of("lake_sink"):
        tables["lake"] = lake_tables(result)
    if result.of("bulk"):
        tables["bulk"] = bulk_tables(result)
    page = docs / "performance.md"
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        head, _, rest = text.partition(f"<!-- {name} -->\n")
        _, _, tail = rest.partition(f"<!-- /{name} -->")
        text = f"{head}<!-- {name} -->\n{table}<!-- /{name} -->{tail}"
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    given = Path(sys.argv[1])
    found = Result.read(given)
    main(found, DOCS)
    shutil.copyfile(given, DOCS / found.file)
