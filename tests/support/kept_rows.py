"""A sink that keeps the rows that it gets, in both lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from connectx.plugins.connectors import SinkConnector
from connectx.plugins.slices import SinkBatch
from connectx.plugins.tasks import SinkTask

Row = tuple[dict[str, Any], str, str]
"""A record, and the types of its key and value."""


class KeptRows(SinkConnector):
    """Keeps rows in the task of the worker; executors return them as messages."""

    @classmethod
    def bulk_obstacle(cls, config: Mapping[str, str | None]) -> str | None:
        return None

    class Task(SinkTask):
        """`rows` are those that were put or committed."""

        def __init__(self) -> None:
            self.rows: list[Row] = []

        def put(self, batch: SinkBatch) -> None:
            self.rows += _rows(batch.rows)

        def plan(self, token: str, topic: str) -> None:
            """Nothing is to be known."""

        def stage(self, plan: None, token: str, batches: Iterator[SinkBatch]) -> Iterator[Row]:
            for batch in batches:
                yield from _rows(batch.rows)

        def commit(self, token: str, ranges: Any, messages: Sequence[Row]) -> None:
            self.rows += messages

        def discard(self, token: str, messages: Sequence[Row]) -> None:
            """Nothing is left in other places."""

    task_class = Task


def _rows(table: pa.Table) -> list[Row]:
    types = [str(table.schema.field(side).type) for side in ("key", "value")]
    return [(row, *types) for row in table.to_pylist()]
