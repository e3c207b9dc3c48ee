"""Polls a source task's plugin and converts its slices to records for the producer.

Decides only which rows are records: what is malformed, filtered or refused is left out and counted, and a slice is
divided where the task asked for boundaries of transactions. What follows from it is the core's decision. Mirrors the
poll, transform and convert part of Kafka Connect's AbstractWorkerSourceTask.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connectx.core.loops.messages import NotDone
from connectx.core.source import messages
from connectx.data.frames import in_arrow
from connectx.data.transforms.encoding import nothing_of, transform_and_encode
from connectx.errors.plugins import (
    ConversionError,
    NotASliceError,
    RegistryUnavailableError,
    TransactionBoundaryError,
    TransformError,
)
from connectx.model.source_offsets import SourceOffset
from connectx.plugins.errors import RetriableError
from connectx.plugins.slices import Slice
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.runner import Runner
from connectx.runtime.tasks.source.context import RowBoundaries, SourceContext
from connectx.runtime.tasks.source.setup import SourceSetup
from connectx.spark.slices import TaskSpark, is_spark_error, spark_job_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from connectx.data.transforms.chain import Failure

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Piece:
    """Rows up to a boundary, and their results: `records`, number `filtered` on purpose, `bad` (why, by row).

    `offset` is None for tables before the last one of a slice.
    """

    rows: DataFrame | pa.Table
    offset: SourceOffset | None
    boundary: messages.Boundary = messages.NO_BOUNDARY
    records: pa.Table = None
    filtered: int = 0
    bad: dict[int, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return int(self.records.num_rows) + self.filtered + len(self.bad)

    def part(self) -> messages.SlicePart:
        offset = None if self.offset is None else dict(self.offset)
        return messages.SlicePart(self.records.num_rows, offset, self.boundary)


class SourcePoller:
    """The reading half of one source task; its thread only."""

    def __init__(
        self,
        setup: SourceSetup,
        runner: Runner[messages.SourceStimulus, messages.SourceAction],
        spark: TaskSpark,
        context: SourceContext,
    ) -> None:
        self._setup = setup
        self._runner = runner
        self._spark = spark
        self._context = context
        self._slice: Slice | None = None
        self._asked: tuple[messages.Boundary, RowBoundaries] = (messages.NO_BOUNDARY, {})
        self._pieces: list[_Piece] = []
        self._topic: str | None = None
        self._slices = 0

    def poll(self, effect: messages.Poll) -> messages.Polled | messages.PolledNothing | messages.PollFailed | NotDone:
        plugin = self._setup.plugin
        try:
            polled = plugin.poll(self._spark.lazy(), effect.offset)
        except RetriableError as error:
            log.info("%s will poll again: %s", self._setup.task, error)
            return messages.PollFailed(str(error), retriable=True, boundary=self._after_what_was_sent())
        except Exception as error:
            self._runner.stay_alive()
            shown = spark_job_error(error, f"{self._setup.task} polled") if is_spark_error(error) else error
            shown.__cause__ = shown.__cause__ or (error if shown is not error else None)
            return messages.PollFailed(trace_of(shown), retriable=False)
        if polled is None:
            return messages.PolledNothing(self._after_what_was_sent())
        if not isinstance(polled, Slice):
            return messages.PollFailed(trace_of(NotASliceError("poll", type(polled))), retriable=False)
        self._slice, self._asked = polled, self._context.take_boundaries()
        return self.convert(messages.ConvertAgain())

    def idle(self, effect: messages.Idle) -> messages.PolledNothing:
        self._context.until_ms = effect.until_ms
        self._setup.plugin.idle(effect.offset)
        return messages.PolledNothing(self._context.take_boundaries()[0])

    def convert(self, effect: messages.ConvertAgain) -> messages.Polled | NotDone:
        """Make records of the slice that was polled last."""
        polled, (boundary, rows) = self._slice, self._asked
        assert polled is not None, "a slice was polled before it is converted"
        try:
            pieces = _divided(polled, rows)
            for piece in pieces:
                self._convert(piece, polled.topic, effect.skip_failures)
        except (RetriableError, RegistryUnavailableError) as error:
            self._runner.errors.failed()
            log.info("%s will convert its slice again: %s", self._setup.task, error)
            return NotDone(trace_of(error))
        except Exception as error:
            self._runner.stay_alive()
            if not is_spark_error(error):
                raise
            if (explained := self._explained(error)) is not None:
                raise explained from None  # Spark's trace would only bury it
            raise spark_job_error(error, f"the rows that {self._setup.task} polled were evaluated") from error
        self._slice, self._pieces, self._topic = None, pieces, polled.topic
        return self._polled(polled, pieces, boundary)

    @property
    def buffered(self) -> int:
        """Records that were polled and not taken yet."""
        return sum(piece.records.num_rows for piece in self._pieces if piece.records is not None)

    def take(self, part: int) -> tuple[str | None, SourceOffset | None, pa.Table]:
        """Of a part of the slice that was polled last: default topic, offset if reached, records. Handed out once."""
        piece = self._pieces[part]
        records, piece.records, piece.rows = piece.records, None, None
        return self._topic, piece.offset, records

    def _convert(self, piece: _Piece, topic: str | None, skip_failures: bool) -> None:
        setup, errors = self._setup, self._setup.settings.errors
        converters = setup.key_converter, setup.value_converter, setup.header_converter
        if errors.log_enable and errors.log_include_messages:
            piece.rows = in_arrow(piece.rows)
        try:
            made = transform_and_encode(
                piece.rows,
                topic,
                setup.chain,
                *converters,
                skip_unwritable=errors.tolerate_all,
                now_ms=time.time_ns() // 1_000_000,
            )
            self._judge(made.failures, skip_failures)
        except (RetriableError, RegistryUnavailableError) as error:
            if not skip_failures:
                raise
            made = nothing_of(in_arrow(piece.rows), error.message)
        except (ConversionError, TransformError) as error:
            self._runner.errors.failed()
            if errors.log_enable:
                self._runner.errors.errors_logged += 1
                log.error("Error encountered in task %s: %s", setup.task, error)
            raise
        piece.records, piece.filtered = made.records, made.filtered
        piece.bad = {**{failure.row: failure.message for failure in made.failures}, **made.unwritable}
        if piece.bad and errors.log_enable:
            self._log_bad(piece)

    def _judge(self, failures: Sequence[Failure], skip_failures: bool) -> None:
        """Raise for what may pass, and for the first row that a transformation could not take unless it may be skipped.

        A failure is final where it is not a RetriableError, or when there is no time left to try again.
        """
        passing = [failure for failure in failures if isinstance(failure.error, RetriableError)]
        if passing and not skip_failures:
            raise RetriableError(passing[0].message)
        if failures and not self._setup.settings.errors.tolerate_all:
            first = failures[0]
            raise TransformError(
                f"{first.message} (row {first.row + 1} of the slice).",
                next_step="Correct the transformation or the data, or set errors.tolerance=all, and restart the task.",
            ) from first.error

    def _log_bad(self, piece: _Piece) -> None:
        """Kafka Connect's LogReporter: each error, with the record if it may be shown."""
        self._runner.errors.errors_logged += len(piece.bad)
        with_record = self._setup.settings.errors.log_include_messages
        for row, cause in piece.bad.items():
            record = f", where source record is {in_arrow(piece.rows).slice(row, 1).to_pylist()[0]}"
            log.error("Error encountered in task %s: %s%s", self._setup.task, cause, record if with_record else "")

    def _polled(self, polled: Slice, pieces: list[_Piece], boundary: messages.Boundary) -> messages.Polled:
        """The report for the core. Skipped are rows that the plugin left out, and rows that could not be converted."""
        self._slices += 1
        partition = None if polled.partition is None else dict(polled.partition)
        start = self._context.position(self._setup.plugin.partition if partition is None else partition)
        self._context.remember(self._setup.plugin.partition if partition is None else partition, polled.offset)
        records, bad = sum(piece.records.num_rows for piece in pieces), sum(len(piece.bad) for piece in pieces)
        left_out = 0 if polled.rows_read is None else polled.rows_read - sum(piece.count for piece in pieces)
        self._runner.errors.failed(left_out + bad)
        reasons = [polled.skip_reason] if left_out else []
        reasons += [next(iter(piece.bad.values())) for piece in pieces if piece.bad][:1]
        if reasons:
            count, where, why = left_out + bad, dict(polled.offset), "; ".join(reasons)
            log.warning("%s skipped %d rows before %s: %s", self._setup.task, count, where, why)
        parts = tuple(piece.part() for piece in pieces)
        return messages.Polled(
            self._slices,
            records,
            dict(polled.offset),
            partition,
            left_out + bad,
            "; ".join(reasons),
            sum(piece.filtered for piece in pieces),
            boundary,
            parts if len(parts) > 1 or any(part.boundary != messages.NO_BOUNDARY for part in parts) else (),
            start,
            polled.commits_offset,
        )

    def _explained(self, error: Exception) -> Exception | None:
        """The plugin's own error for a failed evaluation."""
        try:
            return self._setup.plugin.explain(self._spark.lazy(), error)
        except Exception as failure:
            self._runner.stay_alive()
            log.warning("%s: explain() failed\n%s", self._setup.task, trace_of(failure))
            return None

    def _after_what_was_sent(self) -> messages.Boundary:
        boundary, rows = self._context.take_boundaries()
        if rows:
            raise TransactionBoundaryError(f"row {min(rows)} is named, but poll returned no slice")
        return boundary


