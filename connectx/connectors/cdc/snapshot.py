"""The rows of all tables, in pages, as of one moment.

Several tables can be read at a time, each over a separate connection. A large table is divided into ranges of its
primary key, as many as there are connections. All transactions import the snapshot of the first one, so that they show
the same moment. While a page is sent, the next ones are read. A task that starts again in the middle of tables
continues after the last rows of each range in other transactions. A table without a primary key then begins again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from connectx.connectors.cdc.catalog import Catalog, as_number
from connectx.connectors.cdc.events import READ, Changes, Column, RowTexts, TableShape
from connectx.connectors.cdc.positions import KeyRange, Position, SnapshotState, Visible
from connectx.connectors.shared.postgres import PostgresSession, identifier, literal

_ONE_MOMENT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_PLACE: Final = ("t.tableoid", "t.ctid")
"""Where a row lies: partitions of a table have different oids."""

_WHOLE: Final = (KeyRange(),)
_LEAST_ROW_BYTES: Final = 28
"""The header of a row with its pointer."""

_SAMPLED_BYTES: Final = 1 << 20
"""How much of a table is read to find out where it is divided."""


@dataclass(frozen=True, slots=True)
class _Page:
    """Rows of a table as texts, without a primary key followed by their place.

    Attributes:
        range: what was to be read.
        is_last: no rows of the range are left.
        begins, ends: the first and the last page of the table, in the order in which they are sent.
    """

    shape: TableShape
    range: KeyRange
    rows: pa.Table
    is_last: bool
    begins: bool = False
    ends: bool = False

    @property
    def last_key(self) -> tuple[str, ...]:
        """Where the next page continues: the primary key or the place of the last row."""
        places = self.shape.key or range(len(self.shape.columns), self.rows.num_columns)
        return tuple(self.rows.column(at)[-1].as_py() for at in places)

    @property
    def rest(self) -> tuple[KeyRange, ...]:
        """What is left of the range."""
        return () if self.is_last else (KeyRange(self.last_key, self.range.to),)


class Snapshot:
    """Reads the tables that a position has not.

    Args:
        session: gets a transaction that lasts until the last page, or until `close`.
        catalog: of the same session.
        tables: reads the tables from the catalog.
        rows: of a page.
        threads: how many tables, or ranges of tables, are read at a time.
        connect: makes the sessions for all of them but one.
    """

    def __init__(
        self,
        session: PostgresSession,
        catalog: Catalog,
        tables: Callable[[], list[TableShape]],
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
        self._tables = {shape.full: shape for shape in tables()}
        self._pool: ThreadPoolExecutor | None = None
        self._pages: Iterator[_Page] | None = None
        self._reading: dict[Future[_Page], PostgresSession] = {}
        self._page: _Page | None = None  # the next one to be sent: it is the last one unless another follows
        self._ranges: dict[str, tuple[KeyRange, ...]] = {}  # of each table, as they were when its reading began
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
        for future, session in self._reading.items():
            if future.running():
                with suppress(Exception):  # the server may be gone
                    session.cancel()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for session in self._sessions:
            session.close()

    def _read(self, state: SnapshotState) -> Iterator[_Page]:
        """Pages with rows as they come, those of one range in order.

        As Debezium has it, a snapshot begins with the first table and ends with the last one.
        """
        for full, shape in self._tables.items():
            if full not in state.done:
                self._ranges[full] = (state.reading.get(full) if shape.key else None) or self._divided(shape)
        left = deque((self._tables[full], each) for full, ranges in self._ranges.items() for each in ranges)
        if not left:
            return
        last_table, last_page = left[-1][0].full, None
        unread = {full: len(ranges) for full, ranges in self._ranges.items()}
        begun = {full for full in state.reading if full in self._ranges and self._tables[full].key}
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
            full = page.shape.full
            if not page.is_last:
                reading[pool.submit(self._read_page, session, page.shape, *page.rest)] = session
            else:
                unread[full] -= 1
                if left:
                    reading[pool.submit(self._read_page, session, *left.popleft())] = session
            first = []
            page = replace(page, begins=full not in begun, ends=not unread[full])
            if not page.rows.num_rows:
                self._empty += [full] if page.ends else []
                continue
            begun.add(full)
            if page.ends and full == last_table:
                last_page = page
            else:
                yield page
        if last_page is not None:
            yield last_page

    def _divided(self, shape: TableShape) -> tuple[KeyRange, ...]:
        """About equal parts of a table for all threads, between keys of a sample of its rows; one if it is small."""
        least = 2 * self._threads * self._rows
        if self._threads == 1 or not shape.key:
            return _WHOLE
        name = literal(_name(shape))
        ((size_bytes,),) = self._sessions[0].query(
            f"SELECT coalesce((SELECT sum(pg_relation_size(relid)) FROM pg_partition_tree({name}::regclass)), "
            f"pg_relation_size({name}::regclass))::bigint"
        )
        if size_bytes < least * _LEAST_ROW_BYTES:
            return _WHOLE
        percent = min(100.0, 100 * _SAMPLED_BYTES / size_bytes)
        key = ", ".join(f"t.{identifier(shape.columns[at].name)}" for at in shape.key)
        texts = ", ".join(_as_text(shape.columns[at]) for at in shape.key)
        sample = f"{self._source(shape)} t TABLESAMPLE SYSTEM ({percent})"
        found = self._sessions[0].query(f"SELECT {texts} FROM {sample} ORDER BY {key}")
        if len(found) < self._threads or len(found) * 100 / percent < least:
            return _WHOLE
        bounds = [found[len(found) * part // self._threads - 1] for part in range(1, self._threads)]
        return tuple(KeyRange(after, to) for after, to in pairwise([(), *bounds, ()]))

    def _import_moment(self, count: int) -> None:
        """Make more sessions whose transactions show the same moment as the first one."""
        if not count:
            return
        ((moment,),) = self._sessions[0].query("SELECT pg_export_snapshot()")
        for _ in range(count):
            self._sessions.append(session := self._connect())
            session.execute(_ONE_MOMENT)
            session.execute(f"SET TRANSACTION SNAPSHOT {literal(moment)}")

    def _source(self, shape: TableShape) -> str:
        """A table without those that inherit from it; a partitioned one has rows in its partitions alone."""
        return _name(shape) if shape.full in self._partitioned else f"ONLY {_name(shape)}"

    def _read_page(self, session: PostgresSession, shape: TableShape, wanted: KeyRange) -> _Page:
        # Without t. ORDER BY would take the texts, which have another order.
        order = [f"t.{identifier(shape.columns[at].name)}" for at in shape.key] or list(_PLACE)
        place = [] if shape.key else [f"{name}::text" for name in _PLACE]
        selected, key = ", ".join([*map(_as_text, shape.columns), *place]), ", ".join(order)
        # A literal without a type gets that of the column.
        bounds = [
            f"({key}) {sign} ({', '.join(map(literal, bound))})"
            for sign, bound in ((">", wanted.after), ("<=", wanted.to))
            if bound
        ]
        where = f"WHERE {' AND '.join(bounds)} " if bounds else ""
        sql = f"SELECT {selected} FROM {self._source(shape)} t {where}ORDER BY {key} LIMIT {self._rows + 1}"
        found = pa.concat_tables(list(session.read(sql)) or [pa.table({})])
        is_last = found.num_rows <= self._rows
        rows = found if is_last else found.slice(0, self._rows)
        return _Page(shape, wanted, rows.combine_chunks(), is_last)

    def _after(self, state: SnapshotState, page: _Page) -> SnapshotState:
        """The state after a page was sent."""
        full = page.shape.full
        done = (*state.done, *self._empty, *([full] if page.ends else []))
        ranges = state.reading.get(full) if page.shape.key else None
        left = [
            part
            for each in ranges or self._ranges[full]
            for part in (page.rest if each.to == page.range.to else (each,))
        ]
        reading = {**state.reading, full: tuple(left)}
        self._empty.clear()
        return replace(state, done=done, reading={table: left for table, left in reading.items() if table not in done})

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


def _name(shape: TableShape) -> str:
    """A table's name in SQL."""
    return f"{identifier(shape.schema)}.{identifier(shape.name)}"


def _as_text(column: Column) -> str:
    """A column as text, as the stream has it."""
    name = f"t.{identifier(column.name)}"
    if column.type.is_cast_differently:
        return f"CASE WHEN {name} IS NULL THEN NULL ELSE format('%s', {name}) END"
    return f"{name}::text"
