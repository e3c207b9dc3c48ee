"""Parquet files as a table with a chain of offsets.

A file holds the rows of one topic partition from one offset to another. Its name is the first offset and it is created
exclusively, so of two writers that continue at the same offset one is refused; the offset after the last row is in the
file's metadata. The files of a partition are a chain, and `open` takes its end. A file becomes visible as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from connectx.connectors.lake.staging import STAGED, StagedFile, remove_files
from connectx.connectors.lake.table import Offsets, Pending, compare
from connectx.connectors.shared.columns import evolved
from connectx.connectors.shared.errors import LakeError
from connectx.connectors.shared.storage import storage_errors
from connectx.model.decoding import whole_number
from connectx.model.ids import TopicPartition
from connectx.plugins.errors import CommitRefusedError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_END, _GROUP = b"connectx.end", b"connectx.group"
SUFFIX: Final = ".parquet"
"""Ends the names of files."""

_TAIL_BYTES: Final = 64 << 10


class ParquetTable:
    """The files of one table; a `connectx.connectors.lake.table.LakeTable`.

    `group_id` is None for a reader.
    """

    def __init__(self, store: ObjectStore, name: str, group_id: str | None, codec: str) -> None:
        self.name = f"The table {name}"
        self._store = store
        self._folder = name
        self._group_id = group_id
        self._codec = codec
        self._last: dict[TopicPartition, str] = {}
        self._ends: Offsets = {}
        self._schema: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema | None:
        """Columns of the last files."""
        return self._schema

    def refresh(self) -> None:
        """List the files, and read the footers of the last one of each partition that is new."""
        newest: dict[TopicPartition, str] = {}
        times: dict[str, Any] = {}
        with self._errors():
            for path, written in self._files():
                partition = partition_of(path)
                if partition is not None:
                    self._check_unpartitioned(path)
                    newest[partition] = max(path, newest.get(partition, ""))
                    times[path] = written
            fresh = {p: path for p, path in newest.items() if self._last.get(p) != path}
            for partition, path in sorted(fresh.items(), key=lambda item: times[item[1]]):
                self._ends[partition], columns = self._footer(path)
                self._schema = evolved(self._schema, columns, self.name, evolve=True)
            self._last = newest

    def offsets(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Ends of the last files."""
        return {partition: self._ends[partition] for partition in partitions if partition in self._ends}

    def refused(self, rows: pa.Table) -> Mapping[int, str]:
        """Nothing: files have no constraints."""
        return {}

    def append(self, pending: Pending, schema: pa.Schema) -> None:
        """One file for each partition.

        Raises:
            CommitRefusedError: there is a file that starts where one of these does; files of partitions before it
                were written.
        """
        from obstore import put
        from obstore.exceptions import AlreadyExistsError

        for partition, rows in pending.by_partition(schema):
            first, end = pending.ranges[partition]
            path = self._path(partition, first)
            with self._errors():
                try:
                    put(self._store, path, self._file(rows, end), mode="create", use_multipart=False)
                except AlreadyExistsError:
                    self.refresh()
                    compare(self.name, self.offsets(list(pending.ranges)), pending.ranges)
                    raise
            self._last[partition], self._ends[partition] = path, end
        self._schema = schema

    def staging_place(self, token: str) -> str:
        """A folder that readers of the table's folder pass over."""
        return f"{self._folder}/_{STAGED}{token}"

    def stage_file(self, place: str, rows: pa.Table, partition: TopicPartition, end: int) -> StagedFile:
        """The file as it will be, under another name."""
        from obstore import put

        path = f"{place}/{uuid4().hex}{SUFFIX}"
        with self._errors():
            put(self._store, path, self._file(rows, end))
        return StagedFile((path,), partition, end)

    def append_files(self, pending: Pending, schema: pa.Schema) -> None:
        """Give files their names, in the order of their offsets.

        Raises:
            CommitRefusedError: there is a file that starts where one of these does; those before it are visible.
        """
        from obstore.exceptions import AlreadyExistsError

        firsts = {partition: first for partition, (first, _) in pending.ranges.items()}
        for file in pending.files:
            path = self._path(file.partition, firsts[file.partition])
            with self._errors():
                try:
                    self._publish(file.paths[0], path)
                except (AlreadyExistsError, FileNotFoundError) as error:
                    self.refresh()
                    held = self.offsets(list(pending.ranges))
                    compare(self.name, held, pending.ranges)
                    raise CommitRefusedError(f"{self.name} lacks the staged file {file.paths[0]}.", held) from error
            firsts[file.partition] = self._ends[file.partition] = file.end
            self._last[file.partition] = path

    def remove_staged(self, token: str, kept: Set[str]) -> None:
        """Whatever is left in the job's folder."""
        with self._errors():
            remove_files(self._store, self.staging_place(token), set())

    def _publish(self, staged: str, path: str) -> None:
        """Rename without replacing; where the storage has no such operation, copy through this process."""
        from obstore import get, put, rename
        from obstore.exceptions import NotSupportedError

        try:
            rename(self._store, staged, path, overwrite=False)
        except (NotSupportedError, NotImplementedError):
            put(self._store, path, get(self._store, staged).bytes(), mode="create", use_multipart=False)

    def _name(self, partition: TopicPartition, first: int) -> str:
        return f"{partition.topic}+{partition.partition}+{first:020d}"

    def _path(self, partition: TopicPartition, first: int) -> str:
        return f"{self._folder}/{self._name(partition, first)}{SUFFIX}"

    def read(self) -> Iterator[pa.Table]:
        """The rows of all files."""
        return (rows for _, rows in self._rows())

    def _rows(self) -> Iterator[tuple[str, pa.Table]]:
        import pyarrow.parquet as pq
        from obstore import get

        with self._errors():
            for path, _ in sorted(self._files()):
                if partition_of(path) is not None:
                    content = get(self._store, path).bytes().to_bytes()
                    yield path, pq.read_table(pa.BufferReader(content))

    def _files(self, folder: str = "") -> Iterator[tuple[str, Any]]:
        from obstore import list as list_files

        for chunk in list_files(self._store, folder or self._folder):
            yield from ((meta["path"], meta["last_modified"]) for meta in chunk)

    def _file(self, rows: pa.Table, end: int) -> bytes:
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        metadata = {_END: str(end).encode(), _GROUP: (self._group_id or "").encode()}
        pq.write_table(rows.replace_schema_metadata(metadata), sink, compression=self._codec)
        return bytes(sink.getvalue().to_pybytes())

    def _footer(self, path: str) -> tuple[int, pa.Schema]:
        import pyarrow.parquet as pq

        try:
            schema = pq.read_schema(pa.BufferReader(self._tail(path)))
        except pa.ArrowInvalid as error:
            raise self._foreign(path, "is no Parquet file") from error
        metadata = schema.metadata or {}
        if _END not in metadata:
            raise self._foreign(path, "has no offsets of connectx")
        group = metadata[_GROUP].decode()
        if self._group_id not in (None, group):
            raise self._foreign(path, f"was written by the consumer group {group}, not {self._group_id}")
        return int(metadata[_END]), schema.remove_metadata()

    def _tail(self, path: str) -> bytes:
        """The end of a file with its metadata, whose length is in the last 8 bytes."""
        from obstore import get_range, head

        size = head(self._store, path)["size"]

        def last(count: int) -> bytes:
            return get_range(self._store, path, start=max(0, size - count), end=size).to_bytes() if size else b""

        tail = last(_TAIL_BYTES)
        length = 8 + int.from_bytes(tail[-8:-4], "little")
        return last(length) if len(tail) < length <= size else tail

    def _check_unpartitioned(self, path: str) -> None:
        if "=" in path.removeprefix(self._folder).rpartition("/")[0]:
            raise LakeError(
                f"{self.name} has files in directories by values, and partition.by names none.",
                next_step="Set partition.by as before, or write to another table, and restart the task.",
            )

    def _foreign(self, path: str, why: str) -> LakeError:
        return LakeError(
            f"The file {path} {why}, so it is not known where to continue.",
            next_step="Choose another `path` or table.name.format, or remove the file, and restart the task.",
        )

    def _errors(self) -> Any:
        from obstore.exceptions import BaseError

        return storage_errors(self.name, "path", later=(BaseError,))


def partition_of(path: str, suffix: str = SUFFIX) -> TopicPartition | None:
    """The topic partition that a file's name starts with; None for files of others."""
    parts = path.rpartition("/")[2].removesuffix(suffix).split("+")
    if not path.endswith(suffix) or len(parts) != 3 or whole_number(parts[2]) is None:
        return None
    partition = whole_number(parts[1])
    return None if partition is None else TopicPartition(parts[0], partition)