def topics_of(topic: str | None, records: pa.Table) -> list[str]:
    """Topics that the records go to, in the order of their names; `topic` is for those that name none."""
    named = records.column("topic").unique().to_pylist() if "topic" in records.column_names else [None]
    return sorted({str(own or topic) for own in named if own or topic})


def _divided(polled: Slice, boundaries: RowBoundaries) -> list[_Piece]:
    """The slice in pieces: its tables, or what ends where the task asked for boundaries."""
    if isinstance(polled.rows, tuple):
        if boundaries:
            raise TransactionBoundaryError(f"row {min(boundaries)} is named in a slice of several tables")
        last = len(polled.rows) - 1
        return [_Piece(table, polled.offset if at == last else None) for at, table in enumerate(polled.rows)]
    if not boundaries:
        return [_Piece(polled.rows, polled.offset)]
    table = in_arrow(polled.rows)
    pieces, first, count = [], 0, table.num_rows
    for row, (boundary, offset) in sorted(boundaries.items()):
        if not 0 <= row < count:
            raise TransactionBoundaryError(f"row {row} is named in a slice of {count} rows")
        reached = polled.offset if row == count - 1 else offset
        if reached is None:
            raise TransactionBoundaryError(f"row {row} of {count} is named without the source offset after it")
        pieces.append(_Piece(table.slice(first, row + 1 - first), reached, boundary))
        first = row + 1
    if first < count:
        pieces.append(_Piece(table.slice(first), polled.offset))
    return pieces
