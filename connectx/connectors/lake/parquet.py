"""ParquetSink: writes topics to Parquet files, exactly once, without a table format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from connectx.connectors.lake.parquet_partitions import PartitionedParquetTable
from connectx.connectors.lake.parquet_table import ParquetTable
from connectx.connectors.lake.settings import (
    FLUSH_CONFIG,
    PARTITION_CONFIG,
    PATH_CONFIG,
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
from connectx.version import VERSION


class ParquetSink(LakeSink):
    """Writes topics to Parquet files, exactly once."""

    summary = "Parquet files; each has its first offset in its name"
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
    def tables(cls, config: Mapping[str, str | None], group_id: str | None = None) -> Callable[[str], ParquetTable]:
        """Tables whose files divide rows as `partition.by` names columns."""
        values = cls.config.parse(config)
        store, codec = store_of(values["path"], options(config, STORAGE)), values["parquet.codec"]
        if partition_by := values["partition.by"]:
            return lambda name: PartitionedParquetTable(store, name, group_id, codec, partition_by)
        return lambda name: ParquetTable(store, name, group_id, codec)

    @classmethod
    def storage_check(cls, config: Mapping[str, str | None]) -> Callable[[], None] | None:
        """Files must be created exclusively."""
        path: str = cls.config.parse(config)["path"]
        check_directory(url_of(path), "path")
        return partial(check_exclusive, store_of(path, options(config, STORAGE)), path) if is_remote(path) else None

    class Task(LakeTask):
        """One file per topic partition and commit."""


ParquetSink.Task.connector = ParquetSink
