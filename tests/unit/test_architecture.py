"""The shape of the code: who imports whom, what pure layers may touch, sizes, docstrings.

ARCHITECTURE.md tells why. A failure here names the file and the rule; change the rule only together with that page.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "connectx"
FILES = sorted(PACKAGE.rglob("*.py"))

# What a part may import of connectx beside itself, `model`, `errors`, `extras` and `views`.
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "errors": set(),
    "extras": set(),
    "core": set(),
    "protocol": set(),
    "data": set(),
    "jvm": set(),
    "views": set(),
    "connectors": {"data"},
    "rest": {"core", "protocol"},
    "kafka": {"core", "protocol", "jvm", "connectors", "data"},
    "spark": {"jvm", "connectors", "data"},
    "history": {"protocol", "connectors", "data"},
    "runtime": {"core", "protocol", "data", "jvm", "connectors", "rest", "kafka", "spark", "history"},
}
# May import everything.
API = {
    *("__init__", "__main__", "aftermath", "attached", "audits", "backup", "checks", "checkup", "cli", "cluster"),
    *("cluster_forms",),
    *("connect_cluster", "connector", "demo", "faults", "lag", "restore", "setup", "supervisor", "workers"),
}

PURE = ("core", "protocol", "model", "views")
PURE_MODULES = {
    *("__future__", "abc", "base64", "binascii", "bisect", "collections", "copy", "dataclasses", "decimal", "enum"),
    *("fractions", "functools", "hashlib", "heapq", "hmac", "html", "itertools", "json", "math", "operator", "re"),
    *("string", "struct", "types", "typing", "urllib", "zlib", "connectx"),
}
# Records are columns there: arrays in, bytes out, no code per record. These libraries only compute.
ARRAY_MODULES = {"numpy", "pyarrow", "google_crc32c"}
ARRAY_FILES = ("protocol/record_batches/", "protocol/partitions.py")
IMPURE_CALLS = {"open", "print", "input", "breakpoint", "id"}

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
LONG_FILES = {
    "errors.py": "one flat list of every error, so that a reader finds them in one place",
    "core/messages.py": "one flat list of every stimulus and effect: the vocabulary of the core",
}
LONG_FUNCTIONS: dict[str, str] = {}

SLOW_MODULES = ("pyspark", "pandas", "plotly", "pyarrow", "ipywidgets", "IPython", "matplotlib", "py4j")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Dotted names of imported modules."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            if node.module == "connectx":
                yield from (f"connectx.{alias.name}" for alias in node.names)


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Statements that run when the module is imported: not function bodies, not `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from run_at_import(child)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its dotted name."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + child.name, child
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    return walk(tree, "")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_down_the_layers(path: Path) -> None:
    part = part_of(path)
    if part in API:
        return
    assert part in MAY_IMPORT, f"give {part} a place in MAY_IMPORT and in ARCHITECTURE.md"
    allowed = MAY_IMPORT[part] | {part, "model", "errors", "extras", "views"}
    imported = {name.split(".")[1] for name in imports(ast.walk(tree_of(path))) if name.startswith("connectx.")}
    assert imported <= allowed, f"{part} may not import {sorted(imported - allowed)}"


@pytest.mark.parametrize("path", [path for path in FILES if part_of(path) in PURE], ids=name_of)
def test_pure_layers_have_no_clock_no_chance_no_threads_and_no_world(path: Path) -> None:
    tree = tree_of(path)
    allowed = PURE_MODULES | (ARRAY_MODULES if name_of(path).startswith(ARRAY_FILES) else set())
    impure = {name for name in imports(ast.walk(tree)) if name.split(".")[0] not in allowed}
    assert not impure, f"a pure module may not import {sorted(impure)}"
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert not called & IMPURE_CALLS, f"a pure module may not call {sorted(called & IMPURE_CALLS)}"


@pytest.mark.parametrize("path", [path for path in FILES if part_of(path) in PURE], ids=name_of)
def test_pure_layers_never_iterate_a_set_display_in_its_own_order(path: Path) -> None:
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


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_panels_are_imported_only_by_the_cluster_that_is_asked_for_one(path: Path) -> None:
    """They import connectx, so they must not be needed to import it."""
    named = [imports(ast.walk(tree_of(path))), imports(run_at_import(tree_of(path)))]
    anywhere, at_import = ([n for n in names if n.split(".")[0] == "connectx_widgets"] for names in named)
    assert not at_import
    assert not anywhere or name_of(path) == "connect_cluster.py"


@pytest.mark.parametrize("path", [path for path in FILES if part_of(path) != "spark"], ids=name_of)
def test_spark_is_imported_when_it_is_used(path: Path) -> None:
    assert not [n for n in imports(run_at_import(tree_of(path))) if n.split(".")[0] == "pyspark"]


def test_importing_connectx_loads_nothing_slow() -> None:
    code = f"import connectx, sys; print(sorted(m for m in {SLOW_MODULES!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_a_workers_process_starts_without_what_only_its_tasks_need() -> None:
    heavy = ("pyspark", "pandas", "grpc", "plotly")
    code = f"import connectx.runtime.process.child, sys; print(sorted(m for m in {heavy!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_prints(path: Path) -> None:
    calls = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    assert not [n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_and_functions_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE_LINES or name_of(path) in LONG_FILES, f"{lines} lines: split it"
    long = {
        name: size
        for name, node in functions(tree_of(path))
        if (size := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
        and f"{name_of(path)}:{name}" not in LONG_FUNCTIONS
    }
    assert not long, f"functions over {MAX_FUNCTION_LINES} lines: {long}"


def test_allow_lists_hold_nothing_that_has_become_short() -> None:
    assert all(len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) > MAX_FILE_LINES for name in LONG_FILES)


def without_docstring(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator).split("(")[0] for decorator in child.decorator_list}
        if decorators & {"overload", "override"} or any(name.endswith(".setter") for name in decorators):
            continue
        if not ast.get_docstring(child):
            yield prefix + child.name
        if isinstance(child, ast.ClassDef):
            yield from without_docstring(child, f"{prefix}{child.name}.")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_modules_and_public_names_have_docstrings(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree), "the module has no docstring"
    assert not list(without_docstring(tree))


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
