"""FileStreamSource: each line of a growing text file becomes a record with a string value.

Keys, offsets and behaviour are those of Kafka Connect's FileStreamSourceConnector, so that either can continue
where the other stopped. A missing file is awaited; a file that shrank fails the task instead of being ignored, unless
rotated.files names the files that it was rotated to.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from connectx.connectors.files.following import Lines, SourceFile
from connectx.connectors.files.rotation import ROTATION, followed, with_rotation
from connectx.connectors.files.stream_file import unnamed_file
from connectx.model.configdef import ConfigDef
from connectx.model.places import Place, files
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.validators import at_least, non_empty
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.contexts import SourceTaskContext
from connectx.plugins.slices import Slice
from connectx.plugins.tasks import SourceTask
from connectx.version import KAFKA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SLICE_BYTES = 8 * 1024 * 1024
_LEAST_BYTES = 64 * 1024


class FileStreamSource(SourceConnector):
    """Reads one file, line by line, from one task (Kafka Connect: FileStreamSourceConnector)."""

    summary = "lines of a file, including appended ones; Kafka Connect's keys"
    java_class = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    version = KAFKA_VERSION
    offsets_in_kafka = True
    exactly_once = True
    added_groups = (ROTATION,)
    config = with_rotation(
        ConfigDef()
        .define(
            "file",
            str,
            None,
            importance="HIGH",
            doc="Source filename. Required: standard input is not supported.",
        )
        .define("topic", str, importance="HIGH", validator=non_empty(), doc="The topic to publish data to")
        .define(
            "batch.size",
            int,
            0,
            importance="LOW",
            validator=at_least(0),
            doc="The maximum number of lines that one poll takes. With 0 a poll takes up to 8 MB of lines, which is "
            "much faster than Kafka Connect's 2000 lines when there is a backlog.",
        )
    )

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """One task: a file has one position."""
        return [self.settings]

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        return [*files(config.get("file"))]

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """The file has to be named."""
        return unnamed_file(config)

    @classmethod
    def check_offsets(
        cls, config: Mapping[str, str | None], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> None:
        """A partition names a file; an offset is a position of 0 or more bytes. Any partition can be reset."""
        for partition, offset in offsets:
            if offset is None:
                continue
            if "position" not in offset:
                raise ValueError("Offset objects should either be null or contain the key 'position'")
            position = offset["position"]
            if not isinstance(position, int) or isinstance(position, bool):
                raise ValueError("The value for the 'position' key in the offset is expected to be a Long value")
            if position < 0:
                raise ValueError("The value for the 'position' key in the offset should be a non-negative value")
            if "filename" not in partition:
                raise ValueError("Partition objects should contain the key 'filename'")

    class Task(SourceTask):
        """Source partition `{"filename": <file as configured>}`, source offset `{"position": <bytes>}`."""

        java_class = "org.apache.kafka.connect.file.FileStreamSourceTask"

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            """Take the configuration; the file itself may come later."""
            super().start(config, context)
            values = FileStreamSource.config.parse(config)
            self.partition = {"filename": values["file"]}
            self._topic: str = values["topic"]
            self._max_lines: int = values["batch.size"]
            file = SourceFile(os.path.abspath(values["file"]), cut=self._first_lines)
            self._file = followed(file, values)
            self._slice_bytes = SLICE_BYTES

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """Complete lines after the position, as strings; no Spark job."""
            lines = self._file.next_lines(offset, self._slice_bytes)
            if self._file.waits and not self.waits:
                log.warning("%s The task waits for it.", self._file.waits)
            self.waits = self._file.waits
            return None if lines is None else self._slice(lines)

        def reread(self, spark: SparkSession, start: SourceOffset | None, end: SourceOffset | None) -> Iterator[Slice]:
            """The lines between two positions."""
            yield from map(self._slice, self._file.lines_between(start, end, SLICE_BYTES))

        def idle(self, offset: SourceOffset | None) -> None:
            """Watch the file."""
            self._file.wait(self.context.wait)

        def stop(self) -> None:
            """Close what is open."""
            self._file.close()

        def _slice(self, lines: Lines) -> Slice:
            """Without lines: reading went on to the next file."""
            rows = lines_of(lines.data) if lines.data else lines_of(b"").slice(0, 0)
            if self._max_lines and lines.data:
                # About as many bytes as that many lines have: what is read beyond them is read again.
                line_bytes = len(lines.data) // rows.num_rows
                self._slice_bytes = min(SLICE_BYTES, max(_LEAST_BYTES, self._max_lines * line_bytes * 5 // 4))
            return Slice(rows, lines.offset, topic=self._topic, commits_offset=not lines.data)

        def _first_lines(self, block: bytes) -> bytes:
            """At most batch.size lines."""
            return first_lines(block, self._max_lines) if self._max_lines else block


def first_lines(block: bytes, count: int) -> bytes:
    """The first lines of a block, with their ends; at most `count`."""
    import numpy as np

    if b"\r" in block:
        return b"".join(block.splitlines(keepends=True)[:count])
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    return block if len(ends) < count else block[: ends[count - 1] + 1]


def lines_of(block: bytes, column: str = "value") -> pa.Table:
    """Lines of a block, without their ends, as a column of strings. Bytes that are not UTF-8 become U+FFFD."""
    import pyarrow as pa

    lines = pa.array(block.splitlines(), pa.binary()) if b"\r" in block else _split(block)
    try:
        texts = lines.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array([line.decode(errors="replace") for line in lines.to_pylist()], pa.string())
    return pa.table([texts], schema=pa.schema([pa.field(column, pa.string(), nullable=False)]))


def _split(block: bytes) -> pa.Array:
    """Lines that end with line feeds. Every other element of an array is a line; the others are the line feeds."""
    import numpy as np
    import pyarrow as pa

    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    bounds = np.zeros(2 * len(ends) + 1, np.int32)
    bounds[1::2], bounds[2::2] = ends, np.minimum(ends + 1, len(block))
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(block)]
    return pa.BinaryArray.from_buffers(pa.binary(), 2 * len(ends), buffers).take(
        pa.array(np.arange(0, 2 * len(ends), 2))
    )
