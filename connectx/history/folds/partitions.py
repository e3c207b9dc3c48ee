"""Topic partitions of sink tasks, and the tasks that they moved to. Pure.

Partitions of a sink move by the rules of its consumer group, which may be before its task has moved to another worker.
"""

from __future__ import annotations

from collections.abc import Iterable

from connectx.model.events import Event
from connectx.model.payloads import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from connectx.values import Value

Holder = tuple[str, str]
"""Task name and worker name."""


class Handover(Value):
    """Partitions that a task of a worker held and that another task (or the same one elsewhere) was given next."""

    partitions: tuple[str, ...]
    from_task: str
    to_task: str
    to_worker: str
    time_ms: int


def handovers(events: Iterable[Event], worker: str, after_seq: int) -> tuple[Handover, ...]:
    """Where the partitions went that sink tasks of `worker` held at event `after_seq`, by the first to get each."""
    held: dict[str, str] = {}
    taken: dict[tuple[str, str, str, int], list[str]] = {}
    for event in events:
        moved = event.payload
        if not isinstance(moved, _Moved) or event.worker is None:
            continue
        holder = (f"{event.connector}-{event.task}", event.worker)
        partitions = sorted(moved.partitions)
        if event.seq <= after_seq:
            if event.worker == worker:
                _follow(held, moved, holder)
        elif isinstance(moved, PartitionsAssigned):
            for partition in partitions:
                if (from_task := held.pop(partition, None)) is not None:
                    taken.setdefault((from_task, *holder, event.time_ms), []).append(partition)
    return tuple(
        Handover(tuple(partitions), from_task, to_task, to_worker, time_ms)
        for (from_task, to_task, to_worker, time_ms), partitions in taken.items()
    )


_Moved = PartitionsAssigned | PartitionsRevoked | PartitionsLost


def _follow(held: dict[str, str], moved: _Moved, holder: Holder) -> None:
    for partition in moved.partitions:
        if isinstance(moved, PartitionsAssigned):
            held[partition] = holder[0]
        elif held.get(partition) == holder[0]:
            del held[partition]
