"""Rows that Spark's executors copy into staging tables of PostgreSQL, and how the worker moves them into the tables.

An executor creates and fills its staging tables in one transaction, so that one that dies leaves none. They are
unlogged: a crash of the server empties them, so rows are counted before they are moved. This module commits nothing
that readers see, and knows nothing of offsets.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa
from typing_extensions import override

from connectx.connectors.jdbc.postgres.target import PostgresTarget
from connectx.connectors.jdbc.rows import RowSettings, TableRows
from connectx.connectors.jdbc.target import Target, TargetColumn, TargetSettings, TargetTable
from connectx.connectors.shared.postgres import literal
from connectx.errors.base import ConnectxError
from connectx.errors.databases import RowRefusedError, TableMissingError
from connectx.model.ids import TaskId
from connectx.plugins.contexts import SinkTaskContext
from connectx.plugins.errors import NotStageableError
from connectx.plugins.slices import SinkBatch

log = logging.getLogger(__name__)

_PREFIX: Final = "connectx_stage_"
_NUMBER: Final = "connectx_number"  # counts the changes in their order


@dataclass(frozen=True, slots=True)
class StagingTable:
    """A staging table, and how many rows were copied into it."""

    table: TargetTable
    rows: int = 0


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What is to be done to one table, for rows that have the same columns; can be pickled.

    A row of `changes` is void if `deletes` has its key with a higher number.

    Attributes:
        table: name in SQL.
        mode: insert, upsert or update.
        key: columns that identify a row.
        columns: those of `changes`.
    """

    table: str
    mode: str
    key: tuple[str, ...]
    columns: tuple[str, ...] = ()
    changes: StagingTable | None = None
    deletes: StagingTable | None = None

    @property
    def staging_tables(self) -> list[StagingTable]:
        """The tables that exist."""
        return [each for each in (self.changes, self.deletes) if each is not None]


class StagingTarget(PostgresTarget):
    """A target that keeps in staging tables what it is to do, in place of doing it.

    Args:
        schema: of the staging tables.
        prefix: begin of their names.
        note: comment on them, for people who find one.
    """

    def __init__(self, settings: TargetSettings, schema: str, prefix: str, note: str) -> None:
        super().__init__(settings)
        self._schema = schema
        self._prefix = prefix
        self._note = note
        self._number = 0
        self._collected: dict[str, tuple[StagedRows, ...]] = {}
        self._marked = self._collected

    @property
    def staged(self) -> list[StagedRows]:
        """What was copied, per table in the order in which it is to be done."""
        return [each for parts in self._collected.values() for each in parts]

    @override
    def begin_part(self) -> None:
        super().begin_part()
        self._marked = dict(self._collected)

    @override
    def drop_part(self) -> None:
        super().drop_part()
        self._collected = self._marked

    def check_key(self, table: TargetTable, key: Sequence[str]) -> None:
        """The worker's commit checks it; here it would lock the table."""

    def insert(self, table: TargetTable, rows: pa.Table) -> None:
        """As in Target, but staged."""
        self._change(table, rows, (), "insert")

    def upsert(self, table: TargetTable, rows: pa.Table, key: Sequence[str], *, in_part: bool) -> None:
        """As in Target, but staged."""
        self._change(table, rows, key, "upsert")

    def update(self, table: TargetTable, rows: pa.Table, key: Sequence[str]) -> None:
        """As in Target, but staged."""
        self._change(table, rows, key, "update")

    def held(self, table: TargetTable, keys: pa.Table) -> int:
        """Raise NotStageableError: rows may come before these are moved."""
        raise NotStageableError(f"Records keep values of {table.quoted}; the worker writes them.")

    def delete(self, table: TargetTable, keys: pa.Table) -> None:
        """As in Target, but staged."""
        done, last = self._last(table, "upsert", keys.column_names)
        staged = self._copied(last.deletes, table, keys, is_delete=True)
        self._collected[table.quoted] = (*done, replace(last, deletes=staged))

    def _change(self, table: TargetTable, rows: pa.Table, key: Sequence[str], mode: str) -> None:
        done, last = self._last(table, mode, key)
        columns = tuple(rows.column_names)
        if last.columns not in ((), columns):
            done, last = (*done, last), StagedRows(table.quoted, mode, tuple(key))
        staged = self._copied(last.changes, table, rows, is_delete=False)
        self._collected[table.quoted] = (*done, replace(last, mode=mode, columns=columns, changes=staged))

    def _last(self, table: TargetTable, mode: str, key: Sequence[str]) -> tuple[tuple[StagedRows, ...], StagedRows]:
        *done, last = self._collected.get(table.quoted) or (StagedRows(table.quoted, mode, tuple(key)),)
        return tuple(done), last

    def _copied(
        self, stage: StagingTable | None, table: TargetTable, rows: pa.Table, *, is_delete: bool
    ) -> StagingTable:
        if stage is None:
            stage = StagingTable(self._made(table, rows.column_names, is_checked=not is_delete))
        numbers = pa.array(range(self._number, self._number + rows.num_rows), pa.int64())
        self._number += rows.num_rows
        try:
            super().insert(stage.table, rows.append_column(_NUMBER, numbers))
        except RowRefusedError as error:
            raise RowRefusedError(error.message.replace(stage.table.name, table.name)) from error
        return replace(stage, rows=stage.rows + rows.num_rows)

    def _made(self, table: TargetTable, names: Sequence[str], *, is_checked: bool) -> TargetTable:
        """A staging table with some columns of a table, and with its constraints on them."""
        name = f"{self._prefix}{uuid4().hex[:12]}"
        place = self.place(self._schema, name)
        filled, checks = self._constraints(table, names) if is_checked else (set(), [])
        columns = {column: table.columns[column] for column in names}
        lines = [
            f"{self.quote(column)} {columns[column].type}{' NOT NULL' if column in filled else ''}" for column in names
        ]
        lines += [f"{_NUMBER} bigint", *(f"CHECK ({check})" for check in checks)]
        self.execute(f"CREATE UNLOGGED TABLE {place} ({', '.join(lines)})")
        self.execute(f"COMMENT ON TABLE {place} IS {literal(self._note)}")
        return TargetTable(self._schema, name, place, {**columns, _NUMBER: TargetColumn(_NUMBER, "bigint", pa.int64())})

    def _constraints(self, table: TargetTable, names: Sequence[str]) -> tuple[Set[str], list[str]]:
        """Columns that may not be null, and the conditions that name these columns alone."""
        named = ", ".join(map(literal, names))
        known = f"a.attrelid = {literal(table.quoted)}::regclass AND a.attnum > 0 AND a.attname IN ({named})"
        filled = self.query(f"SELECT a.attname::text FROM pg_attribute a WHERE {known} AND a.attnotnull")
        checks = self.query(
            "SELECT pg_get_expr(c.conbin, c.conrelid) FROM pg_constraint c "
            f"WHERE c.conrelid = {literal(table.quoted)}::regclass AND c.contype = 'c' "
            f"AND c.conkey <@ (SELECT array_agg(a.attnum) FROM pg_attribute a WHERE {known}) "
            "AND to_jsonb(c) ->> 'conenforced' IS DISTINCT FROM 'false'"
        )
        return {name for (name,) in filled}, [check for (check,) in checks]


