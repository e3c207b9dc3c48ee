"""ParquetSink: writes topics to Parquet files, exactly once, without a table format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from connectx.connectors.lake.parquet_partitions import PartitionedParquetTable
from connectx.connectors.lake.parquet_table import ParquetTable
from connectx.connectors.lake.settings import (
    FLUSH_CONFIG,
    PARTITION_CONFIG,
    PATH_CONFIG,
    LakeSettings,
    tables_config,
)
from connectx.connectors.lake.task import LakeSink, LakeTask
from connectx.connectors.shared.storage import (
    STORAGE,
    check_directory,
    check_exclusive,
    is_remote,
    options,
    store_of,
    url_of,
)
from connectx.model.configdef import ConfigDef
from connectx.model.validators import one_of
from connectx.plugins.api import SinkTaskContext
from connectx.version import VERSION

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class ParquetSink(LakeSink):
    """Writes topics to Parquet files, exactly once."""

    place = "files of"
    version = VERSION
    requires = (("lake", "obstore"),)
    config = ConfigDef(
        PATH_CONFIG,
        tables_config("${topic}"),
        PARTITION_CONFIG,
        FLUSH_CONFIG,
        ConfigDef().define(
            "parquet.codec",
            str,
            "snappy",
            doc="Compression of the files.",
            group="Storage",
            validator=one_of("none", "snappy", "gzip", "zstd", "lz4"),
        ),
    )

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Files are appended to, never changed."""
        wanted = {"insert.mode": "upsert", "delete.enabled": "true", "value.envelope": "debezium"}
        return {
            name: [f"ParquetSink only appends rows, so {name}={text} is not possible; use DeltaSink or IcebergSink"]
            for name, text in wanted.items()
            if (config.get(name) or "").strip().lower() == text
        }

    @classmethod
    def table(cls, config: Mapping[str, str | None], name: str) -> ParquetTable:
        """The files of a table, to read them."""
        values = cls.config.parse(config)
        store = store_of(values["path"], options(config, STORAGE))
        return _table(store, name, None, values["parquet.codec"], values["partition.by"])

    class Task(LakeTask):
        """One file per topic partition and commit."""

        def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
            """Check the directory.

            Raises:
                LakeStorageError: it does not exist, or cannot be written.
                LakeError: no such kind of storage, or a wrong setting of it.
            """
            super().start(config, context)
            values = ParquetSink.config.parse(config)
            path, codec = values["path"], values["parquet.codec"]
            check_directory(url_of(path), "path")
            store = store_of(path, options(config, STORAGE))
            group_id, partition_by = context.group_id, values["partition.by"]
            self.use(
                LakeSettings.of(values),
                lambda name: _table(store, name, group_id, codec, partition_by),
                partial(check_exclusive, store, path) if is_remote(path) else None,
            )


def _table(
    store: ObjectStore, name: str, group_id: str | None, codec: str, partition_by: Sequence[str]
) -> ParquetTable:
    if partition_by:
        return PartitionedParquetTable(store, name, group_id, codec, partition_by)
    return ParquetTable(store, name, group_id, codec)
