"""DirectorySource: whole files of a directory become records, also files that appear later.

Files are finished when they appear: write them elsewhere, or under a name that begins with a dot, and rename them. Each
file is a source partition with its own offset, the number of rows that are in Kafka, so files may come in any order of
names, and any task can continue a file. A file is cleaned up only after the commit of its last rows. A name is read
once: a changed file with the name of a finished one is neither read nor cleaned up, but reported. Executors read many
files in one job of the bulk lane. Growing files are FileSource's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from typing_extensions import override

from connectx.connectors.files.bulk import FILES_MAX, FilePlan, Planner, may_be_divided, may_be_read, reading, tasks_of
from connectx.connectors.files.errors import SourceFileShrunkError
from connectx.connectors.files.folder import MARK, Folder, FoundFile
from connectx.connectors.files.readers import EVOLUTION_MODES, FORMATS, FileReader, is_about_content, rows_after
from connectx.connectors.shared.formats import schema_of
from connectx.connectors.shared.keyed import valued_table
from connectx.errors.files import SourceFileError
from connectx.extras import require
from connectx.model.configdef import ConfigDef
from connectx.model.places import Place, files
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.validators import between, non_empty, one_of
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.contexts import SourceTaskContext
from connectx.plugins.slices import BulkSlice, PartRead, Slice
from connectx.plugins.tasks import SourceTask
from connectx.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_TASK, _TASKS = "directory.task", "directory.tasks"
_NOTHING_KNOWN: Final[SourceOffset] = {}
_SCHEMA, _CLEANUP = "Schema", "Finished files"


class DirectorySource(SourceConnector):
    """Reads CSV, JSON, Parquet and Avro files of a directory or glob, exactly once, and finds new ones."""

    summary = "files of a directory: CSV, JSON, Parquet, Avro, compressed or not"
    version = VERSION
    offsets_in_kafka = True
    exactly_once = True
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
            f"with the suffix {MARK}. No file is overwritten: if the name is taken, it gets a number.",
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
        .define(
            "poll.interval.ms",
            int,
            1_000,
            validator=between(10, 3_600_000),
            doc="Time between two listings of the directory.",
        )
        .define(
            "slice.rows",
            int,
            20_000,
            importance="LOW",
            validator=between(1, 10_000_000),
            doc="Rows of one slice. Columns of text files without `schema` are those of their first slice.",
        )
    )

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """As many tasks as allowed; each reads its share of the files."""
        if max_tasks == 1:
            return [self.settings]
        return [{**self.settings, _TASK: str(task), _TASKS: str(max_tasks)} for task in range(max_tasks)]

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        return [*files(config.get("path"))]

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Files are moved somewhere."""
        if config.get("cleanup") == "move" and not (config.get("cleanup.dir") or "").strip():
            return {"cleanup.dir": ["cleanup=move needs the directory that finished files are moved to"]}
        return {}

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
            share = int(config.get(_TASK, "0")), int(config.get(_TASKS, "1"))
            self._folder = Folder.of(values, *share, str(context.task))
            self._reader: FileReader | None = None
            self._planner: Planner | None = None
            self._queue: list[FoundFile] = []
            self._listed_s = -1.0
            self._finished: dict[str, SourceOffset] = {}
            self._reported: set[FoundFile] = set()
            self._read: set[str] = set()  # to their ends, by this instance
            self._of_tail: set[str] = set()
            self._divided: set[str] = set()  # files of a job, if it is not done, of which it reads several pieces
            self._suspects: set[str] = set()  # those of a job that has failed
            self._open: _OpenFile | None = None

        def partitions(self) -> Sequence[SourcePartition]:
            """One for each file, cleaned up ones included as long as they can be found."""
            return [{"filename": path} for path in self._folder.originals()]

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """Rows of the file that was begun, or of the oldest one that was not.

            Raises:
                SourceDirectoryMissingError, SourceFileUnreadableError, SourceFileShrunkError: see their docstrings.
                SourceFileColumnError, SourceFileValueError: a file does not fit the schema.
            """
            for path, known in self._candidates():
                file = _as_begun(self._folder.file(path), known)
                position = int(known.get("position", 0))
                if not known.get("rejected") and known.get("size", file.size) != file.size:
                    raise SourceFileShrunkError(path, position=int(known["size"]), size=file.size)
                try:
                    return self._slice(spark, file, position)
                except SourceFileError as error:
                    self._open = None
                    if not self._values["error.dir"] or not is_about_content(error):
                        raise
                    return self._rejected(file, position, error)
            return None

        def waiting_bytes(self, offset: SourceOffset | None) -> int | None:
            """Size of the files that executors may read next; None if the next file is for the tail."""
            if self._open is not None and not self._may_leave(self._open.path):
                return None
            if (time.monotonic() - self._listed_s) * 1000 >= self._values["poll.interval.ms"]:
                self._find()
            waiting, count = 0, 0
            for file, known in self._unread(self._queue):
                if not self._is_for_bulk(file, known):
                    return waiting or None
                waiting, count = waiting + file.size - int(known.get("bytes", 0)), count + 1
                if count == FILES_MAX:
                    break
            return waiting

        def poll_bulk(self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int) -> BulkSlice | None:
            """The oldest files, or parts of them, of about `max_bytes` together."""
            reader = self._file_reader(spark)
            self._planner = planner = self._planner or Planner(reader)
            self._of_tail |= self._divided & self._suspects  # two jobs have failed
            self._suspects = self._divided
            self._open = None
            plans: list[FilePlan] = []
            begun: list[FoundFile] = []
            left = max_bytes
            for file, known in self._unread(self._queue):
                if not self._folder.exists(file.path):
                    continue
                if left <= 0 or len(plans) == FILES_MAX or not self._is_for_bulk(file, known):
                    break
                plan = planner.plan(len(plans), file.path, file.size, dict(known), left)
                if plan is None:
                    self._of_tail.add(file.path)
                if plan is None or (plans and plan.size_bytes > left):
                    break
                plans.append(plan)
                begun.append(_as_begun(file, known))
                left -= plan.size_bytes
            self._divided = {plan.path for plan in plans if plan.is_divided}
            if not plans:
                return None
            read = reading(reader, self._values["key.fields"], plans)

            def offsets(found: Mapping[int, PartRead]) -> list[tuple[SourcePartition, SourceOffset]]:
                return self._offsets(begun, plans, found)

            return BulkSlice(self._values["topic"], len(tasks_of(plans)), read, offsets)

        def reread_partition(
            self, spark: SparkSession, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset | None
        ) -> Iterator[Slice] | None:
            """The rows of one file between two positions; None when the file is gone or has changed."""
            path = self._folder.place_of(str(partition["filename"]), end or start or _NOTHING_KNOWN)
            if start is not None and start.get("rejected"):
                return iter(())
            return None if path is None else self._again(spark, path, start, end)

        def committed(self, offset: SourceOffset) -> None:
            """Clean a file up whose last rows are in Kafka, or move one away that was rejected."""
            path = str(offset["filename"])
            if offset.get("rejected"):
                self._folder.reject(path, offset)
                self._read.discard(path)
            elif offset["finished"]:
                self._finish(path, offset)

        def idle(self, offset: SourceOffset | None) -> None:
            """Wait until it is time to list the files again."""
            self.context.wait(self._values["poll.interval.ms"])

        def _candidates(self) -> Iterator[tuple[str, SourceOffset]]:
            """Files that may have rows to read, with their offsets: the one that was begun, or the oldest first."""
            if self._open is not None and self._folder.exists(self._open.path):
                yield self._open.path, self.context.offset({"filename": self._open.path}) or _NOTHING_KNOWN
                return
            self._open = None
            for is_listed in (False, True):
                if is_listed:
                    self._find()
                for file, known in self._unread(self._queue):
                    if self._folder.exists(file.path):  # not removed since it was found
                        yield file.path, known

        def _find(self) -> None:
            found = self._folder.files()
            self._queue = [file for file in found if file.path not in self._finished]
            ends = self._finished
            self._report([file for file in found if file.path in ends and not file.is_that_of(ends[file.path])])
            self.context.offsets([{"filename": file.path} for file in self._queue])  # asks Kafka once for all of them
            self._listed_s = time.monotonic()

        def _report(self, changed: Sequence[FoundFile]) -> None:
            """Report files that are not read, because files with their names are finished."""
            reasons = [
                f"The file {file.path} is not read: a file with its name is finished, and had another size or time of "
                f"change. Give it another name"
                for file in changed
            ]
            for file, reason in zip(changed, reasons, strict=True):
                if file not in self._reported:
                    log.warning("%s: %s.", self._folder.shown, reason)
            self._reported = set(changed)
            self.waits = f"{reasons[0]} ({len(changed)} such files)" if len(changed) > 1 else "".join(reasons)

        def _unread(self, files: Sequence[FoundFile]) -> Iterator[tuple[FoundFile, SourceOffset]]:
            """Files that were not read to their ends. Those that an earlier instance has finished are cleaned up."""
            for file in files:
                if file.path in self._finished:
                    continue
                known = self.context.offset({"filename": file.path}) or _NOTHING_KNOWN
                if not known.get("finished") or (known.get("rejected") and file.path not in self._read):
                    yield file, known
                elif file.path not in self._read:
                    self._finish(file.path, known)

        def _is_for_bulk(self, file: FoundFile, known: SourceOffset) -> bool:
            """Whether executors may read a file. A file with a problem is for the tail, which reports it."""
            if file.path in self._of_tail or known.get("rejected") or known.get("size", file.size) != file.size:
                return False
            return may_be_read(file.path, file.size, self._values["format"])

        def _may_leave(self, path: str) -> bool:
            """Whether executors can continue a file that the tail has begun: only Parquet has rows by number."""
            return bool(self._values["format"] == "parquet" and may_be_divided(path, self._folder.file(path).size))

        def _finish(self, path: str, offset: SourceOffset) -> None:
            self._finished[path] = offset
            self._folder.finish(path, offset)

        def _offsets(
            self, files: Sequence[FoundFile], plans: Sequence[FilePlan], found: Mapping[int, PartRead]
        ) -> list[tuple[SourcePartition, SourceOffset]]:
            """Source offsets after a job. A file of which not all pieces were read to their ends is for the tail."""
            self._divided = set()
            offsets: list[tuple[SourcePartition, SourceOffset]] = []
            for number, (file, plan) in enumerate(zip(files, plans, strict=True)):
                read = found.get(number, PartRead())
                is_whole = read.pieces == len(plan.pieces)
                finished = is_whole and plan.is_last
                position = plan.position + read.rows
                reached = _offset(file, position, finished=finished)
                if not is_whole:
                    self._of_tail.add(plan.path)
                elif not finished and plan.end_byte is not None:
                    reached["bytes"] = plan.end_byte
                if finished:
                    self._read.add(plan.path)
                if finished or read.rows:
                    offsets.append(({"filename": plan.path}, reached))
            return offsets

        def _slice(self, spark: SparkSession, file: FoundFile, position: int) -> Slice:
            """The next rows; the last slice of a file is marked. For a file without rows it is empty."""
            path = file.path
            if self._open is None or (self._open.path, self._open.position) != (path, position):
                self._open = _OpenFile(path, position, rows_after(self._file_reader(spark).tables(path), position))
            rows = self._open.take()
            end = self._open.position
            finished = not self._open.has_more()
            offset = _offset(file, end, finished=finished)
            if finished:
                self._open = None
                self._read.add(path)
            return Slice(self._rows(rows), offset, topic=self._values["topic"], partition={"filename": path})

        def _rejected(self, file: FoundFile, position: int, error: SourceFileError) -> Slice:
            """No rows, and the reason. The file is moved after the commit, so that its rows before are in Kafka."""
            self._read.add(file.path)
            offset = {**_offset(file, position, finished=True), "rejected": True}
            reason = f"{error.message} It is moved to {self._values['error.dir']}, with {position} rows of it in Kafka"
            return Slice(
                self._rows(None),
                offset,
                topic=self._values["topic"],
                partition={"filename": file.path},
                rows_read=1,
                commits_offset=True,
                skip_reason=reason,
            )

        def _again(
            self, spark: SparkSession, path: str, start: SourceOffset | None, end: SourceOffset | None
        ) -> Iterator[Slice]:
            at = int(start["position"]) if start else 0
            last = None if end is None else int(end["position"])
            tables = rows_after(self._file_reader(spark).tables(path), at)
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


def _as_begun(file: FoundFile, known: SourceOffset) -> FoundFile:
    """A file with the time of change that it had when its first rows were read."""
    modified_ns = file.modified_ns if known.get("rejected") else known.get("modified_ns", file.modified_ns)
    return replace(file, modified_ns=int(modified_ns))


def _offset(file: FoundFile, position: int, *, finished: bool) -> dict[str, Any]:
    """The source offset after the rows before `position`."""
    return {
        "position": position,
        "finished": finished,
        "size": file.size,
        "modified_ns": file.modified_ns,
        "filename": file.path,
    }


def _arrow_schema(spark: SparkSession, ddl: str) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema_of(spark, ddl), timestamp_utc=True)
