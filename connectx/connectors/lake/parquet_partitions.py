"""Parquet files in directories named by the values of columns, as Hive has them, with one chain of offsets.

A commit of a topic partition has a file for each combination of values. The files are written aside first. Then a link
is created exclusively, a small file named by the first offset. It is the commit and the fence, and lists the files.
Last the files are moved to their places. A task that finds a link of another one completes its moves first.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa

from connectx.connectors.lake.parquet_table import SUFFIX, ParquetTable, partition_of
from connectx.connectors.lake.partitioning import (
    check_partition_fields,
    check_partitioning,
    divided,
    folder_of,
    values_in,
    with_values,
)
from connectx.connectors.lake.staging import StagedFile
from connectx.connectors.lake.table import Pending, compare
from connectx.connectors.shared.columns import evolved
from connectx.connectors.shared.errors import LakeError
from connectx.model.ids import TopicPartition
from connectx.plugins.errors import CommitRefusedError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

LINKS: Final = "_connectx"
"""Folder of the links in that of a table; readers pass over names that begin so."""

_LINK: Final = ".json"


class PartitionedParquetTable(ParquetTable):
    """The files of one table with `partition.by`; a `connectx.connectors.lake.table.LakeTable`."""

    def __init__(
        self, store: ObjectStore, name: str, group_id: str | None, codec: str, partition_by: Sequence[str]
    ) -> None:
        super().__init__(store, name, group_id, codec)
        self._partition_by = list(partition_by)

    def refresh(self) -> None:
        """Read the last link of each partition that is new, and complete its moves."""
        newest: dict[TopicPartition, str] = {}
        with self._errors():
            for path, _ in self._files(f"{self._folder}/{LINKS}"):
                if (partition := partition_of(path, _LINK)) is not None:
                    newest[partition] = max(path, newest.get(partition, ""))
            if not newest and any(partition_of(path) for path, _ in self._files()):
                check_partitioning(self.name, self._partition_by, ())
            for partition, path in sorted(newest.items()):
                if self._last.get(partition) != path:
                    self._read_link(partition, path)

    def append(self, pending: Pending, schema: pa.Schema) -> None:
        """One link for each partition.

        Raises:
            CommitRefusedError: there is a link that starts where one of these does; partitions before it were written.
            LakeError: a column cannot divide files.
        """
        check_partition_fields(self.name, self._partition_by, schema)
        self._check_types(schema)
        token = uuid4().hex
        place = self.staging_place(token)
        files = [self.stage_file(place, rows, p, pending.ranges[p][1]) for p, rows in pending.by_partition(schema)]
        try:
            self.append_files(replace(pending, files=files), schema)
        except CommitRefusedError:
            self.remove_staged(token, set())
            raise
        self.remove_staged(token, set())

    def stage_file(self, place: str, rows: pa.Table, partition: TopicPartition, end: int) -> StagedFile:
        """One file for each combination of values, and where each belongs."""
        from obstore import put

        paths, folders = [], []
        with self._errors():
            for values, part in divided(rows, self._partition_by):
                paths.append(f"{place}/{uuid4().hex}{SUFFIX}")
                folders.append(folder_of(values))
                put(self._store, paths[-1], self._file(part, end))
        return StagedFile(tuple(paths), partition, end, (folders, rows.schema))

    def append_files(self, pending: Pending, schema: pa.Schema) -> None:
        """Create links, in the order of their offsets, and move the files of each.

        Raises:
            CommitRefusedError: there is a link that starts where one of these does; those before it are visible.
        """
        from obstore import head, put
        from obstore.exceptions import AlreadyExistsError

        firsts = {partition: first for partition, (first, _) in pending.ranges.items()}
        for file in pending.files:
            name, (folders, columns) = self._name(file.partition, firsts[file.partition]), file.entry
            moves = {
                path: f"{self._folder}/{folder}/{name}{SUFFIX}"
                for path, folder in zip(file.paths, folders, strict=True)
            }
            link = f"{self._folder}/{LINKS}/{name}{_LINK}"
            with self._errors():
                try:
                    for path in moves:
                        head(self._store, path)
                    put(self._store, link, self._link(file.end, columns, moves), mode="create", use_multipart=False)
                except (AlreadyExistsError, FileNotFoundError) as error:
                    self.refresh()
                    held = self.offsets(list(pending.ranges))
                    compare(self.name, held, pending.ranges)
                    raise CommitRefusedError(f"{self.name} lacks the staged files of {name}.", held) from error
                self._move(moves)
            firsts[file.partition] = self._ends[file.partition] = file.end
            self._last[file.partition] = link
        self._schema = schema

    def read(self) -> Iterator[pa.Table]:
        """The rows of all files, with the columns that their directories name."""
        for path, rows in self._rows():
            assert self._schema is not None, "there are files"
            folder = path.removeprefix(f"{self._folder}/").rpartition("/")[0]
            yield with_values(rows, values_in(folder), self._schema)

    def _link(self, end: int, columns: pa.Schema, moves: Mapping[str, str]) -> bytes:
        content = {
            "end": end,
            "group": self._group_id,
            "partition.by": self._partition_by,
            "columns": base64.b64encode(columns.remove_metadata().serialize().to_pybytes()).decode(),
            "files": moves,
        }
        return json.dumps(content).encode()

    def _read_link(self, partition: TopicPartition, path: str) -> None:
        from obstore import get

        try:
            link = json.loads(get(self._store, path).bytes().to_bytes())
            columns = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(link["columns"])))
        except (ValueError, KeyError, pa.ArrowInvalid) as error:
            raise self._foreign(path, "is no link of connectx") from error
        if self._group_id not in (None, link["group"]):
            raise self._foreign(path, f"was written by the consumer group {link['group']}, not {self._group_id}")
        check_partitioning(self.name, self._partition_by, link["partition.by"])
        if self._group_id is not None:
            self._move(link["files"])
        self._schema = evolved(self._schema, columns, self.name, evolve=True)
        self._last[partition], self._ends[partition] = path, link["end"]

    def _move(self, moves: Mapping[str, str]) -> None:
        """Move files to their places, unless that was done before."""
        from obstore import head
        from obstore.exceptions import AlreadyExistsError

        for staged, path in moves.items():
            try:
                self._publish(staged, path)
            except (AlreadyExistsError, FileNotFoundError):
                try:
                    head(self._store, path)
                except FileNotFoundError:
                    raise self._foreign(path, "is missing, and so is what was to become it,") from None

    def _check_types(self, schema: pa.Schema) -> None:
        for name in self._partition_by:
            kind = schema.field(name).type
            if not any(fits(kind) for fits in (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, _is_day)):
                raise LakeError(
                    f"{self.name} has a column {name} of type {kind}, which names no directory.",
                    next_step="Name columns with texts, integers, booleans or dates in partition.by, and restart the "
                    "task.",
                )
        if len(self._partition_by) == len(schema):
            raise LakeError(
                f"{self.name} gets records without fields besides those of partition.by.",
                next_step="Correct partition.by, and restart the task.",
            )


def _is_day(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind))
