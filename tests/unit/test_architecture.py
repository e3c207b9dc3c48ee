"""Rules about the code that neither import-linter (.importlinter) nor ruff can hold. A failure names the file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "connectx"
PURE = ("core", "errors", "model", "protocol", "views")
PURE_FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).with_suffix("").parts[0] in PURE)
IMPURE_CALLS = {"open", "print", "input", "breakpoint", "id"}
SLOW_MODULES = ("pyspark", "pandas", "plotly", "pyarrow", "ipywidgets", "IPython", "matplotlib", "py4j")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@pytest.mark.parametrize("path", PURE_FILES, ids=name_of)
def test_pure_parts_call_nothing_that_reads_or_writes(path: Path) -> None:
    calls = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    assert not called & IMPURE_CALLS, f"a pure module may not call {sorted(called & IMPURE_CALLS)}"


@pytest.mark.parametrize("path", PURE_FILES, ids=name_of)
def test_pure_parts_never_iterate_a_set_display_in_its_own_order(path: Path) -> None:
    def is_set(node: ast.expr) -> bool:
        named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
        return named or isinstance(node, ast.Set | ast.SetComp)

    tree = tree_of(path)
    loops = [n.iter for n in ast.walk(tree) if isinstance(n, ast.For)]
    ordered = [n for n in ast.walk(tree) if isinstance(n, ast.ListComp | ast.DictComp)]
    loops += [generator.iter for n in ordered for generator in n.generators]
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.args]
    loops += [n.args[0] for n in calls if isinstance(n.func, ast.Name) and n.func.id in ("list", "tuple")]
    lines = [loop.lineno for loop in loops if is_set(loop)]
    assert not lines, f"sort the sets of lines {lines} before iterating"


def loaded(importing: str, among: tuple[str, ...]) -> str:
    """Which modules are loaded in a fresh process that imports one, as Python prints the list."""
    code = f"import {importing}, sys; print(sorted(m for m in {among!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.strip()


def test_importing_connectx_loads_nothing_slow() -> None:
    assert loaded("connectx", SLOW_MODULES) == "[]"


def test_a_workers_process_starts_without_what_only_its_tasks_need() -> None:
    assert loaded("connectx.runtime.process.child", ("pyspark", "pandas", "grpc", "plotly")) == "[]"


@pytest.mark.parametrize(
    ("module", "parts"),
    [
        ("connectx.kafka.fetcher.ranges", ("connectx.data", "connectx.plugins")),
        ("connectx.verify.check.key_reading", ("connectx.data", "connectx.spark")),
    ],
)
def test_reading_a_range_of_a_topic_loads_neither_spark_nor_a_cluster(module: str, parts: tuple[str, ...]) -> None:
    """Spark's executors will do it."""
    everywhere = ("pyspark", "pandas", "grpc", "confluent_kafka", "connectx.runtime", "connectx.rest", "connectx.api")
    assert loaded(module, (*everywhere, *parts)) == "[]"


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    texts = [
        ROOT / name for name in listed if Path(name).suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".ipynb", ""}
    ]
    home = re.compile(r"(?<![\w.])/(?:work|home|Users)/\w+")
    found = [
        path.name
        for path in texts
        if path.is_file() and home.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []
