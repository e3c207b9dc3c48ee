"""Tables and sentences on a terminal: no word is cut in two at any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from connectx.cli.common import rich_table, wrapped

ROWS: list[dict[str, str | None]] = [
    {"connector": "flights-in-of-two-thousand-and-thirteen", "state": "RUNNING", "why": "line 4711 is no number"},
    {"connector": "orders", "state": "FAILED", "why": None},
]


def printed(width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(rich_table(ROWS, "Connectors", width))
    return out.getvalue()


@pytest.mark.parametrize("width", [200, 80, 62, 56])
def test_no_word_is_cut_in_two(width: int) -> None:
    words = printed(width).split()
    for row in ROWS:
        for cell in row.values():
            assert set((cell or "").split()) <= set(words), (width, cell)


def test_a_table_that_cannot_fit_has_a_line_for_each_fact() -> None:
    lines = [line.rstrip() for line in printed(56).splitlines()]
    assert "connector  orders" in lines
    assert "state      FAILED" in lines


def test_a_sentence_is_broken_between_words_and_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    text = wrapped("✕ ERROR failed_task: orders-0\n    do   Repair it, then connectx restart orders --only-failed.")
    assert text.splitlines() == [
        "✕ ERROR failed_task: orders-0",
        "    do   Repair it, then connectx",
        "        restart orders --only-failed.",
    ]
