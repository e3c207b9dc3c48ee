"""Shapes rows of a source for its slice: which fields make the key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectx.errors.plugins import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def keyed_table(rows: pa.Table, key_fields: Sequence[str]) -> pa.Table:
    """The columns `key` (one field's value, or a struct of several) and `value` (all fields as a struct).

    Rows stay as they are without key fields. ConfigError when a key field is not there.
    """
    import pyarrow as pa

    if not key_fields:
        return rows
    _check(rows.column_names, key_fields)
    whole = rows.combine_chunks()
    keys = whole.select(list(key_fields))
    if len(key_fields) == 1:
        return keys.rename_columns(["key"]).append_column("value", _structs(whole))
    return pa.table({"key": _structs(keys), "value": _structs(whole)})


def keyed_frame(rows: DataFrame, key_fields: Sequence[str]) -> DataFrame:
    """The same for a DataFrame."""
    from pyspark.sql import functions as F

    if not key_fields:
        return rows
    _check(rows.columns, key_fields)
    keys = [F.col(f"`{name}`") for name in key_fields]
    key = keys[0] if len(keys) == 1 else F.struct(*keys)
    return rows.select(key.alias("key"), F.struct(*(F.col(f"`{name}`") for name in rows.columns)).alias("value"))


def valued_table(rows: pa.Table, key_fields: Sequence[str]) -> pa.Table:
    """As `keyed_table`, but also rows without key fields are in a column `value`, whatever their fields are called."""
    import pyarrow as pa

    return keyed_table(rows, key_fields) if key_fields else pa.table({"value": _structs(rows)})


def valued_frame(rows: DataFrame, key_fields: Sequence[str]) -> DataFrame:
    """The same for a DataFrame."""
    from pyspark.sql import functions as F

    if key_fields:
        return keyed_frame(rows, key_fields)
    return rows.select(F.struct(*(F.col(f"`{name}`") for name in rows.columns)).alias("value"))


def _structs(rows: pa.Table) -> pa.ChunkedArray:
    import pyarrow as pa

    return pa.chunked_array(rows.combine_chunks().to_struct_array().chunks, type=pa.struct(list(rows.schema)))


def _check(names: Sequence[str], key_fields: Sequence[str]) -> None:
    for name in key_fields:
        if name not in names:
            raise ConfigError([f"Invalid value {name} for configuration key.fields: the rows have no such field"])
