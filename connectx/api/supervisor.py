"""Starts, observes and ends the workers of a cluster.

Decides the order of starting and stopping, and when a group counts as stable. It sends nothing on behalf of a
living worker. Kafka Connect has no such class, because its workers are started one by one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from connectx.api.workers import Worker, Workers
from connectx.errors.clusters import ClusterClosedError, WorkerFailedError, WorkerStoppedError
from connectx.errors.plugins import ConfigError
from connectx.errors.rest import WaitTimeoutError
from connectx.history.folds.lost import Grace, LostWork, Remains
from connectx.model.clock import Clock
from connectx.model.group import ProtocolVersion
from connectx.model.worker_config import WorkerConfig
from connectx.model.worker_keys import WorkerKeys
from connectx.plugins.registry import worker_config

if TYPE_CHECKING:
    from connectx.history.log import EventLog
    from connectx.kafka.broker.gate import Gate
    from connectx.runtime.worker_handle import WorkerHandle

STABLE_S = 60.0
_SHARED: Final = frozenset(
    key.name
    for key in (
        WorkerKeys.bootstrap_servers,
        WorkerKeys.group_id,
        WorkerKeys.transactional_id,
        WorkerKeys.config_storage_topic,
        WorkerKeys.offset_storage_topic,
        WorkerKeys.status_storage_topic,
    )
)
"""Keys that all workers of a group share."""


class Supervisor:
    """The workers of one cluster from start to end."""

    def __init__(
        self,
        workers: Workers,
        make: Callable[[str, WorkerConfig], WorkerHandle],
        gate: Gate | None,
        events: EventLog,
        config: WorkerConfig,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._workers = workers
        self._numbers = itertools.count(1)  # several threads may add workers
        self._make = make
        self._gate = gate
        self._events = events
        self._config = config
        delay_ms = 0 if config.connect_protocol == (ProtocolVersion.EAGER,) else config.scheduled_rebalance_max_delay_ms
        self._grace = Grace(config.session_timeout_ms, config.heartbeat_interval_ms, delay_ms)
        self._remains: dict[str, Remains] = {}  # of workers that are dead
        self._ending = False

    def new_worker(self, config: Mapping[str, Any] | None = None) -> WorkerHandle:
        """Create and register a worker without starting it; `config` are its own settings, over those of the cluster.

        Raises:
            ConfigError: settings are wrong, or must be the same for all workers of a group.
            ClusterClosedError: the cluster is being closed.
        """
        own = dict(config or {})
        shared = sorted(key for key in own if key in _SHARED)
        if shared:
            raise ConfigError(
                [f"{key} must be the same in all workers of a group" for key in shared],
                next_step="Give it to the cluster, or start another one.",
            )
        settings = worker_config({**self._config.given, **own}) if own else self._config
        handle = self._make(f"worker-{next(self._numbers)}", settings)
        self._workers.add(Worker(handle, self._gate, self._events.append, self._lost_work, self._clock))
        if self._ending:  # checked after adding, so that either this or `end_starting` sees the other
            handle.request_stop()
            self._check_not_ending()
        return handle

    def _lost_work(self, worker: str) -> LostWork | None:
        remains = self._remains.get(worker) or Remains(worker, self._grace)
        if not remains.is_over:
            remains = self._remains[worker] = remains.then(self._events.since(remains.seq))
        return remains.work

    def start(self, count: int) -> None:
        """Start `count` workers side by side and wait until they agree; if one cannot start, all are ended."""
        handles = [self.new_worker() for _ in range(count)]
        with ThreadPoolExecutor(count) as pool:
            starting = [pool.submit(worker.start) for worker in handles]
            try:
                for started in starting:
                    started.result()
            except BaseException:
                for worker in handles:
                    worker.kill()  # the pool waits for the others
                raise
        self.wait_stable(list(self._workers), STABLE_S)

    def end_starting(self) -> None:
        """End workers that have not started yet, and refuse new ones, so that waits for them end."""
        self._ending = True
        for worker in self._workers:
            if worker.state == "starting":
                worker.request_stop()

    def _check_not_ending(self) -> None:
        if self._ending:
            raise ClusterClosedError("This cluster is closed.", next_step="Make a new one with cx.Cluster().")

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
            ClusterClosedError: the cluster is being closed.
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
                self._check_not_ending()
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise WaitTimeoutError(
                        f"The group {self._config.group_id!r} did not become stable within {timeout_s:g} s.",
                        next_step="See cluster.events for what the workers wait for.",
                    )
                news.get(min(left_s, 0.05))
