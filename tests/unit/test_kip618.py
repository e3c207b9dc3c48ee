"""docs/kip-618.md shows the rules and the tests as they are."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.support.kip618 import PAGE, ROOT, Holder, holders, rules, written

RULES = {rule.id: rule for group in rules().values() for rule in group}
HOLDERS = cache(holders)


def test_each_rule_is_declared_once() -> None:
    assert len(RULES) == sum(len(group) for group in rules().values())


def test_each_rule_has_a_test() -> None:
    assert RULES.keys() - HOLDERS().keys() == set()


def test_each_marker_names_a_declared_rule() -> None:
    assert HOLDERS().keys() - RULES.keys() == set()


def test_each_module_of_a_rule_exists() -> None:
    named = {module for rule in RULES.values() for module in rule.modules}
    assert [module for module in sorted(named) if not (ROOT / "connectx" / module).is_file()] == []


def test_the_page_is_written_again_when_rules_or_markers_change() -> None:
    """Otherwise run `python -m tests.support.kip618` and commit the page."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page, rules(), HOLDERS())


def test_a_marker_counts_on_a_test_and_on_a_file(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_file.py").write_text('pytestmark = [pytest.mark.infra, pytest.mark.rule("a", "b")]\n')
    (tmp_path / "tests" / "test_one.py").write_text('@pytest.mark.rule("a")\ndef test_it() -> None: ...\n')
    found = holders(tmp_path / "tests")
    assert found["a"] == [Holder("tests/test_file.py", None), Holder("tests/test_one.py", "test_it")]
    assert found["b"] == [Holder("tests/test_file.py", None)]
