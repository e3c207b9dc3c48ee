"""Jobs of a sink task on Spark's executors, and what they staged.

A job runs on a separate thread, because Spark answers only when it is done, and the task's thread has to poll. It
decides nothing: the loop orders what to read, commit and discard.
"""

from __future__ import annotations

import logging
import pickle
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from connectx.core.sink import messages as m
from connectx.data.frames import as_spark_takes, spark_schema
from connectx.model.ids import TopicPartition
from connectx.plugins.errors import NotStageableError
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.job_progress import JobProgress
from connectx.runtime.tasks.record_errors import RecordErrors
from connectx.runtime.tasks.sink.dead_letters import DeadLetter, DeadLetterQueue
from connectx.runtime.tasks.sink.records import report_bad
from connectx.runtime.tasks.sink.setup import SinkSetup
from connectx.runtime.tasks.sink.staging import RESULT_SCHEMA, PartResult, StagingOrder
from connectx.spark.executors import executor_cores
from connectx.spark.shipping import modules_of, ship
from connectx.spark.slices import TaskSpark, is_spark_error, spark_job_error

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

Parts = Sequence[tuple[TopicPartition, tuple[int, int]]]
Save = Callable[[Any], None]

_END_S: Final = 5.0
_STEP_S: Final = 0.05
_UNSAFE: Final = r"[^\w.-]"  # in names of files


