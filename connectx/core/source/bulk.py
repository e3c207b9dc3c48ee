"""Lane of a source task's rows, and the size of the next job on Spark's executors.

A bulk slice is a separate transaction, so that a job that fails costs no other rows. The rows of a failed one are
read again: with `bulk.mode=auto` by the worker, which also finds out which of them is to blame; with `always` by two
more jobs, and then the task fails.

Executors send the records themselves. If they cannot reach Kafka, they make the record batches, and the worker sends
them. Such slices are smaller, because the worker holds the batches of a slice in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from connectx.core.lanes import BulkMode, Lane, LaneChoice, LaneSettings, choose_lane, needs_cores
from connectx.core.source.messages import BulkPolled
from connectx.model.causes import LaneObstacle, NothingPolled

_ATTEMPTS: Final = 3
_PAUSE_MS: Final = 30_000
_LONGEST_PAUSE_MS: Final = 600_000
_WANTED_MS: Final = 10_000  # an open transaction holds back all readers of committed records
_LEAST_BYTES: Final = 16 << 20
_MOST_BYTES: Final = 1 << 30
_MOST_BYTES_BY_WORKER: Final = 128 << 20
_ROUTE_INTERVAL_MS: Final = 600_000
_CORES_INTERVAL_MS: Final = 60_000
_NO_CHOICE: Final = LaneChoice(Lane.TAIL, NothingPolled())
_NO_LANE: Final = LaneChoice(Lane.TAIL, LaneObstacle("the connector has no bulk lane"))


@dataclass(slots=True)
class BulkLane:
    """State of the choice.

    Attributes:
        settings: of the connector; None if it has no bulk lane.
        obstacle: why the task can never use the lane.
        job: slice whose job is to run or runs.
        failures: of jobs in a row; `failure` is the reason of the last one.
        waiting_bytes: that wait while Spark is asked for its cores.
        cores: of Spark's executors; None if they are not known. They are asked for again at `cores_at_ms`.
        slice_bytes: size of the next slice; of the first one `bulk.min.bytes`, if that is not below 16 MB.
        by_worker: executors cannot reach Kafka, so the worker sends what they make.
        route_at_ms: when to ask whether executors reach Kafka; None: not again, unless a job fails.
    """

    settings: LaneSettings | None
    obstacle: str | None = None
    choice: LaneChoice = _NO_CHOICE
    job: BulkPolled | None = None
    began_ms: int = 0
    failures: int = 0
    failure: str = ""
    tail_until_ms: int = 0
    waiting_bytes: int = 0
    cores: int | None = None
    cores_at_ms: int = 0
    slice_bytes: int = _LEAST_BYTES
    by_worker: bool = False
    route_at_ms: int | None = 0

    @classmethod
    def of(cls, settings: LaneSettings | None, obstacle: str | None) -> Self:
        """Return the lane of a task that has not polled."""
        if settings is None:
            return cls(None, obstacle, _NO_LANE)
        lane = cls(settings, obstacle, slice_bytes=min(_MOST_BYTES, max(_LEAST_BYTES, settings.min_bytes)))
        if not lane.is_possible:
            lane.choice = choose_lane(settings, Lane.TAIL, 0, None, obstacle)
        return lane

    @property
    def is_possible(self) -> bool:
        """Whether the bytes that wait can decide for the bulk lane."""
        settings = self.settings
        return settings is not None and settings.mode is not BulkMode.NEVER and self.obstacle is None

    def needs_cores(self, waiting_bytes: int, now_ms: int) -> bool:
        """Whether the cores decide now, and were not asked for lately."""
        assert self.settings is not None, "only a connector with a bulk lane is asked for waiting bytes"
        return needs_cores(self.settings, waiting_bytes, self._obstacle(now_ms)) and now_ms >= self.cores_at_ms

    def cores_known(self, cores: int | None, now_ms: int) -> None:
        """Take the answer. Executors come and go; 0 is asked again soon, because those of a new session come late."""
        self.cores, self.cores_at_ms = cores, now_ms if cores == 0 else now_ms + _CORES_INTERVAL_MS

    def needs_route(self, now_ms: int) -> bool:
        """Whether to ask if executors reach Kafka: before the first job, after a failed one, and while they do not."""
        return self.route_at_ms is not None and now_ms >= self.route_at_ms

    def route_known(self, obstacle: str | None, now_ms: int) -> bool:
        """Take the answer; True if the worker sends from now on."""
        before, self.by_worker = self.by_worker, obstacle is not None
        self.route_at_ms = now_ms + _ROUTE_INTERVAL_MS if self.by_worker else None
        if self.by_worker:
            self.slice_bytes = min(self.slice_bytes, _MOST_BYTES_BY_WORKER)
        return self.by_worker and not before

    def choose(self, waiting_bytes: int, now_ms: int) -> bool:
        """Choose by the bytes that wait; True when the lane changes."""
        assert self.settings is not None, "only a connector with a bulk lane is asked for waiting bytes"
        before = self.choice.lane
        self.choice = choose_lane(self.settings, before, waiting_bytes, self.cores, self._obstacle(now_ms))
        return self.choice.lane is not before

    def begin(self, job: BulkPolled) -> None:
        """A slice was polled whose job is next."""
        self.job = job

    def run(self, now_ms: int) -> int:
        """The job starts; returns the number of its slice."""
        assert self.job is not None, "a slice was polled"
        self.began_ms = now_ms
        return self.job.slice_number

    def succeed(self, now_ms: int) -> BulkPolled:
        """The job is done. The next one takes as many bytes as executors write in ten seconds."""
        job, self.job = self.job, None
        assert job is not None, "a job has run"
        self.failures = 0
        took_ms = max(1, now_ms - self.began_ms)
        fitting = min(2 * job.size_bytes, job.size_bytes * _WANTED_MS // took_ms)
        if job.size_bytes >= self.slice_bytes // 2:  # a small one spends most of its time on the start of its job
            self.slice_bytes = min(self._most_bytes, max(_LEAST_BYTES, fitting))
        return job

    def fail(self, error: str, now_ms: int) -> bool:
        """The job failed; True if the task is to fail, too."""
        self.job = None
        self.failures += 1
        self.route_at_ms = 0
        self.failure = error.strip().splitlines()[0] if error.strip() else "no reason was given"
        self.slice_bytes = max(_LEAST_BYTES, self.slice_bytes // 2)
        if self.settings is not None and self.settings.mode is BulkMode.ALWAYS:
            return self.failures >= _ATTEMPTS
        self.tail_until_ms = now_ms + min(_LONGEST_PAUSE_MS, _PAUSE_MS << min(self.failures - 1, 10))
        return False

    @property
    def _most_bytes(self) -> int:
        return _MOST_BYTES_BY_WORKER if self.by_worker else _MOST_BYTES

    def _obstacle(self, now_ms: int) -> str | None:
        return f"a job failed: {self.failure}" if now_ms < self.tail_until_ms else self.obstacle
