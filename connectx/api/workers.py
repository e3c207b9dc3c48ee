"""Workers of a cluster, for its user: what they run, and the faults that can be injected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from connectx.api.fault_origin import injected
from connectx.errors.clusters import NoGateError, UnknownWorkerError, WorkerStoppedError
from connectx.kafka.broker.request_kinds import request_kinds
from connectx.model.clock import Clock
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.views import Form, Listed, text_table

if TYPE_CHECKING:
    from connectx.core.rules import BrokenRule
    from connectx.history.folds.lost import LostWork
    from connectx.kafka.broker.gate import Direction, Gate
    from connectx.recording.file import Recording
    from connectx.runtime.worker_handle import WorkerHandle


class Worker:
    """One worker: its state, and verbs that inject faults. Get it by `cluster.workers["worker-1"]`.

    Faults of a worker in threads act on the network: the gate in front of the embedded Kafka drops or freezes its
    connections. With `faults=False` or your own Kafka there is no gate, so `pause` leaves the
    client libraries' own threads alive (a paused sink consumer still sends heartbeats) and `partition` is refused.
    """

    def __init__(
        self,
        handle: WorkerHandle,
        gate: Gate | None,
        record: Callable[[Transition, str | None], object],
        lost_work: Callable[[str], LostWork | None],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._handle = handle
        self._gate = gate
        # Threads cannot freeze or drop the sockets of client libraries: the gate does it for them.
        self._holds_sockets = gate if handle.isolation == "thread" else None
        self._record = record
        self._lost_work = lost_work
        self._cut: Direction | None = None
        self._delays: list[threading.Event] = []

    @property
    def name(self) -> str:
        """Its name in this cluster: worker-1, worker-2, ..."""
        return self._handle.name

    @property
    def state(self) -> str:
        """starting, running, paused, stalled, stopping, stopped, killed or failed."""
        return self._handle.state.value

    @property
    def cut(self) -> Direction | None:
        """The direction in which it is cut off from Kafka by `partition`: both, in or out; None when not, or ended.

        Independent of `state`: a worker that is cut off continues to run.
        """
        return self._cut if self._handle.alive else None

    @property
    def is_healthy(self) -> bool:
        """True while it runs and is not cut off."""
        return self.state == "running" and self._cut is None

    @property
    def url(self) -> str:
        """Its REST URL on loopback, with a trailing slash."""
        return self._handle.url

    @property
    def error(self) -> str | None:
        """Why it failed, if it did."""
        return self._handle.error

    @property
    def tasks(self) -> list[str]:
        """Tasks assigned to it, by its own view, like "orders-0"; none once it has ended."""
        return [str(TaskId(task["connector"], task["task"])) for task in self.view.get("tasks", [])]

    @property
    def connectors(self) -> list[str]:
        """Connectors assigned to it, by its own view; none once it has ended."""
        return list(self.view.get("connectors", []))

    @property
    def generation(self) -> int | None:
        """Latest group generation of which it was a member."""
        generation = self.view.get("generation")
        return None if generation is None else int(generation)

    @property
    def heartbeat_ms(self) -> int | None:
        """When the group last answered one of its heartbeats, milliseconds since 1970; None before the first.

        A worker that is stalled, cut off or ended gets no newer one. During a rebalance no worker sends heartbeats.
        """
        return self._handle.heartbeat_ms()

    @property
    def is_leader(self) -> bool:
        """True when it leads the group, by its own view."""
        view = self.view
        return view.get("leader") is not None and view.get("leader") == view.get("member_id")

    @property
    def task_metrics(self) -> dict[str, Mapping[str, object]]:
        """Live numbers of the tasks that run in it: task to records, lag, offsets."""
        return {str(task): metrics for task, metrics in self._handle.task_metrics().items()}

    @property
    def view(self) -> Mapping[str, Any]:
        """The core's view of its place in the group: state, generation, leader, connectors, tasks, config_offset.

        Empty once it has ended.
        """
        return self._handle.view() if self._handle.alive else {}

    @property
    def lost(self) -> LostWork | None:
        """Work of a dead worker that no other worker runs yet, with the time until it moves; None otherwise."""
        return self._lost_work(self.name) if self.is_dead else None

    @property
    def is_dead(self) -> bool:
        """True when it ended without leaving the group: it was killed, or has failed."""
        return self.state in ("killed", "failed")

    def check(self) -> Listed[BrokenRule]:
        """Check the rules between the parts of its core; empty if all hold. A broken rule is a bug of connectx.

        Raises:
            WorkerStoppedError: it has ended, or its core does not answer, as while it is paused.
        """
        return Listed(self._handle.check(), "broken rules of the worker's core")

    def recordings(self, reason: str) -> tuple[Recording, ...]:
        """Return the latest steps of its core, its tasks and its clients, without secrets; empty if it keeps none."""
        return self._handle.recordings(reason)

    def kill(self) -> None:
        """End it without leaving the group: connections drop, nothing is committed or aborted. Nothing if it has ended.

        It stays cut off permanently, so that no later request of its threads reaches Kafka.
        """
        if not self._handle.alive:
            return

        record = self._recorder("kill")

        def hit() -> None:
            record()
            if self._holds_sockets is not None:
                self._holds_sockets.cut(self.name)

        self._handle.kill(hit)

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Stop it gracefully: its work commits, then it leaves the group. False if work did not stop in time."""
        self.request_stop()
        return self._handle.stop(timeout_s)

    def request_stop(self) -> None:
        """Begin to stop it gracefully, without waiting. Nothing if it is ending or has ended."""
        if self.state in ("paused", "stalled"):
            self.resume()
        if self.state in ("starting", "running"):
            self._injected("stop")
            self._handle.request_stop()

    def pause(self) -> None:
        """Freeze it with its connections, like SIGSTOP. After `resume` it continues as a zombie.

        Raises:
            WorkerStoppedError: it has ended.
        """
        self._check_alive()
        if self.state == "paused":
            return
        if self._handle.freeze(tasks=True, on_fault=self._recorder("pause")) and self._holds_sockets is not None:
            self._holds_sockets.hold(self.name)

    def resume(self) -> None:
        """End `pause` or `stall`; WorkerStoppedError if it has ended."""
        self._check_alive()
        if self.state not in ("paused", "stalled"):
            return
        self._injected("resume")
        if self._holds_sockets is not None:
            self._holds_sockets.release(self.name)
        self._handle.thaw()

    def stall(self) -> None:
        """Freeze only its communication with the group: heartbeats stop, tasks continue (the zombie of KIP-618).

        Does nothing while it is paused. WorkerStoppedError if it has ended.
        """
        self._check_alive()
        if self.state in ("paused", "stalled"):
            return
        self._handle.freeze(tasks=False, on_fault=self._recorder("stall"))

    def partition(self, direction: Direction = "both") -> None:
        """Cut its TCP connections to Kafka until `heal`, while it continues to run; a second cut replaces the first.

        Only Kafka is cut: its REST stays reachable on loopback, and so do the systems that its connectors use.

        Args:
            direction: `both`: connections are reset and new ones refused. `in`: answers of Kafka do not arrive,
                and the worker's requests do. `out`: the other way round. Delayed bytes are not lost, they
                arrive after `heal`, as on a link that was slow.

        Raises:
            NoGateError: there is no gate between it and Kafka.
            WorkerStoppedError: it has ended.
        """
        self._check_alive()
        if self._gate is None:
            raise NoGateError(self.name)
        if direction not in ("both", "in", "out"):
            raise ValueError(f"direction must be both, in or out, not {direction!r}")
        if self._cut == direction:
            return
        self._injected("partition", direction=direction)
        self._gate.cut(self.name, direction)
        self._cut = direction

    def heal(self) -> None:
        """End `partition`; nothing if it is not cut off. WorkerStoppedError if it has ended."""
        self._check_alive()
        if self._gate is None or self._cut is None:
            return
        self._injected("heal", direction=self._cut)
        self._gate.heal(self.name)
        self._cut = None

    def delay(self, requests: Collection[str] | None = None, *, for_s: float = 2.0) -> None:
        """Let its next requests to Kafka arrive late, on connections that are cut meanwhile.

        On each of its connections the next request is held, and the connection is reset. The worker tries again on a
        new one, which is not delayed. After `for_s` seconds Kafka gets the requests, even if the worker has ended by
        then; their answers are dropped. A broker's long garbage collection or a switch's failover does the same
        (KIP-890).

        Args:
            requests: kinds of requests to hold, named as in Kafka's protocol, such as `["EndTxn"]`; all by default.
            for_s: seconds from now until they arrive.

        Raises:
            ValueError: an unknown kind of request, or a negative `for_s`.
            NoGateError: there is no gate between it and Kafka.
            WorkerStoppedError: it has ended.
        """
        self._check_alive()
        if self._gate is None:
            raise NoGateError(self.name)
        if for_s < 0:
            raise ValueError(f"for_s must be at least 0, not {for_s}")
        kinds = request_kinds(requests)
        context = copy_context()
        delivered = threading.Event()

        def arrived(requests: Mapping[str, int]) -> None:
            context.run(self._injected, "deliver", requests=dict(requests), for_s=for_s)
            delivered.set()

        self._delays = [delay for delay in self._delays if not delay.is_set()] + [delivered]
        self._injected("delay", requests=None if requests is None else tuple(sorted(requests)), for_s=for_s)
        self._gate.delay(self.name, kinds, for_s, arrived)

    def deliver(self) -> None:
        """End every `delay` now: Kafka gets the delayed requests."""
        if self._gate is not None:
            self._gate.deliver(self.name)

    def wait_delivered(self, timeout_s: float = 30.0) -> bool:
        """Wait until everything that `delay` held was sent to Kafka. False if the time was too short."""
        deadline = time.monotonic() + timeout_s
        return all(delay.wait(max(0.0, deadline - time.monotonic())) for delay in self._delays)

    def _check_alive(self) -> None:
        if not self._handle.alive:
            raise WorkerStoppedError(self.name, f"it is {self.state}")

    def _recorder(self, fault: str) -> Callable[[], None]:
        """Records the fault with the origin that it has now, whichever thread calls it."""
        context = copy_context()
        return lambda: context.run(self._injected, fault)

    def _injected(self, fault: str, **details: Any) -> None:
        tasks = tuple(str(task) for task in self._handle.task_metrics())
        self._record(injected(fault, **details, tasks=tasks), self.name)

    def handover(self, *, any_left: bool) -> str:
        """Describe where the work of an ended worker is; `any_left`: another worker can take it over."""
        if (lost := self.lost) is None:  # another worker has it; the status topic shows it in a moment
            return f"{self.name} has ended; its work is being handed over"
        return lost.sentence(self._clock(), any_left=any_left)

    def __repr__(self) -> str:
        role = ", leader" if self.is_leader else ""
        role += "" if self.cut is None else f", partitioned ({self.cut})"
        work = ", ".join([*self.connectors, *self.tasks]) or "nothing"
        return f"<Worker {self.name} {self.state}{role}, generation {self.generation}, runs {work}>"

    def _repr_html_(self) -> str:
        return Form(f"Worker {self.name}", self.row()).html

    def row(self) -> dict[str, object]:
        """One line of a table of workers, with tasks in bulk marked.

        A dead worker shows the work that it lost, until other workers run it.
        """
        if (lost := self.lost) is not None:
            return {
                "worker": self.name,
                "state": f"{self.state}, {lost.remaining(self._clock())}",
                "generation": None,
                "connectors": ", ".join(f"{name} (lost)" for name in lost.connectors),
                "tasks": ", ".join(f"{task} (lost)" for task in lost.tasks),
                "url": self.url,
            }
        states = [self.state]
        if self.cut is not None:
            states.append("partitioned" if self.cut == "both" else f"partitioned ({self.cut})")
        if (in_group := self.view.get("state", "stable")) != "stable":
            states.append(in_group)
        bulk = {task for task, metrics in self.task_metrics.items() if metrics.get("lane") == "bulk"}
        return {
            "worker": self.name + (" (leader)" if self.is_leader else ""),
            "state": ", ".join(states),
            "generation": self.generation,
            "connectors": ", ".join(self.connectors),
            "tasks": ", ".join(f"{task} (bulk)" if task in bulk else task for task in self.tasks),
            "url": self.url,
        }


