"""Who may order whom inside a worker's core: calls go down, signals go up, and a part writes only its own fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

import connectx.core
from connectx.core.worker import WorkerCore
from tests.support.worker_script import settings

CORE = Path(connectx.core.__file__).parent
PARTS = tuple(WorkerCore(settings()).state())
"""Names of the parts, each after those that it may order."""
FILES = sorted({*CORE.glob("*.py"), *CORE.glob("group/*.py")} - {CORE / "worker.py", CORE / "context.py"})
ROUTING = ("signals", "apply", "move")
"""What only WorkerCore takes from the context: signals to route, records to apply, the worker's phase."""
OWNED = {"rebalance.py": ("self", "context", "group")}
"""The worker's place in the group is written by the part that carries assignments out."""


def parts_of(core: WorkerCore) -> dict[str, Any]:
    return {name: core.tasks.takeovers if name == "takeovers" else getattr(core, name) for name in PARTS}


def upward_references(parts: Mapping[str, Any]) -> list[str]:
    """Fields of parts that hold a part that is not below them, or a function that may lead anywhere."""
    found, below = [], list[Any]()
    for name, part in parts.items():
        for item in fields(part):
            value = getattr(part, item.name)
            is_part = any(value is other for other in parts.values())
            if callable(value) or (is_part and not any(value is other for other in below)):
                found.append(f"{name}.{item.name}")
        below.append(part)
    return found


def test_a_part_holds_only_parts_below_it_and_no_functions() -> None:
    assert upward_references(parts_of(WorkerCore(settings()))) == []


@dataclass
class Part:
    other: Any


def test_a_reference_upwards_and_a_function_are_found() -> None:
    below = Part(None)
    above = Part(below)
    assert upward_references({"below": below, "above": above}) == []
    below.other = above
    assert upward_references({"below": below, "above": above}) == ["below.other"]
    assert upward_references({"below": Part(print)}) == ["below.other"]


def chain(node: ast.AST, aliases: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The names of `self.a.b`, with local names of such values replaced; empty for anything else."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, (node.id,))
    if isinstance(node, ast.Attribute):
        inner = chain(node.value, aliases)
        return (*inner, node.attr) if inner else ()
    return chain(node.value, aliases) if isinstance(node, ast.Subscript) else ()


def aliases_of(function: ast.FunctionDef) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            match node.targets[0], node.value:
                case ast.Tuple(elts=names), ast.Tuple(elts=values):
                    pairs = list(zip(names, values, strict=True))
                case target, value:
                    pairs = [(target, value)]
            for name, taken in pairs:
                if isinstance(name, ast.Name) and isinstance(taken, ast.Attribute):
                    found[name.id] = chain(taken, found)
    return found


def trespasses(source: str, file: str = "") -> Iterator[str]:
    """What methods do to other parts beyond asking and ordering the ones below."""
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        aliases = aliases_of(function)
        for node in ast.walk(function):
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                    path = chain(node, aliases)
                    owner = path if isinstance(node, ast.Subscript) else path[:-1]
                    if len(owner) > 1 and owner[0] == "self" and owner[1] in PARTS and owner != OWNED.get(file):
                        yield f"writes {'.'.join(path)}"
                case ast.Call(func=called):
                    match chain(called, aliases):
                        case ("self", part, method) if part in PARTS and method.startswith(("on_", "_")):
                            yield f"calls {part}.{method}"
                        case ("self", part, _, _, *_) as path if part in PARTS and part != "context":
                            yield f"calls through {'.'.join(path)}"
                        case ("self", "context", *rest) if rest and rest[-1] in ROUTING:
                            yield f"routes by {'.'.join(rest)}"
                case ast.Attribute() if chain(node, aliases) == ("self", "context", "signals"):
                    yield "reads signals"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_part_asks_and_orders_the_parts_below_and_writes_only_its_own_fields(path: Path) -> None:
    assert list(trespasses(path.read_text(encoding="utf-8"), path.name)) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("self.leadership.owners = {}", "writes self.leadership.owners"),
        ("self.tasks.lives[task] = life", "writes self.tasks.lives"),
        ("del self.tasks.lives[task]", "writes self.tasks.lives"),
        ("self.context.group.settled = False", "writes self.context.group.settled"),
        ("group = self.context.group; group.leader_id = ''", "writes self.context.group.leader_id"),
        ("self.writer.on_written(answer)", "calls writer.on_written"),
        ("self.writer._proceed()", "calls writer._proceed"),
        ("self.fencing.rounds.clear()", "calls through self.fencing.rounds.clear"),
        ("tasks = self.tasks; tasks.takeovers.explain(task)", "calls through self.tasks.takeovers.explain"),
        ("self.context.config.apply(1, record)", "routes by config.apply"),
        ("self.context.move(phase)", "routes by move"),
        ("any(self.context.signals)", "reads signals"),
    ],
)
def test_what_a_part_may_not_do_is_found(line: str, found: str) -> None:
    assert list(trespasses(f"def method(self, answer): {line}", "leadership.py")) == [found]


def test_what_a_part_may_do_is_not_found() -> None:
    code = "def method(self): self.claim = 1; self.queue.append(self.writer.claim); self.writer.put_session_key(2)"
    assert list(trespasses(code)) == []
