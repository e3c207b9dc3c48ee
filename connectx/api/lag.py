"""How far the sinks of a cluster are behind, looked at once a second and kept where it changes.

Decides nothing: each task knows its own lag; a history holds what happened, and a lag that grows is nothing that
happens. It has no counterpart in Kafka Connect, whose workers show the number as it is now, as a metric.
"""

from __future__ import annotations

import threading
from collections import deque

from connectx.api.workers import Workers
from connectx.history.folds.rates import LagSample
from connectx.history.wording import task_of
from connectx.model.clock import Clock
from connectx.model.ids import TaskId

_EVERY_S = 1.0
_KEPT = 100_000


class LagRecorder:
    """Looks at the tasks of workers, in a thread of its own.

    Args:
        workers: those to look at.
        clock: the clock of the history.
    """

    def __init__(self, workers: Workers, clock: Clock) -> None:
        self._workers = workers
        self._clock = clock
        self._samples: deque[LagSample] = deque(maxlen=_KEPT)
        self._known: dict[TaskId, int | None] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connectx-lag", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; what was seen stays."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def samples(self) -> list[LagSample]:
        """What was seen, oldest first."""
        return list(self._samples.copy())

    def sample(self) -> None:
        """Look once."""
        seen: dict[TaskId, int | None] = {}
        for worker in sorted(self._workers, key=lambda worker: worker.generation or 0):  # of two, the newer one counts
            for name, metrics in worker.task_metrics.items():
                task, lag = task_of(name), metrics.get("lag")
                if task is not None and "lag" in metrics:
                    seen[task] = lag if isinstance(lag, int) else None
        now_ms = self._clock()
        for task in sorted({*self._known, *seen}):
            if self._known.get(task) != seen.get(task):
                self._samples.append(LagSample(now_ms, task, seen.get(task)))
        self._known = seen

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self.sample()
