"""Which sink task holds which topic partitions, and to whom they went. Pure.

Partitions of a sink move by the rules of its consumer group, which may be before its task has moved to another worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from connectx.model.events import Event, EventKind

Holder = tuple[str, str]
"""Task name and worker name."""


@dataclass(frozen=True, slots=True)
class Handover:
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
        if event.kind not in _KINDS or event.worker is None:
            continue
        holder = (f"{event.connector}-{event.task}", event.worker)
        partitions = sorted(str(partition) for partition in event.data.get("partitions", ()))
        if event.seq <= after_seq:
            if event.worker == worker:
                _follow(held, event.kind, holder, partitions)
        elif event.kind is EventKind.PARTITIONS_ASSIGNED:
            for partition in partitions:
                if (from_task := held.pop(partition, None)) is not None:
                    taken.setdefault((from_task, *holder, event.time_ms), []).append(partition)
    return tuple(
        Handover(tuple(partitions), from_task, to_task, to_worker, time_ms)
        for (from_task, to_task, to_worker, time_ms), partitions in taken.items()
    )


_KINDS = (EventKind.PARTITIONS_ASSIGNED, EventKind.PARTITIONS_REVOKED, EventKind.PARTITIONS_LOST)


def _follow(held: dict[str, str], kind: EventKind, holder: Holder, partitions: list[str]) -> None:
    for partition in partitions:
        if kind is EventKind.PARTITIONS_ASSIGNED:
            held[partition] = holder[0]
        elif held.get(partition) == holder[0]:
            del held[partition]
