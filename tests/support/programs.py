"""Programs of the documentation: run in separate processes, with jars in Spark, or in one process with one Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, Self
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
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "widgets")))}


_INTERPRETER: Final = """
import contextlib, json, os, sys, traceback, types
from connectx.spark.sessions import SparkProvider

spark = SparkProvider()  # held, so that the clusters of all programs share its driver
spark.start()
for folder in sys.stdin:
    os.chdir(folder.rstrip())
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    failure = None
    with open("printed.txt", "w") as printed, contextlib.redirect_stdout(printed):
        try:
            with open("example.py", encoding="utf-8") as code:
                exec(compile(code.read(), "example.py", "exec"), vars(program))
        except BaseException:
            failure = traceback.format_exc()
    print(json.dumps(failure), flush=True)
spark.close()
"""


class Interpreter:
    """A process that runs programs one after the other, each as `__main__` in its folder; they share a Spark driver."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _INTERPRETER],
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()
        assert self._process.returncode == 0

    def run(self, code: str, folder: Path) -> str:
        """What a program prints that is run in a folder and does not fail."""
        (folder / "example.py").write_text(code, encoding="utf-8")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        failure = json.loads(self._process.stdout.readline())
        assert failure is None, failure
        return (folder / "printed.txt").read_text(encoding="utf-8")
