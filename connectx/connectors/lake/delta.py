"""DeltaSink: writes topics to Delta Lake tables, exactly once.

Each commit of a table holds rows and, as application transactions (`txn`), one offset per topic partition under the
id connectx/<group>/<topic>/<partition>. A commit is made on top of the snapshot whose offsets were compared: Delta
refuses it when the log has got another transaction of the same id since, and rebases it over anything else.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.lake.changes import DELETED, last_changes
from connectx.connectors.lake.constraints import Constraints
from connectx.connectors.lake.file_sizes import parts
from connectx.connectors.lake.partitioning import (
    Values,
    check_partition_fields,
    check_partitioning,
    divided,
    folder_of,
    with_values,
)
from connectx.connectors.lake.settings import (
    FILE_CONFIG,
    FLUSH_CONFIG,
    PARTITION_CONFIG,
    PATH_CONFIG,
    UPSERT_CONFIG,
    tables_config,
)
from connectx.connectors.lake.staged_changes import with_old_values
from connectx.connectors.lake.staging import STAGED, StagedFile, remove_files
from connectx.connectors.lake.table import ConflictError, Offsets, Pending
from connectx.connectors.lake.task import ChangingSink, LakeTask
from connectx.connectors.shared.columns import fitted, widens
from connectx.connectors.shared.errors import LakeError, LakeNotExclusiveError, LakeUnavailableError
from connectx.connectors.shared.sql import identifier
from connectx.connectors.shared.storage import (
    STORAGE,
    check_directory,
    check_exclusive,
    is_remote,
    options,
    storage_errors,
    store_of,
    url_of,
)
from connectx.data.chunks import rows_where
from connectx.errors.databases import TableMismatchError
from connectx.model.configdef import ConfigDef
from connectx.model.ids import TopicPartition
from connectx.plugins.errors import NotStageableError
from connectx.version import VERSION

if TYPE_CHECKING:
    from deltalake import DeltaTable, Transaction
    from obstore.store import ObjectStore

log = logging.getLogger(__name__)

_RETENTION: Final = "delta.setTransactionRetentionDuration"

_ENDPOINT: Final = re.compile(
    r"(aws_)?(s3_)?endpoint(_url)?(_s3)?|(azure_)?(storage_)?(endpoint|use_emulator)|(google_)?base_url"
)
"""Options and variables that name a service other than those of AWS, Azure and Google."""

_DIVIDING: Final = (
    pa.types.is_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)
"""Types of columns whose values have the same text in each library."""

_UNKNOWN_OPTION: Final = re.compile(r"Configuration key: '(\w+)' is not valid for store")

_VIOLATED: Final = "failed validation check"
"""What the library writes about a row that violates a constraint."""


class DeltaSink(ChangingSink):
    """Writes topics to Delta Lake tables, exactly once."""

    summary = "Delta Lake tables; offsets in the same commit"
    version = VERSION
    requires = (("lake", "deltalake"),)
    config = ConfigDef(
        PATH_CONFIG, tables_config("${topic}"), UPSERT_CONFIG, PARTITION_CONFIG, FILE_CONFIG, FLUSH_CONFIG
    )

    @classmethod
    def tables(cls, config: Mapping[str, str | None], group_id: str | None = None) -> Callable[[str], DeltaLakeTable]:
        """Tables whose files are merged with OPTIMIZE, which leaves the offsets in the log."""
        values, given = cls.config.parse(config), options(config, STORAGE)
        path, partition_by, file_bytes = values["path"], values["partition.by"], values["file.size.bytes"]
        return lambda name: DeltaLakeTable(path, name, given, group_id, partition_by, file_bytes=file_bytes)

    @classmethod
    def storage_check(cls, config: Mapping[str, str | None]) -> Callable[[], None] | None:
        """Versions of a log must be created exclusively."""
        path: str = cls.config.parse(config)["path"]
        check_directory(url_of(path), "path")
        return partial(check_log, path, options(config, STORAGE)) if is_remote(path) else None

    class Task(LakeTask):
        """One commit per table."""


DeltaSink.Task.connector = DeltaSink


def check_log(path: str, storage: Mapping[str, str]) -> None:
    """Raise unless versions of a log are created exclusively: by a lock, by a check, or by AWS, Azure or Google.

    The check does without options that only Delta's library has, and finds no credentials in profiles, which this
    library reads where the endpoint is that of AWS. These services always create exclusively.

    Raises:
        LakeNotExclusiveError: the storage overwrites objects.
        LakeUnavailableError, LakeError: a service with another endpoint cannot be reached, or refuses the request.
    """
    settings = {name.lower(): text for name, text in {**os.environ, **storage}.items()}
    if settings.get("aws_s3_locking_provider") == "dynamodb":
        return
    try:
        check_exclusive(_store_to_check(path, storage), path)
    except LakeNotExclusiveError:
        raise
    except (LakeError, LakeUnavailableError) as error:
        if any(_ENDPOINT.fullmatch(name) for name in settings):
            raise
        log.info("%s was not asked whether it creates objects exclusively: %s", path, error.message)


def _store_to_check(path: str, storage: Mapping[str, str]) -> ObjectStore:
    """The storage, without options that only Delta's library has."""
    left = {name.lower(): text for name, text in storage.items()}
    while True:
        try:
            return store_of(path, left)
        except LakeError as error:
            unknown = _UNKNOWN_OPTION.search(error.message)
            if unknown is None or left.pop(unknown[1], None) is None:
                raise


