"""Tables, types, the publication and the replication slot, read from PostgreSQL's catalog.

Decides which tables are read. Never decides what to do about a slot that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from connectx.connectors.cdc.columns import ColumnFilter, matches
from connectx.connectors.cdc.events import Column, TableShape
from connectx.connectors.cdc.values import (
    ColumnType,
    Modes,
    Oid,
    array_type,
    column_type,
    enum_type,
    hstore_type,
)
from connectx.connectors.shared.postgres import PostgresSession, identifier, literal
from connectx.errors.databases import DatabaseError
from connectx.protocol.pgoutput import Relation

_FIRST_OWN_OID: Final = 16_384
"""Types with lower numbers are PostgreSQL's own."""

_KEYED: Final = "di"
"""Replica identities whose messages flag the columns of the key."""

_CANNOT_ADVANCE: Final = "SQLSTATE 55000"
"""In the error of a slot that is to be moved back."""

_ENDS_MS: Final = 5_000
"""How long a connection may take to end."""


def as_number(lsn: str) -> str:
    """SQL of an LSN as bigint."""
    return f"({lsn} - '0/0'::pg_lsn)::bigint"


def as_lsn(number: int) -> str:
    """SQL of a number as pg_lsn."""
    return f"'{number >> 32:X}/{number & 0xFFFFFFFF:X}'::pg_lsn"


