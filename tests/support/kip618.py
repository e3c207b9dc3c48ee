"""Writes docs/kip-618.md: which modules decide each rule of exactly-once delivery, and which tests hold it.

    python -m tests.support.kip618

Rules are declared in kip618.toml. Tests name them by the marker `rule`, which is read from their source: nothing is
imported. The text of the page outside of the table is written by its authors and stays.
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/kip-618.md"
BEGIN: Final = "<!-- written by python -m tests.support.kip618: begin -->\n"
END: Final = "<!-- written by python -m tests.support.kip618: end -->\n"


@dataclass(frozen=True)
class Rule:
    """A rule. `modules` are files below connectx/, `also` is evidence that is no test of pytest."""

    id: str
    text: str
    modules: tuple[str, ...]
    also: str = ""


@dataclass(frozen=True)
class Holder:
    """A test that holds rules, or a whole file if `test` is None. `path` begins at the repository's root."""

    path: str
    test: str | None


def rules() -> dict[str, list[Rule]]:
    """Read the declared rules, by the title of their group."""
    declared = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {
        group["title"]: [Rule(one["id"], one["text"], tuple(one["in"]), one.get("also", "")) for one in group["rule"]]
        for group in declared["group"]
    }


def holders(folder: Path = ROOT / "tests") -> dict[str, list[Holder]]:
    """Collect the tests of each rule from the markers in all test files, ordered by path and line."""
    found: defaultdict[str, list[Holder]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            holder = Holder(path.relative_to(folder.parent).as_posix(), getattr(node, "name", None))
            for rule in _marked(node):
                found[rule].append(holder)
    return dict(found)


def _marked(node: ast.AST) -> Iterator[str]:
    """Rules that a function's decorators or an assignment to pytestmark name."""
    marks: Sequence[ast.expr] = ()
    if isinstance(node, ast.FunctionDef):
        marks = node.decorator_list
    elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
        marks = node.value.elts if isinstance(node.value, ast.List) else [node.value]
    for mark in marks:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.rule":
            yield from (ast.literal_eval(argument) for argument in mark.args)


def written(page: str, declared: Mapping[str, Sequence[Rule]], held: Mapping[str, Sequence[Holder]]) -> str:
    """Return the page with its table written again."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    lines = []
    for title, group in declared.items():
        lines += [f"### {title}", "", "| rule | | decided in | tested by |", "| --- | --- | --- | --- |"]
        for rule in group:
            modules = "<br>".join(f"`{module}`" for module in rule.modules)
            lines.append(f"| {rule.id} | {rule.text} | {modules} | {_evidence(rule, held.get(rule.id, ()))} |")
        lines.append("")
    return before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after


def _evidence(rule: Rule, tests: Sequence[Holder]) -> str:
    by_path: defaultdict[str, list[str]] = defaultdict(list)
    for holder in tests:
        by_path[holder.path] += [f"`{holder.test}`"] if holder.test else ["all tests"]
    files = [f"`{path}`: {', '.join(names)}" for path, names in by_path.items()]
    return "<br>".join([*files, *filter(None, [rule.also])])


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), rules(), holders()), encoding="utf-8")
