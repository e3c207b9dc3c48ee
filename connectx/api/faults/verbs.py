"""The verbs of a cluster that break it, in short forms: on a worker by name, on the broker, later, or at random.

Decides what a cluster can be given (its own broker, a gate); how a fault works is decided by `workers`, `kafka` and
`runtime`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectx.api.faults.agenda import After, Agenda
from connectx.api.faults.origin import injected
from connectx.errors import NotEmbeddedError

if TYPE_CHECKING:
    from connectx.api.faults.chaos import Chaos
    from connectx.api.workers import Worker, Workers
    from connectx.history.log import EventLog
    from connectx.kafka.broker.embedded import EmbeddedKafka
    from connectx.kafka.broker.gate import Direction
    from connectx.model.worker_config import WorkerConfig


class FaultVerbs(ABC):
    """What `Cluster` is beside a cluster of connectors: something to break."""

    workers: Workers
    events: EventLog
    _agenda: Agenda
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
        """Kill a worker: no goodbye, no commit."""
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
        """Stop a worker's heartbeats while its tasks go on."""
        self.workers[worker].stall()

    def partition(self, worker: str, direction: Direction = "both") -> None:
        """Cut a worker's connections to Kafka while it runs on, both ways or one. NoGateError without a gate."""
        self.workers[worker].partition(direction)

    def heal(self, worker: str) -> None:
        """End a worker's partition."""
        self.workers[worker].heal()

    def kill_broker(self) -> None:
        """SIGKILL the embedded Kafka; its data and port stay. Nothing if it does not run.

        Raises:
            NotEmbeddedError: Kafka is your own.
        """
        kafka = self._embedded()
        if kafka.alive:
            self.events.append(injected("broker_kill"))
            kafka.kill()

    def restart_broker(self) -> None:
        """Start the embedded Kafka again on its port and its data; one that runs is first ended in an orderly way.

        Returns when it answers. Clients connect again by themselves.

        Raises:
            NotEmbeddedError: Kafka is your own.
            BrokerError, DiskFullError: it did not come back.
        """
        kafka = self._embedded()
        self.events.append(injected("broker_restart"))
        kafka.restart()

    def _embedded(self) -> EmbeddedKafka:
        if self._kafka is None:
            raise NotEmbeddedError(self._config.bootstrap_servers)
        return self._kafka

    def after(self, delay_s: float) -> After:
        """The same verbs, to come in `delay_s` seconds: `cluster.after(5).kill("worker-1")`.

        Each returns at once a handle with `state`, `result()` and `cancel()`; `close` calls off what has not begun.
        """
        return After(self, self._agenda, delay_s)

    def chaos(
        self,
        seed: int,
        kinds: Sequence[str] | None = None,
        *,
        every_s: float = 2.0,
        for_s: float | None = 60.0,
        hold_s: tuple[float, float] | None = None,
        keep: int = 1,
    ) -> Chaos:
        """Break the cluster at random within a `with` block, the same way for the same seed.

        On leaving the block everything is healed, and the group has become stable; an error in the block or Ctrl-C
        ends the faults at once.

        Args:
            seed: decides kinds, times and picks.
            kinds: kill, stop, pause, stall, partition, add_worker, broker_kill; by default all that this cluster can
                be given except broker_kill.
            every_s: one fault in each span of so many seconds.
            for_s: for so many seconds, also when the block is left before; None for as long as the block lasts.
            hold_s: the shortest and longest time until a fault is undone (resumed, healed, restarted, replaced by a
                newcomer); by default from a sixth of to twice the worker's session.timeout.ms.
            keep: so many workers stay healthy at any time.

        Raises:
            ValueError: an unknown kind, or a number that makes no sense.
            NoGateError, NotEmbeddedError: a kind that this cluster cannot be given.
        """
        from connectx.api.faults.chaos import Chaos, chosen_kinds
        from connectx.api.faults.plan import plan

        if every_s <= 0 or keep < 1:
            raise ValueError(f"every_s must be above 0 and keep at least 1, not {every_s} and {keep}")
        session_s = self._config.session_timeout_ms / 1000
        held_s = hold_s or (session_s / 6, session_s * 2)
        chosen = chosen_kinds(kinds, has_gate=self._kafka is not None and self._kafka.gate is not None)
        if "broker_kill" in chosen:
            self._embedded()
        planned = plan(seed, chosen, every_s=every_s, hold_s=held_s)
        return Chaos(self, self._agenda, planned, seed=seed, kinds=chosen, every_s=every_s, for_s=for_s, keep=keep)