def copies_of(slot: str) -> str:
    """What the names of temporary copies of a slot begin with; the process id of their session follows (63 bytes)."""
    return f"{slot[:48]}_ahead_"


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot.

    Attributes:
        confirmed: LSN up to which its reader has confirmed.
        is_lost: WAL that it needs is gone.
        restart: LSN from which the server keeps WAL for it.
    """

    confirmed: int
    is_lost: bool
    plugin: str
    database: str
    restart: int


@dataclass(frozen=True, slots=True)
class TableFilter:
    """schema.include.list, schema.exclude.list, table.include.list and table.exclude.list."""

    schemas: tuple[str, ...] = ()
    schemas_not: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    tables_not: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TableFilter:
        """The filter of a parsed configuration."""
        return cls(
            tuple(values["schema.include.list"]),
            tuple(values["schema.exclude.list"]),
            tuple(values["table.include.list"]),
            tuple(values["table.exclude.list"]),
        )

    def place(self, schema: str, table: str) -> int:
        """Number of the first expression of table.include.list that chooses a table; 0 without the list."""
        full = f"{schema}.{table}"
        return next((number for number, pattern in enumerate(self.tables) if matches((pattern,), full)), 0)

    def takes(self, schema: str, table: str) -> bool:
        """Whether a table is read. Expressions match whole names, in any case."""
        full = f"{schema}.{table}"
        return (
            schema not in ("pg_catalog", "information_schema")
            and (not self.schemas or matches(self.schemas, schema))
            and not matches(self.schemas_not, schema)
            and (not self.tables or matches(self.tables, full))
            and not matches(self.tables_not, full)
        )


class _OwnType(NamedTuple):
    """A type that users made: the type below a domain, its modifier, and the labels of an enum.

    `is_array`: the type is an array, of an enum if it has labels, or of hstore.
    """

    base: int
    modifier: int
    is_array: bool = False
    labels: str = ""
    is_hstore: bool = False


class _ColumnNow(NamedTuple):
    """A column of a table now; `place` is its number in the key, from 1, or 0; `is_required`: it is NOT NULL."""

    name: str = ""
    type_oid: int = 0
    modifier: int = -1
    is_required: bool = False
    place: int = 0
    is_primary: bool = False


_UNKNOWN: Final = _ColumnNow()


class Catalog:
    """Queries of one session; each ends its transaction unless `keep` is set.

    Args:
        session: where to ask.
        modes: forms of values.
        takes: tables to read.
        columns: columns to read of them, and keys of their records.
    """

    def __init__(self, session: PostgresSession, modes: Modes, takes: TableFilter, columns: ColumnFilter) -> None:
        self._session = session
        self._modes = modes
        self._takes = takes
        self._columns = columns
        self.keep = False

    def shape_of(self, relation: Relation) -> TableShape | None:
        """The table that a Relation message describes, as it was then; None when it is not read.

        The message has no order of the key, no NOT NULL, and with REPLICA IDENTITY FULL or NOTHING no key. These are
        the table's now. A column that was renamed since is found by its place.
        """
        if not self._takes.takes(relation.schema, relation.name):
            return None
        found = self._columns_of(f"a.attrelid = {relation.oid}")
        then = _columns_then(relation, found)
        key = _key_then(relation, then)
        nullable = [not column.is_required and number not in key for number, column in enumerate(then)]
        named = [(column.name, column.type_oid, column.modifier) for column in relation.columns]
        return self._shape(relation.schema, relation.name, named, nullable, key)

    def tables(self, publication: str) -> list[TableShape]:
        """Tables of the publication that are read, in the order of table.include.list, then by name."""
        return self._tables(table for table in self._published(publication) if self._takes.takes(*table))

    def chosen_tables(self, *, via_root: bool) -> list[TableShape]:
        """Tables that are read without a publication, in the order of table.include.list, then by name.

        Raises:
            DatabaseError: no table is chosen.
        """
        return self._tables(self._chosen(via_root=via_root))

    def _tables(self, names: Iterable[tuple[str, str]]) -> list[TableShape]:
        return [self._table(*table) for table in sorted(names, key=lambda table: (self._takes.place(*table), table))]

    def unchosen(self, publication: str) -> str:
        """A warning that the lists choose no table of the publication; empty if they do, or if there is no list."""
        published = list(self._published(publication))
        if self._takes == TableFilter() or any(self._takes.takes(*table) for table in published):
            return ""
        return (
            f"table.include.list and the other lists choose none of the {len(published)} tables of the publication "
            f"{publication}, so no change is read. Correct the lists (an expression matches a whole name, as "
            "public.orders), or create the table."
        )

    def _table(self, schema: str, name: str) -> TableShape:
        columns = self._columns_of(f"n.nspname = {literal(schema)} AND c.relname = {literal(name)}")
        named = [(column.name, column.type_oid, column.modifier) for column in columns]
        return self._shape(schema, name, named, [not column.is_required for column in columns], _key_of(columns))

    def _columns_of(self, where: str) -> list[_ColumnNow]:
        """Columns of a table as they are now, in order, with their places in its key.

        As with Debezium the key is the primary key, or without one the first unique index whose columns are NOT NULL.
        The index of REPLICA IDENTITY USING INDEX comes before both, since deletes have no other columns.
        """
        rows = self._query(
            "SELECT a.attname::text, a.atttypid::bigint, a.atttypmod, a.attnotnull, "
            "coalesce(array_position(k.columns, a.attnum), 0), coalesce(k.indisprimary, false) FROM pg_attribute a "
            "JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN LATERAL "
            "(SELECT columns, i.indisprimary FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid, "
            "LATERAL (SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1]) AS key (columns) WHERE i.indrelid = c.oid "
            "AND (i.indisprimary OR i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL "
            "AND NOT EXISTS (SELECT FROM unnest(columns) number LEFT JOIN pg_attribute r ON r.attrelid = c.oid "
            "AND r.attnum = number WHERE r.attnotnull IS NOT true)) "
            "ORDER BY i.indisreplident DESC, i.indisprimary DESC, x.relname LIMIT 1) k ON true "
            f"WHERE {where} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum"
        )
        return [_ColumnNow(*row) for row in rows]

    def _shape(
        self, schema: str, name: str, named: list[tuple[str, int, int]], nullable: list[bool], key: tuple[int, ...]
    ) -> TableShape:
        table = f"{schema}.{name}"
        chosen = self._columns.key(table, [column for column, _, _ in named])
        is_in_value = [self._columns.takes(table, column) for column, _, _ in named]
        read = [number for number, taken in enumerate(is_in_value) if taken or number in key or number in chosen]
        own = self._own_types({named[number][1] for number in read if named[number][1] >= _FIRST_OWN_OID})
        columns = []
        for number in read:
            column, oid, modifier = named[number]
            kind = self._column_type(own.get(oid) or _OwnType(oid, modifier), f"{table}.{column}")
            columns.append(Column(column, kind, nullable[number], is_in_value[number]))
        return TableShape(
            schema,
            name,
            tuple(columns),
            tuple(read.index(number) for number in key),
            tuple(read.index(number) for number in chosen),
            tuple(number for number in range(len(named)) if number not in read),
        )

    def _column_type(self, own: _OwnType, where: str) -> ColumnType:
        if own.labels:
            kind = enum_type(own.labels, self._modes)
        elif own.is_hstore:
            kind = hstore_type(self._modes)
        else:
            base, modifier = (Oid.TEXT, -1) if own.is_array else own[:2]
            kind = column_type(base, modifier, self._modes, where)
        return array_type(kind, self._modes, has_nulls=not own.labels) if own.is_array else kind

    def _own_types(self, oids: set[int]) -> dict[int, _OwnType]:
        if not oids:
            return {}
        listed = ", ".join(map(str, sorted(oids)))
        labels = "(SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = {})"
        rows = self._query(
            "WITH RECURSIVE t AS (SELECT oid, oid AS base, typtypmod AS modifier FROM pg_type "
            f"WHERE oid IN ({listed}) UNION ALL SELECT t.oid, p.typbasetype, p.typtypmod FROM t "
            "JOIN pg_type p ON p.oid = t.base WHERE p.typtype = 'd') SELECT t.oid::bigint, t.base::bigint, t.modifier, "
            f"p.typcategory = 'A', coalesce({labels.format('p.oid')}, {labels.format('p.typelem')}), "
            "'hstore' IN (p.typname, e.typname) FROM t JOIN pg_type p ON p.oid = t.base "
            "LEFT JOIN pg_type e ON e.oid = p.typelem WHERE p.typtype <> 'd'"
        )
        return {
            oid: _OwnType(base, modifier, is_array and base >= _FIRST_OWN_OID, labels or "", is_hstore)
            for oid, base, modifier, is_array, labels, is_hstore in rows
        }

    def ensure_publication(self, name: str, mode: str, *, via_root: bool = False) -> None:
        """Create the publication, or set its tables, by publication.autocreate.mode.

        `via_root`: one that is created or changed names partitioned tables, and not their partitions.

        Raises:
            DatabaseError: it does not exist, or no table is chosen.
        """
        found = self._query(f"SELECT pubviaroot FROM pg_publication WHERE pubname = {literal(name)}")
        option = f"(publish_via_partition_root = {str(via_root).lower()})"
        if mode == "filtered":
            wanted = self._chosen(via_root=via_root)
            listed = ", ".join(f"{identifier(schema)}.{identifier(table)}" for schema, table in sorted(wanted))
            if not found:
                self._execute(f"CREATE PUBLICATION {identifier(name)} FOR TABLE {listed} WITH {option}")
            elif via_root and found == [(False,)]:
                self._execute(f"ALTER PUBLICATION {identifier(name)} SET {option}")
            if found and wanted != set(self._published(name)):
                self._execute(f"ALTER PUBLICATION {identifier(name)} SET TABLE {listed}")
        elif not found and mode == "all_tables":
            self._execute(f"CREATE PUBLICATION {identifier(name)} FOR ALL TABLES WITH {option}")
        elif not found:
            raise DatabaseError(
                f"PostgreSQL has no publication {name}, and publication.autocreate.mode is disabled.",
                next_step="Create it, or correct publication.name or the mode, and restart the task.",
            )

    def partitioned(self) -> set[str]:
        """Partitioned tables, as `schema.table`."""
        rows = self._query(
            "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind = 'p'"
        )
        return {f"{schema}.{table}" for schema, table in rows}

    def _published(self, name: str) -> Iterable[tuple[str, str]]:
        rows = self._query(
            f"SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = {literal(name)}"
        )
        return [(schema, table) for schema, table in rows]

    def _chosen(self, *, via_root: bool) -> set[tuple[str, str]]:
        kinds = "c.relkind IN ('r', 'p') AND NOT c.relispartition" if via_root else "c.relkind = 'r'"
        rows = self._query(
            "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE {kinds} AND c.relpersistence = 'p'"
        )
        chosen = {(schema, table) for schema, table in rows if self._takes.takes(schema, table)}
        if not chosen:
            raise DatabaseError(
                "The database has no table that table.include.list and the other lists choose.",
                next_step="Create it, or correct the lists, and restart the task.",
            )
        return chosen

    def slot(self, name: str) -> Slot | None:
        """The slot, None if there is none."""
        rows = self._query(
            f"SELECT {as_number('confirmed_flush_lsn')}, coalesce(wal_status, '') = 'lost', plugin::text, "
            f"database::text, coalesce({as_number('restart_lsn')}, 0) FROM pg_replication_slots "
            f"WHERE slot_name = {literal(name)}"
        )
        return Slot(*rows[0]) if rows else None

    def create_slot(self, name: str) -> Slot:
        """Create the slot; changes are kept from now on.

        Raises:
            DatabaseError: wal_level is not logical, or all slots are in use.
        """
        ((level,),) = self._query("SELECT current_setting('wal_level')")
        if level != "logical":
            raise DatabaseError(
                f"PostgreSQL's wal_level is {level}, and change data capture needs logical.",
                next_step="Set wal_level = logical, restart the server and then the task.",
            )
        self._query(f"SELECT 1 FROM pg_create_logical_replication_slot({literal(name)}, 'pgoutput')")
        made = self.slot(name)
        assert made is not None, "the slot was created"
        return made

    def drop_slot(self, name: str) -> None:
        """Drop it, with the changes that it keeps."""
        self._query(f"SELECT 1 FROM pg_drop_replication_slot({literal(name)})")

    def end_zombie(self, name: str) -> None:
        """End connections of older instances of this task that have the slot or a copy of it.

        They are known by their application_name.
        """
        self._query(
            f"SELECT pg_terminate_backend(s.active_pid, {_ENDS_MS}) FROM pg_replication_slots s "
            f"JOIN pg_stat_activity a ON a.pid = s.active_pid WHERE (s.slot_name = {literal(name)} "
            f"OR s.temporary AND starts_with(s.slot_name::text, {literal(copies_of(name))})) "
            "AND a.usename = current_user AND a.application_name = current_setting('application_name')"
        )

    def flushed(self) -> int:
        """LSN up to which the server's WAL is durable."""
        ((lsn,),) = self._query(f"SELECT {as_number('pg_current_wal_flush_lsn()')}")
        return int(lsn)

    def is_elsewhere(self) -> bool:
        """Whether another instance of this task has a connection, known by its application_name."""
        ((found,),) = self._query(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user "
            "AND pid <> pg_backend_pid() AND application_name = current_setting('application_name'))"
        )
        return bool(found)

    def advance(self, name: str, lsn: int) -> bool:
        """Move the slot forward: the server may drop WAL before `lsn`. False: the slot is further already."""
        try:
            self._query(f"SELECT 1 FROM pg_replication_slot_advance({literal(name)}, {as_lsn(lsn)})")
        except DatabaseError as error:
            if _CANNOT_ADVANCE not in error.message:
                raise
            self._session.rollback()
            return False
        return True

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        rows = self._session.query(sql)
        if not self.keep:
            self._session.commit()
        return rows

    def _execute(self, sql: str) -> None:
        self._session.execute(sql)
        self._session.commit()


