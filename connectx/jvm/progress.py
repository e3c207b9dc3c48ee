"""How long work (first download, class archives) reports how far it is, without knowing who shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all); from the thread that does the work."""


def silent(label: str, done: int, total: int) -> None:
    """A Progress that shows nothing."""


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """A Progress drawn with rich bars on stderr; one bar per label, gone lines are kept."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Bars(*columns, console=Console(stderr=True))
    tasks: dict[str, TaskID] = {}

    def show(label: str, done: int, total: int) -> None:
        if label not in tasks:
            tasks[label] = bars.add_task(label, total=total)
            bars.start()  # not before the first bar: without any, each refresh scrolls by an empty line
        bars.update(tasks[label], completed=done, total=total)

    try:
        yield show
    finally:
        bars.stop()
