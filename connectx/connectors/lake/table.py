"""What a table in files is to the tasks of its sink: rows and offsets in one commit, which is the fence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from connectx.connectors.lake.staged_changes import Ranges, StagedTable
from connectx.connectors.lake.staging import StagedFile
from connectx.connectors.shared.columns import fitted
from connectx.model.ids import TopicPartition
from connectx.plugins.errors import CommitRefusedError

Offsets = dict[TopicPartition, int]


class ConflictError(Exception):
    """Another commit came first; nothing was written."""


@dataclass(slots=True)
class Pending:
    """Rows of one table that are not committed.

    Attributes:
        schema: columns that the table must have; None while there are no rows and no table.
        ranges: per partition the offset that the table must be at, and the offset after the last row.
        rows: tables in the order of their records, each of one partition.
        files: in place of rows, what executors have staged.
        follows: the files may be committed on top of commits that came after the state that was read last.
        size_bytes: size of the rows in memory.
    """

    schema: pa.Schema | None
    ranges: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    rows: list[tuple[TopicPartition, pa.Table]] = field(default_factory=list)
    files: Sequence[StagedFile] = ()
    follows: bool = True
    size_bytes: int = 0

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return sum(table.num_rows for _, table in self.rows)

    def add(self, ranges: Ranges, rows: Iterable[tuple[TopicPartition, pa.Table]]) -> None:
        """Take a batch whose ranges start where those of before end."""
        for partition, (first, end) in ranges.items():
            self.ranges[partition] = (self.ranges.get(partition, (first, end))[0], end)
        for place, table in rows:
            self.rows.append((place, table))
            self.size_bytes += table.nbytes

    def table(self, schema: pa.Schema) -> pa.Table:
        """All rows, in these columns."""
        return pa.concat_tables([fitted(table, schema) for _, table in self.rows])

    def by_partition(self, schema: pa.Schema) -> Iterator[tuple[TopicPartition, pa.Table]]:
        """The rows of each partition, in these columns."""
        for partition in sorted({partition for partition, _ in self.rows}):
            yield partition, pa.concat_tables([fitted(table, schema) for p, table in self.rows if p == partition])

    def drop(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget the rows of these partitions."""
        self.rows = [(partition, table) for partition, table in self.rows if partition not in partitions]
        self.size_bytes = sum(table.nbytes for _, table in self.rows)
        self.ranges = {partition: ends for partition, ends in self.ranges.items() if partition not in partitions}


class LakeTable(Protocol):
    """One table of the target, as one task has read it last. Only `refresh` reads what others committed."""

    name: str
    """How messages call it."""

    @property
    def schema(self) -> pa.Schema | None:
        """Columns; None when the table does not exist."""

    def refresh(self) -> None:
        """Read the newest state."""

    def offsets(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Offsets after the last rows of these partitions, where the table holds any."""

    def refused(self, rows: pa.Table) -> Mapping[int, str]:
        """Numbers of the rows that violate the table's constraints, with the cause."""

    def append(self, pending: Pending, schema: pa.Schema) -> None:
        """Commit rows and offsets together, on top of the state that was read last.

        Raises:
            ConflictError: another commit came first.
        """

    def read(self) -> Iterator[pa.Table]:
        """The rows of the state that was read last."""

    def staging_place(self, token: str) -> Any:
        """Where executors put the files of a job, and what else `stage_file` needs; can be pickled."""

    def stage_file(self, place: Any, rows: pa.Table, partition: TopicPartition, end: int) -> StagedFile:
        """On an executor: write a file that the table does not have yet. The table was never refreshed there.

        Args:
            rows: with the columns of the table.
            end: the offset after the last row.
        """

    def append_files(self, pending: Pending, schema: pa.Schema) -> None:
        """Commit files and offsets together, on top of the state that was read last.

        Raises:
            ConflictError: another commit came first.
        """

    def remove_staged(self, token: str, kept: Set[str]) -> None:
        """Remove the files of a job, except those with these paths."""


class KeyedTable(LakeTable, StagedTable, Protocol):
    """A table whose rows can be replaced and deleted, and whose small files can be merged."""

    def upsert(self, pending: Pending, schema: pa.Schema, key: Sequence[str]) -> None:
        """Commit changes and offsets together, on top of the state that was read last.

        Args:
            pending: changes (`connectx.connectors.lake.changes`) in place of rows.
            schema: columns of the table.
            key: columns that identify a row.

        Raises:
            ConflictError: another commit came first.
        """

    def compact(self) -> tuple[int, int]:
        """Merge small files; the number of files before and after.

        Raises:
            LakeUnavailableError: others changed the same files meanwhile.
        """


def compare(table: str, held: Mapping[TopicPartition, int], ranges: Ranges) -> None:
    """Raise CommitRefusedError unless a table is where each range starts."""
    wrong = [p for p, (first, _) in sorted(ranges.items()) if held.get(p, first) != first]
    if wrong:
        shown = ", ".join(f"{p} is at {held[p]}, the rows start at {ranges[p][0]}" for p in wrong)
        raise CommitRefusedError(
            f"{table} has other offsets than the task: {shown}.",
            {p: held.get(p, first) for p, (first, _) in ranges.items()},
            next_step="Another task wrote there; this one continues where the table is.",
        )
