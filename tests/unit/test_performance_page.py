"""The figures of docs/performance.md are those of its result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench import plot

WRITTEN = ("performance.md", "performance-rates.svg", "performance-cpu.svg")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    for name in (*WRITTEN, "performance.json"):
        shutil.copy(plot.DOCS / name, tmp_path / name)
    return tmp_path


def test_the_page_and_the_plots_are_those_of_the_result(docs: Path) -> None:
    plot.main(plot.Result.read(docs / "performance.json"), docs)
    for name in WRITTEN:
        assert (docs / name).read_text() == (plot.DOCS / name).read_text(), f"run python -m bench.plot for {name}"


def test_another_result_replaces_the_table_and_leaves_out_what_it_does_not_have(docs: Path) -> None:
    found = json.loads((docs / "performance.json").read_text())
    figures = [figure for figure in found["figures"] if figure["measure"].startswith("file_sink")]
    figures[0] |= {"connectx": 123_456.0, "ratio": 9.876}
    (docs / "performance.json").write_text(json.dumps(found | {"figures": [*figures, {"measure": "idle"}]}))
    plot.main(plot.Result.read(docs / "performance.json"), docs)
    page = (docs / "performance.md").read_text()
    assert "| FileStreamSink, records/s | 123,456 | 441,000 | 9.9 |" in page
    assert "PostgreSQL" not in page
    assert "123,456" in (docs / "performance-rates.svg").read_text()
