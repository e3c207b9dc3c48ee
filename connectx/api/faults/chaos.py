"""Chaos: faults one after another from a seeded plan, undone after a while, with some workers always left healthy.

Decides which worker a planned fault hits and what must be undone first so that enough workers stay healthy. The plan
(`connectx.api.faults.plan`) decides which fault comes when. One thread injects faults from `start` to `stop`. Slow
verbs (a graceful stop, a new worker, the broker's start) run on the cluster's agenda, for other faults to hit.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from connectx.api.fault_origin import caused_by, failed
from connectx.api.faults.after import After
from connectx.api.faults.agenda import Agenda, Scheduled
from connectx.api.faults.plan import KINDS, PlannedFault
from connectx.errors.base import ConnectxError
from connectx.errors.clusters import NoGateError
from connectx.model.causes import FaultOfChaos
from connectx.views import Listed, Shown, html_card, html_table, text_table

if TYPE_CHECKING:
    from types import TracebackType

    from connectx.api.faults.direct import DirectFaults
    from connectx.api.workers import Worker

_NEED_GATE: Final = ("partition", "delay")
_ALIVE: Final = ("starting", "running", "paused", "stalled")
_MORE_WORKERS: Final = 2
_AGAIN_S: Final = 1.0
_STABLE_S: Final = 120.0


@dataclass(slots=True)
class ChaosFault(Shown):
    """A fault as it was carried out.

    Attributes:
        number: its number in the plan.
        kind: kill, stop, pause, stall, partition, delay, add_worker or broker_kill.
        worker: the worker that it hit, None for the broker and while a new worker has no name.
        at_s, until_s: when it came and when it was undone, seconds since the beginning; `until_s` None: never.
        direction: of a partition.
        skipped: why it was left out, empty when it was not.
    """

    number: int
    kind: str
    worker: str | None
    at_s: float
    until_s: float | None = None
    direction: str | None = None
    skipped: str = ""

    def row(self) -> dict[str, object]:
        """One line of a table."""
        what = self.kind if self.direction is None else f"{self.kind} ({self.direction})"
        until = "" if self.until_s is None else f"{self.until_s:.1f}"
        return {
            "fault": self.number,
            "at s": f"{self.at_s:.1f}",
            "kind": what,
            "worker": self.worker,
            "until s": until,
            "left out": self.skipped,
        }


@dataclass(order=True)
class _Undo:
    due_s: float
    number: int
    fault: ChaosFault = field(compare=False)
    action: Callable[[], None] = field(compare=False)


def chosen_kinds(kinds: Sequence[str] | None, *, has_gate: bool) -> tuple[str, ...]:
    """The kinds to use: those asked for, or all that a cluster supports except the broker's death.

    Raises:
        ValueError: an unknown kind, or none.
        NoGateError: partition or delay, without a gate.
    """
    if kinds is None:
        return tuple(kind for kind in KINDS if kind != "broker_kill" and (has_gate or kind not in _NEED_GATE))
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown or not kinds:
        raise ValueError(f"kinds must be some of {', '.join(KINDS)}, not {', '.join(unknown) or 'none'}")
    if not has_gate and set(kinds) & set(_NEED_GATE):
        raise NoGateError("A worker")
    return tuple(kind for kind in KINDS if kind in kinds)


class Chaos:
    """A chaos of one cluster; made by `cluster.chaos(...)`, begun and ended by `with` (or `start` and `stop`)."""

    def __init__(
        self,
        cluster: DirectFaults,
        agenda: Agenda,
        planned: Iterable[PlannedFault],
        *,
        seed: int,
        kinds: tuple[str, ...],
        every_s: float,
        for_s: float | None,
        keep: int,
    ) -> None:
        self.seed = seed
        self.kinds = kinds
        self._cluster = cluster
        self._agenda = agenda
        self._in_background = After(cluster, agenda, 0)
        self._planned = planned
        self._every_s = every_s
        self._for_s = for_s
        self._keep = keep
        self._faults: list[ChaosFault] = []
        self._undos: list[_Undo] = []
        self._delayed: list[Worker] = []
        self._slow: list[Scheduled] = []
        self._restarting: Scheduled | None = None
        self._ending = threading.Event()
        self._loop: Scheduled | None = None
        self._begun_s = 0.0
        self._size = 0

    def start(self) -> Self:
        """Begin to break things, in a thread. Once only."""
        if self._loop is not None:
            raise RuntimeError("this chaos has been started before; make another with cluster.chaos(...)")
        self._size = len([worker for worker in self._cluster.workers if worker.state in _ALIVE])
        self._begun_s = time.monotonic()
        self._loop = self._agenda.add("chaos", None, 0, self._run, self._ending)
        return self

    def stop(self, *, wait: bool = True) -> None:
        """End the faults, undo them, and (with `wait`) replace lost workers and wait until the group is stable.

        Raises:
            WaitTimeoutError: the group does not become stable.
        """
        if self._loop is None:
            return
        self._ending.set()
        self._loop.join()
        while self._undos and not self._agenda.is_closed:  # a cluster that is closed has nothing left to heal
            self._undo(heapq.heappop(self._undos), replace=False)
        for scheduled in self._slow:
            scheduled.join()
        self._slow = []
        for worker in self._delayed:
            if not self._agenda.is_closed and not worker.wait_delivered():
                late = failed("end of delay", "some delayed requests could not be sent to Kafka")
                self._cluster.events.append(late, worker.name)
        self._delayed = []
        if self._loop.error is not None:
            raise self._loop.error
        if wait and not self._agenda.is_closed:
            self._refill()
            self._cluster.wait_stable(_STABLE_S)

    def _refill(self) -> None:
        with caused_by(FaultOfChaos(self.seed)):
            if not self._broker_answers():
                self._cluster.restart_broker()
            while self._count_alive() < self._size:
                self._cluster.add_worker(None)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._for_s is not None and self._loop is not None:
                self._loop.join()
        except BaseException:
            self.stop(wait=False)
            raise
        self.stop(wait=kind is None)

    @property
    def faults(self) -> Listed[ChaosFault]:
        """What was done up to now, in order."""
        return Listed(self._faults, "faults")

    def _now_s(self) -> float:
        return time.monotonic() - self._begun_s

    def _run(self) -> None:
        for planned in self._planned:
            if self._for_s is not None and planned.at_s >= self._for_s:
                self._pass_until(self._for_s)
                return
            if not self._pass_until(planned.at_s):
                return
            self._carry_out(planned)

    def _pass_until(self, at_s: float) -> bool:
        """Let time pass, and undo what is due meanwhile; False when the end has come."""
        while True:
            due_s = min(at_s, self._undos[0].due_s) if self._undos else at_s
            if self._ending.wait(max(0.0, due_s - self._now_s())):
                return False
            if self._undos and self._undos[0].due_s <= self._now_s():
                self._undo(heapq.heappop(self._undos), replace=True)
            elif self._now_s() >= at_s:
                return True

    def _carry_out(self, planned: PlannedFault) -> None:
        fault = ChaosFault(planned.number, planned.kind, None, self._now_s(), direction=planned.direction)
        self._faults.append(fault)
        with self._origin(fault):
            try:
                self._inject(planned, fault)
            except ConnectxError as error:  # its worker ended a moment before, or the cluster is being closed
                self._leave_out(fault, str(error))

    def _leave_out(self, fault: ChaosFault, why: str) -> None:
        fault.skipped = why
        self._cluster.events.append(failed(fault.kind, why), fault.worker)

    def _inject(self, planned: PlannedFault, fault: ChaosFault) -> None:
        match planned.kind:
            case "add_worker" if not self._broker_answers():
                self._leave_out(fault, "the broker is not back yet")
            case "add_worker":
                if self._count_alive() >= self._size + _MORE_WORKERS:
                    self._leave_out(fault, f"there are {self._count_alive()} workers already")
                else:
                    self._add_worker()
            case "broker_kill":
                if not self._broker_answers():
                    self._leave_out(fault, "the broker is not back yet")
                else:
                    self._cluster.kill_broker()
                    self._undo_later(planned, fault, self._restart_broker)
            case _:
                worker = self._target(planned.pick)
                if worker is None:
                    self._leave_out(fault, f"no more than {self._keep} healthy worker(s)")
                else:
                    fault.worker = worker.name
                    self._break(planned, fault, worker)

    def _break(self, planned: PlannedFault, fault: ChaosFault, worker: Worker) -> None:
        match planned.kind:
            case "kill":
                worker.kill()
                self._undo_later(planned, fault, lambda: self._replace(fault))
            case "stop":
                worker.request_stop()
                self._slow.append(self._in_background.stop(worker.name))
                self._undo_later(planned, fault, lambda: self._replace(fault))
            case "pause":
                worker.pause()
                self._undo_later(planned, fault, worker.resume)
            case "stall":
                worker.stall()
                self._undo_later(planned, fault, worker.resume)
            case "partition":
                worker.partition(planned.direction or "both")
                self._undo_later(planned, fault, worker.heal)
            case "delay":
                worker.delay(for_s=planned.hold_s)
                self._undo_later(planned, fault, worker.deliver)
                self._delayed.append(worker)
            case other:
                raise AssertionError(f"{other} is no fault of chaos")

    def _target(self, pick: float) -> Worker | None:
        """A healthy worker that may be broken; others are healed before their time when there is none to spare."""
        while len(healthy := [worker for worker in self._cluster.workers if worker.is_healthy]) <= self._keep:
            held = [undo for undo in self._undos if undo.fault.kind in ("pause", "stall", "partition")]
            if not held:
                return None
            first = min(held, key=lambda undo: undo.number)
            self._undos.remove(first)
            heapq.heapify(self._undos)
            self._undo(first, replace=True)
        return healthy[int(pick * len(healthy))]

    def _undo_later(self, planned: PlannedFault, fault: ChaosFault, action: Callable[[], None]) -> None:
        heapq.heappush(self._undos, _Undo(self._now_s() + planned.hold_s, fault.number, fault, action))

    def _undo(self, undo: _Undo, *, replace: bool) -> None:
        """End a fault. Without `replace` no new worker replaces one that has ended: `stop` counts in the end."""
        fault = undo.fault
        if fault.kind in ("kill", "stop") and not replace:
            return
        with self._origin(fault):
            try:
                undo.action()
            except ConnectxError as error:  # the worker was killed while it was frozen or cut off
                self._cluster.events.append(failed(f"end of {fault.kind}", str(error)), fault.worker)
        fault.until_s = self._now_s()

    def _replace(self, fault: ChaosFault) -> None:
        if self._count_alive() >= self._size:
            return
        if self._broker_answers():
            self._add_worker()
        else:  # a new worker could not read the internal topics
            again = _Undo(self._now_s() + _AGAIN_S, fault.number, fault, lambda: self._replace(fault))
            heapq.heappush(self._undos, again)

    def _add_worker(self) -> None:
        self._slow.append(self._in_background.add_worker(None))

    def _restart_broker(self) -> None:
        self._restarting = self._in_background.restart_broker()
        self._slow.append(self._restarting)

    def _broker_answers(self) -> bool:
        is_back = self._restarting is None or self._restarting.state not in ("waiting", "running")
        return self._cluster.kafka is None or (self._cluster.kafka.alive and is_back)

    def _count_alive(self) -> int:
        return len([worker for worker in self._cluster.workers if worker.state in _ALIVE])

    def _origin(self, fault: ChaosFault) -> AbstractContextManager[None]:
        return caused_by(FaultOfChaos(self.seed, fault.number))

    def _facts(self) -> dict[str, object]:
        state = "not started" if self._loop is None else self._loop.state
        done = Counter(fault.kind for fault in self._faults if not fault.skipped)
        return {
            "seed": self.seed,
            "kinds": ", ".join(self.kinds),
            "one every": f"{self._every_s:g} s",
            "for": "as long as the block lasts" if self._for_s is None else f"{self._for_s:g} s",
            "state": state,
            "faults": ", ".join(f"{count} {kind}" for kind, count in sorted(done.items())) or "none yet",
        }

    def __repr__(self) -> str:
        head = ", ".join(f"{key} {value}" for key, value in self._facts().items())
        return "\n".join(filter(None, [f"Chaos: {head}", text_table([fault.row() for fault in self._faults])]))

    def _repr_html_(self) -> str:
        return html_card("Chaos", self._facts(), html_table([fault.row() for fault in self._faults]))
