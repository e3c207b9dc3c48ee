"""Bulk slices of a source task: the size of its backlog, the next slice, and the Spark job.

The task's thread waits for the job. It lends the job its transaction, and takes the loan back whatever happens. If
executors cannot reach Kafka, there is no loan: the thread sends what the job made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pickle import PicklingError
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from connectx.core.lanes import BulkMode
from connectx.core.loops.messages import CoresKnown
from connectx.core.producer.messages import Loan
from connectx.core.source import messages
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import NotASliceError
from connectx.kafka.producer.producer import KafkaProducer
from connectx.plugins.errors import RetriableError
from connectx.plugins.slices import BulkSlice, Slice
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.job_progress import JobProgress
from connectx.runtime.tasks.runner import Runner
from connectx.runtime.tasks.source.context import SourceContext
from connectx.runtime.tasks.source.setup import SourceSetup
from connectx.runtime.tasks.source.topics import SourceTopics
from connectx.spark.shipping import ship
from connectx.spark.slices import TaskSpark, bulk_job_error, is_spark_error, spark_job_error

if TYPE_CHECKING:
    from connectx.runtime.tasks.source.bulk_job import Outcome

log = logging.getLogger(__name__)


class SourceBulk:
    """The bulk lane of one source task; its thread only.

    Attributes:
        reached: the source offset after the last slice, of one of its source partitions.
    """

    def __init__(
        self,
        setup: SourceSetup,
        runner: Runner[messages.SourceStimulus, messages.SourceAction],
        spark: TaskSpark,
        context: SourceContext,
        producer: KafkaProducer,
        topics: SourceTopics,
        cores: Callable[[], CoresKnown],
    ) -> None:
        self._setup = setup
        self._runner = runner
        self._spark = spark
        self._context = context
        self._producer = producer
        self._topics = topics
        self._cores = cores
        self._is_shipped = False
        self._polled: Slice | BulkSlice | None = None
        self._slices = 0
        self._instance = uuid4().hex[:12]
        self._progress: JobProgress | None = None
        self.reached: Mapping[str, Any] = {}

    def waiting(self, effect: messages.QueryWaiting) -> messages.Waiting:
        """Ask the plugin; what it cannot answer is left to its `poll`, which reports the cause."""
        if self._setup.chain and not self._topics.known:  # transformations may change topics
            return messages.Waiting(None)
        plugin = self._setup.plugin
        if plugin.bulk_obstacle:
            return messages.Waiting(None, plugin.bulk_obstacle)
        try:
            size_bytes = plugin.waiting_bytes(effect.offset)
        except Exception as error:
            self._runner.stay_alive()
            log.debug("%s does not know how much waits: %s", self._setup.task, error)
            return messages.Waiting(None)
        return messages.Waiting(size_bytes)

    def route(self) -> messages.RouteKnown:
        """Let an executor connect to Kafka. If Spark fails to ask, the job will show why."""
        from connectx.runtime.tasks.source.bulk_job import obstacle_of_executors

        try:
            self._ship()
            obstacle = obstacle_of_executors(self._spark.session(), _of_executors(self._setup))
        except Exception as error:
            self._runner.checkpoint()
            log.warning("%s: Spark does not report whether executors reach Kafka: %s", self._setup.task, error)
            return messages.RouteKnown(None)
        return messages.RouteKnown(obstacle)

    def poll(self, effect: messages.PollBulk) -> messages.BulkPolled | messages.PolledNothing | messages.PollFailed:
        """Let the plugin name a slice."""
        try:
            polled = self._setup.plugin.poll_bulk(self._spark.session(), effect.offset, effect.max_bytes)
        except RetriableError as error:
            return messages.PollFailed(str(error), retriable=True)
        except Exception as error:
            self._runner.stay_alive()
            shown = spark_job_error(error, f"{self._setup.task} polled") if is_spark_error(error) else error
            return messages.PollFailed(trace_of(shown), retriable=False)
        if polled is None:
            return messages.PolledNothing()
        if not isinstance(polled, (Slice, BulkSlice)):
            return messages.PollFailed(trace_of(NotASliceError("poll_bulk", type(polled))), retriable=False)
        self._polled = polled
        self._slices += 1
        if isinstance(polled, BulkSlice):
            return messages.BulkPolled(self._slices, effect.max_bytes, None)
        return messages.BulkPolled(self._slices, effect.max_bytes, dict(polled.offset), polled.partition)

    def run(self, effect: messages.RunBulk) -> tuple[messages.BulkSent | messages.BulkFailed, Outcome | None]:
        """Run the job: the answer, and what was sent.

        Raises:
            ProducerFencedError, TransactionExpiredError, RecordRefusedError: the task's transaction cannot be lent.
        """
        polled, self._polled = self._polled, None
        assert polled is not None, "a slice was polled before its job runs"
        topics = self._topics_of(polled)
        lends = self._setup.loop.exactly_once and not effect.by_worker
        loan = self._producer.lend(topics) if lends else None
        outcome: Outcome | None = None
        failed: str | None = "the job was interrupted"
        try:
            outcome = self._job(polled, topics, loan, effect)
            failed = outcome.failed
        except Exception as error:
            self._runner.checkpoint()
            if isinstance(error, ConnectxError):
                failed = str(error)
            elif isinstance(error, PicklingError):
                failed = str(bulk_job_error(error))
            elif is_spark_error(error):
                failed = str(self._explained(error))
            else:
                raise
        finally:
            if loan is not None:
                sent = {} if outcome is None else outcome.sent
                late = outcome is None or outcome.may_arrive_late
                self._producer.take_back(sent, may_arrive_late=late, failed=failed)
            self._progress = None
            self._setup.plugin.bulk_ended()
        if outcome is None or failed is not None:
            log.warning("%s: a job on Spark's executors failed: %s", self._setup.task, failed)
            return messages.BulkFailed(effect.slice_number, str(failed)), None
        ranges = self._ranges(polled, outcome)
        if outcome.bad:
            self._runner.errors.failed(outcome.bad)
            log.warning("%s skipped %d rows before %s: %s", self._setup.task, outcome.bad, self.reached, outcome.why)
        skipped = outcome.bad, outcome.why or ""
        return messages.BulkSent(effect.slice_number, outcome.records, *skipped, outcome.filtered, ranges), outcome

    def progress(self) -> Mapping[str, object] | None:
        """From any thread: number, parts and parts_done of the job that runs."""
        return None if (progress := self._progress) is None else progress.read()

    def _ranges(self, polled: Slice | BulkSlice, outcome: Outcome) -> tuple[messages.PartitionRange, ...]:
        """Remember the positions after a slice; what was read, if only the job found it out."""
        if isinstance(polled, Slice):
            self._context.remember(polled.partition or self._setup.plugin.partition, polled.offset)
            self.reached = dict(polled.offset)
            return ()
        ranges = []
        for partition, offset in polled.offsets(outcome.read):
            ranges.append(messages.PartitionRange(dict(partition), self._context.position(partition), dict(offset)))
            self._context.remember(partition, offset)
            self.reached = dict(offset)
        return tuple(ranges)

    def _explained(self, error: Exception) -> Exception:
        """A failed job as the user should see it. Where the tail follows, that finds the cause by itself."""
        explained = None
        lanes = self._setup.loop.lanes
        if lanes is not None and lanes.mode is BulkMode.ALWAYS:
            try:
                explained = self._setup.plugin.explain(self._spark.session(), error)
            except Exception as failure:
                self._runner.checkpoint()
                log.warning("%s: explain() failed\n%s", self._setup.task, trace_of(failure))
        return explained or bulk_job_error(error)

    def _topics_of(self, polled: Slice | BulkSlice) -> Sequence[str]:
        """Topics that the rows may go to: with transformations those of earlier slices."""
        named = [] if polled.topic is None or self._setup.chain else [polled.topic]
        topics = list(dict.fromkeys((*named, *self._topics.known)))
        self._topics.ensure(topics)
        return topics

    def _ship(self) -> None:
        if not self._is_shipped:
            ship(self._spark.session(), self._setup.modules())
            self._is_shipped = True

    def _job(
        self, polled: Slice | BulkSlice, topics: Sequence[str], loan: Loan | None, effect: messages.RunBulk
    ) -> Outcome:
        from connectx.runtime.tasks.source.bulk_job import Recipe, run_job, run_job_without_kafka

        setup = self._setup
        self._ship()
        partitions = {topic: self._producer.partitions(topic) for topic in topics}
        recipe = Recipe(
            slice_number=effect.slice_number,
            topic=polled.topic,
            partitions=partitions,
            chain=setup.chain,
            key_converter=setup.key_converter,
            value_converter=setup.value_converter,
            header_converter=setup.header_converter,
            skip_bad=setup.settings.errors.tolerate_all,
            config=_of_executors(setup),
            loan=loan,
            now_ms=time.time_ns() // 1_000_000,
        )
        rows = polled if isinstance(polled, BulkSlice) else polled.rows
        assert not isinstance(rows, tuple), "executors read one DataFrame"
        readers = rows.tasks if isinstance(rows, BulkSlice) else 0  # those of a DataFrame are known once they run
        senders = 0 if effect.by_worker else min(sum(p.count for p in partitions.values()), self._cores().cores or 1)
        name = f"{setup.task}-{self._instance}-{effect.slice_number}"
        self._progress = JobProgress(self._spark, name, effect.slice_number, readers, senders)
        with self._spark.job(name):
            if effect.by_worker:
                return run_job_without_kafka(rows, recipe, self._producer, self._spark.session())
            return run_job(rows, recipe, senders, self._spark.session())


def _of_executors(setup: SourceSetup) -> dict[str, object]:
    """Settings of the producers on executors: they do not outlast the transaction."""
    config = dict(setup.producer_config)
    if setup.loop.exactly_once:
        config["message.timeout.ms"] = config.get("transaction.timeout.ms", 60_000)
    return config
