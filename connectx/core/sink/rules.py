"""Rules that hold for a sink task's loop after every step. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, Protocol

from connectx.core.rules import Rules
from connectx.core.sink import messages as m
from connectx.core.sink.bulk import BulkLane
from connectx.core.sink.messages import Partitions
from connectx.core.sink.progress import Batch, Progress
from connectx.model.ids import TopicPartition


class SinkRule(StrEnum):
    """A rule of the loop; the value is its sentence."""

    ONE_EFFECT = "one effect of the loop is outstanding, and with it one of a rebalance"
    OWNED_ONLY = "offsets, batches, a job and what is released are of owned partitions"
    REACHED = "what is reached is not below the position"
    BATCH_FOLLOWS = "a batch begins at the position, ends after it, and no two have a partition in common"
    FIRST_IS_RETRIED = "only the first batch is put again"
    JOB_OR_BATCH = "executors read, or batches wait, never both"
    RELEASING = "partitions are being released exactly while their last flush or commit is outstanding"
    COMMIT_IS_LAST = "the commit that is waited for is the last one"
    ALARM_HAS_TIME = "a lag that is an alarm has lasted since some time"
    ENDED_IS_EMPTY = "a loop that has ended owns no partition, and no batch or job is left"


class Parts(Protocol):
    """What the rules read of the loop."""

    @property
    def phase(self) -> StrEnum:
        """Where it is."""

    outstanding: dict[int, m.SinkAction]
    progress: Progress
    batches: list[Batch]
    releasing: Partitions | None
    lag_since_ms: int | None
    lag_alarm: bool
    bulk: BulkLane


def _one_effect(loop: Parts) -> Iterator[str]:
    of_rebalance = (m.OpenPartitions, m.Flush, m.CommitOffsets)
    others = list(loop.outstanding.values())[1:]
    if len(others) > 1 or not all(isinstance(effect, of_rebalance) for effect in others):
        yield f"{list(loop.outstanding.values())} are"


def _owned_only(loop: Parts) -> Iterator[str]:
    progress, job = loop.progress, loop.bulk.job
    places: dict[str, set[TopicPartition]] = {
        "reached": set(progress.reached),
        "committed": set(progress.committed),
        "batches": {partition for batch in loop.batches for partition in batch.ranges},
        "job": set() if job is None else set(job.ranges),
        "ends": set(loop.bulk.ends),
        "releasing": set(loop.releasing or ()),
    }
    for place, named in places.items():
        if others := named - progress.positions.keys():
            yield f"{place} has {', '.join(map(str, sorted(others)))}"
    if progress.positions.keys() - progress.reached.keys() or progress.positions.keys() - progress.committed.keys():
        yield "a position has no reached or committed offset"


def _reached(loop: Parts) -> Iterator[str]:
    for partition, position in loop.progress.positions.items():
        if loop.progress.reached.get(partition, position) < position:
            yield f"{partition} has reached {loop.progress.reached[partition]}, and its position is {position}"


def _batch_follows(loop: Parts) -> Iterator[str]:
    seen: set[TopicPartition] = set()
    for batch in loop.batches:
        for partition, (first, end) in batch.ranges.items():
            if first != loop.progress.positions.get(partition) or end <= first or partition in seen:
                yield f"{partition} from {first} to {end} at {loop.progress.positions.get(partition)}"
            seen.add(partition)


def _first_is_retried(loop: Parts) -> Iterator[str]:
    if any(batch.retry is not None for batch in loop.batches[1:]):
        yield "another one is"


def _job_or_batch(loop: Parts) -> Iterator[str]:
    if loop.bulk.job is not None and loop.batches:
        yield f"job {loop.bulk.job.token} runs, and {len(loop.batches)} batches wait"


def _releasing(loop: Parts) -> Iterator[str]:
    last = next(reversed(loop.outstanding.values()), None)
    is_asked = isinstance(last, m.Flush | m.CommitOffsets)
    if loop.releasing is not None and not is_asked:
        yield f"{loop.releasing} are, and {last} is outstanding"
    if loop.releasing is None and (isinstance(last, m.CommitOffsets) or loop.phase == "ending"):
        yield f"none are, and {last} is outstanding in phase {loop.phase}"


def _commit_is_last(loop: Parts) -> Iterator[str]:
    commit = loop.progress.commit
    if commit is not None and commit.sequence != loop.progress.sequence:
        yield f"commit {commit.sequence} is waited for after {loop.progress.sequence}"


def _alarm_has_time(loop: Parts) -> Iterator[str]:
    if loop.lag_alarm and loop.lag_since_ms is None:
        yield "no time is known"


def _ended_is_empty(loop: Parts) -> Iterator[str]:
    if loop.phase == "ended" and (loop.progress.positions or loop.batches or loop.bulk.job):
        yield f"{loop.progress.owned} are owned, {len(loop.batches)} batches left, the job is {loop.bulk.job}"


SINK_RULES: Final[Rules[SinkRule, Any]] = {
    SinkRule.ONE_EFFECT: _one_effect,
    SinkRule.OWNED_ONLY: _owned_only,
    SinkRule.REACHED: _reached,
    SinkRule.BATCH_FOLLOWS: _batch_follows,
    SinkRule.FIRST_IS_RETRIED: _first_is_retried,
    SinkRule.JOB_OR_BATCH: _job_or_batch,
    SinkRule.RELEASING: _releasing,
    SinkRule.COMMIT_IS_LAST: _commit_is_last,
    SinkRule.ALARM_HAS_TIME: _alarm_has_time,
    SinkRule.ENDED_IS_EMPTY: _ended_is_empty,
}