class _RowsToStage(TableRows):
    """Tables stay as they are."""

    def _change(self, topic: str, statement: str, column: str = "") -> TargetTable:
        raise NotStageableError(f"Records of {topic} need a new table or column; the worker makes it.")


def stage(
    target: StagingTarget, settings: RowSettings, context: SinkTaskContext, batches: Iterator[SinkBatch]
) -> Sequence[StagedRows]:
    """On an executor: copy batches into staging tables, in one transaction.

    Raises:
        NotStageableError: a table has to be made or changed first.
        RecordRejectedError: a row is refused, with errors.tolerance=none.
        DatabaseUnavailableError: no route to PostgreSQL.
        TableMissingError, TableMismatchError, DatabasePermissionError, DatabaseError
    """
    rows = _RowsToStage(target, settings, context.report)
    try:
        for batch in batches:
            if batch.rows.num_rows:
                _write(target, rows, batch.rows, rows.prepare(batch.rows))
        if target.staged:
            target.commit()
        return target.staged
    finally:
        target.close()


def _write(target: StagingTarget, rows: TableRows, batch: pa.Table, refused: Mapping[int, str]) -> None:
    """In one go; if that shows that a row is refused, again in parts, to find it."""
    if not refused:
        target.begin_part()
        try:
            rows.write(batch, refused, carefully=False)
            target.keep_part()
            return
        except RowRefusedError:
            target.drop_part()
    rows.write(batch, refused, carefully=True)


