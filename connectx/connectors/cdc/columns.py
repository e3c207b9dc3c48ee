"""Which columns of a table are in its records, and which are their key. Pure.

Mirrors Tables.ColumnNameFilterFactory and Key.CustomKeyMapper of Debezium 3.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from connectx.model.patterns import matches_any

KEY_COLUMNS: Final = re.compile(r"\s*([^:]+):([^:,]+(,[^:,]+)*)\s*")
"""One of the expressions of message.key.columns: `table:column,column`."""


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """column.include.list, column.exclude.list and message.key.columns.

    Attributes:
        keys: expressions for schema.table.column, in the order of the columns in a key.
    """

    columns: tuple[str, ...] = ()
    columns_not: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ColumnFilter:
        """The filter of a parsed configuration."""
        tables = [part.strip().split(":") for part in (values["message.key.columns"] or "").split(";") if part.strip()]
        keys = tuple(f"{table}.{column.strip()}" for table, columns in tables for column in columns.split(","))
        return cls(tuple(values["column.include.list"]), tuple(values["column.exclude.list"]), keys)

    def takes(self, table: str, column: str) -> bool:
        """Whether values have a column of a table (`schema.table`). A key keeps its columns nevertheless."""
        full = f"{table}.{column}"
        return (not self.columns or matches(self.columns, full)) and not matches(self.columns_not, full)

    def key(self, table: str, columns: Sequence[str]) -> tuple[int, ...]:
        """Numbers of the columns that message.key.columns makes the key; empty: the primary key is."""
        found = [
            number
            for pattern in self.keys
            for number, column in enumerate(columns)
            if matches((pattern,), f"{table}.{column}")
        ]
        return tuple(dict.fromkeys(found))


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether one of the expressions matches a whole name, in any case."""
    return matches_any(patterns, name, ignore_case=True)
