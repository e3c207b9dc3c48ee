"""The table of offsets in a target database: the fence of an exactly-once sink.

One row per consumer group, topic and partition holds the offset behind the last record that the target has. Whoever
writes locks the rows first and compares: only the writer whose batch starts exactly there may go on. A row with a null
offset belongs to a partition that nothing was written of yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectx.connectors.postgres.session import PostgresSession, identifier, literal
from connectx.errors import ConnectxError, DatabasePermissionError
from connectx.model.ids import TopicPartition
from connectx.plugins.api import CommitRefusedError

_COLUMNS = (
    "group_id text NOT NULL, topic text NOT NULL, partition_id integer NOT NULL, next_offset bigint, "
    "PRIMARY KEY (group_id, topic, partition_id)"
)

Ranges = Mapping[TopicPartition, tuple[int, int]]


class OffsetsTable:
    """Offsets of one consumer group.

    Args:
        name: table, with or without schema.
        group_id: the consumer group.
    """

    def __init__(self, session: PostgresSession, name: str, group_id: str) -> None:
        self._session = session
        self._name = ".".join(identifier(part) for part in name.split("."))
        self._group_id = group_id

    def open(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Offsets that the target holds; makes the table and the rows where they are missing. Commits.

        Raises:
            DatabasePermissionError: the table is missing and may not be created.
        """
        session = self._session
        try:
            self._create()
            self._insert_missing(partitions)
            held = self._rows(partitions)
            session.commit()
        except BaseException:
            session.rollback()
            raise
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
                next_step="Another task wrote there; this one goes on where the target is.",
            )

    def move(self, ranges: Ranges) -> None:
        """Write the offsets behind the batch, within the transaction."""
        for topic in sorted({partition.topic for partition in ranges}):
            ends = [(p.partition, end) for p, (_, end) in sorted(ranges.items()) if p.topic == topic]
            values = ", ".join(f"({partition}, {end}::bigint)" for partition, end in ends)
            self._session.execute(
                f"UPDATE {self._name} o SET next_offset = v.next_offset FROM (VALUES {values}) "
                f"v (partition_id, next_offset) WHERE o.group_id = {literal(self._group_id)} "
                f"AND o.topic = {literal(topic)} AND o.partition_id = v.partition_id"
            )

    def end_holders(self, ranges: Ranges, name_prefix: str) -> list[str]:
        """End sessions of the same group that hold rows of these partitions: zombies, since this task owns them now.

        `name_prefix` is what the names of the group's sessions (application_name) begin with. Returns the names of
        the sessions that were ended.
        """
        session = self._session
        try:
            ended = session.query(
                "SELECT a.application_name::text, pg_terminate_backend(a.pid) FROM pg_stat_activity a "
                f"WHERE a.backend_xid IN (SELECT o.xmax FROM {self._name} o WHERE {self._where(sorted(ranges))}) "
                f"AND a.pid <> pg_backend_pid() AND starts_with(a.application_name, {literal(name_prefix)})"
            )
            session.commit()
        except BaseException:
            session.rollback()
            raise
        return sorted(name for name, _ in ended)

    # ---------------------------------------------------------------------------------------------- inner parts

    def _create(self) -> None:
        """CREATE ... IF NOT EXISTS alone needs the privilege to create, and two at once collide."""
        session = self._session
        if self._exists():
            return
        try:
            session.execute(f"CREATE TABLE IF NOT EXISTS {self._name} ({_COLUMNS})")
            session.commit()
        except DatabasePermissionError as error:
            raise DatabasePermissionError(
                error.message, next_step=f"Let an administrator run: CREATE TABLE {self._name} ({_COLUMNS})"
            ) from error
        except ConnectxError:
            session.rollback()
            if not self._exists():
                raise

    def _exists(self) -> bool:
        return bool(self._session.query(f"SELECT to_regclass({literal(self._name)}) IS NOT NULL")[0][0])

    def _insert_missing(self, partitions: Sequence[TopicPartition]) -> None:
        group = literal(self._group_id)
        values = ", ".join(f"({group}, {literal(p.topic)}, {p.partition})" for p in sorted(partitions))
        self._session.execute(
            f"INSERT INTO {self._name} (group_id, topic, partition_id) VALUES {values} ON CONFLICT DO NOTHING"
        )

    def _rows(self, partitions: Sequence[TopicPartition], *, lock: bool = False) -> dict[TopicPartition, int | None]:
        found = self._session.query(
            f"SELECT topic, partition_id, next_offset FROM {self._name} o WHERE {self._where(partitions)} "
            f"ORDER BY topic, partition_id{' FOR UPDATE' if lock else ''}"
        )
        return {TopicPartition(topic, partition): offset for topic, partition, offset in found}

    def _where(self, partitions: Sequence[TopicPartition]) -> str:
        pairs = ", ".join(f"({literal(p.topic)}, {p.partition})" for p in partitions)
        return f"o.group_id = {literal(self._group_id)} AND (o.topic, o.partition_id) IN ({pairs})"
