"""Source offsets that a plugin asks for: read once, and after that what was polled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from connectx.model.ids import TaskId
from connectx.runtime.tasks.source.context import SourceContext


class Offsets:
    """Committed offsets: partition n is at n, the others have none. Keeps what was read."""

    def __init__(self) -> None:
        self.reads: list[list[int]] = []

    def read(self, connector: str, partitions: list[Any], **_: Any) -> list[Any]:
        self.reads.append([partition["n"] for partition in partitions])
        return [{"at": partition["n"]} if partition["n"] < 5 else None for partition in partitions]


def test_many_partitions_are_read_at_once_and_each_only_once() -> None:
    committed, runner = Offsets(), SimpleNamespace(services=SimpleNamespace(clock=lambda: 0))
    context = SourceContext(TaskId("c", 0), runner, committed, defines_transactions=False)  # type: ignore[arg-type]
    assert context.offset({"n": 2}) == {"at": 2}
    assert context.offsets([{"n": 1}, {"n": 2}, {"n": 1}, {"n": 7}]) == [{"at": 1}, {"at": 2}, {"at": 1}, None]
    context.remember({"n": 7}, {"at": 9})
    assert context.offsets([{"n": 7}, {"n": 1}]) == [{"at": 9}, {"at": 1}]
    assert context.offsets([]) == []
    assert committed.reads == [[2], [1, 7]]
