"""Examples of the documentation run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"^<!-- run -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A block that is run. The blocks of a page are one program."""

PROGRAMS = {
    path.relative_to(ROOT / "docs").as_posix(): "".join(EXAMPLE.findall(path.read_text(encoding="utf-8")))
    for path in sorted((ROOT / "docs").rglob("*.md"))
}


@pytest.mark.parametrize("page", [page for page, program in PROGRAMS.items() if program])
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
    assert re.search(r"^Valid\b", done.stdout, re.MULTILINE) or ".check(" not in PROGRAMS[page], done.stdout
