"""Data files of an Iceberg table that the library writes, of about the size of `file.size.bytes`.

The library divides rows by their size in memory, where they are several times larger than in files. So it gets another
size than the wanted one. Import it only where pyiceberg may be needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files

from connectx.connectors.lake.file_sizes import file_count

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

_TARGET: Final = "write.target-file-size-bytes"
_SLACK: Final = 1.05
"""The library puts batches of slightly different sizes together until they reach its size."""


def with_file_size(metadata: TableMetadata, rows: pa.Table, file_bytes: int) -> TableMetadata:
    """Metadata, in memory only, with which the library divides these rows into files of about this size."""
    in_memory = int(rows.nbytes / file_count(rows, file_bytes) * _SLACK) + 1
    return metadata.model_copy(update={"properties": {**metadata.properties, _TARGET: str(in_memory)}})


def write_files(
    metadata: TableMetadata, rows: pa.Table, io: FileIO, file_bytes: int, write_uuid: UUID | None = None
) -> list[DataFile]:
    """Write data files that no snapshot has yet."""
    sized = with_file_size(metadata, rows, file_bytes)
    return list(_dataframe_to_data_files(sized, rows, io, write_uuid or uuid4()))
