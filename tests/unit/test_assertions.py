"""Tests assert codes, types and values rather than sentences, which are free to become clearer."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
WORDS: Final = 6
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_SQL: Final = re.compile(r"\s*(?:SELECT|CREATE|INSERT|UPDATE|DELETE)\b")

STORIES: Final = "stories, causes, verdicts and waits: the sentence is the result"
KAFKA: Final = "Kafka Connect's own texts, which programs compare"
REPORTS: Final = "what test runs print"
DETAILS: Final = "details of errors that share a code: a name, a number and what to do"
LIMITS: Final[dict[str, tuple[int, str]]] = {
    "tests/browser": (1, DETAILS),
    "tests/databricks": (1, DETAILS),
    "tests/integration/check": (8, DETAILS),
    "tests/integration/cli": (3, DETAILS),
    "tests/integration/cluster": (16, STORIES),
    "tests/integration/demo": (2, STORIES),
    "tests/integration/exactly_once": (8, DETAILS),
    "tests/integration/infra": (1, DETAILS),
    "tests/integration/kafka": (4, DETAILS),
    "tests/integration/processes": (1, DETAILS),
    "tests/integration/rest": (12, KAFKA),
    "tests/integration/schema_registry": (3, DETAILS),
    "tests/integration/security": (1, DETAILS),
    "tests/integration/sink": (10, DETAILS),
    "tests/integration/source": (19, DETAILS),
    "tests/simulation": (2, DETAILS),
    "tests/spark41": (1, DETAILS),
    "tests/support": (4, REPORTS),
    "tests/unit": (4, DETAILS),
    "tests/unit/api": (14, STORIES),
    "tests/unit/cli": (4, DETAILS),
    "tests/unit/connectors": (58, DETAILS),
    "tests/unit/core": (26, STORIES),
    "tests/unit/data": (12, DETAILS),
    "tests/unit/demo": (14, STORIES),
    "tests/unit/history": (58, STORIES),
    "tests/unit/jvm": (3, DETAILS),
    "tests/unit/kafka": (8, DETAILS),
    "tests/unit/model": (9, KAFKA),
    "tests/unit/plugins": (27, KAFKA),
    "tests/unit/recording": (10, DETAILS),
    "tests/unit/rest": (1, DETAILS),
    "tests/unit/runtime": (7, DETAILS),
    "tests/unit/schema_registry": (2, DETAILS),
    "tests/unit/spark": (4, DETAILS),
    "tests/unit/support": (10, REPORTS),
    "tests/unit/verify": (39, STORIES),
    "tests/unit/widgets": (2, DETAILS),
    "tests/wheel": (1, DETAILS),
}
"""How many assertions of a folder may hold a sentence, and why. A number may only become smaller."""


def sentences(tree: ast.AST) -> Iterator[str]:
    """Texts of at least WORDS words that assertions of a file hold."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            found = _longest(node.test)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "raises":
            found = max((_longest(given.value) for given in node.keywords if given.arg == "match"), key=len, default="")
        else:
            continue
        if found:
            yield found


def _longest(expression: ast.expr) -> str:
    texts = (part.value for part in ast.walk(expression) if isinstance(part, ast.Constant))
    worded = [text for text in texts if isinstance(text, str) and len(_WORD.findall(text)) >= WORDS]
    return max((text for text in worded if text.count(" ") >= WORDS - 1 and not _SQL.match(text)), key=len, default="")


def folder_of(file: Path) -> str:
    return "/".join(file.relative_to(ROOT).parts[:-1][:3])


def test_assertions_hold_no_more_sentences_than_they_have_reasons_for() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = Counter(folder_of(file) for file in files for _ in sentences(ast.parse(file.read_text(encoding="utf-8"))))
    more = {folder: number for folder, number in found.items() if number > LIMITS.get(folder, (0, ""))[0]}
    assert more == {}, "assert an error's code, its type or a value instead"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("assert error.code == 'no_such_topic'", 0),
        ("assert message == 'The topic was not found there today'", 1),
        ("with raises(Error, match='The topic was not found there today'): pass", 0),
        ("with pytest.raises(Error, match='The topic was not found there today'): pass", 1),
        ("assert run('SELECT id FROM rows WHERE there IS NOT NULL')", 0),
        ("assert found, 'a message to readers of a failure is free'", 0),
    ],
)
def test_sentences_are_found_in_assertions_alone(source: str, count: int) -> None:
    assert len(list(sentences(ast.parse(source)))) == count
