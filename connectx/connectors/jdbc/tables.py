"""Names of tables and their columns, and which of them a configuration selects. Reads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectx.errors.plugins import ConfigError
from connectx.model.configdef import invalid_value
from connectx.model.patterns import matches_any, problem_of
from connectx.model.source_offsets import SourcePartition

QUERY_PARTITION: SourcePartition = {"query": "query"}


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table or view. `schema` and `catalog` are empty where the database has none."""

    schema: str
    name: str
    catalog: str = ""

    @property
    def full(self) -> str:
        """`public.users`."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def spellings(self) -> tuple[str, ...]:
        """How a configuration may name it: alone, with the schema, with catalog and schema."""
        found = [self.name, self.full] + ([f"{self.catalog}.{self.full}"] if self.catalog else [])
        return tuple(dict.fromkeys(found))

    @property
    def partition(self) -> SourcePartition:
        """Source partition, with the order of properties that Java writes (Confluent's OffsetProtocols, version 1)."""
        return {"protocol": "1", "table": self.full}

    @property
    def older_partitions(self) -> list[SourcePartition]:
        """Other source partitions under which Confluent's connector may have kept the offset."""
        others: list[SourcePartition] = [{"protocol": "1", "table": name} for name in self.spellings[:0:-1]]
        return [one for one in [*others, {"table": self.name}] if one != self.partition]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        type: the database's name of it.
        is_auto: the database counts its values up itself.
        is_key: it belongs to the primary key; only databases that executors read report this.
    """

    name: str
    type: str
    is_nullable: bool = True
    is_auto: bool = False
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tables are read: by exact names, or by regular expressions over whole names; all of them without either."""

    whitelist: frozenset[str] = frozenset()
    blacklist: frozenset[str] = frozenset()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Selection:
        """From the parsed configuration of a source."""
        return cls(
            frozenset(values["table.whitelist"]),
            frozenset(values["table.blacklist"]),
            tuple(values["table.include.list"]),
            tuple(values["table.exclude.list"]),
        )

    def takes(self, table: TableName) -> bool:
        """Whether this table is read."""
        names = set(table.spellings)
        if self.whitelist or self.blacklist:
            return not names & self.blacklist and (not self.whitelist or bool(names & self.whitelist))
        return not matches(self.exclude, table) and (not self.include or matches(self.include, table))

    def missing(self, tables: Sequence[TableName]) -> list[str]:
        """Exact names that no table has."""
        return sorted(self.whitelist.difference(*(table.spellings for table in tables)))


def matches(patterns: Sequence[str], table: TableName) -> bool:
    """Whether one of the patterns matches one of the table's names as a whole."""
    return any(matches_any(patterns, name) for name in table.spellings)


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Columns by table: `regex:column` or `regex:[column|column]` (incrementing.column.mapping and its sibling)."""

    entries: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def parse(cls, key: str, texts: Sequence[str]) -> ColumnMapping:
        """Entries of a list setting. Raises ConfigError for one of another form."""
        entries = []
        for text in texts:
            pattern, colon, columns = text.rpartition(":")
            names = tuple(name.strip() for name in columns.strip().removeprefix("[").removesuffix("]").split("|"))
            if problem := problem_of(pattern):
                raise ConfigError([invalid_value(key, text, f"Invalid regex: {problem}")])
            if not colon or not pattern or not all(names):
                raise ConfigError([invalid_value(key, text, "it is not of the form regex:column or regex:[one|two]")])
            entries.append((pattern, names))
        return cls(tuple(entries))

    def columns(self, table: TableName) -> tuple[str, ...]:
        """Columns of the first entry that fits; empty when none does."""
        return next((columns for pattern, columns in self.entries if matches([pattern], table)), ())


def groups(tables: Sequence[TableName], max_groups: int) -> list[list[TableName]]:
    """Neighbouring tables in groups of nearly equal size; none without tables (ConnectorUtils.groupPartitions)."""
    count = min(len(tables), max_groups)
    if not count:
        return []
    size, larger = divmod(len(tables), count)
    made, at = [], 0
    for number in range(count):
        end = at + size + (number < larger)
        made.append(list(tables[at:end]))
        at = end
    return made
