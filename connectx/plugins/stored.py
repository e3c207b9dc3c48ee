"""Rows that a source holds or a sink has stored, for checks, and what a compaction did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from connectx.model.source_offsets import SourceOffset
from connectx.plugins.slices import Slice
from connectx.values import Value
from connectx.views import Form, Shown

if TYPE_CHECKING:
    import pyarrow as pa


class RowChange(Shown, Value):
    """The change that a record of a source makes to the rows of its topic.

    Attributes:
        key: identifies the row; None: all fields identify it.
        before: the row that the change removes, if there is no key; None: it removes none.
        after: the row that the change adds; None: it adds none.
        kept: fields of the row whose values do not change, and that `after` does not have.
        clears: all rows of the topic are removed first.
        place: identifies the change in the log of the source, so that a record with the same one is a copy; None: no
            place is known.
        order: grows from change to change in a partition of a topic; None: it is not known.
    """

    key: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    kept: tuple[str, ...] = ()
    clears: bool = False
    place: tuple[Any, ...] | None = None
    order: tuple[int, ...] | None = None


class Held(Shown, Value):
    """The rows of a source at one moment.

    Attributes:
        slices: its rows, as the records that a task would send of them; read once.
        change: the change that a record with this key and value makes; None: it is not about rows.
        is_reached: after `slices` was read: whether all changes before its moment are in the topics, by the last source
            offset.
    """

    slices: Iterator[Slice] = field(repr=False)
    change: Callable[[Any, Any], RowChange | None]
    is_reached: Callable[[SourceOffset], bool]


class Stored(Shown, Value):
    """The rows of a sink's target, for `cluster.check` to compare with the topics.

    Attributes:
        place: name of the target, as in `table flights`; topics that go to the same place are compared together.
        read: returns the rows as tables; can be called repeatedly.
        lines: rows are lines of text, in the first column; otherwise columns are fields of the records.
        line_of: turns a column of values into the texts of lines, with the argument `schemaless` of SinkBatch; for a
            sink that reads fields. Python must be able to pickle it. None: a value is its text, or its JSON.
        ordered: the target keeps the order in which rows were written.
        key: fields that identify a row, if the target keeps one row for each; empty: every record is a row.
        key_in_record_key: these fields are the record's key.
        key_type: Arrow type that keys should have, as the sink's tasks ask for it.
        value_type: Arrow type that values should have, as the sink's tasks ask for it.
        change: turns key and value of a record into the row that it is about (None: it is about no row), and whether
            it deletes that row. None: each value is a row, and no record deletes one.
        rows_before: number of the first rows that were there when a task returned this mark (`SinkTask.mark`). None:
            unknown.
    """

    place: str
    read: Callable[[], Iterator[pa.Table]]
    lines: bool = False
    line_of: Callable[..., pa.Array] | None = None
    ordered: bool = False
    key: tuple[str, ...] = ()
    key_in_record_key: bool = False
    key_type: pa.DataType | None = None
    value_type: pa.DataType | None = None
    change: Callable[[Any, Any], tuple[Mapping[str, Any] | None, bool]] | None = None
    rows_before: Callable[[int], int] | None = None


class Compaction(Shown, Value):
    """What a compaction did: how many files a target consisted of before, and how many after."""

    place: str
    files_before: int
    files_after: int

    def _shown(self) -> Form:
        return Form(f"Compaction of {self.place}", {"files before": self.files_before, "after": self.files_after})

    def row(self) -> dict[str, object]:
        """One line of a table of compactions."""
        return {"target": self.place, "files before": self.files_before, "after": self.files_after}