class DeltaLakeTable:
    """One snapshot of a table; a `connectx.connectors.lake.table.LakeTable`."""

    def __init__(
        self,
        path: str,
        name: str,
        storage: Mapping[str, str],
        group_id: str | None,
        partition_by: Sequence[str] = (),
        *,
        file_bytes: int,
    ) -> None:
        self.name = f"The table {name}"
        self._url = f"{url_of(path).rstrip('/')}/{name}"
        self._storage = dict(storage)
        self._group_id = group_id
        self._partition_by = [] if group_id is None else list(partition_by)
        self._file_bytes = file_bytes
        self._table: DeltaTable | None = None

    @property
    def schema(self) -> pa.Schema | None:
        """Columns of the snapshot; generated ones are not required in records."""
        if self._table is None:
            return None
        generated = Constraints.of(self._table).generated
        fields = pa.schema(self._table.schema().to_arrow())
        return pa.schema([field.with_nullable(field.nullable or field.name in generated) for field in fields])

    def refresh(self) -> None:
        """Read the newest snapshot.

        Raises:
            LakeError: there is something else in its directory, or the table is not one that this sink can write.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with self._errors():
            try:
                if self._table is None:
                    self._table = DeltaTable(self._url, storage_options=self._storage)
                else:
                    self._table.update_incremental()
            except TableNotFoundError:
                self._table = None
                self._check_empty()
                return
        self._check_table(self._table)

    def offsets(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Versions of the application transactions in the snapshot."""
        if self._table is None:
            return {}
        with self._errors():
            held = {partition: self._table.transaction_version(self._app_id(partition)) for partition in partitions}
        return {partition: offset for partition, offset in held.items() if offset is not None}

    def refused(self, rows: pa.Table) -> Mapping[int, str]:
        """Rows that violate CHECK constraints or invariants of columns."""
        if self._table is None:
            return {}
        with self._errors():
            return Constraints.of(self._table).refused(rows)

    def append(self, pending: Pending, schema: pa.Schema) -> None:
        """One commit with rows and offsets on top of the snapshot; a missing table is created before.

        Raises:
            ConflictError: the log has another commit that this one cannot follow, or the table was just created.
        """
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError

        table = self._prepare(schema)
        with self._errors():
            try:
                write_deltalake(
                    table,
                    Constraints.of(table).written(pending.table(schema)),
                    mode="append",
                    schema_mode="merge",
                    target_file_size=self._file_bytes,
                    commit_properties=CommitProperties(app_transactions=self._ends(pending)),
                )
            except CommitFailedError as error:
                raise ConflictError from error
            except Exception as error:
                if _VIOLATED in str(error):  # of a constraint that came after the rows were checked
                    raise ConflictError from error
                raise

    def upsert(self, pending: Pending, schema: pa.Schema, key: Sequence[str]) -> None:
        """One MERGE with changes and offsets on top of the snapshot; a missing table or column is created before.

        Raises:
            ConflictError: the log has another commit, or the table was just created or got columns.
        """
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError

        table = self._prepare(schema)
        version = table.version()
        properties = CommitProperties(app_transactions=self._ends(pending), max_commit_retries=0)
        changes = last_changes([rows for _, rows in pending.rows], schema, key)
        changes = Constraints.of(table).written(with_old_values(self, changes, key, self.name))
        changes = _required(changes, schema, key)
        assigned = {_quoted(name): f"s.{_quoted(name)}" for name in changes.column_names if name != DELETED}
        with self._errors():
            try:
                merger = table.merge(
                    changes,
                    " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key),
                    source_alias="s",
                    target_alias="t",
                    merge_schema=True,
                    streamed_exec=False,  # so that files without any of the keys are left alone
                    commit_properties=properties,
                )
                merger.when_matched_delete(f"s.{DELETED}")
                merger.when_matched_update(assigned)
                merger.when_not_matched_insert(assigned, f"NOT s.{DELETED}")
                merger.execute()
                if table.version() == version:  # nothing was there to delete, and the library committed nothing
                    table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
            except CommitFailedError as error:
                raise ConflictError from error

    def compact(self) -> tuple[int, int]:
        """Merge small files into larger ones; the number of files before and after.

        Raises:
            LakeUnavailableError: others changed the same files meanwhile.
        """
        from deltalake.exceptions import CommitFailedError

        self.refresh()
        if self._table is None:
            return 0, 0
        before = len(self._table.file_uris())
        with self._errors():
            try:
                done = self._table.optimize.compact(target_size=self._file_bytes)
            except CommitFailedError as error:
                raise LakeUnavailableError(
                    f"{self.name} was changed while its files were merged.", next_step="Compact it again."
                ) from error
        return before, before - done["numFilesRemoved"] + done["numFilesAdded"]

    def staging_place(self, token: str) -> tuple[str, list[str]]:
        """A folder in the table's own, and the columns that divide its rows.

        Raises:
            NotStageableError: the table has constraints, or columns that executors cannot divide it by, or executors
                cannot use its storage with these options.
        """
        self._check_unconstrained()
        try:
            store_of(self._url, self._storage)
        except LakeError as error:
            raise NotStageableError(f"Executors cannot write: {error.message} The worker writes.") from error
        return STAGED + token, self._checked_partition_columns()

    def stage_file(
        self, place: tuple[str, list[str]], rows: pa.Table, partition: TopicPartition, end: int
    ) -> StagedFile:
        """Parquet files of about `file.size.bytes`, each with rows that have the same partition values."""
        folder, columns = place
        entry: dict[str, tuple[int, str, Values]] = {}
        for values, mine in divided(rows, columns):
            for part in parts(mine, self._file_bytes):
                path = "/".join(filter(None, (folder, folder_of(values), f"{uuid4().hex}.parquet")))
                entry[path] = (*self._put_file(path, part), values)
        return StagedFile(tuple(entry), partition, end, list(entry.values()))

    def append_files(self, pending: Pending, schema: pa.Schema) -> None:
        """One commit with files and offsets on top of the snapshot.

        Raises:
            ConflictError: the log has another commit that this one cannot follow.
            NotStageableError: the table has got constraints, wider types or other partitions since.
        """
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        assert self._table is not None, "files are staged for a table that exists"
        self._check_unconstrained()
        if pending.schema is not None and widens(pending.schema, schema):
            raise NotStageableError(f"{self.name} has wider columns than the staged files.")
        now_ms, columns = time.time_ns() // 1_000_000, self._table.metadata().partition_columns
        actions: list[AddAction | RemoveAction] = []
        for file in pending.files:
            for path, (size_bytes, statistics, values) in zip(file.paths, file.entry, strict=True):
                if list(values) != columns:
                    raise NotStageableError(f"{self.name} has other partitions than the staged files.")
                actions.append(AddAction(path, size_bytes, dict(values), now_ms, True, statistics))
        with self._errors():
            try:
                self._table.create_write_transaction(
                    actions,
                    "append",
                    self._table.schema(),
                    commit_properties=CommitProperties(
                        app_transactions=self._ends(pending), max_commit_retries=None if pending.follows else 0
                    ),
                )
            except CommitFailedError as error:
                raise ConflictError from error
        self.refresh()  # the library leaves the snapshot as it was

    def read_staged(self, file: StagedFile, columns: Sequence[str]) -> pa.Table:
        """Parquet files, with the values of the columns that divide rows."""
        import pyarrow.parquet as pq
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        schema = self.schema
        assert schema is not None, "files are staged for a table that exists"
        wanted = pa.schema([schema.field(name) for name in columns])
        tables = [wanted.empty_table()]
        with storage_errors(self.name, "path", later=(Exception,)):
            files = PyFileSystem(DeltaStorageHandler(self._url, self._storage))
            for path, (_, _, values) in zip(file.paths, file.entry, strict=True):
                held = [name for name in columns if name not in values]
                rows = pq.ParquetFile(path, filesystem=files).read(columns=held)
                tables.append(fitted(with_values(rows, values, schema), wanted))
        return pa.concat_tables(tables)

    def stored_keys(self, keys: pa.Table, more: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Keys in the range of these; statistics of integers name the files that may have some."""
        from deltalake import QueryBuilder

        assert self._table is not None, "files are staged for a table that exists"
        ends = {name: pc.min_max(keys[name]).as_py() for name in _integers(keys)}
        within = " AND ".join(f"{identifier(name)} BETWEEN {end['min']} AND {end['max']}" for name, end in ends.items())
        known = () if self.schema is None else self.schema.names
        columns = ", ".join(identifier(name) for name in (*keys.column_names, *more) if name in known)
        with self._errors():
            query = QueryBuilder().register("stored", self._table)
            for batch in query.execute(f"SELECT {columns} FROM stored WHERE {within or 'true'}"):
                yield pa.record_batch(batch)

    def remove_staged(self, token: str, kept: Set[str]) -> None:
        """Files in the job's folder."""
        with storage_errors(self.name, "path", later=(Exception,)):
            remove_files(store_of(self._url, self._storage), STAGED + token, kept)

    def read(self) -> Iterator[pa.Table]:
        """The rows of the snapshot."""
        if self._table is not None:
            with self._errors():
                for batch in self._table.to_pyarrow_dataset().to_batches():
                    yield pa.Table.from_batches([batch])

    def _put_file(self, path: str, rows: pa.Table) -> tuple[int, str]:
        """Write a Parquet file; its size and statistics."""
        import pyarrow.parquet as pq
        from obstore import put

        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        with storage_errors(self.name, "path", later=(Exception,)):
            put(store_of(self._url, self._storage), path, data)
        return len(data), _statistics(rows)

    def _prepare(self, schema: pa.Schema) -> DeltaTable:
        """The table if its columns can take rows with this schema.

        Raises:
            ConflictError: it was created, or its columns were widened, in a commit before.
        """
        _check_names(schema, self.name)
        if self._table is None:
            self._create(schema)
            raise ConflictError
        current = self.schema
        assert current is not None, "there is a table"
        if widens(current, schema):
            self._rewrite(self._table, schema)
            raise ConflictError
        return self._table

    def _rewrite(self, table: DeltaTable, schema: pa.Schema) -> None:
        """Write all rows again, in wider types, in one commit that follows this snapshot or none.

        The library does not write tables with the feature typeWidening, which would keep the files.
        """
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError

        batches = (_fitted(batch, schema) for batch in table.to_pyarrow_dataset().to_batches())
        with self._errors():
            try:
                write_deltalake(
                    table,
                    pa.RecordBatchReader.from_batches(schema, chain.from_iterable(batches)),
                    mode="overwrite",
                    schema_mode="overwrite",
                    target_file_size=self._file_bytes,
                    partition_by=table.metadata().partition_columns or None,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
            except CommitFailedError as error:
                raise ConflictError from error

    def _create(self, schema: pa.Schema) -> None:
        from deltalake import DeltaTable

        check_partition_fields(self.name, self._partition_by, schema)
        with self._errors():
            DeltaTable.create(
                self._url,
                schema=schema,
                mode="ignore",
                partition_by=self._partition_by or None,
                storage_options=self._storage,
            )

    def _check_empty(self) -> None:
        """A directory with other files becomes no table."""
        parts = urlsplit(self._url)
        path = unquote(parts.path)
        if parts.scheme == "file" and os.path.isdir(path) and os.listdir(path):
            raise LakeError(
                f"The directory {path} is not empty, and is no Delta table.",
                next_step="Choose another `path` or table.name.format, and restart the task.",
            )

    def _check_table(self, table: DeltaTable) -> None:
        metadata = table.metadata()
        if _RETENTION in metadata.configuration:
            raise LakeError(
                f"{self.name} has the property {_RETENTION}, so that it may forget offsets of this sink.",
                next_step="Remove the property, or write to another table, and restart the task.",
            )
        check_partitioning(self.name, self._partition_by, metadata.partition_columns)

    def _check_unconstrained(self) -> None:
        constraints = None if self._table is None else Constraints.of(self._table)
        if constraints is not None and constraints.any:
            raise NotStageableError(f"{self.name} has constraints: {constraints}. Only the worker checks them.")

    def _checked_partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by, of types that all readers find in their texts."""
        columns, schema = [] if self._table is None else self._table.metadata().partition_columns, self.schema
        for name in columns:
            assert schema is not None, "there is a table"
            kind = schema.field(name).type
            if len(columns) == len(schema) or not any(is_known(kind) for is_known in _DIVIDING):
                raise NotStageableError(
                    f"{self.name} is partitioned by {name} of type {kind}. Only the worker writes it."
                )
        return columns

    def _app_id(self, partition: TopicPartition) -> str:
        return f"connectx/{self._group_id}/{partition.topic}/{partition.partition}"

    def _ends(self, pending: Pending) -> list[Transaction]:
        from deltalake import Transaction

        return [Transaction(self._app_id(p), end) for p, (_, end) in sorted(pending.ranges.items())]

    def _errors(self) -> AbstractContextManager[None]:
        return _delta_errors(self.name)


def _check_names(fields: Iterable[pa.Field], table: str) -> None:
    """Raise TableMismatchError for fields whose names differ in case only, which Delta takes for one."""
    names: dict[str, str] = {}
    for field in fields:
        if (other := names.setdefault(field.name.lower(), field.name)) != field.name:
            raise TableMismatchError(
                f"The records for {table} have the fields {other} and {field.name}, one name in a Delta table.",
                next_step="Rename one with a ReplaceField transformation, and restart the task.",
            )
        if pa.types.is_struct(field.type):
            _check_names(field.type, table)


def _delta_errors(place: str) -> AbstractContextManager[None]:
    from deltalake.exceptions import DeltaError, DeltaProtocolError, SchemaMismatchError

    return storage_errors(
        place, "path", later=(DeltaError,), final=(DeltaProtocolError, SchemaMismatchError, ValueError)
    )


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.RecordBatch]:
    return cast(list[pa.RecordBatch], fitted(pa.Table.from_batches([batch]), schema).to_batches())


def _required(changes: pa.Table, schema: pa.Schema, key: Sequence[str]) -> pa.Table:
    """Changes whose required columns have no nulls: otherwise the library would make the table's columns optional.

    Deletions get the values of another row there, which nothing reads. If all are deletions, keys are enough.
    """
    written = rows_where(pc.invert(changes[DELETED]))
    if not len(written):
        return changes.select([*key, DELETED])
    rows = pa.array(range(changes.num_rows), pa.uint64())
    for at, field in enumerate(changes.schema):
        if field.name != DELETED and not schema.field(field.name).nullable:
            column = changes[field.name].take(pc.if_else(pc.is_null(changes[field.name]), written[0], rows))
            changes = changes.set_column(at, field.with_nullable(False), column)
    return changes


def _quoted(name: str) -> str:
    """A column's name in expressions of the library."""
    return f"`{name}`"


def _statistics(rows: pa.Table) -> str:
    """Row count, null counts and ranges of integers, as the log has them for readers that skip files."""
    plain = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    found = {"numRecords": rows.num_rows, "nullCount": {name: rows[name].null_count for name in plain}}
    limits = {name: pc.min_max(rows[name]).as_py() for name in _integers(rows)}
    for key, side in (("minValues", "min"), ("maxValues", "max")):
        found[key] = {name: limit[side] for name, limit in limits.items() if limit[side] is not None}
    return json.dumps(found)


def _integers(rows: pa.Table) -> list[str]:
    """Columns whose statistics are exact, and of one type in each version of the log and of the library."""
    return [field.name for field in rows.schema if pa.types.is_integer(field.type)]
