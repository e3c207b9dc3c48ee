"""Small files of an Iceberg table, merged into larger ones: the same rows in a snapshot that replaces files.

It writes the larger files first. The snapshot may be committed again on top of newer ones, as long as these still have
the files that it replaces, so sinks continue while files are merged. Properties, and so offsets, are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from connectx.connectors.shared.iceberg import MERGED

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

_SMALL: Final = 0.75
"""Files below this part of the wanted size are merged."""


@dataclass(slots=True)
class MergedFiles:
    """Files that hold the rows of others."""

    old: list[DataFile] = field(default_factory=list)
    new: list[DataFile] = field(default_factory=list)

    def commit(self, table: Table) -> None:
        """Replace the old files in one snapshot, on top of the metadata that was read last.

        Raises:
            CommitFailedException, ValidationException: the table has another snapshot by now.
        """
        marked = {MERGED: "true"}
        with table.transaction() as transaction, transaction.update_snapshot(marked).overwrite() as snapshot:
            for file in self.old:
                snapshot.delete_data_file(file)
            for file in self.new:
                snapshot.append_data_file(file)

    def applies_to(self, table: Table | None) -> bool:
        """Whether a table still has the old files."""
        held = set() if table is None else {task.file.file_path for task in table.scan().plan_files()}
        return all(file.file_path in held for file in self.old)


def merge_files(table: Table, file_bytes: int) -> tuple[int, MergedFiles]:
    """Write larger files for small ones; nothing is committed.

    Returns:
        The number of the table's files, and the files that may replace some of them.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    from connectx.connectors.lake.iceberg_files import write_files

    tasks = list(table.scan().plan_files())
    small = [task for task in tasks if task.file.file_size_in_bytes < file_bytes * _SMALL and not task.delete_files]
    merged = MergedFiles()
    for part in _parts(small, file_bytes):
        rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(part)
        merged.old += [task.file for task in part]
        merged.new += write_files(table.metadata, rows, table.io, file_bytes)
    return len(tasks), merged


def _parts(tasks: Sequence[FileScanTask], file_bytes: int) -> Iterator[list[FileScanTask]]:
    """Files of the same partition that together are about as large as one file should be; at least two."""

    def partition(task: FileScanTask) -> Any:
        return task.file.spec_id, str(task.file.partition)

    for _, same in groupby(sorted(tasks, key=partition), key=partition):
        part: list[FileScanTask] = []
        for task in same:
            if part and sum(one.file.file_size_in_bytes for one in [*part, task]) > file_bytes:
                yield from [part] if len(part) > 1 else []
                part = []
            part.append(task)
        yield from [part] if len(part) > 1 else []
