"""Checks of `partition.by` against the columns of records and against a table that exists."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from connectx.errors import LakeError


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
