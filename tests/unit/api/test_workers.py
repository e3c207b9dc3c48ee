"""What the history says of a fault, whichever thread it hits a worker from; and what a row says of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from connectx.api.fault_origin import caused_by
from connectx.api.workers import Worker
from connectx.core.rules import BrokenRule
from connectx.errors.clusters import NoGateError
from connectx.history.log import EventLog
from connectx.kafka.broker.gate import Direction, Gate
from connectx.model.causes import FaultOfChaos
from connectx.model.ids import TaskId
from connectx.recording.file import Recording
from connectx.runtime.worker_handle import Isolation, WorkerState, no_op
from tests.support.waiting import until


class Elsewhere:
    """A live worker that tells of faults from a thread of its own, as the one of a process does."""

    isolation: Isolation = "process"
    error: str | None = None
    url = "http://127.0.0.1:1/"

    def __init__(self) -> None:
        self.name = "worker-1"
        self.state = WorkerState.RUNNING

    @property
    def alive(self) -> bool:
        return self.state is not WorkerState.KILLED

    def view(self) -> Mapping[str, Any]:
        return {"state": "stable"}

    def heartbeat_ms(self) -> int | None:
        return None

    def task_metrics(self) -> dict[TaskId, Mapping[str, object]]:
        return {TaskId("lines-in", 0): {}}

    def check(self, timeout_s: float = 10.0) -> tuple[BrokenRule, ...]:
        return ()

    def recordings(self, reason: str) -> tuple[Recording, ...]:
        return ()

    def start(self) -> None: ...

    def request_stop(self) -> None: ...

    def stop(self, timeout_s: float = 30.0) -> bool:
        return True

    def kill(self, on_fault: Callable[[], None] = no_op) -> None:
        self._call_elsewhere(on_fault)
        self.state = WorkerState.KILLED

    def freeze(self, *, tasks: bool, on_fault: Callable[[], None] = no_op) -> bool:
        self._call_elsewhere(on_fault)
        self.state = WorkerState.PAUSED if tasks else WorkerState.STALLED
        return True

    def thaw(self) -> bool:
        self.state = WorkerState.RUNNING
        return True

    def _call_elsewhere(self, on_fault: Callable[[], None]) -> None:
        thread = threading.Thread(target=on_fault)
        thread.start()
        thread.join()


def nothing_lost(worker: str) -> None:
    """No work of a dead worker waits for anybody."""


def test_a_fault_that_another_thread_tells_of_keeps_its_origin() -> None:
    log = EventLog()
    worker = Worker(Elsewhere(), None, log.append, nothing_lost, lambda: 0)
    with caused_by(FaultOfChaos(7, 1)):
        worker.pause()
        worker.resume()
        worker.stall()
        worker.resume()
        worker.kill()
    assert [event.data["fault"] for event in log] == ["pause", "resume", "stall", "resume", "kill"]
    assert {(event.data["chaos_seed"], event.data["chaos_fault"], event.cause) for event in log} == {
        (7, 1, "fault 1 of the chaos with seed 7")
    }
    assert all(event.data["tasks"] == ["lines-in-0"] for event in log)


CUTS: tuple[tuple[Direction, str], ...] = (("both", "running, partitioned"), ("in", "running, partitioned (in)"))


def test_a_cut_is_shown_beside_the_state_and_outlives_a_pause() -> None:
    gate = Gate()
    gate.start("127.0.0.1", 9)
    worker = Worker(Elsewhere(), gate, EventLog().append, nothing_lost, lambda: 0)
    for direction, shown in CUTS:
        worker.partition(direction)
        assert (worker.state, worker.is_healthy, worker.row()["state"]) == ("running", False, shown)
    worker.pause()
    worker.resume()
    assert worker.cut == "in"
    worker.heal()
    assert worker.cut is None
    worker.partition("out")
    worker.kill()
    assert worker.row()["state"] == "killed"
    gate.close()


def test_tasks_in_the_bulk_lane_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Elsewhere()
    tasks = [TaskId("lines-in", 0), TaskId("lines-in", 1)]
    view = {"tasks": [{"connector": task.connector, "task": task.task} for task in tasks]}
    metrics = dict(zip(tasks, ({"lane": "bulk"}, {"lane": "tail"}), strict=True))
    monkeypatch.setattr(handle, "view", lambda: view)
    monkeypatch.setattr(handle, "task_metrics", lambda: metrics)
    worker = Worker(handle, None, EventLog().append, nothing_lost, lambda: 0)
    assert worker.row()["tasks"] == "lines-in-0 (bulk), lines-in-1"


def test_a_healed_worker_is_healthy_and_an_unknown_direction_is_refused() -> None:
    gate = Gate()
    gate.start("127.0.0.1", 9)
    worker = Worker(Elsewhere(), gate, EventLog().append, nothing_lost, lambda: 0)
    worker.partition("in")
    worker.heal()
    assert (worker.cut, worker.is_healthy, worker.row()["state"]) == (None, True, "running")
    with pytest.raises(ValueError, match="both, in or out, not 'sideways'"):
        worker.partition("sideways")  # type: ignore[arg-type]
    gate.close()


def test_a_delay_is_recorded_with_its_end_and_the_origin_that_it_had() -> None:
    gate, log = Gate(), EventLog()
    gate.start("127.0.0.1", 9)
    worker = Worker(Elsewhere(), gate, log.append, nothing_lost, lambda: 0)
    with pytest.raises(ValueError, match="not Flood"):
        worker.delay(["Flood"])
    with pytest.raises(ValueError, match="at least 0, not -1"):
        worker.delay(for_s=-1)
    with caused_by(FaultOfChaos(7, 1)):
        worker.delay(["EndTxn"], for_s=0)
    until(lambda: len(log) == 2, "both events")
    gate.close()
    of_chaos = {"chaos_seed": 7, "chaos_fault": 1}
    assert [event.data for event in log] == [
        {"fault": "delay", "requests": ["EndTxn"], "for_s": 0, "tasks": ["lines-in-0"], **of_chaos},
        {"fault": "deliver", "requests": {}, "for_s": 0, "tasks": ["lines-in-0"], **of_chaos},
    ]
    assert {(event.worker, event.cause) for event in log} == {("worker-1", "fault 1 of the chaos with seed 7")}


def test_without_a_gate_nothing_can_be_cut_and_nothing_is_recorded() -> None:
    log = EventLog()
    worker = Worker(Elsewhere(), None, log.append, nothing_lost, lambda: 0)
    for verb in (worker.partition, worker.delay):
        with pytest.raises(NoGateError, match="connections of worker-1 to Kafka cannot be cut"):
            verb()
    worker.heal()
    assert list(log) == []
