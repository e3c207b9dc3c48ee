"""What the demo prints: a few plain lines without control characters."""

from __future__ import annotations

import io
import re

from connectx.demo.screen import Screen
from connectx.history.render.report import Table, Verdict
from connectx.history.sentences.stories import stories
from tests.support.histories import START_MS, kill_of_source

VERDICT = Verdict(True, "Nothing lost.", Table(("measure", "file", "same"), [("rows", 336776, "yes")]))


def test_output_is_a_few_lines_of_printable_text() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.report("Starting")
    for done in range(30):
        screen.progress("Fetching jars", done, 30)
    for rows_out in range(0, 1001, 10):
        screen.show(rows_out, 1000, "lag 50")
    screen.finish(VERDICT, stories(kill_of_source().events), START_MS)
    text = stream.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    lines = [line for line in text.splitlines() if line]
    assert len(lines) <= 12
    assert sum("Fetching jars" in line for line in lines) == 1
    assert sum("rows in the table" in line for line in lines) == 4
    assert "250 of 1,000 rows in the table; lag 50" in text
    assert "rows     336,776  yes" in text
    assert " 10.0 s  worker-2 was killed while it ran flights-in-0;" in text
    assert lines[-1] == "Nothing lost."


def test_rows_that_skip_quarters_make_one_line() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.show(900, 1000, "lag 50")
    screen.show(0, 0, "no rows")
    assert len(stream.getvalue().splitlines()) == 1
