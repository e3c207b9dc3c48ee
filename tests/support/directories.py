"""DirectorySource without Kafka and Spark: its tasks, read by the tail or as executors would read."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from connectx.connectors.files.directory import DirectorySource
from connectx.plugins.slices import BulkSlice, PartRead, Slice
from tests.support.jdbc import Context, values_of
from tests.support.profiles import dotted

NO_SPARK: Any = None
"""Only `schema` needs Spark."""


def write(path: Path, content: bytes, *, age: int = 0) -> Path:
    """A file that is `age` seconds older than others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    moment = 1_700_000_000 - age
    os.utime(path, (moment, moment))
    return path


class Source:
    """A task over a directory, which keeps its context over restarts. `share` is its number and how many tasks are."""

    def __init__(
        self,
        path: Path,
        format: str,  # noqa: A002
        /,
        share: tuple[int, int] = (0, 1),
        context: Context | None = None,
        **more: Any,
    ) -> None:
        config = {"path": str(path), "topic": "t", "format": format, **dotted(more)}
        connector = DirectorySource()
        connector.settings = config
        self._config = connector.task_configs(share[1])[share[0]]
        self.context = context or Context()
        self.restart()

    def restart(self) -> None:
        self.task = DirectorySource.Task()
        self.task.start(self._config, self.context)

    def slices(self, most: int = 1_000) -> Iterator[Slice]:
        for _ in range(most):
            piece = self.task.poll(NO_SPARK, None)
            if piece is None:
                return
            self.context.remember(piece)
            yield piece

    def values(self, most: int = 1_000) -> list[dict[str, Any]]:
        return [value for piece in self.slices(most) for value in values_of(piece)]

    def committed(self, *pieces: Slice) -> None:
        for piece in pieces:
            self.task.committed(piece.offset)

    def bulk(self, max_bytes: int = 1 << 30) -> list[Any] | None:
        """Rows of a job that has succeeded, and remember its offsets; None if there is none."""
        assert self.task.waiting_bytes(None)
        return self.run_next(max_bytes)

    def run_next(self, max_bytes: int = 1 << 30) -> list[Any] | None:
        """Rows of the next job, without asking how much waits."""
        found = self.task.poll_bulk(NO_SPARK, None, max_bytes)
        return None if found is None else self.run(found)

    def run(self, found: BulkSlice) -> list[Any]:
        """What executors read of a slice."""
        read = pickle.loads(pickle.dumps(found.read))
        rows: list[Any] = []
        counts: dict[int, PartRead] = {}
        for task in range(found.tasks):
            for part, table in read(task):
                before = counts.get(part, PartRead())
                if table is None:
                    counts[part] = PartRead(before.rows, before.pieces + 1)
                else:
                    counts[part] = PartRead(before.rows + table.num_rows, before.pieces)
                    rows += table.to_pylist()
        self.last = list(found.offsets(counts))
        for partition, offset in self.last:
            self.context.remember_offset(partition, offset)
        return rows


def both(path: Path, file_format: str, /, **more: Any) -> tuple[list[Any], list[Any], Sequence[Any]]:
    """Keys and values that the tail reads, those that a job reads, and the offsets after the job."""
    tail = Source(path, file_format, **more)
    expected = [row for piece in tail.slices() for row in rows_of(piece)]
    bulk = Source(path, file_format, **more)
    found: list[Any] = []
    while bulk.task.waiting_bytes(None):
        found += bulk.bulk() or []
    assert bulk.context.stored == tail.context.stored
    return expected, found, bulk.last


def rows_of(piece: Slice) -> list[Any]:
    """Keys and values of a slice."""
    rows: Any = piece.rows
    found: list[Any] = rows.to_pylist()
    return found
