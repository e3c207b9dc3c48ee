"""Changes of rows that executors stage: written rows in data files of the table, and the keys of deleted rows apart.

If the keys of a job are all new, its files become part of the table as they are. The first load of a topic is such a
job. Otherwise the worker merges the changes, in commits of limited size. This module decides which of both is possible,
and what a commit covers. It never commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.lake.changes import DELETED, last_changes
from connectx.connectors.lake.staging import StagedFile
from connectx.connectors.shared.columns import fitted
from connectx.connectors.shared.kept import KEPT, from_table, kept_rows
from connectx.model.ids import TopicPartition

_CHUNK_ROWS: Final = 1_000_000

Ranges = Mapping[TopicPartition, tuple[int, int]]


class KnownKeysError(Exception):
    """Files cannot become part of a table as they are; nothing was written."""


class StagedTable(Protocol):
    """Reads a table and the files that were staged for it."""

    def read_staged(self, file: StagedFile, columns: Sequence[str]) -> pa.Table:
        """These columns of what was staged, in the types of the table."""

    def stored_keys(self, keys: pa.Table, more: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Keys of the state that was read last, with more columns; those out of the range of these may be left out."""


def divided_changes(changes: pa.Table, schema: pa.Schema, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The last change of each key: rows to write, in these columns, and keys of rows to delete."""
    last = last_changes([changes], schema, key)
    written, deleted = last.filter(pc.invert(last[DELETED])), last.filter(last[DELETED])
    return fitted(written, schema), deleted.select(list(key))


def staged_changes(
    table: StagedTable, file: StagedFile, schema: pa.Schema
) -> Iterator[tuple[TopicPartition, pa.Table]]:
    """What `divided_changes` has divided, as changes."""
    for rows, is_deleted in ((table.read_staged(file, schema.names), False), (file.deleted, True)):
        if rows is not None and rows.num_rows:
            yield file.partition, rows.append_column(DELETED, pa.repeat(is_deleted, rows.num_rows))


def with_old_values(table: StagedTable, changes: pa.Table, key: Sequence[str], name: str) -> pa.Table:
    """The last changes with the values of the table that they keep.

    Raises:
        TableMismatchError: the table has no row with the key of such a change.
    """
    if KEPT not in changes.column_names:
        return changes
    keys, names = kept_rows(changes, key)
    schema = pa.schema([changes.schema.field(column) for column in (*key, *names)])
    stored = [fitted(pa.Table.from_batches([batch]), schema) for batch in table.stored_keys(keys, names)]
    return from_table(changes, pa.concat_tables([schema.empty_table(), *stored]), key, name)


def check_new(table: StagedTable, files: Sequence[StagedFile], key: Sequence[str]) -> None:
    """Raise KnownKeysError unless files have each key once, and the table has none of them.

    To delete a row that is in neither changes nothing.
    """
    written = pa.concat_tables([table.read_staged(file, key) for file in files])
    deleted = [file.deleted.cast(written.schema) for file in files if file.deleted is not None]
    keys = _numbered(pa.concat_tables([written, *deleted]))
    if keys.group_by(keys.column_names).aggregate([]).num_rows < keys.num_rows:
        raise KnownKeysError
    if _holds_any(keys, table.stored_keys(keys.rename_columns(list(key)))):
        raise KnownKeysError


def commits_of(
    files: Sequence[StagedFile], ranges: Ranges, limit_bytes: int
) -> Iterator[tuple[dict[TopicPartition, tuple[int, int]], list[StagedFile]]]:
    """The files of each commit in their order, about `limit_bytes` of rows in memory, and the offsets that it covers.

    The last one also covers records after the last file of their partition.
    """
    firsts = {partition: first for partition, (first, _) in ranges.items()}
    group: list[StagedFile] = []
    for number, file in enumerate(files, 1):
        group.append(file)
        is_last = number == len(files)
        if is_last or sum(each.size_bytes for each in group) >= limit_bytes:
            ends = {each.partition: each.end for each in group}
            if is_last:
                ends = {partition: end for partition, (_, end) in ranges.items() if firsts[partition] < end}
            yield {partition: (firsts[partition], end) for partition, end in ends.items()}, group
            firsts |= ends
            group = []


def _holds_any(keys: pa.Table, stored: Iterable[pa.RecordBatch]) -> bool:
    """Whether stored keys have one of these; they are compared in chunks of about as many as these are."""
    names = keys.column_names
    chunks = _chunks(stored, keys.schema, max(_CHUNK_ROWS, keys.num_rows))
    return any(chunk.join(keys, keys=names, join_type="left semi").num_rows for chunk in chunks)


def _chunks(stored: Iterable[pa.RecordBatch], schema: pa.Schema, row_count: int) -> Iterator[pa.Table]:
    tables = [schema.empty_table()]
    for batch in stored:
        tables.append(_numbered(pa.Table.from_batches([batch])).cast(schema))
        if sum(table.num_rows for table in tables) >= row_count:
            yield pa.concat_tables(tables)
            tables = [schema.empty_table()]
    yield pa.concat_tables(tables)


def _numbered(keys: pa.Table) -> pa.Table:
    """Columns without names that an operation could read as something else, and none of them required."""
    return pa.table({str(at): column for at, column in enumerate(keys.columns)})
