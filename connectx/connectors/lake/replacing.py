"""Changes of rows in an Iceberg table: the files that hold the keys are written again, all in one snapshot.

The library's own upsert makes a snapshot for what it deletes and another for what it adds, so a reader between the
two would miss rows. It decides which files are read (by their statistics) and replaced; it never commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.lake.changes import DELETED

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask, Transaction

_MAX_LISTED: Final = 200
"""The library compares no longer list of values with a file's statistics."""


def write_changes(
    transaction: Transaction, io: FileIO, *, changes: pa.Table, key: Sequence[str], file_bytes: int
) -> None:
    """Add one snapshot in which these changes are made.

    Args:
        transaction: of a table whose columns are those of the changes.
        io: reads and writes the table's files.
        changes: the last change of each key, with the column `DELETED`.
        key: columns that identify a row.
        file_bytes: wanted size of files.
    """
    from connectx.connectors.lake.iceberg_files import write_files

    metadata = transaction.table_metadata
    rows = [changes.filter(pc.invert(changes[DELETED])).drop_columns([DELETED])]
    with transaction.update_snapshot().overwrite() as snapshot:
        for task, found in _candidates(transaction, io, changes.select(list(key))):
            kept = _without(found, changes, key)
            if kept.num_rows < found.num_rows:
                snapshot.delete_data_file(task.file)
                rows.append(kept.cast(rows[0].schema))
        whole = pa.concat_tables(rows)
        if whole.num_rows:
            for file in write_files(metadata, whole, io, file_bytes, snapshot.commit_uuid):
                snapshot.append_data_file(file)


def may_hold(keys: pa.Table) -> BooleanExpression:
    """True for each of the keys, and for others: the library compares it with the statistics of files."""
    from pyiceberg.expressions import And, GreaterThanOrEqual, In, LessThanOrEqual

    def bounds(name: str) -> BooleanExpression:
        values = keys[name]
        distinct = values.unique()
        if len(distinct) <= _MAX_LISTED:
            return In(name, distinct.to_pylist())  # type: ignore[call-arg, arg-type]
        ends = pc.min_max(values).as_py()
        first: BooleanExpression = GreaterThanOrEqual(name, ends["min"])  # type: ignore[call-arg, arg-type]
        return And(first, LessThanOrEqual(name, ends["max"]))  # type: ignore[call-arg, arg-type]

    return reduce(And, map(bounds, keys.column_names))


def _candidates(transaction: Transaction, io: FileIO, keys: pa.Table) -> Iterator[tuple[FileScanTask, pa.Table]]:
    """Files that may hold one of the keys, with all their rows."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import DataScan

    metadata = transaction.table_metadata
    for task in DataScan(table_metadata=metadata, io=io, row_filter=may_hold(keys)).plan_files():
        yield task, ArrowScan(metadata, io, metadata.schema(), AlwaysTrue()).to_table([task])


def _without(rows: pa.Table, changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows whose key is none of those that change, in their order."""
    names = [str(at) for at in range(len(key))]
    mine = rows.select(list(key)).rename_columns(names).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    others = changes.select(list(key)).rename_columns(names).cast(pa.schema(list(mine.schema)[:-1]))
    left = mine.join(others, keys=names, join_type="left anti")["row"]
    return rows if len(left) == rows.num_rows else rows.take(left.sort())
