"""Plots and the table of docs/performance.md from a result of `python -m bench peer --json PATH`.

`python -m bench.plot RESULT` writes `docs/performance-rates.svg` and `docs/performance-cpu.svg`, and replaces the table
between the markers in `docs/performance.md`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[1] / "docs"
_TITLES: Final = {
    "source_exactly_once": "FileStreamSource, exactly-once",
    "source_at_least_once": "FileStreamSource, at-least-once",
    "file_sink": "FileStreamSink",
    "postgres_upsert": "PostgreSQL, upsert",
}
_RATE: Final = "_records_per_s"
_CPU: Final = "_worker_cpu_us_per_record"
_OTHERS: Final = {
    "latency_p50_ms": "Median latency from a producer to a line in the sink's file, ms",
    "memory_mb": "Memory of a worker, MB",
    "start_s": "Start of a worker until it serves requests, s",
    "rest_500_connectors_ms": "`GET /connectors` with status and info of 500 connectors, ms",
    "failover_s": "Failover after SIGKILL, session timeout 6 s, s",
}
_TABLE: Final = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- /table -->)", re.DOTALL)
_WIDTH, _LABEL, _BAR, _ROW, _TOP = 760, 230, 400, 58, 54
_COLORS: Final = {"connectx": "#3f51b5", "kafka_connect": "#9e9e9e"}
_NAMES: Final = {"connectx": "connectx", "kafka_connect": "Kafka Connect 4.3"}


@dataclass(frozen=True)
class Result:
    """Figures by measure, each with those of both sides and their ratio."""

    date: str
    machine: Mapping[str, Any]
    figures: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read what `--json` wrote."""
        found = json.loads(path.read_text(encoding="utf-8"))
        compared = {figure["measure"]: figure for figure in found["figures"] if "kafka_connect" in figure}
        return cls(found["date"], found["machine"], compared)


def table(result: Result) -> str:
    """The figures as Markdown, those that the result has."""
    titles = {f"{name}{_RATE}": f"{title}, records/s" for name, title in _TITLES.items()}
    titles |= {f"{name}{_CPU}": f"{title}, worker's CPU in us a record" for name, title in _TITLES.items()}
    machine = result.machine
    about = f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, {machine['system']}"
    lines = [
        f"Measured on {result.date}: {about}, Python {machine['python']}.",
        "",
        "| measure | connectx | Kafka Connect 4.3 | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for measure, title in {**titles, **_OTHERS}.items():
        if (figure := result.figures.get(measure)) is not None:
            ours, theirs = _number(figure["connectx"]), _number(figure["kafka_connect"])
            lines.append(f"| {title} | {ours} | {theirs} | {figure['ratio']:.2g} |")
    return "\n".join([*lines, ""])


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


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(result: Result, docs: Path) -> None:
    """Write the plots and the table."""
    (docs / "performance-rates.svg").write_text(bars("Records per second", _RATE, result), encoding="utf-8")
    (docs / "performance-cpu.svg").write_text(bars("CPU of the worker, us a record", _CPU, result), encoding="utf-8")
    page = docs / "performance.md"
    page.write_text(_TABLE.sub(lambda _: table(result), page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Result.read(Path(sys.argv[1])), DOCS)
