"""What is scheduled comes by itself, can be called off, and keeps what came of it."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from connectx.api.fault_origin import caused_by, injected
from connectx.api.faults.agenda import Agenda
from connectx.errors.clusters import ClusterClosedError, UnknownWorkerError
from connectx.history.log import EventLog
from connectx.model.causes import FaultOfChaos
from connectx.model.events import EventKind

LONG_S = 3600.0


@pytest.fixture
def log() -> EventLog:
    return EventLog()


def test_it_comes_by_itself_and_keeps_what_the_verb_returned(log: EventLog) -> None:
    scheduled = Agenda(log).add("stop", "worker-1", 0.01, lambda: True)
    assert scheduled.result(10) is True
    assert scheduled.state == "done"
    assert scheduled.error is None


def test_an_error_lands_in_the_handle_and_in_the_history_and_is_not_printed(
    log: EventLog, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise UnknownWorkerError("worker-9", ["worker-1"])

    scheduled = Agenda(log).add("kill", "worker-9", 0, refuse)
    scheduled.join()
    assert scheduled.state == "failed"
    assert isinstance(scheduled.error, UnknownWorkerError)
    with pytest.raises(UnknownWorkerError):
        scheduled.result(10)
    assert "failed" in repr(scheduled)
    (event,) = log
    assert (event.kind, event.worker, event.data["fault"]) == (EventKind.FAULT_FAILED, "worker-9", "kill")
    assert "worker-9" in event.data["error"]
    assert capfd.readouterr() == ("", "")


def test_what_has_not_begun_can_be_called_off(log: EventLog) -> None:
    came = threading.Event()
    scheduled = Agenda(log).add("kill", "worker-1", LONG_S, came.set)
    assert scheduled.state == "waiting"
    assert scheduled.cancel()
    scheduled.join()
    assert scheduled.state == "cancelled"
    assert not came.is_set()
    with pytest.raises(CancelledError):
        scheduled.result(10)


def test_closing_calls_off_what_waits_and_waits_for_what_runs(log: EventLog) -> None:
    agenda, begun, may_end = Agenda(log), threading.Event(), threading.Event()

    def last() -> str:
        begun.set()
        assert may_end.wait(30)
        return "over"

    running = agenda.add("stop", "worker-1", 0, last)
    waiting = agenda.add("kill", "worker-1", LONG_S, last)
    begun.wait(30)
    closing = threading.Thread(target=agenda.close)
    closing.start()
    waiting.join()
    assert running.state == "running"
    may_end.set()
    closing.join(30)
    assert (running.state, waiting.state) == ("done", "cancelled")
    with pytest.raises(ClusterClosedError):
        agenda.add("kill", "worker-1", 0, last)


def test_what_lasts_is_told_by_its_event_when_it_is_called_off(log: EventLog) -> None:
    begun, ending = threading.Event(), threading.Event()

    def last() -> bool:
        begun.set()
        return ending.wait(30)

    scheduled = Agenda(log).add("chaos", None, 0, last, ending)
    begun.wait(30)
    assert not scheduled.cancel()
    assert scheduled.result(10) is True


def test_a_fault_tells_whom_it_comes_from_also_from_another_thread(log: EventLog) -> None:
    agenda = Agenda(log)
    log.append(injected("kill"), "worker-1")
    with caused_by(FaultOfChaos(7, 3)):
        agenda.add("kill", "worker-2", 0, lambda: log.append(injected("kill", tasks=()), "worker-2")).join()
    log.append(injected("kill"), "worker-3")
    by_hand, by_chaos, after = log
    assert by_chaos.data == {"fault": "kill", "tasks": [], "chaos_seed": 7, "chaos_fault": 3}
    assert by_chaos.cause == "fault 3 of the chaos with seed 7"
    assert by_hand.data == after.data == {"fault": "kill"}
    assert by_hand.cause == "kill was asked for"
