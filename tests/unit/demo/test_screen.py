"""The screen: plain lines without control characters, and a picture that can be drawn."""

from __future__ import annotations

import io
import re

from rich.console import Console

from connectx.demo.screen import Look, PlainScreen, RichScreen, screen_for
from connectx.history.folds.snapshot import snapshot
from connectx.history.render.report import Table, Verdict
from connectx.history.sentences.stories import stories
from tests.support.histories import START_MS, kill_of_source

VERDICT = Verdict(True, "Nothing lost.", Table(("measure", "file", "same"), [("rows", 336776, "yes")]))


def look(rows_out: int) -> Look:
    return Look(1000, 100, rows_out // 10, min(rows_out + 50, 1000), rows_out, snapshot(kill_of_source().events))


def test_plain_output_is_a_few_lines_of_printable_text() -> None:
    stream = io.StringIO()
    screen = screen_for(stream)
    assert isinstance(screen, PlainScreen)
    screen.report("Starting")
    for done in range(30):
        screen.progress("Fetching jars", done, 30)
    with screen.live():
        for rows_out in range(0, 1001, 10):
            screen.show(look(rows_out))
    screen.finish(VERDICT, stories(kill_of_source().events), START_MS)
    text = stream.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    lines = [line for line in text.splitlines() if line]
    assert len(lines) <= 12
    assert sum("Fetching jars" in line for line in lines) == 1
    assert sum("rows in the table" in line for line in lines) == 4
    assert "250 of 1,000 rows in the table; 25 slices, 300 records, lag 50, generation 4" in text
    assert "rows     336,776  yes" in text
    assert " 10.0 s  worker-2 was killed while it ran flights-in-0;" in text
    assert lines[-1] == "Nothing lost."


def test_looks_that_skip_quarters_make_one_line() -> None:
    stream = io.StringIO()
    screen = PlainScreen(stream)
    screen.show(look(900))
    assert len(stream.getvalue().splitlines()) == 1


def test_lag_and_share_never_leave_their_bounds() -> None:
    early = Look(0, 0, 0, 0, 5, snapshot([]))
    assert (early.lag, early.share) == (0, 0.0)
    assert Look(10, 0, 0, 0, 12, snapshot([])).share == 1.0


def test_the_picture_shows_bars_facts_and_who_runs_what() -> None:
    stream = io.StringIO()
    screen = RichScreen(Console(file=stream, force_terminal=True, width=110, highlight=False))
    assert screen.progress is None
    with screen.live():
        screen.report("worker-2 [which ran x] was killed")
        screen.show(look(400))
    screen.finish(VERDICT, stories(kill_of_source().events), START_MS)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "[which ran x] was killed" in text
    assert "450/1000" in text
    assert "400/1000" in text
    assert "40/100" in text
    assert "lag 50 records · generation 4 · leader worker-1 · 4 rebalances" in text
    assert re.search(r"worker-3\s+up\s+flights-in-0, flights-out-0\s+flights-out", text)
    assert re.search(r"✕\s+worker-2\s+killed", text)
    assert "✓ Nothing lost." in text
