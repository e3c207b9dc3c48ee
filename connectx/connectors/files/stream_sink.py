"""FileStreamSink: appends the value of each record to a text file, as a line.

Keys and behaviour are those of Kafka Connect's FileStreamSinkConnector: at least once, so after a crash the lines since
the last committed offsets are appended again. Values have the text of Java's toString: a string is itself, null is
`null`, a struct `Struct{a=1}` and a map `{a=1}`. Bytes are UTF-8 text.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from connectx.connectors.files.errors import SinkFileError
from connectx.connectors.files.stream_file import unnamed_file
from connectx.data.transforms.objects import object_texts
from connectx.model.configdef import ConfigDef
from connectx.model.places import Place, files
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.contexts import SinkTaskContext
from connectx.plugins.slices import SinkBatch
from connectx.plugins.stored import Stored
from connectx.plugins.tasks import SinkTask
from connectx.version import KAFKA_VERSION

_NEW_LINE = b"\n"
_READ_BYTES = 1 << 20


class FileStreamSink(SinkConnector):
    """Appends the values of topics to one file (Kafka Connect: FileStreamSinkConnector)."""

    summary = "appended lines of a file; Kafka Connect's keys"
    java_class = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    version = KAFKA_VERSION
    offsets_in_kafka = True
    config = ConfigDef().define(
        "file",
        str,
        None,
        importance="HIGH",
        doc="Destination filename. Required: standard output is not supported.",
    )

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        return [*files(config.get("file"))]

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """The file has to be named."""
        return unnamed_file(config)

    @classmethod
    def stored(cls, config: Mapping[str, str | None], topic: str) -> Stored | None:
        """The lines of the file, which all topics share."""
        path = str(cls.config.parse(config)["file"])
        return Stored(
            f"file {os.path.basename(path)}",
            lambda: read_lines(path),
            lines=True,
            line_of=object_texts,
            ordered=True,
            rows_before=lambda mark: _lines_before(path, mark),
        )

    class Task(SinkTask):
        """Several tasks may append to the same file: a batch is one write."""

        java_class = "org.apache.kafka.connect.file.FileStreamSinkTask"
        reads_fields = True

        def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
            """Open the file for appending, and end a line that a crash has cut.

            Raises:
                SinkFileError: the file cannot be opened.
            """
            super().start(config, context)
            self._path: str = FileStreamSink.config.parse(config)["file"]
            self._descriptor = -1
            try:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
                size_bytes = os.fstat(self._descriptor).st_size
                if size_bytes and os.pread(self._descriptor, 1, size_bytes - 1) != _NEW_LINE:
                    os.write(self._descriptor, _NEW_LINE)
            except OSError as error:
                raise self._failure("opened", error) from error

        @override
        def mark(self) -> int:
            return os.fstat(self._descriptor).st_size

        def put(self, batch: SinkBatch) -> None:
            """Append one line for each row.

            Raises:
                SinkFileError: the file cannot be written, for example because the disk is full.
            """
            try:
                for chunk in batch.rows["value"].chunks:
                    if len(chunk):
                        self._append(joined_lines(chunk, schemaless=batch.schemaless))
            except OSError as error:
                raise self._failure("written", error) from error

        def flush(self) -> None:
            """Make the lines durable.

            Raises:
                SinkFileError: the disk refuses them.
            """
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise self._failure("flushed", error) from error

        def stop(self) -> None:
            """Close the file."""
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

        def _append(self, text: memoryview) -> None:
            """One call, so that lines of several tasks do not mix; more only when the system takes less at a time."""
            left = len(text) + 1 - os.writev(self._descriptor, [text, _NEW_LINE])
            while left > 1:
                left -= os.writev(self._descriptor, [text[len(text) + 1 - left :], _NEW_LINE])
            if left:
                os.write(self._descriptor, _NEW_LINE)

        def _failure(self, what: str, error: OSError) -> SinkFileError:
            return SinkFileError(
                f"The file {self._path} of the setting `file` cannot be {what}: {error.strerror}.",
                next_step="Make room, or correct the path or its permissions, and restart the task.",
            )


def read_lines(path: str) -> Iterator[pa.Table]:
    """Lines of a file as tables with one column of text; none when it does not exist."""
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        while lines := file.readlines(_READ_BYTES):
            yield pa.table({"line": [line.removesuffix(_NEW_LINE).decode(errors="replace") for line in lines]})


def _lines_before(path: str, size_bytes: int) -> int:
    """Number of lines in the first bytes of a file."""
    count = 0
    if size_bytes and os.path.exists(path):
        with open(path, "rb") as file:
            while size_bytes > 0 and (data := file.read(min(_READ_BYTES, size_bytes))):
                count += data.count(_NEW_LINE)
                size_bytes -= len(data)
    return count


def joined_lines(values: pa.Array, *, schemaless: bool = False) -> memoryview:
    """Values as UTF-8 text with line feeds between them; `schemaless` as in SinkBatch."""
    texts = object_texts(values, schemaless=schemaless).cast(pa.large_binary())
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    return memoryview(pc.binary_join(whole, pa.scalar(_NEW_LINE, pa.large_binary()))[0].as_buffer())