class Workers:
    """The workers of a cluster in the order they were added; iterate, or index by name or position."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}

    def add(self, worker: Worker) -> None:
        """Append a worker, or replace the one of its name."""
        self._workers[worker.name] = worker

    def __getitem__(self, key: str | int) -> Worker:
        if isinstance(key, int):
            return list(self._workers.values())[key]
        if key not in self._workers:
            raise UnknownWorkerError(key, list(self._workers))
        return self._workers[key]

    def name_of(self, worker_id: str) -> str:
        """Name of the worker that a status calls by its host:port; the id itself for an unknown worker."""
        worker = self._of_id(worker_id)
        return worker_id if worker is None else worker.name

    def lost_on(self, worker_id: str) -> str | None:
        """Why the work that a status places on a worker (host:port) is lost; None while the worker lives.

        One that was stopped wrote UNASSIGNED, which is ignored for a task that began under the same generation
        (KAFKA-12525), or that had to be cancelled.
        """
        worker = self._of_id(worker_id)
        if worker is None or not (worker.is_dead or worker.state == "stopped"):
            return None
        return worker.handover(any_left=any(other.state == "running" for other in self))

    def _of_id(self, worker_id: str) -> Worker | None:
        """The newest worker of that address: a port may be used again."""
        return next((w for w in reversed(list(self)) if w.url and urlsplit(w.url).netloc == worker_id), None)

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._workers.values()))

    def __len__(self) -> int:
        return len(self._workers)

    def __contains__(self, name: object) -> bool:
        return name in self._workers

    def __repr__(self) -> str:
        return text_table([worker.row() for worker in self])

    def _repr_html_(self) -> str:
        return Form("Workers", {}, [[worker.row() for worker in self]]).html
