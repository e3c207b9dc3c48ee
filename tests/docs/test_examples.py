"""Examples of the documentation run as they are written."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.support.programs import ROOT, run

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


@pytest.mark.parametrize("page", PROGRAMS)
def test_an_example_runs_and_its_verdict_is_valid(page: str, tmp_path: Path) -> None:
    printed = run(PROGRAMS[page], tmp_path)
    if re.search(r"print\(\w+\.check\(", PROGRAMS[page]):
        assert re.search(r"^Valid\b", printed, re.MULTILINE), printed
