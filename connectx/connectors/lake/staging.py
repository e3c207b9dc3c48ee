"""Files that Spark's executors write for a table, and that only a commit of the worker makes part of it.

The name of a staged file begins with STAGED and the token of its job, so that files of a job that never ended can be
recognised. This module decides where a file ends, and nothing about tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from connectx.model.ids import TopicPartition

if TYPE_CHECKING:
    from obstore.store import ObjectStore

STAGED: Final = "connectx-"


@dataclass(frozen=True, slots=True)
class StagingPlan:
    """Description of a table for executors: its columns, and the place of its files."""

    schema: pa.Schema
    place: Any


@dataclass(frozen=True, slots=True)
class StagedFile:
    """What was written at a time, of one topic partition.

    Attributes:
        paths: of the files; more than one where a table is partitioned.
        end: the offset after the last row.
        entry: what the table's metadata has to say about the files.
        deleted: with upserts, the keys of rows to delete; none of them is a key in the files.
        size_bytes: with upserts, the size of the rows in memory.
    """

    paths: tuple[str, ...]
    partition: TopicPartition
    end: int
    entry: Any = None
    deleted: pa.Table | None = None
    size_bytes: int = 0


class FileWriter:
    """Collects rows of one topic partition until they fill a file."""

    def __init__(
        self,
        partition: TopicPartition,
        write: Callable[[pa.Table, TopicPartition, int], StagedFile],
        limit_bytes: int,
    ) -> None:
        self._partition = partition
        self._write = write
        self._limit_bytes = limit_bytes
        self._rows: list[pa.Table] = []
        self._end = 0

    def add(self, rows: pa.Table, end: int) -> Iterator[StagedFile]:
        """Take rows up to an offset."""
        self._rows += [rows] if rows.num_rows else []
        self._end = end
        if sum(table.nbytes for table in self._rows) >= self._limit_bytes:
            yield from self.close()

    def close(self) -> Iterator[StagedFile]:
        """Write what is left."""
        if self._rows:
            rows, self._rows = pa.concat_tables(self._rows), []
            yield self._write(rows, self._partition, self._end)


def remove_files(store: ObjectStore, folder: str, kept: Set[str]) -> None:
    """Remove the files of a folder, except those with these paths."""
    from obstore import delete
    from obstore import list as list_files

    paths = [meta["path"] for chunk in list_files(store, folder) for meta in chunk]
    if gone := [path for path in paths if path not in kept]:
        delete(store, gone)
