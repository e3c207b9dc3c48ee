"""Wording of durations, lists and tasks, for titles, stories and reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from connectx.model.ids import TaskId, parse_task


def duration(milliseconds: int) -> str:
    """`40 ms`, `3.0 s`, `2 min 5 s`: as exact as a reader can use."""
    if milliseconds < 100:
        return f"{milliseconds} ms"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f} s"
    minutes, rest = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def listing(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; the empty sequence is `nothing`."""
    if not names:
        return "nothing"
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def plural(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters; the middle goes, so that a task's number at the end stays."""
    if len(text) <= limit:
        return text
    if limit <= 3:
        return text[: max(limit, 0)]
    tail = min(limit // 2, max(3, limit // 3))
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def task_of(value: Any) -> TaskId | None:
    """A task named in an event's data: `orders-1`, or a mapping with connector and task. None for anything else."""
    if isinstance(value, Mapping):
        connector, task = value.get("connector"), value.get("task")
        return TaskId(str(connector), int(task)) if connector is not None and task is not None else None
    return parse_task(str(value))
