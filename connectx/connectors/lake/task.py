"""The task of a sink of tables in files: keeps rows in memory, and commits them together with their offsets.

A table holds one offset per topic partition in the same commit as the rows, and is the fence: a commit states where its
rows start, and a table that is elsewhere refuses it. There is no coordinator, no control topic and no second store of
offsets. This module decides what may be committed and what a refusal means; how rows and offsets become one
commit is the table's part.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from connectx.connectors.lake.settings import LakeSettings, upsert_problems
from connectx.connectors.lake.staged_changes import (
    KnownKeysError,
    Ranges,
    check_new,
    commits_of,
    divided_changes,
    staged_changes,
)
from connectx.connectors.lake.staging import FileWriter, StagedFile, StagingPlan
from connectx.connectors.lake.table import ConflictError, KeyedTable, LakeTable, Offsets, Pending, compare
from connectx.connectors.lake.taking import Taking
from connectx.connectors.shared.columns import evolved
from connectx.connectors.shared.errors import LakeUnavailableError
from connectx.connectors.shared.kept import KEPT
from connectx.data.converter import with_others
from connectx.errors.base import ConnectxError
from connectx.errors.databases import TableMismatchError
from connectx.errors.plugins import RecordRejectedError
from connectx.model.ids import TopicPartition
from connectx.model.places import Place
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.contexts import SinkTaskContext
from connectx.plugins.errors import CommitRefusedError, NotStageableError
from connectx.plugins.slices import SinkBatch
from connectx.plugins.stored import Compaction, Stored
from connectx.plugins.tasks import SinkTask

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 20


class LakeSink(SinkConnector):
    """Base of the connectors; `config` has the settings that all have in common."""

    place: ClassVar[str] = "table"
    """What messages put before the name of a table."""

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        settings = LakeSettings.of(cls.config.parse(config))
        return [Place(f"table {settings.table_of(topic)} in {cls.root(config)}") for topic in topics]

    @classmethod
    def root(cls, config: Mapping[str, str | None]) -> str:
        """Directory or catalog of the tables, without secrets."""
        return posixpath.normpath(config.get("path") or "")

    @classmethod
    def tables(cls, config: Mapping[str, str | None], group_id: str | None = None) -> Callable[[str], LakeTable]:
        """What makes a table of a name, not read yet. `group_id` is that of a task; None: for readers."""
        raise TypeError(f"{cls.__name__} must define tables")

    @classmethod
    def storage_check(cls, config: Mapping[str, str | None]) -> Callable[[], None] | None:
        """What raises unless the storage can fence tasks, if that has to be found out.

        Raises:
            LakeStorageError: a local directory does not exist, or cannot be written.
            LakeError: no such kind of storage, or a wrong setting of it.
        """
        return None

    @classmethod
    def stored(cls, config: Mapping[str, str | None], topic: str) -> Stored | None:
        """The rows of the topic's table."""
        settings = LakeSettings.of(cls.config.parse(config))
        name, upserts = settings.table_of(topic), settings.upserts
        table = cls.tables(config)(name)
        table.refresh()
        place, schema = f"{cls.place} {name}", table.schema
        if upserts is None:
            return Stored(place, table.read, value_type=None if schema is None else pa.struct(list(schema)))
        return Stored(
            place,
            table.read,
            key=upserts.key,
            key_in_record_key=upserts.from_record_key,
            key_type=None if schema is None else upserts.key_type(schema),
            value_type=None if schema is None else upserts.value_type(schema),
            change=upserts.change,
        )

    @override
    @classmethod
    def key_fields(cls, config: Mapping[str, str | None]) -> Sequence[str] | None:
        upserts = LakeSettings.of(cls.config.parse(config)).upserts
        return upserts.key if upserts is not None and upserts.from_record_key else None

    @classmethod
    def bulk_obstacle(cls, config: Mapping[str, str | None]) -> str | None:
        """None: executors write all tables, unless `plan` finds a reason."""
        return None

    @classmethod
    def flush_interval_ms(cls, config: Mapping[str, str | None]) -> int | None:
        """Value of `flush.interval.ms` in a configuration."""
        return int(cls.config.parse(config)["flush.interval.ms"])


