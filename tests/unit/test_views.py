"""Text and HTML forms: escaped, without scripts, secrets masked."""

from __future__ import annotations

import re

from connectx import views

ROWS: list[dict[str, object]] = [
    {"worker": "worker-1", "tasks": 2},
    {"worker": "<script>alert(1)</script>", "tasks": None},
]


def test_a_text_table_is_aligned_under_its_headings() -> None:
    rows: list[dict[str, object]] = [
        {"worker": "worker-1", "tasks": 2},
        {"worker": "w", "tasks": None},
        {"worker": "two\nlines", "tasks": 10},
    ]
    assert views.text_table(rows) == "worker     tasks\nworker-1   2\nw\ntwo lines  10"


def test_tables_without_rows_are_empty() -> None:
    assert (views.text_table([]), views.html_table([]), views.html_facts({})) == ("", "", "")


def test_everything_in_html_is_escaped() -> None:
    evil = '<script>alert("x")</script>'
    pages = [
        views.html_table(ROWS, caption=evil),
        views.html_facts({evil: evil}),
        views.html_details(evil, evil),
        views.html_card(evil, {evil: evil}, views.html_table([{evil: evil}])),
    ]
    for page in pages:
        assert "<script" not in page
        assert "&lt;script&gt;" in page


def test_html_takes_colours_from_the_page_and_needs_no_script_or_style_sheet() -> None:
    page = views.html_card("Cluster", {"leader": None}, views.html_table(ROWS), views.html_details("trace", "why"))
    assert not re.search(r"<style|<script|javascript:|\son\w+=|#[0-9a-fA-F]{3,6}\b|rgb|https?://", page)


def test_html_tags_are_balanced() -> None:
    page = views.html_card("Cluster", {"leader": None}, views.html_table(ROWS), views.html_details("trace", "why"))
    opened: list[str] = []
    for closing, tag in re.findall(r"<(/?)([a-z]+)[^>]*>", page):
        if closing:
            assert opened.pop() == tag
        else:
            opened.append(tag)
    assert opened == []


def test_a_state_is_a_sign_and_its_word() -> None:
    assert views.shown_state("RUNNING") == "● RUNNING"
    assert views.shown_state("FAILED") == "✕ FAILED"
    assert views.shown_state("something else") == "something else"
