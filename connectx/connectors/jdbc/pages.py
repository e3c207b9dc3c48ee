"""Cuts the rows of one query into slices. Decides only where a slice may end."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc


class Page:
    """The rows of one query in slices of about `slice_rows`.

    With `together` equal values of that column, by which rows are sorted, stay in one slice: they share a position.
    When the query stops at its limit, the last of them may be missing, so that they are left for the next page.

    Attributes:
        is_full: the query gave as many rows as its limit, so that there may be more.
        is_stuck: it is full and gave no slice, because all of its rows belong together.
    """

    def __init__(
        self, tables: Iterator[pa.Table], slice_rows: int, limit: int | None = None, together: str | None = None
    ) -> None:
        self._tables = tables
        self._slice_rows = slice_rows
        self._limit = limit
        self._together = together
        self._rows: pa.Table | None = None
        self._read = 0
        self._gave = False
        self._ended = False

    @property
    def is_full(self) -> bool:
        """Whether the limit was reached."""
        return self._limit is not None and self._read >= self._limit

    @property
    def is_stuck(self) -> bool:
        """Whether the limit was reached without a slice."""
        return self._ended and self.is_full and not self._gave

    def next(self) -> pa.Table | None:
        """The next slice; None at the end."""
        while (end := self._end()) == 0 and not self._ended:
            self._fetch()
        if not end or self._rows is None:
            return None
        made, self._rows = self._rows.slice(0, end), self._rows.slice(end)
        self._gave = True
        return made

    def close(self) -> None:
        """Stop reading."""
        self._ended, self._rows = True, None
        if (close := getattr(self._tables, "close", None)) is not None:
            close()

    def _fetch(self) -> None:
        more = next(self._tables, None)
        if more is None:
            self._ended = True
            return
        self._read += more.num_rows
        self._rows = more if not self._rows else pa.concat_tables([self._rows, more])

    def _end(self) -> int:
        """How many of the rows read so far are the next slice; 0: more must be read, or there are none."""
        rows = self._rows
        if rows is None or rows.num_rows == 0:
            return 0
        if not self._together:
            enough = self._ended or rows.num_rows >= self._slice_rows
            return min(rows.num_rows, self._slice_rows) if enough else 0
        if self._ended and not self.is_full and rows.num_rows <= self._slice_rows:
            return int(rows.num_rows)
        if not self._ended and rows.num_rows <= self._slice_rows:
            return 0
        column = rows[self._together]
        at = min(self._slice_rows, rows.num_rows - 1)
        first: int = pc.index(column, column[at]).as_py()
        if first:
            return first  # the group of row `at` begins the next slice
        equal: int = pc.sum(pc.equal(column, column[at])).as_py()
        if equal < rows.num_rows:
            return equal
        return int(rows.num_rows) if self._ended and not self.is_full else 0
