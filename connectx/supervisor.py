"""Starts, watches and ends the workers of a cluster; what runs inside them is their own business.

Decides the order of starting and stopping, and when a group counts as stable. It never speaks for a worker that lives.
There is no class like it in Kafka Connect, whose workers are started one by one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from connectx.errors import WaitTimeoutError, WorkerFailedError, WorkerStoppedError
from connectx.workers import Worker, Workers

if TYPE_CHECKING:
    from connectx.history.log import EventLog
    from connectx.kafka.gate import Gate
    from connectx.runtime.live import LiveWorker

STABLE_S = 60.0


class Supervisor:
    """The workers of one cluster from start to end.

    Args:
        workers: what it fills.
        make: a new worker for a name; starts nothing.
        gate: the gate before the embedded Kafka, if there is one.
        events: the history.
        group_id: the group, for messages.
    """

    def __init__(
        self, workers: Workers, make: Callable[[str], LiveWorker], gate: Gate | None, events: EventLog, group_id: str
    ) -> None:
        self._workers = workers
        self._numbers = itertools.count(1)  # several threads may ask for a newcomer
        self._make = make
        self._gate = gate
        self._events = events
        self._group_id = group_id

    def new_worker(self) -> LiveWorker:
        """A worker that is known, and not started."""
        live = self._make(f"worker-{next(self._numbers)}")
        self._workers.add(Worker(live, self._gate, self._events.append))
        return live

    def start(self, count: int) -> None:
        """Start `count` workers side by side and wait until they agree; when one cannot start, none is left."""
        live = [self.new_worker() for _ in range(count)]
        with ThreadPoolExecutor(count) as pool:
            starting = [pool.submit(worker.start) for worker in live]
            try:
                for started in starting:
                    started.result()
            except BaseException:
                for worker in live:
                    worker.kill()  # the pool waits for the others
                raise
        self.wait_stable(list(self._workers), STABLE_S)

    def stop(self) -> None:
        """Stop all workers gracefully, side by side."""
        workers = list(self._workers)
        try:
            for worker in workers:
                with suppress(WorkerStoppedError):
                    worker.heal()  # cut off, it could neither commit nor leave
                worker.request_stop()
            try:
                with ThreadPoolExecutor(max(1, len(workers))) as pool:
                    list(pool.map(Worker.stop, workers))
            except RuntimeError:  # at the end of the interpreter no thread can be started
                for worker in workers:
                    worker.stop()
        except BaseException:
            for worker in workers:
                worker.kill()
            raise

    def wait_stable(self, workers: list[Worker], timeout_s: float) -> None:
        """Wait until these workers agree on one generation and have started their work.

        Raises:
            WorkerFailedError: one of them has failed.
            WaitTimeoutError: not within `timeout_s` seconds.
        """

        def settled() -> bool:
            views = [worker.view for worker in workers]
            failed = [worker for worker in workers if worker.state == "failed"]
            if failed:
                raise WorkerFailedError(failed[0].name, failed[0].error or "")
            states = {view.get("state") for view in views}
            return states == {"stable"} and len({view["generation"] for view in views}) == 1

        deadline = time.monotonic() + timeout_s
        with self._events.subscribe() as news:
            while not settled():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise WaitTimeoutError(
                        f"The group {self._group_id!r} did not become stable within {timeout_s:g} s.",
                        next_step="See cluster.events for what the workers wait for.",
                    )
                news.get(min(left_s, 0.05))
