"""Records, lag and latency of a cluster's tasks, sampled twice a second and kept over time.

Each task counts its own numbers. They are kept apart from the history, which holds events, not growing numbers. Kafka
Connect has no counterpart: its workers show the present numbers as metrics.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from connectx.history.folds.latency import LatencyCounter, halved
from connectx.history.folds.rates import LagSample, RecordCounter
from connectx.history.wording import task_of
from connectx.model.clock import Clock
from connectx.model.ids import TaskId
from connectx.model.latencies import Buckets

if TYPE_CHECKING:
    from connectx.api.connect_cluster import WorkerView

_EVERY_S = 0.5
_LAGS = 100_000
_COUNTS = 2_000
"""Samples of a task. Beyond them every second one of the older half is dropped."""


class Recorder:
    """Samples the tasks of workers, in a separate thread."""

    def __init__(self, workers: Iterable[WorkerView], clock: Clock) -> None:
        self._workers = workers
        self._clock = clock
        self._counter = RecordCounter()
        self._counts: dict[TaskId, list[tuple[int, int]]] = {}
        self._lags: deque[LagSample] = deque(maxlen=_LAGS)
        self._known: dict[TaskId, int | None] = {}
        self._latency_counter = LatencyCounter()
        self._latencies: dict[TaskId, list[tuple[int, Buckets]]] = {}
        self.sampled_ms = clock()
        """When the last sample was taken, milliseconds since 1970."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connectx-recorder", daemon=True)

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling; the samples stay."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def lags(self) -> list[LagSample]:
        """Samples of lag, oldest first; one for each change."""
        return list(self._lags.copy())

    def counts(self) -> dict[TaskId, list[tuple[int, int]]]:
        """By task (milliseconds since 1970, records moved so far by all of its instances), oldest first."""
        return {task: list(points) for task, points in self._counts.copy().items()}

    def latencies(self) -> dict[TaskId, list[tuple[int, Buckets]]]:
        """By sink task (milliseconds since 1970, records committed since the sample before, by latency bucket)."""
        return {task: list(samples) for task, samples in self._latencies.copy().items()}

    def sample(self) -> None:
        """Take one sample."""
        instances = list(running(self._workers))
        now_ms = self._clock()
        self._sample_counts(instances, now_ms)
        self._sample_lags(instances, now_ms)
        self._sample_latencies(instances, now_ms)
        self.sampled_ms = now_ms

    def _sample_counts(self, instances: list[tuple[str, str, Mapping[str, Any]]], now_ms: int) -> None:
        self._counter.take(
            (worker, task, metrics["records"]) for worker, task, metrics in instances if "records" in metrics
        )
        for name, moved in self._counter.moved.items():
            if (task := task_of(name)) is None:
                continue
            points = self._counts.setdefault(task, [(self.sampled_ms, 0)])
            if len(points) > 1 and points[-1][1] == points[-2][1] == moved:
                points[-1] = (now_ms, moved)
            else:
                points.append((now_ms, moved))
            if len(points) > _COUNTS:
                half = len(points) // 2
                self._counts[task] = points[:half:2] + points[half:]

    def _sample_lags(self, instances: list[tuple[str, str, Mapping[str, Any]]], now_ms: int) -> None:
        seen: dict[TaskId, int | None] = {}
        for _, name, metrics in instances:  # of two, the newer one counts
            task, lag = task_of(name), metrics.get("lag")
            if task is not None and "lag" in metrics:
                seen[task] = lag if isinstance(lag, int) else None
        for task in sorted({*self._known, *seen}):
            if self._known.get(task) != seen.get(task):
                self._lags.append(LagSample(now_ms, task, seen.get(task)))
        self._known = seen

    def _sample_latencies(self, instances: list[tuple[str, str, Mapping[str, Any]]], now_ms: int) -> None:
        news = self._latency_counter.take((worker, name, metrics.get("latency")) for worker, name, metrics in instances)
        for name, counts in news.items():
            if (task := task_of(name)) is not None:
                samples = self._latencies.setdefault(task, [])
                samples.append((now_ms, counts))
                self._latencies[task] = halved(samples)

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self.sample()


def running(workers: Iterable[WorkerView]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Worker, task and live numbers of each instance that exists; of a zombie and its successor the latter is last."""
    for worker in sorted(workers, key=lambda worker: worker.generation or 0):
        for task, metrics in worker.task_metrics.items():
            yield worker.name, task, metrics
