"""The rows of all tables, in pages, as of one moment.

All pages are read in one transaction, so that they show the same moment. A task that starts again in the middle of a
table goes on after its last row in another transaction. A table without a primary key then begins again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from connectx.connectors.postgres.cdc.catalog import Catalog, as_number
from connectx.connectors.postgres.cdc.events import READ, Changes, Column, RowTexts, TableShape
from connectx.connectors.postgres.cdc.positions import Position, SnapshotState, Visible
from connectx.connectors.postgres.session import PostgresSession, identifier, literal

_PLACE: Final = {"t.tableoid": "oid", "t.ctid": "tid"}
"""Where a row lies, and the types of that: partitions of a table have different oids."""


class Snapshot:
    """Reads the tables that a position has not.

    Args:
        session: gets a transaction that lasts until the last page, or until `close`.
        catalog: of the same session.
        publication: names the tables.
        rows: of a page.
    """

    def __init__(self, session: PostgresSession, catalog: Catalog, publication: str, rows: int) -> None:
        self._session = session
        self._catalog = catalog
        self._rows = rows
        catalog.keep = True
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        ((text, until, now_us, xid),) = session.query(
            f"SELECT pg_current_snapshot()::text, {as_number('pg_current_wal_insert_lsn()')}, "
            "(extract(epoch from clock_timestamp()) * 1000000)::bigint, "
            "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        )
        self.visible = Visible(text, until)
        self.now_us = int(now_us)
        self._xid = int(xid)
        self._partitioned = catalog.partitioned()
        self._tables = {shape.full: shape for shape in catalog.tables(publication)}
        self._page_key: tuple[str, ...] = ()  # of the last row of the table that is being read
        self._is_first = True

    def begin(self, lsn: int) -> Position:
        """The position before the first page; the slot keeps all changes after `lsn`."""
        return Position(lsn, snapshot=SnapshotState(self.visible), last_xid=self._xid, commit_us=self.now_us)

    def next(self, position: Position) -> tuple[Changes | None, Position]:
        """The next page, None when all rows were sent, and the position after it."""
        state = position.snapshot
        assert state is not None, "a snapshot has a state"
        left = [shape for full, shape in self._tables.items() if full not in state.done]
        for number, shape in enumerate(left):
            after = self._resumed(shape, state.after if state.table == shape.full else ())
            page, has_more = self._page(shape, after)
            last = not has_more and number == len(left) - 1
            state = self._after(state, shape, page, has_more=has_more)
            if page.num_rows:
                changes = self._changes(shape, page, position.lsn, begins=not after, more=has_more, last=last)
                return changes, replace(position, snapshot=state)
        return None, replace(position, snapshot=replace(state, table="", after=(), finished=True))

    def close(self) -> None:
        """End the transaction."""
        self._catalog.keep = False
        self._session.rollback()

    # ---------------------------------------------------------------------------------------------- inner parts

    def _resumed(self, shape: TableShape, after: tuple[str, ...]) -> tuple[str, ...]:
        """Where to go on. A place of rows holds only within the transaction that it was read in."""
        return after if shape.key or after == self._page_key else ()

    def _after(self, state: SnapshotState, shape: TableShape, page: pa.Table, *, has_more: bool) -> SnapshotState:
        if not has_more:
            self._page_key = ()
            return replace(state, done=(*state.done, shape.full), table="", after=())
        places = shape.key or range(len(shape.columns), page.num_columns)
        key = tuple(page.column(at)[-1].as_py() for at in places)
        self._page_key = key
        return replace(state, table=shape.full, after=key)

    def _page(self, shape: TableShape, after: tuple[str, ...]) -> tuple[pa.Table, bool]:
        """Rows as texts, without a key followed by their place, and whether there are more."""
        # Without t. ORDER BY would take the texts, which have another order.
        order = [f"t.{identifier(shape.columns[at].name)}" for at in shape.key] or list(_PLACE)
        types = self._key_types(shape)
        place = [] if shape.key else [f"{name}::text" for name in _PLACE]
        selected = ", ".join([*map(_as_text, shape.columns), *place])
        where = ""
        if after:
            given = ", ".join(f"{literal(text)}::{kind}" for text, kind in zip(after, types, strict=True))
            where = f"WHERE ({', '.join(order)}) > ({given}) "
        table = f"{identifier(shape.schema)}.{identifier(shape.name)}"
        only = "" if shape.full in self._partitioned else "ONLY "
        sql = f"SELECT {selected} FROM {only}{table} t {where}ORDER BY {', '.join(order)} LIMIT {self._rows + 1}"
        found = pa.concat_tables(list(self._session.read(sql)) or [pa.table({})])
        has_more = found.num_rows > self._rows
        return (found.slice(0, self._rows) if has_more else found).combine_chunks(), has_more

    def _key_types(self, shape: TableShape) -> list[str]:
        if not shape.key:
            return list(_PLACE.values())
        rows = self._session.query(
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = "
            f"{literal(f'{identifier(shape.schema)}.{identifier(shape.name)}')}::regclass AND a.attnum > 0"
        )
        kinds = dict(rows)
        return [kinds[shape.columns[at].name] for at in shape.key]

    def _changes(self, shape: TableShape, page: pa.Table, lsn: int, *, begins: bool, more: bool, last: bool) -> Changes:
        count = page.num_rows
        markers = ["true"] * count
        if begins:
            markers[0] = "first" if self._is_first else "first_in_data_collection"
        if not more:
            markers[-1] = "last" if last else "last_in_data_collection"
        self._is_first = False

        def same(number: int | None) -> pa.Array:
            return pa.repeat(pa.scalar(number, pa.int64()), count)

        return Changes(
            shape,
            pa.repeat(READ, count),
            before=None,
            after=RowTexts([column.chunk(0) for column in page.columns[: len(shape.columns)]]),
            lsns=same(lsn),
            commits=same(None),
            xids=same(self._xid),
            moments=same(self.now_us),
            snapshot=pa.array(markers),
        )


def _as_text(column: Column) -> str:
    """A column as text, as the stream has it."""
    name = f"t.{identifier(column.name)}"
    if column.type.is_cast_differently:
        return f"CASE WHEN {name} IS NULL THEN NULL ELSE format('%s', {name}) END"
    return f"{name}::text"
