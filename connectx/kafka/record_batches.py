"""Cuts an Arrow table of converted records into runs for one topic and partition, and those into messages.

It decides nothing about delivery. confluent-kafka's produce_batch takes neither headers nor timestamps and ignores a
partition named by a message: rows with the first two are sent one by one, rows with a partition in a batch of their
own. The order of rows that go to one topic and partition is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectx.errors import RecordRefusedError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Records:
    """Rows for one topic, and one partition if the rows name it. `plain`: neither timestamps nor headers."""

    topic: str
    partition: int | None
    rows: pa.Table
    plain: bool

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.rows.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        import pyarrow.compute as pc

        names = [name for name in ("key", "value") if name in self.rows.column_names]
        return sum(pc.sum(pc.binary_length(self.rows.column(name))).as_py() or 0 for name in names)

    def messages(self, start: int, count: int) -> list[dict[str, Any]]:
        """Messages of a range of rows: for produce_batch when plain, else keyword arguments of produce."""
        rows = self.rows.slice(start, count)
        values = rows.column("value").to_pylist()
        if "key" not in rows.column_names:
            messages = [{"value": value} for value in values]
        else:
            keys = rows.column("key").to_pylist()
            messages = [{"value": value, "key": key} for value, key in zip(values, keys, strict=True)]
        if self.plain:
            return messages
        _add_timestamps(rows, messages)
        _add_headers(rows, messages)
        return messages


def split_by_target(rows: pa.Table, topic: str | None) -> Iterator[Records]:
    """Runs of rows that go to the same topic (the column `topic`, or else `topic`) and explicit partition."""
    plain = not any(name in rows.column_names and _has_values(rows, name) for name in ("timestamp", "headers"))
    targets = [name for name in ("topic", "partition") if name in rows.column_names]
    if rows.num_rows == 0:
        return
    if not targets:
        yield Records(_topic(None, topic), None, rows, plain)
        return
    distinct = rows.select(targets).group_by(targets).aggregate([]).to_pylist()
    if len(distinct) == 1:
        yield Records(_topic(distinct[0].get("topic"), topic), distinct[0].get("partition"), rows, plain)
        return
    distinct.sort(
        key=lambda target: (target.get("topic") or "", -1 if target.get("partition") is None else target["partition"])
    )
    for target in distinct:
        part = rows.filter(_matches(rows, target))
        yield Records(_topic(target.get("topic"), topic), target.get("partition"), part, plain)


def _topic(named: str | None, default: str | None) -> str:
    if (topic := named or default) is None:
        raise RecordRefusedError(
            "A record has no topic: neither the slice nor its column `topic` names one.",
            next_step="Let poll return Slice(..., topic=...) or fill the column `topic`.",
        )
    return topic


def _has_values(rows: pa.Table, name: str) -> bool:
    return int(rows.column(name).null_count) < int(rows.num_rows)


def _matches(rows: pa.Table, target: dict[str, Any]) -> Any:
    import pyarrow.compute as pc

    mask = None
    for name, wanted in target.items():
        column = rows.column(name)
        one = pc.is_null(column) if wanted is None else pc.fill_null(pc.equal(column, wanted), False)
        mask = one if mask is None else pc.and_(mask, one)
    return mask


def _add_timestamps(rows: pa.Table, messages: list[dict[str, Any]]) -> None:
    if "timestamp" not in rows.column_names:
        return
    import pyarrow as pa

    column = rows.column("timestamp")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    for message, timestamp_ms in zip(messages, column.to_pylist(), strict=True):
        if timestamp_ms is not None:
            message["timestamp"] = timestamp_ms


def _add_headers(rows: pa.Table, messages: list[dict[str, Any]]) -> None:
    if "headers" not in rows.column_names:
        return
    for message, headers in zip(messages, rows.column("headers").to_pylist(), strict=True):
        if headers:
            message["headers"] = [(header["key"], header["value"]) for header in headers]
