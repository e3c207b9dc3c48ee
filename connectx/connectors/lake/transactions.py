"""A transaction of the Iceberg library that computes the metadata of its table once after each change.

The library's own computes and copies all of it, with every snapshot, whenever any part of it is asked for: about 18
times in a commit, which is most of a commit's time. Import it only where pyiceberg may be needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table import Table, Transaction

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate


class TableTransaction(Transaction):
    """Use it as the one that `Table.transaction` returns."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._known: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the updates that were staged; not to be changed."""
        base, updates = self._table.metadata, self._updates
        if self._known is None or self._known[0] is not base or self._known[1] is not updates:
            self._known = base, updates, super().table_metadata
        return self._known[2]
