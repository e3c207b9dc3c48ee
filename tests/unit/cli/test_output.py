"""What commands print: no name and no value of others controls the terminal, and no secret is on a command line."""

from __future__ import annotations

import json
import stat
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from connectx import views
from connectx.cli import local, output
from connectx.cli.common import At, rich_table
from connectx.cli.worker_log import _ConnectLine

EVIL = "\x1b]0;owned\x07\x1b[2J\r\x9b31mred\x7f\u202eevil\u2066\x00"


def is_harmless(text: str) -> bool:
    return not any(one in text for one in EVIL if not one.isalnum() and one not in "];[")


def test_nothing_prints_no_character_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_safely(f"{EVIL}\n\tindented")
    output.print_safely(EVIL, err=True)
    shown = capsys.readouterr()
    assert is_harmless(shown.out + shown.err)
    assert shown.out.endswith("\n\tindented\n")
    assert "\\u001b[2J" in shown.out


def test_json_stays_json_and_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_safely(json.dumps({EVIL: EVIL}, ensure_ascii=False))
    shown = capsys.readouterr().out
    assert is_harmless(shown)
    assert json.loads(shown) == {EVIL: EVIL}


def test_tables_forms_and_the_log_show_no_such_character() -> None:
    import io
    import logging

    from rich.console import Console

    rows: list[dict[str, object]] = [{EVIL: EVIL}]
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(rich_table(rows, width=200))
    console.print(rich_table(rows, width=4))
    record = logging.LogRecord("connectx", logging.INFO, "x", 1, EVIL, (), None)
    form = views.Form(EVIL, {EVIL: EVIL}, [rows])
    texts = [views.text_table(rows), views.text_facts({EVIL: EVIL}), form.text, _ConnectLine().format(record)]
    assert [one for one in [*texts, console.file.getvalue()] if not is_harmless(one)] == []  # type: ignore[attr-defined]


def test_the_browsers_command_line_has_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    url = "http://127.0.0.1:8000/t0ken-&-more/"

    class Page:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.url = url

        def __enter__(self) -> Page:
            return self

        def __exit__(self, *exception: object) -> None:
            return

        def wait(self) -> None:
            path = Path(unquote(urlsplit(opened[0]).path))
            assert "t0ken-&amp;-more" in path.read_text()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(local, "panel_factory", lambda name: Page)
    monkeypatch.setattr(At, "cluster", None)
    local.ui(At())
    (target,) = opened
    assert target.startswith("file:")
    assert "t0ken" not in target
    assert not Path(unquote(urlsplit(target).path)).exists()