class BulkJob:
    """One job, from `start` until `ended`.

    Attributes:
        token: name of the job, in the names of what it stages.
        number: of the job in the loop.
        parts: ranges, each the work of one Spark task, unless max.connections allows fewer Spark tasks.
        results: of the parts, once it has ended.
        reported: bad records were reported.
        uncertain: a commit was begun, and it is not known that it failed.
    """

    def __init__(
        self,
        token: str,
        number: int,
        spark: TaskSpark,
        modules: Sequence[str],
        job_ranges: m.Ranges,
        max_spark_tasks: int | None = None,
    ) -> None:
        self.token = token
        self.number = number
        self.parts: Parts = []
        self.results: list[PartResult] = []
        self.reported = False
        self.uncertain = False
        self._ranges = job_ranges
        self._spark = spark
        self._modules = modules
        self._max_spark_tasks = max_spark_tasks
        self._error: Exception | None = None
        self._cancelled = False
        self._progress = JobProgress(spark, token, number)
        self._thread: threading.Thread | None = None

    def start(
        self, order: Callable[[Parts], StagingOrder], after: Sequence[BulkJob] = (), save: Save | None = None
    ) -> None:
        """Run it in the background; `order` makes the order of its parts, and `save` writes a DataFrame of their rows.

        It waits for the jobs in `after`, which were cancelled: an interrupt ends all jobs of a session.
        """
        given = order, after, save
        self._thread = threading.Thread(target=self._run, args=given, name=f"bulk-{self.token}", daemon=True)
        self._thread.start()

    def fail(self, error: Exception) -> None:
        """It cannot even be started."""
        self._error = error

    @property
    def ended(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def cancel(self) -> None:
        """End it soon; call it again until it has ended."""
        self._cancelled = True
        self._spark.interrupt()

    def outcome(self) -> m.BulkStaged | m.BulkFailed:
        if isinstance(error := self._error, NotStageableError):
            return m.BulkFailed(self.number, error.message, {p: first + 1 for p, (first, _) in self._ranges.items()})
        if error is not None:
            shown = spark_job_error(error, "executors staged records") if is_spark_error(error) else error
            return m.BulkFailed(self.number, getattr(shown, "message", f"{type(shown).__name__}: {shown}"), {})
        failed = [(place, result) for place, result in zip(self.parts, self.results, strict=True) if result.failure]
        if failed:
            known: dict[TopicPartition, int] = {}
            for (partition, _), result in failed:
                if result.tail_until is not None:
                    known.setdefault(partition, result.tail_until)  # the first part of a partition
            is_known = all(result.tail_until is not None for _, result in failed)
            return m.BulkFailed(self.number, failed[0][1].failure or "", known if is_known else {})
        records, refused = (sum(each) for each in zip(*((r.records, len(r.bad)) for r in self.results), strict=True))
        return m.BulkStaged(self.number, records, refused)

    def progress(self) -> Mapping[str, object]:
        """Number, parts and parts_done."""
        return self._progress.read()

    @property
    def _spark_tasks(self) -> int:
        """How many Spark tasks the job has."""
        return min(len(self.parts), self._max_spark_tasks or len(self.parts))

    def _run(self, order: Callable[[Parts], StagingOrder], after: Sequence[BulkJob], save: Save | None) -> None:
        try:
            for job in after:
                job.wait()
            session = self._spark.session()
            ship(session, self._modules)
            cores = executor_cores(session)
            self.parts = split(self._ranges, min(cores, self._max_spark_tasks or cores))
            self._progress.readers = self._spark_tasks
            if self._cancelled or not self.parts:
                return
            frame, what = session.range(0, len(self.parts), 1, self._spark_tasks), order(self.parts)
            if save is None or what.row_schema is None:
                self._stage(frame.mapInArrow(what, RESULT_SCHEMA))
                return
            made = frame.mapInArrow(what, _with_rows(what.row_schema)).persist()
            try:
                self._stage(made.where("result IS NOT NULL").select("part", "result"))
                if self._is_good(tolerate_all=what.tolerate_all):
                    with self._spark.job(f"{self.token}-save"):
                        save(made.where("result IS NULL").select("row.*"))
            finally:
                made.unpersist()
        except Exception as error:
            self._error = error

    def _stage(self, frame: Any) -> None:
        with self._spark.job(self.token):
            answers: Any = frame.toArrow()
        rows = sorted(answers.to_pylist(), key=lambda row: row["part"])
        self.results = [pickle.loads(row["result"]) for row in rows]

    def _is_good(self, *, tolerate_all: bool) -> bool:
        """Whether there are rows to save."""
        is_refused = any(result.failure or (result.bad and not tolerate_all) for result in self.results)
        return not (self._cancelled or is_refused) and any(result.rows for result in self.results)


class BulkJobs:
    """The job of a task that runs or has staged records, and cancelled ones that are still to be cleared away."""

    def __init__(self, setup: SinkSetup, spark: TaskSpark, group_id: str) -> None:
        self._setup = setup
        self._spark = spark
        self._group_id = group_id
        self._instance = uuid4().hex[:12]
        self._running: BulkJob | None = None
        self._staged: BulkJob | None = None
        self._cancelled: list[BulkJob] = []

    def run(self, effect: m.RunBulk) -> None:
        """Start a job. A plugin that is not ready for it makes the job fail, and the worker reads its first record."""
        setup, topic = self._setup, next(iter(effect.ranges)).topic
        token = f"{re.sub(_UNSAFE, '_', str(setup.task))}-{self._instance}-{effect.token}"
        needed = setup.connector.bulk_classes(setup.connector_config)
        classes = (setup.connector, *needed, *setup.conversion.classes)
        modules, most = (*modules_of(classes), *setup.bulk_modules), setup.max_executor_connections
        job = self._running = BulkJob(token, effect.token, self._spark, modules, effect.ranges, most)
        plugin, row_schema = setup.plugin, None
        try:
            plan = plugin.plan(token, topic)
            wanted = setup.conversion.wanted(plugin, topic)
            if plugin.stages_rows:
                row_schema = as_spark_takes(plan)
        except Exception as error:
            job.fail(error)
            return

        def order(parts: Parts) -> StagingOrder:
            return StagingOrder(
                task=setup.task,
                group_id=self._group_id,
                connector=setup.connector,
                task_config=setup.task_config,
                conversion=setup.conversion,
                consumer=dict(setup.consumer_config),
                parts=parts,
                wanted=wanted,
                plan=plan,
                token=token,
                tolerate_all=setup.settings.errors.tolerate_all,
                keep_raw=setup.dead_letter_config is not None,
                row_schema=row_schema,
            )

        save = partial(plugin.save, token, effect.ranges) if plugin.stages_rows else None
        job.start(order, tuple(self._cancelled), save)

    def ended(self) -> m.BulkStaged | m.BulkFailed | None:
        """How the running job ended, once; also clears away what cancelled jobs staged."""
        self._clear()
        job = self._running
        if job is None or not job.ended:
            return None
        self._running = None
        outcome = job.outcome()
        if isinstance(outcome, m.BulkStaged):
            self._staged = job
        else:
            log.info("%s: job %s failed: %s", self._setup.task, job.token, outcome.error)
            self._discard(job)
        return outcome

    def staged(self, number: int) -> BulkJob:
        """The job whose records wait for their commit."""
        assert self._staged is not None, "the loop commits what was staged"
        assert self._staged.number == number, "one at a time"
        return self._staged

    def committed(self) -> None:
        """What was staged is in the target."""
        self._staged = None

    def discard(self, number: int) -> None:
        """End a job, or remove what it staged. After a commit whose outcome is not known, all files stay."""
        if (job := self._running) is not None and job.number == number:
            self._running = None
            job.cancel()
            self._cancelled.append(job)
            self._clear()
        elif (job := self._staged) is not None and job.number == number:
            self._staged = None
            if not job.uncertain:
                self._discard(job)

    def progress(self) -> Mapping[str, object] | None:
        return None if self._running is None else self._running.progress()

    def close(self) -> None:
        """Wait some seconds for cancelled jobs, and remove what they staged."""
        end_s = time.monotonic() + _END_S
        while self._cancelled and time.monotonic() < end_s:
            self._clear()
            time.sleep(_STEP_S)
        for job in self._cancelled:
            log.warning("%s: staged files of job %s may remain in the target", self._setup.task, job.token)

    def _clear(self) -> None:
        for job in self._cancelled:
            if job.ended:
                self._discard(job)
            else:
                job.cancel()
        self._cancelled = [job for job in self._cancelled if not job.ended]

    def _discard(self, job: BulkJob) -> None:
        try:
            self._setup.plugin.discard(job.token, [each for result in job.results for each in result.messages])
        except Exception as error:
            log.warning("%s: discard(%s) failed\n%s", self._setup.task, job.token, trace_of(error))


def _with_rows(row_schema: pa.Schema) -> StructType:
    """RESULT_SCHEMA and a column of rows."""
    from pyspark.sql.types import BinaryType, IntegerType, StructType

    return StructType().add("part", IntegerType()).add("result", BinaryType()).add("row", spark_schema(row_schema))


def report_staged(
    setup: SinkSetup, dead_letters: DeadLetterQueue | None, counted: RecordErrors, results: Sequence[PartResult]
) -> None:
    """Report what executors left out; as `report_bad`, also in what it raises."""
    raws = [result.raw for result in results if result.raw is not None]
    bad = [each for result in results for each in result.bad]
    letters = [DeadLetter(row, each.stage, each.class_name, each.error) for row, each in enumerate(bad)]
    wanted = letters if setup.settings.errors.tolerate_all else letters[:1]
    report_bad(setup, dead_letters, counted, pa.concat_tables(raws) if raws else None, wanted)


def split(ranges: m.Ranges, cores: int) -> Parts:
    """Ranges cut into parts of about the same length, so that there are at least as many as cores."""
    pieces = max(1, -(-cores // len(ranges)))
    parts: list[tuple[TopicPartition, tuple[int, int]]] = []
    for partition, (first, end) in sorted(ranges.items()):
        step = max(1, -(-(end - first) // pieces))
        parts += [(partition, (start, min(start + step, end))) for start in range(first, end, step)]
    return parts
