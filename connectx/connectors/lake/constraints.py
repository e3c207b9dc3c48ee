"""Conditions on the rows of a Delta table: CHECK constraints, invariants of columns, and generated columns.

Only the library's writer evaluates them, and its error names no row. So rows are first written to an empty table with
the same conditions, in halves until each refused row is alone. Constraints that contradict the table's columns, and all
other errors of the library, are raised.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from connectx.connectors.shared.columns import nullable

if TYPE_CHECKING:
    from deltalake import DeltaTable

_CHECK: Final = "delta.constraints."
_INVARIANT: Final = b"delta.invariants"
_GENERATED: Final = b"delta.generationExpression"
_REFUSED: Final = "failed validation check"
"""In the library's error if rows violate a condition."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """The conditions of one table.

    Attributes:
        checks: expressions of CHECK constraints, by name.
        invariants: expressions in the metadata of columns, by column.
        generated: columns that the library computes.
    """

    checks: Mapping[str, str]
    invariants: Mapping[str, str]
    generated: Sequence[str]

    @classmethod
    def of(cls, table: DeltaTable) -> Constraints:
        """Those of a snapshot."""
        properties = table.metadata().configuration
        checks = {name.removeprefix(_CHECK): text for name, text in properties.items() if name.startswith(_CHECK)}
        fields = [(field.name, field.metadata or {}) for field in pa.schema(table.schema().to_arrow())]
        invariants = {name: _expression(known[_INVARIANT]) for name, known in fields if _INVARIANT in known}
        return cls(checks, invariants, [name for name, known in fields if _GENERATED in known])

    def __str__(self) -> str:
        """For messages."""
        parts = [f"{name} ({text})" for name, text in [*self.checks.items(), *self.invariants.items()]]
        return ", ".join(parts) or f"generated columns ({', '.join(self.generated)})"

    @property
    def any(self) -> bool:
        """Whether only the library can write rows."""
        return bool(self.checks or self.invariants or self.generated)

    def written(self, rows: pa.Table) -> pa.Table:
        """Rows without the columns that the library computes."""
        return rows.drop_columns([name for name in self.generated if name in rows.column_names])

    def refused(self, rows: pa.Table) -> Mapping[int, str]:
        """Numbers of the rows that violate a condition, with the cause."""
        from deltalake import DeltaTable

        if not (self.checks or self.invariants) or not rows.num_rows:
            return {}
        with TemporaryDirectory(prefix="connectx-") as folder:
            rows = rows.cast(nullable(rows.schema))
            table = DeltaTable.create(folder, schema=rows.schema)
            for name, text in self.checks.items():
                table.alter.add_constraint({name: text})
            cause = f"the row violates a constraint: {self}"
            return dict.fromkeys(_refused(table, self.written(rows), 0), cause)


def _refused(table: DeltaTable, rows: pa.Table, first: int) -> Iterator[int]:
    """Numbers of the rows that a table refuses, counted from `first`."""
    from deltalake import write_deltalake
    from deltalake.exceptions import DeltaError

    try:
        write_deltalake(table, rows, mode="append", schema_mode="merge")
    except DeltaError as error:
        if _REFUSED not in str(error):
            raise
        if rows.num_rows == 1:
            yield first
            return
        half = rows.num_rows // 2
        yield from _refused(table, rows.slice(0, half), first)
        yield from _refused(table, rows.slice(half), first + half)


def _expression(metadata: bytes) -> str:
    return str(json.loads(metadata)["expression"]["expression"])
