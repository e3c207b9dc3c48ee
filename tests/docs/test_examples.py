"""Examples of the documentation run as they are written."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import ROOT, Interpreter, run

EXAMPLE = r"^<!-- {} -->\n```python\n(.*?)^```"
"""A block that is run. `tests/unit/test_docs.py` checks that every other block has the reason why it is not run."""


def blocks(marker: str) -> dict[str, str]:
    """For each page that has blocks with this marker, their code as one program."""
    pattern = re.compile(EXAMPLE.format(marker), re.MULTILINE | re.DOTALL)
    pages = sorted((ROOT / "docs").rglob("*.md"))
    code = {path.relative_to(ROOT / "docs").as_posix(): pattern.findall(path.read_text("utf-8")) for path in pages}
    return {page: "".join(found) for page, found in code.items() if found}


FRAGMENTS = "".join(blocks("run in a cluster").values())
"""Blocks that use a cluster of the reader: they share one."""

PROGRAMS = {
    **blocks("run"),
    "fragments": f"""
import pathlib
import connectx as cx

pathlib.Path("lake").mkdir()
with cx.Cluster(workers=1) as cluster:
{textwrap.indent(FRAGMENTS, "    ")}
""",
}


ALONE = ("getting-started.md", "connectors/spark-sink.md")
"""Pages whose programs start and end everything: the first one, and one whose Spark writes where it was started."""


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    """One process with one Spark for all pages: each Spark start takes longer than most examples."""
    with Interpreter() as started:
        yield started


@pytest.mark.parametrize("page", [page for page in PROGRAMS if page not in ALONE])
def test_an_example_runs_and_its_verdict_is_valid(page: str, interpreter: Interpreter, tmp_path: Path) -> None:
    check(page, interpreter.run(PROGRAMS[page], tmp_path))


@pytest.mark.parametrize("page", ALONE)
def test_an_example_runs_in_a_separate_process(page: str, tmp_path: Path) -> None:
    check(page, run(PROGRAMS[page], tmp_path))


def check(page: str, printed: str) -> None:
    """What a page prints is a valid verdict if it prints one."""
    if re.search(r"print\(\w+\.check\(", PROGRAMS[page]):
        assert re.search(r"^Valid\b", printed, re.MULTILINE), printed
