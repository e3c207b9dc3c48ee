"""The rows of all tables, in pages, as of one moment.

Several tables can be read at a time, each over a separate connection. All transactions import the snapshot of the first
one, so that they show the same moment. While a page is sent, the next ones are read. A task that starts again in the
middle of tables continues after their last rows in other transactions. A table without a primary key then begins again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from connectx.connectors.postgres.cdc.catalog import Catalog, as_number
from connectx.connectors.postgres.cdc.events import READ, Changes, Column, RowTexts, TableShape
from connectx.connectors.postgres.cdc.positions import Position, SnapshotState, Visible
from connectx.connectors.postgres.session import PostgresSession, identifier, literal

_ONE_MOMENT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_PLACE: Final = ("t.tableoid", "t.ctid")
"""Where a row lies: partitions of a table have different oids."""


@dataclass(frozen=True, slots=True)
class _Page:
    """Rows of a table as texts, without a primary key followed by their place.

    `begins` and `ends`: the first and the last row of the table are among them.
    """

    shape: TableShape
    rows: pa.Table
    begins: bool
    ends: bool

    @property
    def last_key(self) -> tuple[str, ...]:
        """Where the next page continues: the primary key or the place of the last row."""
        places = self.shape.key or range(len(self.shape.columns), self.rows.num_columns)
        return tuple(self.rows.column(at)[-1].as_py() for at in places)


class Snapshot:
    """Reads the tables that a position has not.

    Args:
        session: gets a transaction that lasts until the last page, or until `close`.
        catalog: of the same session.
        publication: names the tables.
        rows: of a page.
        threads: how many tables are read at a time.
        connect: makes the sessions for all tables but one.
    """

    def __init__(
        self,
        session: PostgresSession,
        catalog: Catalog,
        publication: str,
        rows: int,
        threads: int,
        connect: Callable[[], PostgresSession],
    ) -> None:
        self._sessions = [session]
        self._catalog = catalog
        self._rows = rows
        self._threads = threads
        self._connect = connect
        catalog.keep = True
        session.execute(_ONE_MOMENT)
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
        self._pool: ThreadPoolExecutor | None = None
        self._pages: Iterator[_Page] | None = None
        self._reading: dict[Future[_Page], PostgresSession] = {}
        self._page: _Page | None = None  # the next one to be sent: it is the last one unless another follows
        self._empty: list[str] = []  # tables without rows that no position has yet
        self._is_first = False

    def begin(self, lsn: int) -> Position:
        """The position before the first page; the slot keeps all changes after `lsn`."""
        return Position(lsn, snapshot=SnapshotState(self.visible), last_xid=self._xid, commit_us=self.now_us)

    def next(self, position: Position) -> tuple[Changes | None, Position]:
        """The next page, None when all rows were sent, and the position after it.

        Args:
            position: at first where to begin, then the one that was returned before.
        """
        state = position.snapshot
        assert state is not None, "a snapshot has a state"
        if self._pages is None:
            self._pages = self._read(state)
            self._is_first = not state.done and not state.reading
            self._page = next(self._pages, None)
        page, self._page = self._page, next(self._pages, None)
        if page is None:
            return None, replace(position, snapshot=SnapshotState(state.visible, finished=True))
        changes = self._changes(page, position.lsn, is_last=self._page is None)
        return changes, replace(position, snapshot=self._after(state, page))

    def close(self) -> None:
        """Cancel statements that still run, and drop all connections."""
        self._catalog.keep = False
        for future, session in self._reading.items():
            if future.running():
                with suppress(Exception):  # the server may be gone
                    session.cancel()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for session in self._sessions:
            session.close()

    # ---------------------------------------------------------------------------------------------- inner parts

    def _read(self, state: SnapshotState) -> Iterator[_Page]:
        """Pages with rows as they come, those of one table in order.

        As Debezium has it, a snapshot begins with the first table and ends with the last one.
        """
        left = deque((shape, state.reading.get(full, ()) if shape.key else ())
                     for full, shape in self._tables.items() if full not in state.done)  # fmt: skip
        if not left:
            return
        last_table, last_page = left[-1][0].full, None
        self._import_moment(min(self._threads, len(left)) - 1)
        self._pool = pool = ThreadPoolExecutor(len(self._sessions), thread_name_prefix="snapshot")
        reading = self._reading
        for session in self._sessions:
            reading[pool.submit(self._read_page, session, *left.popleft())] = session
        first = list(reading)[:1]
        while reading:
            ready, _ = wait(first or reading, return_when=FIRST_COMPLETED)
            future = next(one for one in reading if one in ready)
            page, session = future.result(), reading.pop(future)
            if not page.ends:
                reading[pool.submit(self._read_page, session, page.shape, page.last_key)] = session
            elif left:
                reading[pool.submit(self._read_page, session, *left.popleft())] = session
            first = []
            if not page.rows.num_rows:
                self._empty.append(page.shape.full)
            elif page.ends and page.shape.full == last_table:
                last_page = page
            else:
                yield page
        if last_page is not None:
            yield last_page

    def _import_moment(self, count: int) -> None:
        """Make more sessions whose transactions show the same moment as the first one."""
        if not count:
            return
        ((moment,),) = self._sessions[0].query("SELECT pg_export_snapshot()")
        for _ in range(count):
            self._sessions.append(session := self._connect())
            session.execute(_ONE_MOMENT)
            session.execute(f"SET TRANSACTION SNAPSHOT {literal(moment)}")

    def _read_page(self, session: PostgresSession, shape: TableShape, after: tuple[str, ...]) -> _Page:
        # Without t. ORDER BY would take the texts, which have another order.
        order = [f"t.{identifier(shape.columns[at].name)}" for at in shape.key] or list(_PLACE)
        place = [] if shape.key else [f"{name}::text" for name in _PLACE]
        selected = ", ".join([*map(_as_text, shape.columns), *place])
        # A literal without a type gets that of the column.
        where = f"WHERE ({', '.join(order)}) > ({', '.join(map(literal, after))}) " if after else ""
        table = f"{identifier(shape.schema)}.{identifier(shape.name)}"
        only = "" if shape.full in self._partitioned else "ONLY "
        sql = f"SELECT {selected} FROM {only}{table} t {where}ORDER BY {', '.join(order)} LIMIT {self._rows + 1}"
        found = pa.concat_tables(list(session.read(sql)) or [pa.table({})])
        ends = found.num_rows <= self._rows
        rows = found if ends else found.slice(0, self._rows)
        return _Page(shape, rows.combine_chunks(), begins=not after, ends=ends)

    def _after(self, state: SnapshotState, page: _Page) -> SnapshotState:
        """The state after a page was sent."""
        full = page.shape.full
        done = (*state.done, *self._empty, *([full] if page.ends else []))
        reading = {**state.reading, full: page.last_key}
        self._empty.clear()
        return replace(state, done=done, reading={table: key for table, key in reading.items() if table not in done})

    def _changes(self, page: _Page, lsn: int, *, is_last: bool) -> Changes:
        count = page.rows.num_rows
        markers = ["true"] * count
        if page.begins:
            markers[0] = "first_in_data_collection"
        if page.ends:
            markers[-1] = "last_in_data_collection"
        if self._is_first:
            markers[0] = "first"
        if is_last:
            markers[-1] = "last"
        self._is_first = False

        def same(number: int | None) -> pa.Array:
            return pa.repeat(pa.scalar(number, pa.int64()), count)

        return Changes(
            page.shape,
            pa.repeat(READ, count),
            before=None,
            after=RowTexts([column.chunk(0) for column in page.rows.columns[: len(page.shape.columns)]]),
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
