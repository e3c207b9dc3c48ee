"""Fencing rounds: what is fenced and recorded when (KIP-618), who gets which answer, and what ends a round."""

from __future__ import annotations

import pytest

from connectx.core import verbs
from connectx.core.messages import (
    Done,
    FenceProducers,
    InitTaskProducer,
    ReadConfigToEnd,
    Refused,
    SetTimer,
    TaskPrepared,
    TimerFired,
    WorkerStep,
    WriteConfigRecords,
)
from connectx.core.timer_keys import TaskCountRetry, TaskFencingRetry, WorkerTimer
from connectx.model.config_records import ConfigRecord, ConnectorConfigRecord, TaskCountRecord
from connectx.model.events import EventKind
from tests.support.histories import Recorded
from tests.support.worker_script import (
    C0,
    KEY,
    NOTHING_HAPPENED,
    SINK,
    SOURCE,
    WorkerScript,
    both,
    committed,
    configured,
    kinds,
    leading,
    of_kind,
    replies,
)

FENCE = verbs.Fence("c")
MOVED = "this worker does not lead the group any more"


def asked(recorded: int | None = 2, now: int = 3, *, pending: bool = True) -> WorkerScript:
    """A worker asks the leader, as request 77, for a round of c: `recorded` tasks before, `now` tasks configured."""
    count = () if recorded is None else (TaskCountRecord("c", recorded),)
    newer = committed(now) if pending else ()
    script = leading((ConnectorConfigRecord("c", SOURCE), *committed(recorded or 0, "1"), *count, KEY, *newer))
    assert both(script.ask(FENCE)) == ([], [ReadConfigToEnd(2, 3_000)])
    return script


def fencing() -> WorkerScript:
    """The same round while the producers of two tasks are being fenced."""
    script = asked()
    assert of_kind(script.read_to_end(), FenceProducers) == [FenceProducers(3, "c", SOURCE, ("g-c-0", "g-c-1"))]
    return script


def recording() -> WorkerScript:
    """The same round when the producers are fenced; the config topic is read before the record is written."""
    script = fencing()
    assert script.fenced().effects == [ReadConfigToEnd(4, 30_000)]
    return script


def refused(status: int, message: str, request_id: int = 77) -> Refused:
    return Refused(request_id, status, message)


def failed(error: str) -> Recorded:
    return Recorded(EventKind.FENCING_FAILED, "c", None, 3, None, "", {"error": error})


@pytest.mark.rule("618.2.1")
def test_nothing_is_to_be_done_when_the_record_follows_the_task_configs() -> None:
    assert both(asked(pending=False).read_to_end()) == ([], [Done(77, 204)])


@pytest.mark.rule("618.2.1")
@pytest.mark.parametrize(
    ("before", "now"), [(None, 3), (0, 3), (1, 1)], ids=["first use", "no tasks before", "one task fences itself"]
)
def test_the_record_is_written_without_fencing(before: int | None, now: int) -> None:
    script = asked(before, now)
    assert both(script.read_to_end()) == ([], [ReadConfigToEnd(3, 30_000)])
    written = WriteConfigRecords(4, (TaskCountRecord("c", now),), privileged=True)
    assert script.read_to_end().effects == [written, script.timers[WorkerTimer.WRITE_LIMIT]]
    assert script.written().effects == [ReadConfigToEnd(5, 30_000)]
    assert script.read_to_end().effects == [Done(77, 204)]


@pytest.mark.rule("618.2.2")
@pytest.mark.parametrize(("before", "now"), [(2, 3), (3, 1), (1, 2), (2, 2), (2, 0)])
def test_all_producers_of_the_recorded_tasks_are_fenced_before_the_record_is_written(before: int, now: int) -> None:
    script = asked(before, now)
    ids = tuple(f"g-c-{number}" for number in range(before))
    data = {"task_count": before, "transactional_ids": list(ids)}
    cause = "new task configs follow the last task count record"
    started = Recorded(EventKind.FENCING_STARTED, "c", None, 3, None, cause, data)
    assert both(script.read_to_end()) == ([started], [FenceProducers(3, "c", SOURCE, ids)])
    assert both(script.fenced()) == ([], [ReadConfigToEnd(4, 30_000)])
    written = WriteConfigRecords(5, (TaskCountRecord("c", now),), privileged=True)
    assert script.read_to_end().effects == [written, script.timers[WorkerTimer.WRITE_LIMIT]]
    script.written()
    done = script.read_to_end()
    completed = Recorded(EventKind.FENCING_COMPLETED, "c", None, 3, None, "", {"task_count": now})
    assert (kinds(done)[0], done.transitions[1:]) == (EventKind.TASK_COUNT_RECORDED, [completed])
    assert done.effects == [Done(77, 204)]


def test_later_requests_and_tasks_of_the_leader_join_the_round_and_share_its_result() -> None:
    script = fencing()
    assert script.ask(FENCE, 78).effects == []
    assert script.do(TaskPrepared(C0, 2)).effects == []
    assert script.carry_out().effects[-3:] == [Done(77, 204), Done(78, 204), InitTaskProducer(C0, 2)]