class ChangingSink(LakeSink):
    """Base of the connectors whose tables can have rows replaced and files merged."""

    @classmethod
    def tables(cls, config: Mapping[str, str | None], group_id: str | None = None) -> Callable[[str], KeyedTable]:
        """As of LakeSink, for merging as well."""
        raise TypeError(f"{cls.__name__} must define tables")

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Upsert needs to know the key."""
        return upsert_problems(config)

    @classmethod
    def compact(cls, config: Mapping[str, str | None], topic: str) -> Compaction:
        """Merge small files, in a commit that leaves the offsets alone."""
        name = LakeSettings.of(cls.config.parse(config)).table_of(topic)
        return Compaction(f"{cls.place} {name}", *cls.tables(config)(name).compact())


class LakeTask(SinkTask):
    """Base of the tasks, each of a `connector`."""

    exactly_once = True
    buffers = True
    reads_fields = True
    connector: ClassVar[type[LakeSink]]

    def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
        """Take the settings. The storage is checked when partitions come, until it can be used; tables are read then.

        Raises:
            LakeStorageError, LakeError: as `LakeSink.storage_check`.
        """
        super().start(config, context)
        self._lake = LakeSettings.of(self.connector.config.parse(config))
        self._check = self.connector.storage_check(config)
        self._connect: Callable[[str], LakeTable] = self.connector.tables(config, context.group_id)
        self._tables: dict[str, LakeTable] = {}
        self._pending: dict[str, Pending] = {}
        self._next: Offsets = {}
        self._jobs: dict[str, str] = {}
        self._cancelled = False

    def key_type(self, topic: str) -> pa.DataType | None:
        """The table's columns of the key if they may not change."""
        schema = None if self._lake.evolve else self._table_of(topic).schema
        upserts = self._lake.upserts
        return None if schema is None or upserts is None else upserts.key_type(schema)

    def value_type(self, topic: str) -> pa.DataType | None:
        """The table's columns if they may not change, and then the names of other fields.

        Otherwise values have the fields that they hold.
        """
        schema = None if self._lake.evolve else self._table_of(topic).schema
        if schema is not None and self._lake.upserts is not None:
            return self._lake.upserts.reading_type(schema)
        return None if schema is None else with_others(pa.struct(list(schema)), ())

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Offsets that the tables hold."""
        if self._check is not None:
            self._check()
            self._check = None
        found: Offsets = {}
        for topic in sorted({partition.topic for partition in partitions}):
            table = self._table_of(topic)
            table.refresh()
            found |= table.offsets([partition for partition in partitions if partition.topic == topic])
        self._expect(partitions, found)
        return found

    def put(self, batch: SinkBatch) -> None:
        """Take rows; first commit if enough rows for a commit are in memory.

        Raises:
            CommitRefusedError: a table holds other offsets, or the batch does not start where the last one ended.
            TableMismatchError: the table cannot take the records' fields.
            RecordRejectedError: a value does not fit its column, with errors.tolerance=none.
            LakeUnavailableError: try again later.
            LakeError
        """
        if self._is_full():
            self._commit()
        wrong = {p: self._next[p] for p, (first, _) in batch.ranges.items() if self._next.get(p, first) != first}
        if wrong:
            shown = ", ".join(
                f"{p} continues at {at}, the batch starts at {batch.ranges[p][0]}" for p, at in wrong.items()
            )
            raise CommitRefusedError(f"The task expects other offsets: {shown}.", wrong)
        self._take(batch)

    def flush(self) -> None:
        """Commit the rows in memory; after a failure they are dropped and read again.

        Raises:
            CommitRefusedError: a table holds other offsets: another task wrote there.
            LakeUnavailableError, LakeError
        """
        try:
            self._commit()
        except CommitRefusedError:
            raise
        except Exception:
            self._next |= self._drop()
            raise

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop what is not committed of these partitions."""
        for pending in self._pending.values():
            pending.drop(partitions)
        self._expect(partitions, {})

    def cancel(self) -> None:
        """Begin no commit any more."""
        self._cancelled = True

    def plan(self, token: str, topic: str) -> StagingPlan:
        """The table's columns, and where its files go.

        Raises:
            NotStageableError: there is no table yet.
        """
        table = self._table_of(topic)
        schema = table.schema
        if schema is None:
            raise NotStageableError(f"{table.name} does not exist yet; the worker creates it.")
        self._jobs[token] = self._lake.table_of(topic)
        return StagingPlan(schema, table.staging_place(token))

    def stage(self, plan: StagingPlan, token: str, batches: Iterator[SinkBatch]) -> Iterator[StagedFile]:
        """On an executor: write files with the table's columns, each time that rows fill `flush.bytes` in memory.

        Raises:
            NotStageableError: a batch has columns that the table lacks.
        """
        writer: FileWriter | None = None
        for batch in batches:
            (partition,) = batch.ranges
            table = self._connect(self._lake.table_of(partition.topic))
            writer = writer or FileWriter(partition, partial(self._stage_rows, plan, table), self._lake.flush_bytes)
            yield from writer.add(self._columns_to_stage(batch, plan.schema, table), batch.ranges[partition][1])
        if writer is not None:
            yield from writer.close()

    def commit(self, token: str, ranges: Ranges, messages: Sequence[StagedFile]) -> None:
        """One commit of files and offsets, or several that merge files. Without rows the offsets go with the next ones.

        Raises:
            CommitRefusedError: the table holds other offsets.
            LakeUnavailableError: try again later.
            LakeError
        """
        name = self._jobs[token]
        table = self._tables[name]
        pending = self._pending.setdefault(name, Pending(table.schema))
        kept: set[str] = set()
        if messages:
            both = {p: (pending.ranges.get(p, cut)[0], cut[1]) for p, cut in ranges.items()}
            try:
                kept = self._commit_files(table, both, messages)
            except CommitRefusedError as refused:
                self._next |= self._drop() | refused.committed
                raise
            pending.drop(list(ranges))
        else:
            pending.add(ranges, ())
        self._next |= {partition: end for partition, (_, end) in ranges.items()}
        self._remove(token, kept)

    def discard(self, token: str, messages: Sequence[StagedFile]) -> None:
        """Remove the files of a job."""
        if token in self._jobs:
            self._remove(token, set())

    def _columns_to_stage(self, batch: SinkBatch, schema: pa.Schema, table: LakeTable) -> pa.Table:
        (partition,) = batch.ranges
        self._check_topic(batch.rows, partition.topic)
        taken = self._taking(partition.topic, table).take(batch.rows, schema)
        if any(KEPT in part.columns.column_names for part in taken):
            raise NotStageableError(f"Records keep values of {table.name}; the worker reads those.")
        if not all(schema.equals(part.schema) for part in taken):
            raise NotStageableError(f"The records change the columns of {table.name}; the worker does that.")
        return pa.concat_tables([part.columns for part in taken if part.columns.num_rows] or [schema.empty_table()])

    def _stage_rows(
        self, plan: StagingPlan, table: LakeTable, rows: pa.Table, partition: TopicPartition, end: int
    ) -> StagedFile:
        """Rows as they are, or the last change of each key."""
        if self._lake.upserts is None:
            return table.stage_file(plan.place, rows, partition, end)
        written, deleted = divided_changes(rows, plan.schema, self._lake.upserts.key)
        file = StagedFile((), partition, end, [])
        if written.num_rows:
            file = table.stage_file(plan.place, written, partition, end)
        return replace(file, deleted=deleted, size_bytes=written.nbytes + deleted.nbytes)

    def _commit_files(self, table: LakeTable, ranges: Ranges, files: Sequence[StagedFile]) -> set[str]:
        """Add all files in one commit, or merge their changes; the paths that are part of the table then."""
        appends = self._lake.upserts is None
        try:
            self._commit_table(table, Pending(table.schema, dict(ranges), files=files, follows=appends))
        except KnownKeysError:
            self._merge_files(cast(KeyedTable, table), ranges, files)
            return set()
        return {path for file in files for path in file.paths}

    def _merge_files(self, table: KeyedTable, ranges: Ranges, files: Sequence[StagedFile]) -> None:
        """Merge changes as those of the tail: in several commits if they fill `flush.bytes` more than once."""
        reached = {partition: first for partition, (first, _) in ranges.items()}
        for covered, group in commits_of(files, ranges, self._lake.flush_bytes):
            schema = table.schema
            assert schema is not None, "files are staged for a table that exists"
            rows = [part for file in group for part in staged_changes(table, file, schema)]
            try:
                self._commit_table(table, Pending(schema, covered, rows))
            except CommitRefusedError as refused:
                raise CommitRefusedError(
                    refused.message, reached | refused.committed, next_step=refused.next_step
                ) from None
            reached |= {partition: end for partition, (_, end) in covered.items()}

    def _remove(self, token: str, kept: Set[str]) -> None:
        """Files of failed attempts, or of all. Without them the table is the same, so this never fails a commit."""
        table = self._tables[self._jobs.pop(token)]
        try:
            table.remove_staged(token, kept)
        except ConnectxError as error:
            log.warning("Files of job %s are not removed: %s", token, error)

    def _table_of(self, topic: str) -> LakeTable:
        name = self._lake.table_of(topic)
        if name not in self._tables:
            table = self._connect(name)
            table.refresh()
            self._tables[name] = table
        return self._tables[name]

    def _expect(self, partitions: Sequence[TopicPartition], offsets: Mapping[TopicPartition, int]) -> None:
        """The next batch of a partition starts at its offset; without one, anywhere."""
        self._next = {p: offset for p, offset in self._next.items() if p not in partitions} | dict(offsets)

    def _drop(self) -> Offsets:
        """Forget all rows; where each of their partitions continues."""
        dropped = {p: first for pending in self._pending.values() for p, (first, _) in pending.ranges.items()}
        self._pending = {}
        return dropped

    def _is_full(self) -> bool:
        pending = self._pending.values()
        rows, size_bytes = sum(p.row_count for p in pending), sum(p.size_bytes for p in pending)
        return rows >= self._lake.flush_rows or size_bytes >= self._lake.flush_bytes

    def _take(self, batch: SinkBatch) -> None:
        topic = next(iter(batch.ranges)).topic
        name, table = self._lake.table_of(topic), self._table_of(topic)
        pending = self._pending.setdefault(name, Pending(table.schema))
        self._check_topic(batch.rows, topic)
        taken = self._taking(topic, table).take(batch.rows, pending.schema)
        parts: list[tuple[TopicPartition, pa.Table]] = []
        for part in taken:
            pending.schema = part.schema
            for partition in batch.ranges:
                mine = part.columns
                if len(batch.ranges) > 1:
                    mine = mine.filter(pc.equal(part.places["partition"], partition.partition))
                parts += [(partition, mine)] if mine.num_rows else []
        pending.add(batch.ranges, parts)
        self._next |= {partition: end for partition, (_, end) in batch.ranges.items()}
        if not self._lake.evolve and sum(part.places.num_rows for part in taken) < batch.rows.num_rows:
            table.refresh()  # later records are read in columns that were added meanwhile
            if table.schema is not None:
                pending.schema = evolved(pending.schema, table.schema, table.name, evolve=True)

    def _taking(self, topic: str, table: LakeTable) -> Taking:
        def refuse(number: int, offset: int, cause: str) -> None:
            partition = TopicPartition(topic, number)
            self.context.report(partition, offset, RecordRejectedError(str(partition), offset, table.name, cause))

        return Taking(self._lake, table, refuse)

    def _check_topic(self, rows: pa.Table, topic: str) -> None:
        if rows.num_rows and rows["topic"].unique().to_pylist() != [topic]:
            raise TableMismatchError(
                f"A transformation changed the topic of records of {topic}; the offsets of a topic are in one table.",
                next_step="Use topic.to.table.map or table.name.format in place of the transformation.",
            )

    def _commit(self) -> None:
        """Commit table by table. A refusal drops all rows in memory, and names where each partition continues."""
        for name, pending in list(self._pending.items()):
            if not pending.rows:
                continue  # its offsets go with the next rows
            try:
                self._commit_table(self._tables[name], pending)
            except CommitRefusedError as refused:
                restarts = self._drop() | refused.committed
                self._next |= restarts
                raise CommitRefusedError(refused.message, restarts, next_step=refused.next_step) from None
            del self._pending[name]

    def _commit_table(self, table: LakeTable, pending: Pending) -> None:
        """Compare and append: on the state that was compared, again after a conflict.

        Raises:
            KnownKeysError: files that can only be merged.
        """
        for attempt in range(_ATTEMPTS):
            held = table.offsets(list(pending.ranges))
            if attempt and all(held.get(p) == end for p, (_, end) in pending.ranges.items()):
                return  # the answer of the attempt before was lost
            compare(table.name, held, pending.ranges)
            if self._cancelled:
                raise LakeUnavailableError("The task was cancelled before it committed.")
            schema = pending.schema
            assert schema is not None, "there are rows"
            schema = evolved(table.schema, schema, table.name, evolve=True)
            try:
                self._write(table, pending, schema)
                return
            except ConflictError:
                table.refresh()
        raise LakeUnavailableError(
            f"{table.name} was changed by others during {_ATTEMPTS} attempts to commit.",
            next_step="Raise flush.interval.ms, or lower tasks.max; the task tries again.",
        )

    def _write(self, table: LakeTable, pending: Pending, schema: pa.Schema) -> None:
        if pending.files:
            if self._lake.upserts is not None:
                check_new(cast(KeyedTable, table), pending.files, self._lake.upserts.key)
            table.append_files(pending, schema)
        elif self._lake.upserts is None:
            table.append(pending, schema)
        else:
            cast(KeyedTable, table).upsert(pending, schema, self._lake.upserts.key)
