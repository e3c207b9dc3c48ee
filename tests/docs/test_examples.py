"""Examples of the documentation run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
    (tmp_path / "example.py").write_text(PROGRAMS[page], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "widgets")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if re.search(r"print\(\w+\.check\(", PROGRAMS[page]):
        assert re.search(r"^Valid\b", done.stdout, re.MULTILINE), done.stdout
