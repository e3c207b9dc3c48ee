"""Tables in files that get rows, for tests of sources that read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

ROW = pa.schema([("id", pa.int64()), ("name", pa.string())])


def numbered(first: int, end: int) -> pa.Table:
    """Rows with these ids."""
    ids = range(first, end)
    return pa.table({"id": list(ids), "name": [f"row {number}" for number in ids]}, ROW)


class GrowingTable(Protocol):
    """A table that gets commits; `settings` are those of a SparkSource that reads it."""

    settings: Mapping[str, str]
    mode: str

    def append(self, rows: pa.Table) -> None:
        """One commit with rows."""

    def delete(self, condition: str) -> None:
        """One commit that deletes rows."""

    def compact(self) -> None:
        """One commit with the same rows in one file."""

    def newest(self) -> int:
        """The last version or snapshot."""

    def forget(self) -> None:
        """Remove all but the last version or snapshot."""


class DeltaGrowing:
    """A Delta table."""

    mode = "version"

    def __init__(self, folder: Path, partition_by: str | None = None) -> None:
        self._path = folder / "delta"
        self._partition_by = partition_by
        self.settings: Mapping[str, str] = {
            "format": "delta",
            "offset.mode": "version",
            "format.options.path": str(self._path),
        }

    def append(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._path, rows, mode="append", schema_mode="merge", partition_by=self._partition_by)

    def delete(self, condition: str) -> None:
        self._table().delete(condition)

    def compact(self) -> None:
        self._table().optimize.compact()

    def newest(self) -> int:
        return int(self._table().version())

    def forget(self) -> None:
        self._table().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        self._table().create_checkpoint()
        for log in sorted((self._path / "_delta_log").glob("*.json"))[:-1]:
            log.unlink()

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._path)


class IcebergGrowing:
    """An Iceberg table in a separate catalog."""

    mode = "snapshot"

    def __init__(self, folder: Path) -> None:
        self._catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri()}
        self.settings: Mapping[str, str] = {
            **{"format": "iceberg", "offset.mode": "snapshot", "format.options.path": "default.rows"},
            **{f"iceberg.catalog.{name}": text for name, text in self._catalog.items()},
        }
        self._load().create_namespace_if_not_exists("default")

    def append(self, rows: pa.Table) -> None:
        catalog = self._load()
        table = catalog.create_table_if_not_exists("default.rows", rows.schema)
        with table.update_schema() as update:
            update.union_by_name(rows.schema)
        table.append(rows)

    def delete(self, condition: str) -> None:
        self._table().delete(condition)

    def compact(self) -> None:
        from connectx.connectors.lake.merging import merge_files

        table = self._table()
        merge_files(table, 1 << 30)[1].commit(table)

    def newest(self) -> int:
        snapshot = self._table().current_snapshot()
        assert snapshot is not None
        return int(snapshot.snapshot_id)

    def forget(self) -> None:
        table = self._table()
        old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != self.newest()]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def _load(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("iceberg", **self._catalog)

    def _table(self) -> Any:
        return self._load().load_table("default.rows")
