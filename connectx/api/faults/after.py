"""Faults with a delay: `cluster.after(5).kill("worker-1")`. The agenda runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from connectx.api.fault_origin import caused_by
from connectx.api.faults.agenda import Agenda, Scheduled
from connectx.api.faults.direct import DirectFaults
from connectx.model.causes import FaultScheduled
from connectx.views import Form

if TYPE_CHECKING:
    from connectx.kafka.broker.gate import Direction


class After:
    """The fault verbs of a cluster; each takes effect `delay_s` seconds after its call."""

    def __init__(self, cluster: DirectFaults, agenda: Agenda, delay_s: float) -> None:
        self._cluster = cluster
        self._agenda = agenda
        self._delay_s = delay_s

    def kill(self, worker: str) -> Scheduled:
        """Later: `cluster.kill`."""
        return self._later("kill", worker, lambda: self._cluster.kill(worker))

    def stop(self, worker: str) -> Scheduled:
        """Later: `cluster.stop`."""
        return self._later("stop", worker, lambda: self._cluster.stop(worker))

    def pause(self, worker: str) -> Scheduled:
        """Later: `cluster.pause`."""
        return self._later("pause", worker, lambda: self._cluster.pause(worker))

    def resume(self, worker: str) -> Scheduled:
        """Later: `cluster.resume`."""
        return self._later("resume", worker, lambda: self._cluster.resume(worker))

    def stall(self, worker: str) -> Scheduled:
        """Later: `cluster.stall`."""
        return self._later("stall", worker, lambda: self._cluster.stall(worker))

    def partition(self, worker: str, direction: Direction = "both") -> Scheduled:
        """Later: `cluster.partition`."""
        return self._later("partition", worker, lambda: self._cluster.partition(worker, direction))

    def heal(self, worker: str) -> Scheduled:
        """Later: `cluster.heal`."""
        return self._later("heal", worker, lambda: self._cluster.heal(worker))

    def delay(self, worker: str, requests: Collection[str] | None = None, *, for_s: float = 2.0) -> Scheduled:
        """Later: `cluster.delay`."""
        return self._later("delay", worker, lambda: self._cluster.delay(worker, requests, for_s=for_s))

    def add_worker(self, timeout: float | None = 30.0) -> Scheduled:
        """Later: `cluster.add_worker`; its result is the worker."""
        return self._later("add_worker", None, lambda: self._cluster.add_worker(timeout))

    def kill_broker(self) -> Scheduled:
        """Later: `cluster.kill_broker`."""
        return self._later("broker_kill", None, self._cluster.kill_broker)

    def kill_executor(self) -> Scheduled:
        """Later: `cluster.kill_executor`."""
        return self._later("executor_kill", None, self._cluster.kill_executor)

    def restart_broker(self) -> Scheduled:
        """Later: `cluster.restart_broker`."""
        return self._later("broker_restart", None, self._cluster.restart_broker)

    def _later(self, fault: str, worker: str | None, verb: Callable[[], object]) -> Scheduled:
        if worker is not None:
            self._cluster.workers[worker]  # an unknown name fails now, not later

        def act() -> object:
            if self._delay_s <= 0:
                return verb()
            with caused_by(FaultScheduled(self._delay_s)):
                return verb()

        return self._agenda.add(fault, worker, self._delay_s, act)

    def __repr__(self) -> str:
        return f"<After {self._delay_s:g} s: kill, stop, pause, resume, stall, partition, heal, delay, ...>"

    def _repr_html_(self) -> str:
        verbs = "kill, stop, pause, resume, stall, partition, heal, delay, add_worker, kill_broker, restart_broker"
        return Form("After", {"seconds": f"{self._delay_s:g}", "verbs": verbs}).html
