"""A bulk slice that a connector's code reads on executors, table by table, without Spark's types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.views import Form, Shown

if TYPE_CHECKING:
    import pyarrow as pa

TablesOfParts: TypeAlias = "Iterator[tuple[int, pa.Table | None]]"


@dataclass(frozen=True, slots=True)
class PartRead:
    """What executors have read of one part of a slice: `rows` of it, and how many of its `pieces` to their ends."""

    rows: int = 0
    pieces: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class BulkSlice(Shown):
    """A slice that executors read with a function: what `poll_bulk` can return in place of a Slice with a DataFrame.

    Tables may have different columns. A slice has parts, for example files, and only executors find out how many rows
    each of them has, so the source offsets are made after the job.

    Attributes:
        topic: where rows go that have no column `topic`.
        tasks: how many Spark tasks read the slice.
        read: called on an executor with the number of its task, from 0. It returns tables with the columns of
            `Slice.rows`, each with the number of its part, and None in place of a table at the end of a piece of
            a part. Tasks are in the order of the source. Python must be able to pickle it. A ConnectxError that it
            raises is the reason why the job failed.
        offsets: called in the worker when Kafka has the rows, with what was read by number of part. It returns the
            source partitions that moved, with the source offsets after these rows.
    """

    topic: str
    tasks: int
    read: Callable[[int], TablesOfParts]
    offsets: Callable[[Mapping[int, PartRead]], Sequence[tuple[SourcePartition, SourceOffset]]]

    def _shown(self) -> Form:
        return Form("BulkSlice", {"topic": self.topic, "tasks": self.tasks})
