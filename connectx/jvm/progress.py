"""Reports the progress of long work (starts, downloads, checks) to any display."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Final

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all or 0 while that is unknown); from the thread that does the
work, first with 0 steps done."""

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
        with notebook_progress() as show:
            yield show
    else:
        yield silent


@contextmanager
def step(show: Progress, label: str) -> Iterator[None]:
    """Report work that is one step, from its start to its end."""
    show(label, 0, 1)
    yield
    show(label, 1, 1)


def in_kernel() -> bool:
    """Whether this runs in a Jupyter kernel, which alone can show widgets."""
    ipython = sys.modules.get("IPython")  # None also where its import is blocked
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def notebook_progress() -> Iterator[Progress]:
    """A Progress in one output of the cell that runs: a line for each label, with its steps, a bar and its duration.

    After an error or an interrupt the lines of unfinished work show that it has ended.
    """
    from IPython.display import HTML, display

    began: dict[str, float] = {}
    lines: dict[str, str] = {}
    running: set[str] = set()
    output = None

    def write(label: str, line: str) -> None:
        nonlocal output
        lines[label] = f"{escape(label)}{line}"
        text = HTML("<br>".join(lines.values()))  # type: ignore[no-untyped-call]
        if output is None:
            output = display(text, display_id=True)  # type: ignore[no-untyped-call]
        else:
            output.update(text)

    def took(label: str) -> str:
        return f"{time.monotonic() - began[label]:.1f} s"

    def show(label: str, done: int, total: int) -> None:
        began.setdefault(label, time.monotonic())
        (running.discard if done == total else running.add)(label)
        if done == total:
            write(label, f": {done:,}, {took(label)}" if total > 1 else f": {took(label)}")
        elif not done:
            write(label, " …")
        elif total:
            bar = f'<progress value="{done}" max="{total}"></progress>'
            write(label, f": {bar} {done:,} of {total:,}, {took(label)}")
        else:
            write(label, f": {done:,}, {took(label)}")

    try:
        yield show
    except BaseException:
        for label in sorted(running):
            write(label, f": ended after {took(label)}")
        raise


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
            tasks[label] = bars.add_task(label, total=total or None)
            bars.start()  # not before the first bar: without any, each refresh scrolls by an empty line
        bars.update(tasks[label], completed=done, total=total or None)

    try:
        yield show
    finally:
        bars.stop()
