"""Tests of a worker's core give it stimuli and read what each step shows: they reach into none of its parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectx.core.worker import WorkerCore
from tests.support import worker_script

PARTS = tuple(WorkerCore(worker_script.settings()).state())
CLASSES = (
    *("Context", "Membership", "ConfigWriter", "FencingRounds", "Leadership", "Connectors", "Tasks", "Takeovers"),
    *("Rebalance", "RequestHandler"),
)
OF_MUTANTS = (
    "test_invariants.py",
    "test_fetcher_invariants.py",
    "test_ignored.py",
    "test_worker.py",
    "test_parts.py",
    "test_through_handle.py",
)
"""These replace methods of parts, or are about the parts themselves."""
SCRIPT = Path(worker_script.__file__)
FILES = sorted(path for path in Path(__file__).parent.rglob("*.py") if path.name not in OF_MUTANTS)


def reaches(source: str) -> Iterator[str]:
    """Where a test reads a part of a core, or imports its class."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="core") | ast.Attribute(attr="core"), attr=name) if name in PARTS:
                yield f"core.{name}"
            case ast.ImportFrom(names=names):
                yield from (name.name for name in names if name.name in CLASSES)


@pytest.mark.parametrize("path", [*FILES, SCRIPT], ids=lambda path: path.stem)
def test_a_test_of_the_core_reaches_into_no_part(path: Path) -> None:
    assert list(reaches(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("core.tasks.start(task)", ["core.tasks"]),
        ("script.core.context.now_ms = 5", ["core.context"]),
        ("from connectx.core.tasks import TaskPhase, Tasks", ["Tasks"]),
        ("script.place()['tasks'], work.connectors, core.state()", []),
    ],
)
def test_a_test_that_reaches_into_a_part_is_found(line: str, found: list[str]) -> None:
    assert list(reaches(line)) == found
