"""Programs of the documentation that need a jar in Spark, each run in a separate process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from unittest.mock import patch

from connectx.jvm import jars
from connectx.jvm.java import find_java

ROOT: Final = Path(__file__).parents[2]


def link_jars(name: str, folder: Path) -> tuple[jars.Jar, ...]:
    """Put a set of jars of `spark_jars.lock.json` into a folder. Ivy fetches it once per user."""
    lock = json.loads((ROOT / "tests/support/spark_jars.lock.json").read_text())
    wanted = tuple(jars.Jar(**entry) for entry in lock[name])
    with patch.object(jars, "locked", lambda _: wanted):
        files = jars.fetch(name, find_java())
    for jar in files:
        (folder / jar.name).symlink_to(jar)
    return wanted


def example_of(page: str, test: str) -> str:
    """The block of a page that is not run, because this test does so."""
    block = rf"^<!-- not run: [^\n]*{re.escape(test)}[^\n]* -->\n```python\n(.*?)^```"
    (code,) = re.findall(block, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(code)


def run(code: str, folder: Path) -> str:
    """What a program prints that is run in a folder and does not fail."""
    (folder / "example.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "widgets")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
