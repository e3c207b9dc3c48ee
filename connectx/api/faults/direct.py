"""Faults of a cluster that come immediately: on a worker by name, on the broker.

`workers`, `kafka` and `runtime` decide how a fault works.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING

from connectx.api.fault_origin import injected
from connectx.errors.clusters import NotEmbeddedError
from connectx.spark import executors

if TYPE_CHECKING:
    from connectx.api.workers import Worker, Workers
    from connectx.history.log import EventLog
    from connectx.kafka.broker.embedded import EmbeddedKafka
    from connectx.kafka.broker.gate import Direction
    from connectx.model.worker_config import WorkerConfig


class DirectFaults(ABC):
    """Faults that come immediately, and the interface for scheduled and random faults."""

    workers: Workers
    events: EventLog
    _config: WorkerConfig
    _kafka: EmbeddedKafka | None

    @abstractmethod
    def add_worker(self, timeout: float | None = 30.0) -> Worker:
        """Start one more worker."""

    @abstractmethod
    def wait_stable(self, timeout: float = 60.0) -> None:
        """Wait until all healthy workers agree."""

    @property
    def kafka(self) -> EmbeddedKafka | None:
        """The embedded broker, None with your own Kafka."""
        return self._kafka

    def kill(self, worker: str) -> None:
        """Kill a worker: no LeaveGroup, no commit."""
        self.workers[worker].kill()

    def stop(self, worker: str) -> bool:
        """Stop a worker gracefully."""
        return self.workers[worker].stop()

    def pause(self, worker: str) -> None:
        """Freeze a worker, connections included."""
        self.workers[worker].pause()

    def resume(self, worker: str) -> None:
        """End a worker's pause or stall."""
        self.workers[worker].resume()

    def stall(self, worker: str) -> None:
        """Stop a worker's heartbeats while its tasks continue."""
        self.workers[worker].stall()

    def partition(self, worker: str, direction: Direction = "both") -> None:
        """Cut a running worker's connections to Kafka, both ways or one. NoGateError without a gate."""
        self.workers[worker].partition(direction)

    def heal(self, worker: str) -> None:
        """End a worker's partition."""
        self.workers[worker].heal()

    def delay(self, worker: str, requests: Collection[str] | None = None, *, for_s: float = 2.0) -> None:
        """Let a worker's next requests to Kafka arrive late, on connections that are cut.

        Args:
            requests: kinds, named as in Kafka's protocol, such as `["EndTxn"]`; all by default.
            for_s: seconds until they arrive.

        Raises:
            NoGateError: there is no gate between the worker and Kafka.
        """
        self.workers[worker].delay(requests, for_s=for_s)

    def kill_broker(self) -> None:
        """SIGKILL the embedded Kafka; its data and port stay. Nothing if it does not run.

        Raises:
            NotEmbeddedError: Kafka is your own.
        """
        kafka = self._embedded()
        if kafka.alive:
            self.events.append(injected("broker_kill"))
            kafka.kill()

    def kill_executor(self) -> None:
        """SIGKILL an executor of Spark, with the tasks that run in it. Spark starts another one.

        Raises:
            NoExecutorError: executors are no processes of this machine; those of local-cluster[...] are.
        """
        oldest = executors.executors()[0]
        self.events.append(injected("executor_kill"))
        executors.kill(oldest)

    def restart_broker(self) -> None:
        """Start the embedded Kafka again on its port and its data; one that runs is first ended in an orderly way.

        Returns when it answers. Clients connect again by themselves.

        Raises:
            NotEmbeddedError: Kafka is your own.
            BrokerError, DiskFullError: it did not start.
        """
        kafka = self._embedded()
        self.events.append(injected("broker_restart"))
        kafka.restart()

    def _embedded(self) -> EmbeddedKafka:
        if self._kafka is None:
            raise NotEmbeddedError(self._config.bootstrap_servers)
        return self._kafka
