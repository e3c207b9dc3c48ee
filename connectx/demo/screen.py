"""What a running demo prints: plain lines without control characters, also fit for the logs of a CI."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

from connectx.history.render.report import Verdict, cell_text
from connectx.history.sentences.stories import Story
from connectx.views import text_table

_LINE_EVERY = 0.25


class Screen:
    """Few lines: what happens, each quarter of the way, and the verdict."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._begin = time.monotonic()
        self._shown: set[str] = set()
        self._next_share = _LINE_EVERY

    def report(self, text: str) -> None:
        """Write a line with the seconds since the start."""
        self._write(f"{time.monotonic() - self._begin:5.1f} s  {text}")

    def progress(self, label: str, done: int, total: int) -> None:
        """Write a line when a piece of work begins."""
        if label not in self._shown:
            self._shown.add(label)
            self.report(label)

    def show(self, rows_out: int, rows_in: int, more: str) -> None:
        """Write how many rows have arrived, and `more`, at most once in each quarter of the way."""
        share = rows_out / rows_in if rows_in else 0.0
        if share >= self._next_share:
            self._next_share = _LINE_EVERY * (share // _LINE_EVERY + 1)
            self.report(f"{rows_out:,} of {rows_in:,} rows in the table; {more}")

    def finish(self, verdict: Verdict, stories: Sequence[Story], start_ms: int) -> None:
        """Write what was measured, the story of each failover, and the verdict."""
        rows = [dict(zip(verdict.table.columns, map(cell_text, row), strict=True)) for row in verdict.table.rows]
        self._write(f"\n{text_table(rows)}\n")
        for story in stories:
            self._write(f"{(story.time_ms - start_ms) / 1000:5.1f} s  {story.sentence}.")
        self._write(f"\n{verdict.sentence}")

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()
