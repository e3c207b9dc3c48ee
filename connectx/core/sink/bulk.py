"""Lane of a sink task's records, and the ranges of the next job on Spark's executors.

Decides from lag, sizes and cores that the driver reports; it never sees records or Spark. One job runs at a time, for
one topic. Records that no job can take are left to the worker, which reads on past them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Self

from connectx.core.lanes import BulkMode, Lane, LaneChoice, choose_lane, needs_cores
from connectx.core.sink.messages import Fetched, Offsets, Ranges
from connectx.core.sink.progress import Progress, SinkTaskSettings
from connectx.model.causes import LagUnknown
from connectx.model.ids import TopicPartition
from connectx.values import Value

_CORES: Final = 4  # where they are not known


class Job(Value):
    token: int
    ranges: Ranges


@dataclass(slots=True)
class BulkLane:
    """State of the choice. `ends` are last stable offsets that were asked for and not used yet, `tail_until` offsets
    that the worker has to reach before another job, because of `failure`."""

    settings: SinkTaskSettings
    choice: LaneChoice = field(default_factory=lambda: LaneChoice(Lane.TAIL, LagUnknown()))
    job: Job | None = None
    tokens: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    tail_until: dict[TopicPartition, int] = field(default_factory=dict)
    failure: str = ""
    record_bytes: float = 0.0
    was_full: bool = False
    cores: int | None = None
    query_at_ms: int = 0
    cores_at_ms: int = 0

    @classmethod
    def of(cls, settings: SinkTaskSettings) -> Self:
        """Return the lane of a task before a lag is known: only the modes always and never decide."""
        lane = cls(settings)
        if settings.lanes.mode is not BulkMode.AUTO or settings.bulk_obstacle is not None:
            lane.choice = choose_lane(settings.lanes, Lane.TAIL, 0, None, settings.bulk_obstacle)
        return lane

    @property
    def is_bulk(self) -> bool:
        """Whether executors carry the records."""
        return self.choice.lane is Lane.BULK

    def fetched(self, fetched: Fetched) -> None:
        """The worker read records. Their size is an estimate for those that wait."""
        self.was_full = fetched.full
        if offsets := sum(end - first for first, end in fetched.ranges.values()):
            self.record_bytes = fetched.size_bytes / offsets

    def should_query(self, progress: Progress, now_ms: int) -> bool:
        """Whether the lag decides now, and is not known."""
        auto = self.settings.lanes.mode is BulkMode.AUTO and self.settings.bulk_obstacle is None
        wanted = self.is_bulk or self._is_always() or (auto and self.was_full)
        return wanted and now_ms >= self.query_at_ms and progress.owned != () and self._obstacle(progress) is None

    def queried(self, now_ms: int) -> None:
        """The lag was asked for."""
        self.query_at_ms = now_ms + self.settings.query_interval_ms

    def needs_cores(self, progress: Progress, now_ms: int) -> bool:
        decide = needs_cores(self.settings.lanes, self._waiting_bytes(progress), self._obstacle(progress))
        return bool(self.ends) and decide and now_ms >= self.cores_at_ms

    def cores_known(self, cores: int | None, now_ms: int) -> None:
        self.cores, self.cores_at_ms = cores, now_ms + self.settings.cores_interval_ms

    def choose(self, progress: Progress) -> bool:
        """Choose by the lag that is known; True when the lane changes."""
        before = self.choice.lane
        waiting_bytes, obstacle = self._waiting_bytes(progress), self._obstacle(progress)
        self.choice = choose_lane(self.settings.lanes, before, waiting_bytes, self.cores, obstacle)
        if not self.is_bulk:
            self.ends = {}
        return self.choice.lane is not before

    def next_ranges(self, progress: Progress) -> dict[TopicPartition, tuple[int, int]]:
        """What the next job reads: of the topic with the largest lag, from the positions on."""
        lags = {p: end - progress.reached[p] for p, end in sorted(self.ends.items()) if end > progress.reached[p]}
        if not (self.is_bulk and lags):
            self.ends = {}
            return {}
        by_topic: dict[str, int] = {}
        for partition, lag in lags.items():
            by_topic[partition.topic] = by_topic.get(partition.topic, 0) + lag
        topic = max(by_topic, key=lambda name: by_topic[name])
        mine = {partition: lag for partition, lag in lags.items() if partition.topic == topic}
        job_bytes = self.settings.bulk_core_bytes * (self.cores or _CORES)
        share = max(1, int(job_bytes / max(self.record_bytes, 1.0)) // len(mine))
        return {p: (progress.positions[p], progress.reached[p] + min(share, lag)) for p, lag in mine.items()}

    def begin(self, ranges: Ranges) -> Job:
        self.tokens += 1
        self.ends = {}
        self.job = Job(self.tokens, ranges)
        return self.job

    def end(self, token: int) -> Job | None:
        """The job that ended, None when it is not the one that runs. The lag is asked for again."""
        job = self.job
        if job is None or job.token != token:
            return None
        self.job = None
        self.query_at_ms = 0
        return job

    def fail(self, error: str, ends: Offsets) -> None:
        """The worker reads on to these offsets."""
        self.failure, self.tail_until = error, {**self.tail_until, **ends}

    def disown(self, partitions: tuple[TopicPartition, ...]) -> None:
        for offsets in (self.ends, self.tail_until):
            for partition in partitions:
                offsets.pop(partition, None)

    def _obstacle(self, progress: Progress) -> str | None:
        reached = progress.reached
        self.tail_until = {p: end for p, end in self.tail_until.items() if p in reached and reached[p] < end}
        return self.settings.bulk_obstacle or (self.failure if self.tail_until else None)

    def _waiting_bytes(self, progress: Progress) -> int:
        lag = sum(max(0, end - progress.reached.get(p, end)) for p, end in self.ends.items())
        return int(lag * max(self.record_bytes, 1.0))

    def _is_always(self) -> bool:
        return self.settings.lanes.mode is BulkMode.ALWAYS and self.settings.bulk_obstacle is None
