"""Takes records into the columns of a table in files, and refuses those that it cannot hold, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.lake.changes import DELETED, changes_of, check_keys, why_others
from connectx.connectors.lake.settings import LakeSettings
from connectx.connectors.lake.table import LakeTable
from connectx.connectors.shared.columns import evolved, fitted_by_halves, required_nulls
from connectx.connectors.shared.kept import KEPT, KEPT_FIELD
from connectx.connectors.shared.uniting import columns_of
from connectx.data.chunks import rows_where
from connectx.data.converter import OTHER_FIELDS
from connectx.data.shapes import nulls_of
from connectx.errors.databases import TableMismatchError

_ROW: Final = "row"
"""Number of a record in its batch."""
_TOMBSTONE: Final = "the record has no value (a tombstone), and this sink deletes nothing"


class Taken(NamedTuple):
    """Rows or changes of the records of a batch, with the columns of the table, and their places in the topic."""

    schema: pa.Schema | None
    columns: pa.Table
    places: pa.Table


@dataclass(frozen=True, slots=True)
class Taking:
    """Takes records of one topic into one table.

    Attributes:
        settings: of the sink.
        table: the target, as it was read last.
        refuse: reports a record that the table cannot hold: its partition, its offset and the cause.
    """

    settings: LakeSettings
    table: LakeTable
    refuse: Callable[[int, int, str], None]

    def take(self, rows: pa.Table, known: pa.Schema | None) -> list[Taken]:
        """Rows of the table, those that were refused reported in the order of the records.

        If the table cannot take some record, the records before it are taken first. So neither what is refused nor the
        first error depends on which records share a batch.

        Args:
            known: columns of the table so far.

        Raises:
            TableMismatchError: the table cannot take a record.
            RecordRejectedError: from `refuse`, which raises it with errors.tolerance=none.
        """
        refused: dict[int, str] = {}
        try:
            taken = self._of_shape(rows, known, refused)
        except TableMismatchError:
            if rows.num_rows < 2:
                raise
            half = rows.num_rows // 2
            first = self.take(rows.slice(0, half), known)
            return [*first, *self.take(rows.slice(half), first[-1].schema)]
        for row, cause in sorted(refused.items()):
            self.refuse(rows["partition"][row].as_py(), rows["offset"][row].as_py(), cause)
        return [taken]

    def _of_shape(self, rows: pa.Table, known: pa.Schema | None, refused: dict[int, str]) -> Taken:
        """Rows in the columns of the table, those left out that are refused: their numbers and causes."""
        columns, places = self._columns(rows, refused)
        if not columns.num_rows:
            return Taken(known, columns, places)
        schema, held = self._schemas(known, columns.schema)
        return Taken(schema, *self._fitting(columns, places, held, refused))

    def _columns(self, rows: pa.Table, refused: dict[int, str]) -> tuple[pa.Table, pa.Table]:
        """Rows or changes, and their places; records that are neither are refused and left out."""
        places = rows.select(["partition", "offset"]).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        if not rows.num_rows:
            return pa.table({}), places
        if self.settings.upserts is not None:
            changes = changes_of(rows, self.settings.upserts)
            refused |= changes.refused()
            return changes.columns.filter(changes.good), places.filter(changes.good)
        missing = nulls_of(rows["value"])
        if pc.any(missing).as_py():
            refused |= dict.fromkeys(rows_where(missing).to_pylist(), _TOMBSTONE)
            rows, places = rows.filter(pc.invert(missing)), places.filter(pc.invert(missing))
        columns = columns_of(rows["value"])
        if OTHER_FIELDS not in columns.column_names:
            return columns, places
        causes, columns = why_others(columns[OTHER_FIELDS]), columns.drop_columns(OTHER_FIELDS)
        if causes.null_count == len(causes):
            return columns, places
        found = rows_where(pc.is_valid(causes))
        refused |= zip(places[_ROW].take(found).to_pylist(), causes.take(found).to_pylist(), strict=True)
        return columns.filter(pc.is_null(causes)), places.filter(pc.is_null(causes))

    def _schemas(self, known: pa.Schema | None, found: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
        """Columns of the table, and those of the rows in memory, which may be changes."""
        evolve, upserts = self.settings.evolve, self.settings.upserts
        if upserts is None:
            schema = evolved(known, found, self.table.name, evolve=evolve)
            return schema, schema
        plain = pa.schema([field for field in found if field.name not in (DELETED, KEPT)])
        schema = evolved(known, plain, self.table.name, evolve=evolve)
        check_keys(schema, upserts.key, self.table.name)
        held = schema.append(pa.field(DELETED, pa.bool_()))
        return schema, held.append(KEPT_FIELD) if KEPT in found.names else held

    def _fitting(
        self, columns: pa.Table, places: pa.Table, schema: pa.Schema, refused: dict[int, str]
    ) -> tuple[pa.Table, pa.Table]:
        """Columns of the table, and the places of the rows; a row that the table refuses is left out."""

        def refuse(place: Mapping[str, Any], cause: str) -> None:
            refused[place[_ROW]] = cause

        columns, places = fitted_by_halves(columns, places, schema, refuse)
        wrong = _refused(columns, self.table)
        if not wrong:
            return columns, places
        numbers = places[_ROW].to_pylist()
        refused |= {numbers[row]: cause for row, cause in wrong.items()}
        kept = pa.array([row not in wrong for row in range(columns.num_rows)])
        return columns.filter(kept), places.filter(kept)


def _refused(columns: pa.Table, table: LakeTable) -> Mapping[int, str]:
    """Numbers of the rows that have no value in a required column or violate a constraint.

    Deletions never do, and of rows that keep values this is not known.
    """
    if KEPT in columns.column_names:
        known = pc.invert(pc.fill_null(pc.greater(pc.list_value_length(columns[KEPT]), 0), False))
        numbers = rows_where(known).to_pylist()
        whole = columns.drop_columns([KEPT]).take(pa.array(numbers, pa.int64()))
        return {numbers[row]: cause for row, cause in _refused(whole, table).items()}
    if DELETED not in columns.column_names:
        return {**table.refused(columns), **required_nulls(columns)}
    numbers = rows_where(pc.invert(columns[DELETED])).to_pylist()
    written = columns.drop_columns([DELETED]).take(pa.array(numbers, pa.int64()))
    return {numbers[row]: cause for row, cause in _refused(written, table).items()}
