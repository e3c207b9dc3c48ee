"""IcebergSink: writes topics to Apache Iceberg tables, exactly once.

Each commit adds a snapshot and, in the same transaction, sets one property per topic partition,
connectx.offsets.<group>.<topic>.<partition>, to the offset after the last row. Properties outlive expired snapshots.
The catalog refuses a commit unless the table is still at the snapshot whose offsets were compared. The library's own
retries would lay the rows of a zombie over newer snapshots, so they are off: after a conflict the task compares again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from typing_extensions import override

from connectx.connectors.lake.changes import last_changes
from connectx.connectors.lake.merging import merge_files
from connectx.connectors.lake.partitioning import check_partition_fields, check_partitioning
from connectx.connectors.lake.replacing import may_hold, write_changes
from connectx.connectors.lake.settings import (
    FILE_CONFIG,
    FLUSH_CONFIG,
    PARTITION_CONFIG,
    UPSERT_CONFIG,
    tables_config,
)
from connectx.connectors.lake.staged_changes import with_old_values
from connectx.connectors.lake.staging import STAGED, StagedFile, remove_files
from connectx.connectors.lake.table import ConflictError, Offsets, Pending
from connectx.connectors.lake.task import ChangingSink, LakeTask
from connectx.connectors.shared.columns import fitted, normal_type
from connectx.connectors.shared.errors import LakeUnavailableError
from connectx.connectors.shared.iceberg import CATALOG, catalog_errors, catalog_problems
from connectx.connectors.shared.storage import options, storage_errors, store_of, url_of
from connectx.model.configdef import ConfigDef
from connectx.model.ids import TopicPartition
from connectx.model.places import bare_url
from connectx.model.validators import non_empty
from connectx.version import VERSION

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table, Transaction

_NAMESPACE: Final = "default"
_NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
_COMPACTIONS: Final = 10
_CREATED: Final = {
    "write.metadata.delete-after-commit.enabled": "true",  # each commit writes a metadata file
    "write.metadata.previous-versions-max": "20",
}


_DATA_PATH: Final = "write.data.path"


class IcebergSink(ChangingSink):
    """Writes topics to Apache Iceberg tables, exactly once."""

    summary = "Apache Iceberg tables; offsets in the same commit"
    version = VERSION
    requires = (("lake", "pyiceberg"),)
    config = ConfigDef(
        ConfigDef().define(
            "iceberg.catalog",
            str,
            "iceberg",
            doc="Name of the catalog. Settings that begin with iceberg.catalog. go to it, without this prefix: type, "
            "uri, warehouse, and options of the storage, such as s3.endpoint.",
            group="Catalog",
            importance="HIGH",
            validator=non_empty(),
        ),
        tables_config(f"{_NAMESPACE}.${{topic}}"),
        UPSERT_CONFIG,
        PARTITION_CONFIG,
        FILE_CONFIG,
        FLUSH_CONFIG,
    )

    @override
    @classmethod
    def root(cls, config: Mapping[str, str | None]) -> str:
        return f"catalog {bare_url(config.get('iceberg.catalog.uri') or '')}"

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """A catalog needs a type or an address, and upsert the key."""
        return {**super().validate(config), **catalog_problems(config)}

    @classmethod
    def tables(cls, config: Mapping[str, str | None], group_id: str | None = None) -> Callable[[str], IcebergTable]:
        """Tables whose files are merged in one snapshot with the same rows; properties of the table stay."""
        values, given = cls.config.parse(config), options(config, CATALOG)
        catalog, partition_by, file_bytes = values["iceberg.catalog"], values["partition.by"], values["file.size.bytes"]
        return lambda name: IcebergTable(catalog, given, name, group_id, partition_by, file_bytes=file_bytes)

    class Task(LakeTask):
        """One transaction per table."""


IcebergSink.Task.connector = IcebergSink


class IcebergTable:
    """The metadata of a table as it was read last; a `connectx.connectors.lake.table.LakeTable`."""

    def __init__(
        self,
        catalog: str,
        given: Mapping[str, str],
        name: str,
        group_id: str | None,
        partition_by: Sequence[str] = (),
        *,
        file_bytes: int,
    ) -> None:
        self.name = f"The table {name}"
        self._catalog_name = catalog
        self._given = dict(given)
        self._identifier = tuple(name.split(".")) if "." in name else (_NAMESPACE, name)
        self._group_id = group_id
        self._partition_by = [] if group_id is None else list(partition_by)
        self._file_bytes = file_bytes
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    @property
    def schema(self) -> pa.Schema | None:
        """Columns of the current schema."""
        if self._table is None:
            return None
        fields = self._table.schema().as_arrow()
        return pa.schema([pa.field(field.name, normal_type(field.type), field.nullable) for field in fields])

    def refresh(self) -> None:
        """Read the newest metadata.

        Raises:
            LakeError: the catalog is configured wrongly, or the table is not one that this sink can write.
        """
        from pyiceberg.exceptions import NoSuchTableError

        with self._errors():
            try:
                if self._catalog is None:
                    self._catalog = self._loaded()
                self._table = self._catalog.load_table(self._identifier)
            except NoSuchTableError:
                self._table = None
                return
        check_partitioning(self.name, self._partition_by, [field.name for field in self._table.spec().fields])

    def _loaded(self) -> Catalog:
        """The catalog. One in SQL makes its two tables, and fails on each that another task makes at the same time."""
        from pyiceberg.catalog import load_catalog
        from sqlalchemy.exc import SQLAlchemyError

        for _ in range(2):
            with suppress(SQLAlchemyError):
                return load_catalog(self._catalog_name, **self._given)
        return load_catalog(self._catalog_name, **self._given)

    def offsets(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Properties of the table."""
        properties = {} if self._table is None else self._table.properties
        keys = {partition: self._key(partition) for partition in partitions}
        return {partition: int(properties[key]) for partition, key in keys.items() if key in properties}

    def refused(self, rows: pa.Table) -> Mapping[int, str]:
        """Nothing: a table has no constraints besides required columns."""
        return {}

    def append(self, pending: Pending, schema: pa.Schema) -> None:
        """One transaction with columns, rows and offsets; a missing table is created before.

        Raises:
            ConflictError: the table has another snapshot by now, or was just created.
        """
        rows = pending.table(schema)
        self._commit(pending, schema, lambda transaction, _: transaction.append(rows), rows)

    def upsert(self, pending: Pending, schema: pa.Schema, key: Sequence[str]) -> None:
        """One transaction with columns, one snapshot of changes, and offsets; a missing table is created before.

        Raises:
            ConflictError: the table has another snapshot by now, or was just created.
        """
        changes = last_changes([rows for _, rows in pending.rows], schema, key)
        if self._table is not None:
            changes = with_old_values(self, changes, key, self.name)
        self._commit(pending, schema, partial(write_changes, changes=changes, key=key, file_bytes=self._file_bytes))

    def compact(self) -> tuple[int, int]:
        """Merge small files into larger ones, in one snapshot; the number of files before and after.

        Raises:
            LakeUnavailableError: others changed the same files meanwhile, or commit all the time.
        """
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        self.refresh()
        if self._table is None:
            return 0, 0
        with self._errors():
            before, merged = merge_files(self._configured(self._table), self._file_bytes)
            for _ in range(_COMPACTIONS if merged.old else 0):
                try:
                    merged.commit(self._configured(self._table))
                except (CommitFailedException, ValidationException):
                    self.refresh()
                    if not merged.applies_to(self._table):
                        break
                else:
                    return before, before - len(merged.old) + len(merged.new)
        if not merged.old:
            return before, before
        raise LakeUnavailableError(
            f"{self.name} was changed while its files were merged.", next_step="Compact it again."
        )

    def staging_place(self, token: str) -> tuple[str, dict[str, str]]:
        """The table's metadata with another folder for data, and the options of its storage."""
        table = self._existing()
        folder = {_DATA_PATH: self._staging_folder(token)}
        metadata = table.metadata.model_copy(update={"properties": {**table.metadata.properties, **folder}})
        return metadata.model_dump_json(), {name: str(value) for name, value in table.io.properties.items()}

    def stage_file(
        self, place: tuple[str, dict[str, str]], rows: pa.Table, partition: TopicPartition, end: int
    ) -> StagedFile:
        """Data files as the library writes them in an append."""
        from pyiceberg.io import load_file_io
        from pyiceberg.table.metadata import TableMetadataUtil

        from connectx.connectors.lake.iceberg_files import write_files

        metadata = TableMetadataUtil.parse_raw(place[0])
        with self._errors():
            io = load_file_io(place[1], metadata.location)
            files = write_files(metadata, rows, io, self._file_bytes)
        return StagedFile(tuple(file.file_path for file in files), partition, end, files)

    def append_files(self, pending: Pending, schema: pa.Schema) -> None:
        """One transaction with files and offsets.

        Raises:
            ConflictError: the table has another snapshot by now.
        """

        def add(transaction: Transaction, io: FileIO) -> None:
            with transaction.update_snapshot().fast_append() as snapshot:
                for file in pending.files:
                    for data_file in file.entry:
                        snapshot.append_data_file(data_file)

        self._commit(pending, schema, add)

    def read_staged(self, file: StagedFile, columns: Sequence[str]) -> pa.Table:
        """Data files that no snapshot has."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        table, known = self._existing(), self.schema
        assert known is not None, "there is a table"
        for data_file in file.entry:
            data_file.spec_id = table.spec().spec_id  # not part of what can be pickled
        with self._errors():
            scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns), AlwaysTrue())
            rows = scan.to_table([FileScanTask(data_file) for data_file in file.entry])
        return fitted(rows, pa.schema([known.field(name) for name in columns]))

    def stored_keys(self, keys: pa.Table, more: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Keys within the range of these; statistics name the files that may have some."""
        with self._errors():
            table = self._existing()
            names = [*keys.column_names, *(name for name in more if name in table.schema().column_names)]
            scan = table.scan(row_filter=may_hold(keys), selected_fields=tuple(names))
            for batch in scan.to_arrow_batch_reader():
                yield batch.select(names)

    def remove_staged(self, token: str, kept: Set[str]) -> None:
        """Files in the job's folder on a local disk; elsewhere they stay for the removal of orphan files."""
        folder = url_of(self._staging_folder(token).removeprefix("file://"))
        if folder.startswith("file:"):
            names = {path.partition(f"{STAGED}{token}/")[2] for path in kept}
            with storage_errors(self.name, CATALOG + "*", later=(Exception,)):
                remove_files(store_of(folder, {}), "", names)

    def read(self) -> Iterator[pa.Table]:
        """The rows of the current snapshot."""
        if self._table is not None:
            with self._errors():
                for batch in self._table.scan().to_arrow_batch_reader():
                    yield pa.Table.from_batches([batch])

    def _configured(self, table: Table, rows: pa.Table | None = None) -> Table:
        """The table with settings for the library, in memory only: it reads them from the metadata of the table."""
        from connectx.connectors.lake.iceberg_files import with_file_size

        properties = {**table.metadata.properties, **_NO_RETRIES}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        if rows is not None:
            table.metadata = with_file_size(table.metadata, rows, self._file_bytes)
        return table

    def _commit(
        self,
        pending: Pending,
        schema: pa.Schema,
        write: Callable[[Transaction, FileIO], None],
        rows: pa.Table | None = None,
    ) -> None:
        """Columns, what is written, which must add a snapshot, and offsets; the snapshot is the fence.

        `rows` are those that the library itself divides into files.
        """
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        from connectx.connectors.lake.transactions import TableTransaction

        if self._table is None:
            self._create(schema)
            raise ConflictError
        table = self._configured(self._table, rows)
        changed = schema != self.schema
        with self._errors():
            try:
                with TableTransaction(table) as transaction:
                    if changed:
                        with transaction.update_schema() as update:
                            update.union_by_name(schema)
                    write(transaction, table.io)
                    transaction.set_properties({self._key(p): str(end) for p, (_, end) in pending.ranges.items()})
            except (CommitFailedException, ValidationException) as error:
                raise ConflictError from error

    def _create(self, schema: pa.Schema) -> None:
        """Also the namespace. Another task may be first."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        check_partition_fields(self.name, self._partition_by, schema)
        assert self._catalog is not None, "refreshed before"
        with self._errors():
            try:
                self._create_namespace(self._catalog)
                with (
                    self._catalog.create_table_transaction(
                        self._identifier, schema, properties=_CREATED
                    ) as transaction,
                    transaction.update_spec() as update,
                ):
                    for name in self._partition_by:
                        update.add_identity(name)
            except (TableAlreadyExistsError, CommitFailedException):
                return

    def _create_namespace(self, catalog: Catalog) -> None:
        """Any error is that of another task that was faster, if the namespace exists afterwards."""
        namespace = self._identifier[:-1]
        try:
            catalog.create_namespace_if_not_exists(namespace)
        except Exception:
            if not catalog.namespace_exists(namespace):
                raise

    def _existing(self) -> Table:
        assert self._table is not None, "files are staged for a table that exists"
        return self._table

    def _staging_folder(self, token: str) -> str:
        return f"{self._existing().metadata.location}/data/{STAGED}{token}"

    def _key(self, partition: TopicPartition) -> str:
        return f"connectx.offsets.{self._group_id}.{partition.topic}.{partition.partition}"

    def _errors(self) -> Any:
        return catalog_errors(self.name)
