"""How long work (starting, first downloads, checks) reports how far it is, without knowing what shows it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Final

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all); from the thread that does the work."""

VARIABLE: Final = "CONNECTX_PROGRESS"
"""Environment variable; "off" shows no progress where none was asked for."""


def silent(label: str, done: int, total: int) -> None:
    """A Progress that shows nothing."""


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """The given progress; by default bars on a terminal, lines in a notebook, nothing elsewhere."""
    if progress is not None:
        yield progress
    elif os.environ.get(VARIABLE) == "off":
        yield silent
    elif sys.stderr.isatty():
        with terminal_progress() as show:
            yield show
    elif in_kernel():
        yield notebook_progress()
    else:
        yield silent


def in_kernel() -> bool:
    """Whether this runs in a Jupyter kernel, which alone can show widgets."""
    ipython = sys.modules.get("IPython")  # None also where its import is blocked
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def notebook_progress() -> Progress:
    """A Progress in one output of the cell that runs: a line for each label, with its steps and how long it took."""
    from IPython.display import HTML, display

    began: dict[str, float] = {}
    lines: dict[str, str] = {}
    output = None

    def show(label: str, done: int, total: int) -> None:
        nonlocal output
        now_s = time.monotonic()
        if done < total or label not in began:
            began.setdefault(label, now_s)
        took = f"{now_s - began[label]:.1f} s"
        steps = f"{done:,} of {total:,}, " if total > 1 and done != total else f"{done:,}, " if total > 1 else ""
        lines[label] = f"{label}: {steps}{took}" if done else f"{label} …"
        text = HTML("<br>".join(map(escape, lines.values())))  # type: ignore[no-untyped-call]
        if output is None:
            output = display(text, display_id=True)  # type: ignore[no-untyped-call]
        else:
            output.update(text)

    return show


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
