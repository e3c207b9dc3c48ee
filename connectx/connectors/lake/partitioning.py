"""Rows divided by the values of columns (`partition.by`), and these values as text: in names of directories as Hive and
Spark have them, and in the log of a Delta table.

Also checks of `partition.by` against the columns of records and against a table that exists.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from connectx.connectors.shared.errors import LakeError

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")  # as Spark does

Values = Mapping[str, str | None]
"""Text of each column that divides rows."""


def divided(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """Values, and their rows in their order without the columns that have them."""
    if not names:
        yield {}, rows
        return
    places = [str(at) for at in range(len(names))]
    texts = {place: _texts(rows[name].combine_chunks()) for place, name in zip(places, names, strict=True)}
    numbers = pa.array(range(rows.num_rows), pa.int64())
    groups = pa.table({**texts, "rows": numbers}).group_by(places, use_threads=False).aggregate([("rows", "list")])
    kept = rows.drop_columns(list(names))
    for group in groups.to_pylist():
        values = {name: group[place] for place, name in zip(places, names, strict=True)}
        yield values, kept.take(pa.array(group["rows_list"], pa.int64()))


def folder_of(values: Values) -> str:
    """The directory of these values, such as `day=2026-01-02/kind=a`."""
    return "/".join(f"{_escaped(name)}={_value_name(text)}" for name, text in values.items())


def values_in(folder: str) -> Values:
    """The values that a directory is named by."""
    pairs = [part.partition("=") for part in folder.split("/")]
    return {unquote(name): None if text == _NULL else unquote(text) for name, _, text in pairs}


def with_values(rows: pa.Table, values: Values, schema: pa.Schema) -> pa.Table:
    """Rows with the columns that `divided` has removed."""
    for name, text in values.items():
        kind = schema.field(name).type
        value = pa.scalar(text, pa.string()).cast(pa.timestamp("us") if pa.types.is_timestamp(kind) else kind)
        rows = rows.append_column(name, pa.repeat(value.cast(kind), rows.num_rows))
    return rows.select([name for name in schema.names if name in rows.column_names])


def check_partition_fields(table: str, wanted: Sequence[str], schema: pa.Schema) -> None:
    """Raise LakeError unless rows have all columns that `partition.by` names."""
    if missing := [name for name in wanted if name not in schema.names]:
        raise LakeError(
            f"{table} gets records without the field {missing[0]}, which partition.by names.",
            next_step="Correct partition.by or the records, and restart the task.",
        )


def check_partitioning(table: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Raise LakeError if `partition.by` names other columns than a table is partitioned by; naming none is valid."""
    if wanted and list(found) != list(wanted):
        raise LakeError(
            f"{table} is partitioned by {', '.join(found) or 'nothing'}, and partition.by names {', '.join(wanted)}.",
            next_step="Remove partition.by, or write to another table, and restart the task.",
        )


def _texts(values: pa.Array) -> pa.Array:
    found = values.dictionary_encode(null_encoding="encode")
    return pa.array([_text(value) for value in found.dictionary.to_pylist()], pa.string()).take(found.indices)


def _text(value: Any) -> str | None:
    """A value in Delta's notation. An empty text has no separate form: it becomes null."""
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(" ", "microseconds")
        case datetime.date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)


def _value_name(text: str | None) -> str:
    """A text that is null's name is escaped, so that both have their own directory."""
    if text is None:
        return _NULL
    return f"%{ord(text[0]):02X}{text[1:]}" if text == _NULL else _escaped(text)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
