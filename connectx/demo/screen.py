"""The screen of a running demo: bars, the work of each worker, and a line for each event.

On a terminal a live picture (rich); anywhere else, as in CI logs, a few lines of plain text without control characters.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol, TextIO

from connectx.history.folds.snapshot import Snapshot, WorkerSnapshot
from connectx.history.render.report import Table, Verdict, cell_text
from connectx.history.sentences.stories import Story
from connectx.history.wording import plural
from connectx.jvm.progress import Progress
from connectx.values import Value
from connectx.views import text_table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_LINE_EVERY = 0.25


class Look(Value):
    """One look at the flow: slices of the file that are committed, counts of rows, and the cluster's state."""

    rows_in: int
    slices_in: int
    slices: int
    records: int
    rows_out: int
    snapshot: Snapshot

    @property
    def lag(self) -> int:
        """Records of the topic that are not in the table yet."""
        return max(self.records - self.rows_out, 0)

    @property
    def share(self) -> float:
        """How much of the file has arrived in the table, 0 to 1."""
        return min(self.rows_out / self.rows_in, 1.0) if self.rows_in else 0.0


class Screen(Protocol):
    """Where the demo shows itself."""

    def report(self, text: str) -> None:
        """Something that happened, or what comes next."""

    @property
    def progress(self) -> Progress | None:
        """Shows long work before the flow starts; None for connectx's own bars on the terminal."""

    def live(self) -> AbstractContextManager[object]:
        """Show looks within this block."""

    def show(self, look: Look) -> None:
        """A new look at the flow."""

    def finish(self, verdict: Verdict, stories: Sequence[Story], start_ms: int) -> None:
        """The verdict and the story of each failover."""


def screen_for(stream: TextIO | None = None) -> Screen:
    """A live picture if the stream (standard output) is a terminal, plain lines otherwise."""
    stream = stream or sys.stdout
    return RichScreen() if stream.isatty() else PlainScreen(stream)


class PlainScreen:
    """Few lines of plain text: what happens, and each quarter of the way."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begin = time.monotonic()
        self._shown: set[str] = set()
        self._next_share = _LINE_EVERY

    def report(self, text: str) -> None:
        """A line with the seconds since the start."""
        self._write(f"{time.monotonic() - self._begin:5.1f} s  {text}")

    @property
    def progress(self) -> Progress:
        """A line when a piece of work begins."""
        return self._begins

    def _begins(self, label: str, done: int, total: int) -> None:
        if label not in self._shown:
            self._shown.add(label)
            self.report(label)

    def live(self) -> AbstractContextManager[object]:
        """Nothing to open."""
        return nullcontext()

    def show(self, look: Look) -> None:
        """A line each quarter of the way."""
        while look.share >= self._next_share:
            self._next_share += _LINE_EVERY
            if look.share < self._next_share:
                self.report(
                    f"{look.rows_out:,} of {look.rows_in:,} rows in the table; {plural(look.slices, 'slice')}, "
                    f"{look.records:,} records, lag {look.lag:,}, generation {look.snapshot.generation}"
                )

    def finish(self, verdict: Verdict, stories: Sequence[Story], start_ms: int) -> None:
        """Table, stories, sentence."""
        rows = [dict(zip(verdict.table.columns, map(cell_text, row), strict=True)) for row in verdict.table.rows]
        self._write(f"\n{text_table(rows)}\n")
        for story in stories:
            self._write(f"{(story.time_ms - start_ms) / 1000:5.1f} s  {story.sentence}.")
        self._write(f"\n{verdict.sentence}")

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class RichScreen:
    """Two bars, facts and a table of workers that stay in place; what happens scrolls by above them."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as Bars

        self._console = console or Console(highlight=False)
        self._begin = time.monotonic()
        self._bars = Bars(
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=40, complete_style="cyan", finished_style="green"),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            console=self._console,
        )
        self._slices, self._records, self._rows = (
            self._bars.add_task(name, total=None)
            for name in ("slices of the file", "records in topic", "rows in table")
        )
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def report(self, text: str) -> None:
        """A line that stays, with the seconds since the start."""
        self._console.print(f"[dim]{time.monotonic() - self._begin:5.1f} s[/]  ", end="")
        self._console.print(text, markup=False)

    @property
    def progress(self) -> None:
        """The bars of connectx itself are right here."""

    def live(self) -> AbstractContextManager[object]:
        """Draw from here on."""
        return self._live

    def show(self, look: Look) -> None:
        """Redraw."""
        from rich.console import Group

        for bar, done, total in (
            (self._slices, look.slices, look.slices_in),
            (self._records, look.records, look.rows_in),
            (self._rows, look.rows_out, look.rows_in),
        ):
            self._bars.update(bar, completed=min(done, total), total=total)
        line = (
            f"lag {look.lag:,} records · generation {look.snapshot.generation}"
            f" · leader {look.snapshot.leader or 'none'} · {plural(look.snapshot.rebalances, 'rebalance')}"
        )
        self._live.update(Group("", self._bars, line, _workers(look.snapshot.workers)), refresh=True)

    def finish(self, verdict: Verdict, stories: Sequence[Story], start_ms: int) -> None:
        """Table, stories, sentence."""
        from rich.table import Table as RichTable
        from rich.text import Text

        self._console.print(_table(verdict.table))
        grid = RichTable.grid(padding=(0, 2, 0, 0))
        for story in stories:
            when = f"{(story.time_ms - start_ms) / 1000:5.1f} s"
            grid.add_row(Text(when, style="dim"), Text(f"{story.sentence}."))
        self._console.print(grid)
        sign, style = ("✓", "bold green") if verdict.is_good else ("✕", "bold red")
        self._console.print(Text(f"\n{sign} {verdict.sentence}", style=style))


_SIGNS = {"up": "[green]●[/]", "killed": "[red]✕[/]"}


def _workers(workers: Sequence[WorkerSnapshot]) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table as RichTable

    table = RichTable("", "worker", "state", "tasks", "connectors", box=None, padding=(0, 2, 0, 0))
    for worker in workers:
        name = worker.name + (" (leader)" if worker.is_leader else "")
        work = (", ".join(worker.tasks), ", ".join(worker.connectors))
        sign = _SIGNS.get(worker.state.value, "○")
        table.add_row(sign, escape(name), worker.state.value, *(escape(item) for item in work))
    return table


def _table(table: Table) -> RenderableType:
    from rich.table import Table as RichTable

    drawn = RichTable()
    for place, name in enumerate(table.columns):
        drawn.add_column(name, justify="right" if 0 < place < len(table.columns) - 1 else "left")
    for row in table.rows:
        drawn.add_row(*map(cell_text, row))
    return drawn