class StagingArea:
    """The staging tables of one sink task, as the worker sees them.

    Args:
        target: the worker's session; every method but `drop_leftovers` runs within its transaction.
        schema: of the staging tables; empty: the default one.
        group_id: the consumer group.
    """

    def __init__(self, target: Target, schema: str, group_id: str, task: TaskId) -> None:
        self._target = target
        self._given_schema = schema
        self._prefix = f"{_PREFIX}{_digest(f'{group_id} {task}')}_"
        self._jobs: set[str] = set()

    def begin(self, token: str) -> tuple[str, str]:
        """A job begins: schema and prefix of its staging tables."""
        self._jobs.add(token)
        return self._schema(), self._prefix_of(token)

    def end(self, token: str) -> None:
        """What is left of a job is a leftover."""
        self._jobs.discard(token)

    def move(self, staged: StagedRows) -> None:
        """Do what was staged.

        Raises:
            NotStageableError: a staging table is not complete, or PostgreSQL refuses a row.
            TableMissingError, TableMismatchError, DatabaseUnavailableError, DatabaseError
        """
        for each in staged.staging_tables:
            self._check(each)
        try:
            for statement in _statements(self._target, staged):
                self._target.execute(statement)
        except RowRefusedError as error:
            raise refused_rows(error) from error

    def drop(self, token: str) -> None:
        """Drop the staging tables of a job."""
        self._drop(self._found(self._prefix_of(token)))

    def drop_leftovers(self) -> None:
        """Drop staging tables of this task that no job of this instance has, if PostgreSQL allows it. Commits."""
        mine = tuple(self._prefix_of(token) for token in self._jobs)
        try:
            left = [name for name in self._found(self._prefix) if not name.startswith(mine)]
            self._drop(left)
            self._target.commit()
        except ConnectxError as error:
            self._target.rollback()
            log.warning("Staging tables of an earlier instance are not dropped: %s", error)

    def _check(self, staged: StagingTable) -> None:
        """An unlogged table is empty after a crash; one of a task that was superseded is gone."""
        try:
            ((count,),) = self._target.query(f"SELECT count(*) FROM {staged.table.quoted}")
        except TableMissingError:
            count = 0
        if count != staged.rows:
            raise NotStageableError(
                f"Staging table {staged.table.name} has {count} of {staged.rows} rows; the worker writes them itself."
            )

    def _found(self, prefix: str) -> list[str]:
        found = self._target.query(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {literal(self._schema())} AND c.relkind = 'r' "
            f"AND starts_with(c.relname, {literal(prefix)})"
        )
        return sorted(str(name) for (name,) in found)

    def _drop(self, names: Sequence[str]) -> None:
        if names:
            listed = ", ".join(self._target.place(self._schema(), name) for name in names)
            self._target.execute(f"DROP TABLE IF EXISTS {listed}")

    def _schema(self) -> str:
        return self._given_schema or self._target.default_schema()

    def _prefix_of(self, token: str) -> str:
        return f"{self._prefix}{_digest(token)}_"


def refused_rows(error: RowRefusedError) -> NotStageableError:
    """A row that only the table itself refuses, as for a key that exists."""
    return NotStageableError(f"The table refuses a staged row ({error.message}); the worker finds it.")


def _statements(target: Target, staged: StagedRows) -> Iterator[str]:
    """SQL whose outcome is that of the staged statements one after the other."""
    same_key = " AND ".join(f"t.{target.quoted(name)} = s.{target.quoted(name)}" for name in staged.key)
    delete = None
    if staged.deletes is not None:
        delete = f"DELETE FROM {staged.table} t USING {staged.deletes.table.quoted} s WHERE {same_key}"
    if delete and staged.mode != "update":
        yield delete
    if staged.changes is not None:
        yield _change(target, staged, staged.changes.table.quoted, same_key)
    if delete and staged.mode == "update":  # an update never brings back a row that was deleted
        yield delete


def _change(target: Target, staged: StagedRows, place: str, same_key: str) -> str:
    names, key = ([target.quoted(name) for name in each] for each in (staged.columns, staged.key))
    listed, keys = ", ".join(names), ", ".join(key)
    if staged.mode == "insert":
        return f"INSERT INTO {staged.table} ({listed}) SELECT {listed} FROM {place}"
    alive = ""
    if staged.deletes is not None and staged.mode == "upsert":
        later = f"SELECT FROM {staged.deletes.table.quoted} t WHERE {same_key} AND t.{_NUMBER} > s.{_NUMBER}"
        alive = f" WHERE NOT EXISTS ({later})"
    last = f"SELECT DISTINCT ON ({keys}) {listed} FROM {place} s{alive} ORDER BY {keys}, {_NUMBER} DESC"
    if staged.mode == "update":
        changes = ", ".join(f"{name} = s.{name}" for name in names if name not in key)
        return f"UPDATE {staged.table} t SET {changes} FROM ({last}) s WHERE {same_key}"
    return f"INSERT INTO {staged.table} ({listed}) {last} {target.on_conflict(staged.columns, staged.key)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
