"""The log of an Apache Iceberg table: its snapshots, each with manifests that name the files that were added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from connectx.connectors.shared.columns import normal_type
from connectx.connectors.shared.errors import LakeError
from connectx.connectors.shared.iceberg import MERGED, catalog_errors
from connectx.connectors.spark.errors import TableChangedError, TableRewrittenError
from connectx.connectors.spark.tables import Commit, ReadFile, TableFile, common_schema, in_schema

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


class IcebergLog:
    """Snapshots of a table; a `connectx.connectors.spark.tables.TableLog`.

    Args:
        table: its identifier in the catalog, such as default.orders.
        catalog: name of the catalog, and `given` its settings.
        skip_changes: leave out snapshots that delete or update rows.
    """

    format = "iceberg"
    unit = "snapshot"

    def __init__(self, table: str, catalog: str, given: Mapping[str, str], *, skip_changes: bool) -> None:
        self.name = f"The table {table}"
        self.place = table
        self._catalog_name = catalog
        self._given = dict(given)
        self._skips = skip_changes
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self._current: int | None = None
        self._next: dict[int, int] = {}

    def newest(self) -> int | None:
        """The current snapshot.

        Raises:
            LakeError: there is no table, or the catalog is configured wrongly.
            LakeUnavailableError: catalog or storage cannot be reached.
        """
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.table.snapshots import ancestors_of

        with self.errors():
            try:
                if self._catalog is None:
                    self._catalog = load_catalog(self._catalog_name, **self._given)
                self._table = self._catalog.load_table(self.place)
            except NoSuchTableError as error:
                step = "Create it, or correct format.options.path, and restart the task."
                raise LakeError(f"{self.name} does not exist.", next_step=step) from error
            current = self._table.current_snapshot()
            line = list(ancestors_of(current, self._table.metadata))
        self._current = None if current is None else current.snapshot_id
        self._next = {one.parent_snapshot_id: one.snapshot_id for one in line if one.parent_snapshot_id is not None}
        return self._current

    def contents(self, number: int) -> Commit:
        """All files of a snapshot, by name."""
        snapshot = self._snapshot(number)
        with self.errors():
            return self._commit(snapshot, self._loaded.scan(snapshot_id=number).plan_files())

    def commit(self, number: int) -> Commit:
        """Files that a snapshot appended.

        Raises:
            TableRewrittenError: the snapshot has expired.
            TableChangedError: it deletes or updates rows.
        """
        from pyiceberg.table.snapshots import Operation

        snapshot = self._snapshot(number)
        summary = snapshot.summary
        operation = Operation.APPEND if summary is None else summary.operation
        if operation is Operation.APPEND:
            with self.errors():
                scan = self._loaded.incremental_append_scan()
                added = scan.from_snapshot_id_inclusive(number).to_snapshot_id_inclusive(number)
                return self._commit(snapshot, added.plan_files())
        is_merge = summary is not None and summary.additional_properties.get(MERGED) == "true"
        if operation is not Operation.REPLACE and not is_merge and not self._skips:
            raise TableChangedError(self.name, f"snapshot {number}", operation.value)
        return Commit(number)

    def following(self, number: int) -> int | None:
        """The snapshot after this one.

        Raises:
            TableRewrittenError: this one is not in the table's history.
        """
        if number not in self._next:
            self.newest()
        if number in self._next or number == self._current:
            return self._next.get(number)
        cause = f"snapshot {number} is not in its history: it has expired, or the table was rolled back or replaced"
        raise TableRewrittenError(self.name, cause)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the library and of the storage; a missing file belonged to an expired snapshot."""
        with catalog_errors(self.name):
            try:
                yield
            except FileNotFoundError as error:
                raise TableRewrittenError(self.name, "a file that a snapshot names was removed") from error

    @property
    def _loaded(self) -> Table:
        if self._table is None:
            self.newest()
        assert self._table is not None, "newest loads the table or raises"
        return self._table

    def _snapshot(self, number: int) -> Snapshot:
        found = self._loaded.snapshot_by_id(number)
        if found is None:
            self.newest()
            found = self._loaded.snapshot_by_id(number)
        if found is None:
            raise TableRewrittenError(self.name, f"snapshot {number} has expired")
        return found

    def _commit(self, snapshot: Snapshot, tasks: Iterable[FileScanTask]) -> Commit:
        files = [TableFile(task, task.file.file_size_in_bytes) for task in tasks]
        if not files:
            return Commit(snapshot.snapshot_id)
        table = self._loaded
        columns = table.schema() if snapshot.schema_id is None else table.schemas()[snapshot.schema_id]
        kinds = pa.schema([(field.name, normal_type(field.type)) for field in columns.as_arrow()])
        reader = IcebergFiles(table.metadata, table.io, columns, common_schema(kinds))
        return Commit(snapshot.snapshot_id, tuple(sorted(files, key=_path)), reader)


@dataclass(frozen=True)
class IcebergFiles:
    """Reads files of a snapshot; a `connectx.connectors.spark.tables.Files`."""

    metadata: TableMetadata
    io: FileIO
    columns: Schema
    schema: pa.Schema

    def open(self) -> ReadFile:
        """Columns are found by their ids, as the library does it."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan = ArrowScan(self.metadata, self.io, self.columns, AlwaysTrue())
        return lambda task: in_schema(scan.to_record_batches([task]), self.schema)


def _path(file: TableFile) -> Any:
    return file.entry.file.file_path
