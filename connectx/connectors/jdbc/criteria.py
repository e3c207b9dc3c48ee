"""The position of a source in a table, and the SQL that reads the rows after it. Never talks to a database.

Positions are those of Confluent's TimestampIncrementingOffset, so that offsets carry over in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

TIMESTAMP = "connectx_timestamp"
"""Column that a query adds: the tracked timestamp in microseconds since 1970."""
INCREMENTING = "connectx_incrementing"
"""Column that a query adds: the tracked number."""


@dataclass(frozen=True, slots=True)
class Position:
    """The last row that was read: its timestamp in microseconds since 1970, its number; None where not tracked."""

    timestamp_us: int | None = None
    incrementing: int | None = None

    @classmethod
    def of(cls, offset: Mapping[str, Any] | None) -> Position:
        """From a source offset; what it does not name counts as the beginning."""
        offset = offset or {}
        millis, nanos = offset.get("timestamp"), offset.get("timestamp_nanos")
        timestamp_us = None if millis is None else int(millis) * 1000
        if timestamp_us is not None and nanos is not None:
            timestamp_us = timestamp_us // 1_000_000 * 1_000_000 + int(nanos) // 1000
        number = offset.get("incrementing")
        return cls(timestamp_us, None if number is None else int(number))

    @property
    def offset(self) -> dict[str, Any]:
        """As a source offset."""
        made: dict[str, Any] = {}
        if self.incrementing is not None:
            made["incrementing"] = self.incrementing
        if self.timestamp_us is not None:
            made["timestamp"] = self.timestamp_us // 1000
            made["timestamp_nanos"] = self.timestamp_us % 1_000_000 * 1000
        return made


@dataclass(frozen=True, slots=True)
class TimestampSql:
    """The tracked timestamp in SQL: what is compared and sorted, its microseconds, and literals to compare with."""

    value: str
    micros: str
    literal: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a mode tracks: a timestamp, a number (an SQL expression), both, or (bulk) nothing.

    Attributes:
        ties: SQL of the columns that order rows with the same position; empty: no columns do.
    """

    timestamp: TimestampSql | None = None
    incrementing: str | None = None
    ties: tuple[str, ...] = ()

    @property
    def is_repeatable(self) -> bool:
        """Whether a query gives the same rows in the same order each time."""
        return self.incrementing is not None or bool(self.ties)

    @property
    def added(self) -> list[tuple[str, str]]:
        """Columns to add to the selected ones: (name, expression)."""
        found = [(TIMESTAMP, self.timestamp.micros)] if self.timestamp else []
        return found + ([(INCREMENTING, self.incrementing)] if self.incrementing else [])

    def query(
        self,
        selected: str,
        source: str,
        after: Position,
        *,
        before_us: int | None = None,
        until: Position | None = None,
        limit: int | None = None,
        skip: int = 0,
    ) -> str:
        """SELECT of the rows after a position, in order.

        Args:
            selected: the select list.
            source: table, or query in parentheses, with the alias of Database.column.
            after: rows up to here are left out.
            before_us: rows with this timestamp or a later one are left out.
            until: the last row to read.
            limit: how many rows to read.
            skip: with a limit: how many rows to leave out before them.
        """
        sql = f"SELECT {selected} FROM {source}{self._where(after, before_us, until)}"
        if order := [part for part in (self.timestamp and self.timestamp.value, self.incrementing, *self.ties) if part]:
            sql += f" ORDER BY {', '.join(order)}"
        if limit is None:
            return sql
        return f"{sql} LIMIT {limit} OFFSET {skip}" if skip else f"{sql} LIMIT {limit}"

    def count(
        self, source: str, after: Position, before_us: int | None, *, until: Position | None, limit: int | None
    ) -> str:
        """SELECT of the number of rows that `query` with these arguments has."""
        rows = f"SELECT 1 AS one FROM {source}{self._where(after, before_us, until)}"
        return f"SELECT count(*) FROM ({rows if limit is None else f'{rows} LIMIT {limit}'}) AS counted"

    def _where(self, after: Position, before_us: int | None, until: Position | None) -> str:
        conditions = [*self._after(after), *self._until(until)]
        if self.timestamp and before_us is not None:
            conditions.append(f"{self.timestamp.value} < {self.timestamp.literal(before_us)}")
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _after(self, after: Position) -> list[str]:
        stamp, number = self.timestamp, self.incrementing
        if stamp and number and after.timestamp_us is not None and after.incrementing is not None:
            literal = stamp.literal(after.timestamp_us)
            pair = f"({stamp.value}, {number}) > ({literal}, {after.incrementing})"
            return [f"{stamp.value} >= {literal}", pair]  # MySQL uses an index only for the first one
        if stamp and after.timestamp_us is not None:
            return [f"{stamp.value} > {stamp.literal(after.timestamp_us)}"] + (
                [f"{number} IS NOT NULL"] if number else []
            )
        if number and not stamp and after.incrementing is not None:
            return [f"{number} > {after.incrementing}"]
        return [f"{one} IS NOT NULL" for one in (stamp and stamp.value, number) if one]

    def _until(self, until: Position | None) -> list[str]:
        if until is None:
            return []
        stamp, number = self.timestamp, self.incrementing
        if stamp and until.timestamp_us is not None:
            literal = stamp.literal(until.timestamp_us)
            if number and until.incrementing is not None:
                return [
                    f"{stamp.value} <= {literal}",
                    f"({stamp.value}, {number}) <= ({literal}, {until.incrementing})",
                ]
            return [f"{stamp.value} <= {literal}"]
        return [f"{number} <= {until.incrementing}"] if number and until.incrementing is not None else []