def test_rounds_of_two_connectors_do_not_meet() -> None:
    script = leading((*configured(), *committed(3), *configured("d"), *committed(1, connector="d")))
    script.ask(FENCE)
    script.read_to_end()
    assert script.ask(verbs.Fence("d"), 78).effects == [ReadConfigToEnd(4, 3_000)]
    assert script.read_to_end().effects == [FenceProducers(5, "d", SOURCE, ("g-d-0", "g-d-1"))]
    assert script.fenced().effects == [ReadConfigToEnd(6, 30_000)]
    assert script.fenced("not authorised").effects == [
        refused(500, "Failed to fence older producers: not authorised", 78)
    ]


@pytest.mark.parametrize(
    ("record", "status", "error"),
    [
        (ConnectorConfigRecord("c", None), 404, "Connector c not found"),
        (ConnectorConfigRecord("c", SINK), 400, "Connector c is not a source connector"),
    ],
)
def test_a_round_for_no_source_connector_is_refused(record: ConfigRecord, status: int, error: str) -> None:
    assert replies(asked().read_to_end(record)) == [refused(status, error)]


def test_a_config_topic_that_cannot_be_read_ends_the_round_so_that_it_is_asked_for_again() -> None:
    script = asked()
    script.do(TaskPrepared(C0, 2))
    ended = script.read_to_end(error="timed out")
    error = "Failed to read the config topic to its end: timed out"
    assert (ended.transitions[0], replies(ended)) == (failed(error), [refused(503, error)])
    assert [timer.key for timer in of_kind(ended, SetTimer)] == [TaskFencingRetry(C0, 2)]


def test_producers_that_cannot_be_fenced_end_the_round_with_500_and_no_record() -> None:
    error = "Failed to fence older producers: not authorised"
    assert both(fencing().fenced("not authorised")) == ([failed(error)], [refused(500, error)])


@pytest.mark.rule("618.2.4")
def test_a_record_that_cannot_be_written_is_written_again_until_it_succeeds() -> None:
    script = recording()
    delays_ms = []
    for _ in range(7):
        script.read_to_end()
        unwritten = script.written("timed out")
        (timer,) = of_kind(unwritten, SetTimer)
        assert unwritten.effects == [timer]
        delays_ms.append(timer.at_ms - script.now_ms)
        assert [type(effect) for effect in script.fire(timer.key).effects] == [ReadConfigToEnd]
    assert delays_ms == [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]
    assert script.carry_out().effects[-1] == Done(77, 204)


@pytest.mark.rule("618.2.3")
def test_newer_task_configs_cancel_the_round_and_no_record_is_written() -> None:
    script = recording()
    error = "new task configs of connector c came during the fencing round"
    cancelled = script.see(*committed(2, "3"))
    assert replies(cancelled) == [refused(409, error)]
    assert failed(error) in cancelled.transitions
    late = script.read_to_end()
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "request 4 is not pending")


@pytest.mark.rule("618.2.3")
def test_task_configs_found_by_the_read_before_the_record_cancel_the_round() -> None:
    script = recording()
    found = script.read_to_end(*committed(2, "3"))
    assert (of_kind(found, Refused)[0].status, of_kind(found, WriteConfigRecords)) == (409, [])


def test_a_cancelled_round_does_not_retry_its_record() -> None:
    script = recording()
    script.read_to_end()
    (timer,) = of_kind(script.written("timed out"), SetTimer)
    script.see(*committed(2, "3"))
    assert both(script.fire_late(timer)) == NOTHING_HAPPENED


def test_all_rounds_end_when_this_worker_leads_no_more() -> None:
    script = leading((*configured(), *committed(3), *configured("d")))
    script.ask(verbs.Fence("d"))
    script.ask(FENCE, 78)
    assert replies(script.rebalance()) == [refused(409, MOVED, 78), refused(409, MOVED, 77)]


def test_all_rounds_end_when_this_worker_has_lost_its_place_in_the_group() -> None:
    error = "this worker has lost its place in the group"
    assert replies(fencing().heartbeat("UNKNOWN_MEMBER_ID")) == [refused(409, error)]


def test_the_record_of_an_older_round_does_not_end_a_newer_one() -> None:
    script = recording()
    script.read_to_end()
    script.see(*committed(2, "3"))  # the round ends while its record is being written
    assert [type(effect) for effect in script.ask(FENCE, 78).effects] == [ReadConfigToEnd]
    fenced = script.read_to_end()
    assert [type(effect) for effect in fenced.effects] == [FenceProducers]
    assert replies(ended(script)) == []
    late = script.do(TimerFired(TaskCountRetry("c", 2), 1))
    assert (*both(late), late.ignored is None) == (*NOTHING_HAPPENED, False)


def ended(script: WorkerScript) -> WorkerStep:
    """The write of the record succeeds, and is read back."""
    script.written()
    return script.read_to_end()
