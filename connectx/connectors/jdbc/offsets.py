"""The table of offsets in a target database: the fence of an exactly-once sink.

One row per consumer group, topic and partition holds the offset after the last record that the target has. A writer
locks the rows first and compares: only the one whose batch starts exactly there may continue. A row with a null offset
belongs to a partition of which nothing was written yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from connectx.connectors.jdbc.target import Target
from connectx.errors.base import ConnectxError
from connectx.errors.databases import DatabasePermissionError
from connectx.model.ids import TopicPartition
from connectx.plugins.errors import CommitRefusedError

Ranges = Mapping[TopicPartition, tuple[int, int]]


class OffsetsTable:
    """Offsets of one consumer group.

    Args:
        name: table, with or without schema.
        group_id: the consumer group.
    """

    def __init__(self, target: Target, name: str, group_id: str) -> None:
        self._target = target
        schema, _, table = name.rpartition(".")
        self._schema, self._table = schema, table
        self._name = ".".join(target.quote(part) for part in name.split("."))
        self._group = target.literal(group_id)

    def open(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Offsets that the target holds; makes the table and the rows where they are missing. Commits.

        Raises:
            DatabasePermissionError: the table is missing and may not be created.
        """
        with self._target.transaction():
            self._create()
            self._insert_missing(partitions)
            held = self._rows(partitions)
        return {partition: offset for partition, offset in held.items() if offset is not None}

    def lock(self, ranges: Ranges) -> None:
        """Lock the rows of these partitions until the transaction ends, and compare them with where the batch starts.

        Raises:
            CommitRefusedError: the target is elsewhere.
            LockTimeoutError: another session holds a row for longer than lock.timeout.ms.
        """
        partitions = sorted(ranges)
        held = self._rows(partitions, lock=True)
        if len(held) < len(partitions):
            self._insert_missing(partitions)
            held = self._rows(partitions, lock=True)
        wrong = [p for p in partitions if held[p] is not None and held[p] != ranges[p][0]]
        if wrong:
            shown = ", ".join(f"{p} is at {held[p]}, the batch starts at {ranges[p][0]}" for p in wrong)
            committed = {p: ranges[p][0] if held[p] is None else held[p] for p in partitions}
            raise CommitRefusedError(
                f"The target has other offsets than the task: {shown}.",
                {partition: offset for partition, offset in committed.items() if offset is not None},
                next_step="Another task wrote there; this one continues where the target is.",
            )

    def move(self, ranges: Ranges) -> None:
        """Write the offsets after the batch, within the transaction."""
        for topic in sorted({partition.topic for partition in ranges}):
            ends = {p: end for p, (_, end) in sorted(ranges.items()) if p.topic == topic}
            cases = " ".join(f"WHEN {p.partition} THEN {end}" for p, end in ends.items())
            self._target.execute(
                f"UPDATE {self._name} SET next_offset = CASE partition_id {cases} END WHERE {self._where(list(ends))}"
            )

    def end_holders(self, ranges: Ranges) -> list[str]:
        """End sessions of the same group that hold rows of these partitions: zombies, since this task owns them now.

        Returns the names of the sessions that were ended.
        """
        return self._target.end_holders(self._name, self._where(sorted(ranges)))

    def _create(self) -> None:
        """CREATE ... IF NOT EXISTS alone needs the privilege to create, and two simultaneous ones collide."""
        target = self._target
        if self._exists():
            return
        text = target.key_text
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self._name} (group_id {text} NOT NULL, topic {text} NOT NULL, "
            "partition_id integer NOT NULL, next_offset bigint, PRIMARY KEY (group_id, topic, partition_id))"
            f"{target.table_options}"
        )
        try:
            target.execute(statement)
            target.commit()
        except DatabasePermissionError as error:
            raise DatabasePermissionError(
                error.message, next_step=f"Let an administrator run: {statement.replace(' IF NOT EXISTS', '')}"
            ) from error
        except ConnectxError:
            target.rollback()
            if not self._exists():
                raise

    def _exists(self) -> bool:
        schema = self._schema or self._target.default_schema()
        return self._target.describe(schema, self._table) is not None

    def _insert_missing(self, partitions: Sequence[TopicPartition]) -> None:
        values = ", ".join(
            f"({self._group}, {self._target.literal(p.topic)}, {p.partition})" for p in sorted(partitions)
        )
        begin, end = self._target.insert_ignore
        self._target.execute(f"{begin} {self._name} (group_id, topic, partition_id) VALUES {values} {end}")

    def _rows(self, partitions: Sequence[TopicPartition], *, lock: bool = False) -> dict[TopicPartition, int | None]:
        found: list[tuple[Any, ...]] = self._target.query(
            f"SELECT topic, partition_id, next_offset FROM {self._name} WHERE {self._where(partitions)} "
            f"ORDER BY topic, partition_id{self._target.lock_clause if lock else ''}"
        )
        return {TopicPartition(topic, partition): offset for topic, partition, offset in found}

    def _where(self, partitions: Sequence[TopicPartition]) -> str:
        chosen = []
        for topic in sorted({partition.topic for partition in partitions}):
            numbers = ", ".join(str(p.partition) for p in partitions if p.topic == topic)
            chosen.append(f"(topic = {self._target.literal(topic)} AND partition_id IN ({numbers}))")
        return f"group_id = {self._group} AND ({' OR '.join(chosen)})"
