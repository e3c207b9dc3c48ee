"""Polls a source task's plugin and makes records of what it yields, ready for the producer.

Decides only which rows are records: what is malformed, filtered or refused is left out and counted. What follows
from it is the core's decision. Mirrors the poll, transform and convert part of Kafka Connect's
AbstractWorkerSourceTask.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from connectx.connectors.api import RetriableError, Slice
from connectx.core.source_messages import Idle, Idled, Poll, Polled, PolledNothing, PollFailed, SourceStimulus
from connectx.data.transforms.encoding import transform_and_encode
from connectx.errors import ConversionError, TransformError
from connectx.runtime.connector_host import trace_of
from connectx.runtime.runner import Runner
from connectx.runtime.source_context import SourceContext
from connectx.runtime.source_setup import SourceSetup
from connectx.spark.slices import TaskSpark, is_spark_error, spark_job_error

if TYPE_CHECKING:
    import pyarrow as pa

    from connectx.data.transforms.chain import Failure

log = logging.getLogger(__name__)


class SourcePoller:
    """The reading half of one source task; its thread only.

    Args:
        setup: plugin, converters, settings.
        runner: the task's thread.
        spark: the task's session.
        context: what the plugin was given.
    """

    def __init__(self, setup: SourceSetup, runner: Runner, spark: TaskSpark, context: SourceContext) -> None:
        self._setup = setup
        self._runner = runner
        self._spark = spark
        self._context = context
        self._at_hand: tuple[Slice, pa.Table] | None = None
        self._slices = 0

    def poll(self, effect: Poll) -> SourceStimulus:
        """Poll and convert."""
        plugin = self._setup.plugin
        try:
            polled = plugin.poll(self._spark.lazy(), effect.offset)
        except RetriableError as error:
            log.info("%s will poll again: %s", self._setup.task, error)
            return PollFailed(str(error), retriable=True)
        except Exception as error:
            self._runner.stay_alive()
            shown = spark_job_error(error, f"{self._setup.task} polled") if is_spark_error(error) else error
            shown.__cause__ = shown.__cause__ or (error if shown is not error else None)
            return PollFailed(trace_of(shown), retriable=False)
        return PolledNothing() if polled is None else self._convert(polled)

    def idle(self, effect: Idle) -> SourceStimulus:
        """Let the plugin wait for rows."""
        self._context.until_ms = effect.until_ms
        self._setup.plugin.idle(effect.offset)
        return Idled()

    def take(self) -> tuple[Slice, pa.Table]:
        """The slice that was polled last, with its records; it is handed out once."""
        assert self._at_hand is not None, "a slice was polled before it is sent"
        at_hand, self._at_hand = self._at_hand, None
        return at_hand

    # --------------------------------------------------------------------------------------------- from rows to records

    def _convert(self, polled: Slice) -> SourceStimulus:
        setup = self._setup
        try:
            made = transform_and_encode(
                polled.rows,
                polled.topic,
                setup.chain,
                setup.key_converter,
                setup.value_converter,
                setup.header_converter,
                self._spark.session,
            )
        except ConversionError as error:
            if not setup.settings.errors.tolerate_all:
                raise
            log.warning("A slice of %s was skipped: %s", setup.task, error)
            return self._polled(polled, 0, polled.rows_read or _count(polled), str(error))
        except Exception as error:
            self._runner.stay_alive()
            if not is_spark_error(error):
                raise
            if (explained := self._explained(error)) is not None:
                raise explained from None  # Spark's trace would only bury it
            raise spark_job_error(error, f"the rows that {setup.task} polled were evaluated") from error
        self._at_hand = (polled, made.records)
        skipped = 0 if polled.rows_read is None else polled.rows_read - made.rows
        reason = "malformed" if skipped else ""
        if made.failures:
            reason = self._judge(made.failures)
            skipped += len(made.failures)
        if skipped:
            log.warning("%s skipped %d rows before %s: %s", setup.task, skipped, dict(polled.offset), reason)
        return self._polled(polled, made.records.num_rows, skipped, reason, made.filtered)

    def _judge(self, failures: Sequence[Failure]) -> str:
        """Fail at the first row that a transformation could not take, or say why such rows are skipped."""
        first = failures[0]
        if not self._setup.settings.errors.tolerate_all:
            raise TransformError(
                f"{first.message} (row {first.row + 1} of the slice).",
                next_step="Correct the transformation or the data, or set errors.tolerance=all, and restart the task.",
            ) from first.error
        return first.message

    def _explained(self, error: Exception) -> Exception | None:
        """What the plugin says about a failed evaluation."""
        try:
            return self._setup.plugin.explain(self._spark.lazy(), error)
        except Exception:
            self._runner.stay_alive()
            log.warning("%s: explain() failed", self._setup.task, exc_info=True)
            return None

    def _polled(self, polled: Slice, records: int, skipped: int, reason: str, filtered: int = 0) -> Polled:
        self._slices += 1
        partition = None if polled.partition is None else dict(polled.partition)
        self._context.remember(self._setup.plugin.partition if partition is None else partition, polled.offset)
        return Polled(self._slices, records, dict(polled.offset), partition, skipped, reason, filtered)


def topics_of(polled: Slice, records: pa.Table) -> list[str]:
    """Topics that the records go to, in the order of their names."""
    named = records.column("topic").unique().to_pylist() if "topic" in records.column_names else [None]
    return sorted({str(topic or polled.topic) for topic in named if topic or polled.topic})


def _count(polled: Slice) -> int:
    count: Any = getattr(polled.rows, "num_rows", None)
    return int(polled.rows.count() if count is None else count)
