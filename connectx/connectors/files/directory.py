"""DirectorySource: whole files of a directory become records, also files that appear later.

Files are finished when they appear: write them elsewhere, or under a name that begins with a dot, and rename them. Each
file is a source partition with its own offset, the number of rows that are in Kafka, so files may come in any order of
names. A file is cleaned up only after the commit of its last rows. Growing files are FileSource's.
"""

from __future__ import annotations

import glob
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from connectx.connectors.files.formats import schema_of
from connectx.connectors.files.readers import EVOLUTION_MODES, FORMATS, FileReader, is_about_content
from connectx.connectors.keyed import valued_table
from connectx.errors import (
    SourceDirectoryMissingError,
    SourceFileError,
    SourceFileShrunkError,
    SourceFileUnreadableError,
)
from connectx.extras import require
from connectx.model.configdef import ConfigDef
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.validators import between, non_empty, one_of
from connectx.plugins.api import Slice, SourceConnector, SourceTask, SourceTaskContext
from connectx.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_MARK: Final = ".finished"
_SCHEMA, _CLEANUP = "Schema", "Finished files"


class DirectorySource(SourceConnector):
    """Reads CSV, JSON, Parquet and Avro files of a directory or glob, exactly once, and finds new ones."""

    version = VERSION
    config = (
        ConfigDef()
        .define(
            "path",
            str,
            importance="HIGH",
            validator=non_empty(),
            doc="Directory, or a glob such as /data/2024-*/*.csv. Names that begin with a dot or an underscore are "
            "left out.",
        )
        .define("topic", str, importance="HIGH", validator=non_empty(), doc="Topic that the records go to.")
        .define(
            "format",
            str,
            importance="HIGH",
            validator=one_of(*FORMATS),
            doc="csv, json (one object per line), parquet or avro. Files of CSV and JSON may be compressed: .gz, .bz2, "
            ".zst, .lz4. The files in archives are read one after the other: .zip, .tar, .tar.gz, .tgz, .tar.bz2, "
            ".tbz2, .tar.xz, .txz.",
        )
        .define("path.glob.filter", str, "*", doc="Names of files in the directory, for example *.csv.gz.")
        .define("archive.glob.filter", str, "*", doc="Names of files in archives, for example *.csv.")
        .define("recursive.file.lookup", bool, False, doc="Whether directories within the directory are read.")
        .define(
            "key.fields",
            list,
            "",
            doc="Fields that make the record's key: one gives its value, several a struct, none a null key.",
        )
        .define("header", bool, True, doc="Whether the first line of a CSV file names the columns.")
        .define("delimiter", str, ",", validator=non_empty(), doc="What separates the values of a CSV line.")
        .define("null.text", str, "", doc="Text of a CSV value that stands for null, for example NA.")
        .define(
            "schema",
            str,
            None,
            group=_SCHEMA,
            doc="Columns and their types as Spark DDL, for example `id INT, name STRING`. Left out, each file has its "
            "own columns: of CSV and JSON those of its first rows.",
        )
        .define(
            "schema.evolution.mode",
            str,
            "addNewColumns",
            group=_SCHEMA,
            validator=one_of(*EVOLUTION_MODES),
            doc="What a column means that `schema` lacks: a field of the records, rescued data, a failure of the task, "
            "or nothing.",
        )
        .define(
            "rescued.data.column",
            str,
            "_rescued_data",
            group=_SCHEMA,
            doc="Field for what does not fit, as JSON. Empty: a value that does not fit fails the task.",
        )
        .define(
            "cleanup",
            str,
            "none",
            group=_CLEANUP,
            validator=one_of("none", "delete", "move", "mark"),
            doc="What happens to a file whose rows are all committed: delete it, move it to cleanup.dir, or mark it "
            f"with the suffix {_MARK}.",
        )
        .define("cleanup.dir", str, None, group=_CLEANUP, doc="Directory that finished files are moved to.")
        .define(
            "error.dir",
            str,
            None,
            group=_CLEANUP,
            doc="Directory for files that cannot be parsed or do not fit `schema`: they are moved there, and the task "
            "continues with other files. Left out: such a file fails the task.",
        )
        .define("poll.interval.ms", int, 1_000, validator=between(10, 3_600_000), doc="Time between looks for files.")
        .define(
            "slice.rows",
            int,
            20_000,
            importance="LOW",
            validator=between(1, 10_000_000),
            doc="Rows of one slice. Columns of text files without `schema` are those of their first slice.",
        )
    )

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Files are moved somewhere."""
        if config.get("cleanup") == "move" and not (config.get("cleanup.dir") or "").strip():
            return {"cleanup.dir": ["cleanup=move needs the directory that finished files are moved to"]}
        return {}

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str | None]) -> bool | None:
        """Numbers of rows are exact."""
        return True

    class Task(SourceTask):
        """Source partitions `{"filename": <path>}`, source offsets `{"position": <rows>, "finished": <bool>, ...}`."""

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            """Take the configuration.

            Raises:
                MissingExtraError: Avro or a schema needs a package that is not installed.
            """
            super().start(config, context)
            self._values = values = DirectorySource.config.parse(config)
            if values["format"] == "avro":
                require("DirectorySource with format=avro", "avro", "fastavro")
            if values["schema"]:
                require("DirectorySource with schema", "spark", "pyspark")
            self._reader: FileReader | None = None
            self._finished: set[str] = set()
            self._read: set[str] = set()  # to their ends, by this instance
            self._open: _OpenFile | None = None

        def partitions(self) -> Sequence[SourcePartition]:
            """One for each file, cleaned up ones included as long as they can be found."""
            return [{"filename": path} for path in self._originals()]

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """Rows of the file that was begun, or of the oldest one that was not.

            Raises:
                SourceDirectoryMissingError, SourceFileUnreadableError, SourceFileShrunkError: see their docstrings.
                SourceFileColumnError, SourceFileValueError: a file does not fit the schema.
            """
            begun = self._open.path if self._open else None
            for path in [begun] if begun and os.path.exists(begun) else self._waiting():
                known = self.context.offset({"filename": path}) or {}
                if known.get("rejected"):
                    if path in self._read:
                        continue
                elif known.get("finished"):
                    if path not in self._read:
                        self._finish(path, known)  # committed by an earlier instance
                    continue
                elif known.get("size", _size(path)) != _size(path):
                    raise SourceFileShrunkError(path, position=int(known["size"]), size=_size(path))
                position = int(known.get("position", 0))
                try:
                    return self._slice(spark, path, position)
                except SourceFileError as error:
                    self._open = None
                    if not self._values["error.dir"] or not is_about_content(error):
                        raise
                    return self._rejected(path, position, error)
            return None

        def reread_partition(
            self, spark: SparkSession, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset | None
        ) -> Iterator[Slice] | None:
            """The rows of one file between two positions; None when the file is gone."""
            path = self._found(str(partition["filename"]))
            if start is not None and start.get("rejected"):
                return iter(())
            return None if path is None else self._again(spark, path, start, end)

        def committed(self, offset: SourceOffset) -> None:
            """Clean a file up whose last rows are in Kafka, or move one away that was rejected."""
            path = str(offset["filename"])
            if offset.get("rejected"):
                self._move(path, self._values["error.dir"])
                self._read.discard(path)
            elif offset["finished"]:
                self._finish(path, offset)

        def idle(self, offset: SourceOffset | None) -> None:
            """Wait until it is time to list the files again."""
            self.context.wait(self._values["poll.interval.ms"])

        # ------------------------------------------------------------------------------------------------- rows

        def _slice(self, spark: SparkSession, path: str, position: int) -> Slice:
            """The next rows; the last slice of a file is marked. For a file without rows it is empty."""
            if self._open is None or (self._open.path, self._open.position) != (path, position):
                self._open = _OpenFile(path, position, _from(self._file_reader(spark).tables(path), position))
            rows = self._open.take()
            end = self._open.position
            finished = not self._open.has_more()
            offset = {"position": end, "finished": finished, "size": _size(path), "filename": path}
            if finished:
                self._open = None
                self._read.add(path)
            return Slice(self._rows(rows), offset, topic=self._values["topic"], partition={"filename": path})

        def _rejected(self, path: str, position: int, error: SourceFileError) -> Slice:
            """No rows, and the reason. The file is moved after the commit, so that its rows before are in Kafka."""
            self._read.add(path)
            offset = {"position": position, "finished": True, "rejected": True, "size": _size(path), "filename": path}
            reason = f"{error.message} It is moved to {self._values['error.dir']}, with {position} rows of it in Kafka"
            return Slice(
                self._rows(None),
                offset,
                topic=self._values["topic"],
                partition={"filename": path},
                rows_read=1,
                commits_offset=True,
                skip_reason=reason,
            )

        def _again(
            self, spark: SparkSession, path: str, start: SourceOffset | None, end: SourceOffset | None
        ) -> Iterator[Slice]:
            at = int(start["position"]) if start else 0
            last = None if end is None else int(end["position"])
            tables = _from(self._file_reader(spark).tables(path), at)
            while (last is None or at < last) and (rows := next(tables, None)) is not None:
                part = rows if last is None else rows.slice(0, last - at)
                at += part.num_rows
                yield Slice(self._rows(part), {"position": at}, topic=self._values["topic"])

        def _rows(self, rows: pa.Table | None) -> pa.Table:
            if rows is None:
                return pa.table({"value": pa.nulls(0, pa.struct([]))})
            return valued_table(rows, self._values["key.fields"])

        def _file_reader(self, spark: SparkSession) -> FileReader:
            if self._reader is None:
                values = self._values
                self._reader = FileReader(
                    values["format"],
                    values["slice.rows"],
                    _arrow_schema(spark, values["schema"]) if values["schema"] else None,
                    values["schema.evolution.mode"],
                    values["rescued.data.column"] or "",
                    values["delimiter"],
                    values["header"],
                    values["null.text"],
                    values["archive.glob.filter"],
                )
            return self._reader

        # ------------------------------------------------------------------------------------------------ files

        def _waiting(self) -> list[str]:
            """Files that may have rows to read, the oldest first."""
            found = [path for path in self._listed() if path not in self._finished]
            return sorted(found, key=lambda path: (_time(path), path))

        def _listed(self) -> list[str]:
            """Files as they are in the directory now."""
            path, only = os.path.abspath(self._values["path"]), self._values["path.glob.filter"]
            if glob.has_magic(path):
                found = glob.glob(path, recursive=True)
            elif not os.path.isdir(path):
                raise SourceDirectoryMissingError(path)
            elif self._values["recursive.file.lookup"]:
                found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
            else:
                found = [entry.path for entry in os.scandir(path)]
            return [one for one in found if os.path.isfile(one) and fnmatch(os.path.basename(one), only)
                    and not os.path.basename(one).startswith((".", "_")) and not one.endswith(_MARK)]  # fmt: skip

        def _originals(self) -> list[str]:
            """Files where they were before they were cleaned up."""
            found = set(self._listed())
            path = os.path.abspath(self._values["path"])
            if self._values["cleanup"] == "mark":
                pattern = path if glob.has_magic(path) else os.path.join(path, "**", "*")
                marked = glob.glob(f"{pattern}{_MARK}", recursive=True)
                found |= {name.removesuffix(_MARK) for name in marked}
            for folder in () if glob.has_magic(path) else self._folders():
                moved = glob.glob(os.path.join(folder, "**", "*"), recursive=True)
                found |= {os.path.join(path, os.path.relpath(name, folder)) for name in moved if os.path.isfile(name)}
            return sorted(found)

        def _folders(self) -> list[str]:
            """Directories that files are moved to."""
            cleanup = self._values["cleanup.dir"] if self._values["cleanup"] == "move" else None
            return [os.path.abspath(folder) for folder in (cleanup, self._values["error.dir"]) if folder]

        def _found(self, path: str) -> str | None:
            """Where a file is by now."""
            places = [path, f"{path}{_MARK}", *(self._target(path, folder) for folder in self._folders())]
            return next(filter(os.path.exists, places), None)

        def _target(self, path: str, folder: str) -> str:
            """Where a file is moved to: below a folder as it was below the directory."""
            base = os.path.abspath(self._values["path"])
            name = os.path.basename(path) if glob.has_magic(base) else os.path.relpath(path, base)
            return os.path.join(os.path.abspath(folder), name)

        def _finish(self, path: str, offset: Mapping[str, Any]) -> None:
            """Clean up a file whose rows are all committed, unless another one has taken its name."""
            self._finished.add(path)
            cleanup = self._values["cleanup"]
            if cleanup == "none" or not os.path.exists(path) or _size(path) != offset["size"]:
                return
            if cleanup == "move":
                self._move(path, self._values["cleanup.dir"])
                return
            try:
                if cleanup == "delete":
                    os.remove(path)
                else:
                    os.replace(path, f"{path}{_MARK}")
            except OSError as error:
                log.warning("%s cannot %s the finished file %s: %s", self.context.task, cleanup, path, error)

        def _move(self, path: str, folder: str) -> None:
            target = self._target(path, folder)
            try:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.move(path, target)
            except OSError as error:
                log.warning("%s cannot move the file %s to %s: %s", self.context.task, path, folder, error)

    task_class = Task


@dataclass(slots=True)
class _OpenFile:
    """A file that is being read: where, what comes next, and a table, or a failure, that was read ahead."""

    path: str
    position: int
    tables: Iterator[pa.Table]
    ahead: pa.Table | None = None
    failure: SourceFileError | None = None

    def take(self) -> pa.Table | None:
        """The next rows; raises what failed when they were read ahead."""
        if self.failure is not None:
            raise self.failure
        rows, self.ahead = self.ahead or next(self.tables, None), None
        self.position += 0 if rows is None else rows.num_rows
        return rows

    def has_more(self) -> bool:
        """Whether rows follow, or a failure."""
        try:
            self.ahead = next(self.tables, None)
        except SourceFileError as error:
            self.failure = error
        return self.ahead is not None or self.failure is not None


def _from(tables: Iterator[pa.Table], position: int) -> Iterator[pa.Table]:
    """Tables without the first rows."""
    for table in tables:
        if position < table.num_rows:
            yield table.slice(position)
        position = max(0, position - table.num_rows)


def _arrow_schema(spark: SparkSession, ddl: str) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema_of(spark, ddl), timestamp_utc=True)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise SourceFileUnreadableError(path, error.strerror or str(error), setting="path") from error


def _time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