def _key_of(columns: Sequence[_ColumnNow]) -> tuple[int, ...]:
    """Numbers of the key's columns in its order."""
    return tuple(sorted((n for n, column in enumerate(columns) if column.place), key=lambda n: columns[n].place))


def _columns_then(relation: Relation, columns: Sequence[_ColumnNow]) -> list[_ColumnNow]:
    """Columns that a table has now for those of a message: with the same name, or renamed at the same place."""
    now, names = {column.name: column for column in columns}, {column.name for column in relation.columns}
    renamed = list(columns) if len(columns) == len(relation.columns) else [_UNKNOWN] * len(relation.columns)
    return [
        now.get(then.name, other if other.name not in names and other.type_oid == then.type_oid else _UNKNOWN)
        for then, other in zip(relation.columns, renamed, strict=True)
    ]


def _key_then(relation: Relation, columns: Sequence[_ColumnNow]) -> tuple[int, ...]:
    """The key of a table when a message described it; `columns` are those of the message, as far as they are known."""
    key = _key_of(columns)
    flagged = tuple(number for number, column in enumerate(relation.columns) if column.is_key)
    if relation.identity not in _KEYED:
        return key
    if not flagged:  # there was no primary key
        return () if any(column.is_primary for column in columns) else key
    return key if set(key) == set(flagged) else flagged
