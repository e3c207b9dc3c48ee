"""The Spark session of one task, made when it is first needed, and the meaning of its failures.

An idle task and one that needs no Spark never start it. Everything that runs in the session can be interrupted from
another thread without touching other tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from connectx.errors.spark import SparkJobError, SparkNotAwaitedError
from connectx.spark.sessions import is_connect
from connectx.spark.shipping import ship
from connectx.values import Value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_CONNECT = {"spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"}
"""Otherwise a Spark Connect server evaluates what a worker sends in its optimizer, with one thread."""

_PYTHON = "Traceback (most recent call last):"
_CAUSE = re.compile(r"(Caused by: )?[\w.$]*(Error|Exception): ")  # a line that begins with an exception's name


class SparkSessions(Protocol):
    """Where tasks get their sessions from: Spark of this process, or a Spark Connect server."""

    def task_session(self, stopping: Future[None] | None = None) -> SparkSession:
        """A new session, so that one task can be interrupted without the others; waits for Spark's start, or until
        `stopping` is done: then SparkNotAwaitedError."""

    def interrupt(self, session: SparkSession) -> None:
        """End everything that runs in `session`, from any thread."""

    def release(self, session: SparkSession) -> None:
        """Let a session that `task_session` made go, with what runs in it; takes some seconds at most, never raises."""


class SparkTasks(Value):
    """How many Spark tasks the first stage of a job has, and how many tasks of all stages are done.

    Spark does not say which of the later stages it will skip, so the sum of their tasks means nothing.
    """

    first: int
    done: int

    @classmethod
    def of(cls, stages: Iterable[tuple[int, int, int]]) -> SparkTasks | None:
        """From the id, the tasks and the completed tasks of each stage; None without a stage."""
        known = sorted(stages)
        return cls(known[0][1], sum(done for *_, done in known)) if known else None


class TaskSpark:
    """Spark as one task sees it.

    Args:
        provider: starts or borrows Spark.
        settings: Spark settings of the task's session; a setting that the session does not allow is left alone.
        stopping: done when the task is to stop, or to end: then it waits for Spark's start no longer.

    `abandoned` is True once it has ended its wait for that reason.
    """

    def __init__(
        self, provider: SparkSessions, settings: Mapping[str, str], stopping: Future[None] | None = None
    ) -> None:
        self.abandoned = False
        self._provider = provider
        self._settings = dict(settings)
        self._modules: Sequence[str] = ()
        self._session: SparkSession | None = None
        self._stopping: Future[None] = Future() if stopping is None else stopping
        self._reported: dict[str, SparkTasks] = {}  # by Spark Connect

    def session(self) -> SparkSession:
        """The task's session; the first call makes it, and waits for Spark's start if it has to."""
        if self._session is None:
            try:
                session = self._provider.task_session(self._stopping)
            except SparkNotAwaitedError:
                self.abandoned = True
                raise
            own = _OF_CONNECT if is_connect(session) else {}
            for name, value in {**self._settings, **own}.items():
                if session.conf.isModifiable(name):
                    session.conf.set(name, value)
            self._session = session
            self._ship()
        return self._session

    def need(self, modules: Sequence[str]) -> None:
        """Send executors these modules, besides those that they have: now, or when the session is made."""
        self._modules = modules
        if self._session is not None:
            self._ship()

    def _ship(self) -> None:
        """Send what executors need. A session of Spark Connect always gets its own files.

        Spark gives a session without files those of all other sessions (JobArtifactSet.getActiveOrDefault). Its job
        fails if one of them ends before the executors have fetched its files.
        """
        assert self._session is not None
        if self._modules or is_connect(self._session):
            ship(self._session, self._modules)

    @contextmanager
    def job(self, name: str) -> Iterator[None]:
        """Name the jobs of this thread, for `tasks_of` and for people who look at Spark's own pages."""
        session = self.session()
        if is_connect(session):
            with self._listening(session, name):
                yield
            return
        context = session.sparkContext
        context.setJobGroup(name, f"connectx {name}")
        try:
            yield
        finally:
            context.setLocalProperty("spark.jobGroup.id", cast(str, None))

    @contextmanager
    def _listening(self, session: SparkSession, name: str) -> Iterator[None]:
        """Keep what a Spark Connect server reports about this thread's jobs, in the responses that it waits for."""

        def report(stages: Iterable[Any] | None, **_: object) -> None:
            found = SparkTasks.of(
                (stage.stage_id, stage.num_tasks, stage.num_completed_tasks) for stage in stages or ()
            )
            if found is not None:
                self._reported[name] = found

        session.registerProgressHandler(report)
        try:
            yield
        finally:
            session.removeProgressHandler(report)
            self._reported.pop(name, None)

    def tasks_of(self, name: str) -> SparkTasks | None:
        """From any thread: tasks of the jobs of this name; None before Spark has reported any.

        A Spark Connect server reports every two seconds. Spark of this process is asked.
        """
        session = self._session
        if session is None or is_connect(session):
            return self._reported.get(name)
        tracker = session.sparkContext.statusTracker()
        jobs = [info for job in tracker.getJobIdsForGroup(name) if (info := tracker.getJobInfo(job)) is not None]
        stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
        return SparkTasks.of(
            (each.stageId, each.numTasks, each.numCompletedTasks) for each in stages if each is not None
        )

    @property
    def used(self) -> bool:
        return self._session is not None

    def lazy(self) -> SparkSession:
        """What stands for the session in a plugin's hands: the first use of it makes the session."""
        return cast("SparkSession", _LazySession(self))

    def interrupt(self) -> None:
        """From any thread: end what runs in the session, which can be used again."""
        if (session := self._session) is not None:
            self._provider.interrupt(session)

    def release(self) -> None:
        """The task ends: let its session go, if there is one. Takes some seconds at most; never raises."""
        if (session := self._session) is not None:
            self._session = None
            self._provider.release(session)


class _LazySession:
    """Passes every use on to the session of a task."""

    def __init__(self, spark: TaskSpark) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark.session(), name)


def is_spark_error(error: BaseException) -> bool:
    """True for what Spark raises: errors of its driver, of its jobs, and of the way to it."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc")


def spark_job_error(error: Exception, what: str) -> SparkJobError:
    """A Spark failure as the user should see it; `what` completes "A Spark job failed while ..."."""
    return SparkJobError(
        f"A Spark job failed while {what}: {failure_reason(error)}.",
        next_step="Nothing of the slice was sent; correct the cause, which Spark's trace names, and restart the task.",
    )


def bulk_job_error(error: Exception) -> SparkJobError:
    """The same for a bulk job."""
    return SparkJobError(
        f"A bulk job on Spark's executors failed: {failure_reason(error)}.",
        next_step="Correct the cause, which Spark's trace names: executors need a route to Kafka, and to what the "
        "connector reads. With bulk.mode=never the worker does without them.",
    )


def failure_reason(error: Exception) -> str:
    """The cause at the end of a trace: of Python on an executor, otherwise of the JVM."""
    _, _, trace = str(error).partition(_PYTHON)
    raised = [line for line in trace.splitlines() if line and not line[0].isspace()]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = raised[:1] or [line for line in lines if _CAUSE.match(line)]
    return (causes[-1] if causes else lines[0] if lines else repr(error)).rstrip(".")
