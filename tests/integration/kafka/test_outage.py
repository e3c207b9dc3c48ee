"""A broker that is gone for a while: adapters go on by themselves, and say what is wrong meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from connectx.core.group_messages import CoordinatorFound, FindCoordinator, GroupRequestFailed
from connectx.core.messages import (
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    ReadConfigToEnd,
    StatusRecordRead,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.errors.kafka import ReadToEndError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.config_records import ConnectorConfigRecord, TargetStateRecord
from connectx.model.ids import TaskId
from connectx.model.states import State, TargetState
from connectx.model.status_records import Status, TaskStatusRecord
from tests.support.waiting import until

pytestmark = pytest.mark.rule("always.9")

CONFIG = ConnectorConfigRecord("c", {"file": "/a"})
PAUSED = TargetStateRecord("c", TargetState.PAUSED)


def status(task: int, state: State, worker: str, generation: int) -> TaskStatusRecord:
    return TaskStatusRecord(TaskId("c", task), Status(state, worker, generation))


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    """A broker that this test may kill."""
    with EmbeddedKafka() as one:
        yield one


@pytest.fixture
def workers(broker: EmbeddedKafka, adapters: Callable[..., Any], own_config: Callable[..., Any]) -> tuple[Any, Any]:
    """Two workers on it."""
    config = own_config(broker.bootstrap_servers)
    made = [adapters(name, config, broker.worker_bootstrap_servers) for name in ("w1", "w2")]
    for worker in made:
        worker.topics.start()
        worker.group.start()
        while not isinstance(worker.ask(FindCoordinator, object), CoordinatorFound):
            pass
    return made[0], made[1]


def test_everything_goes_on_by_itself_when_the_broker_is_back(broker: EmbeddedKafka, workers: tuple[Any, Any]) -> None:
    one, other = workers
    assert one.ask(ClaimConfigWrites, ConfigWritesClaimed).error is None
    broker.kill()
    reading = one.send(ReadConfigToEnd, None)
    assert "was not read to its end" in one.ask(ReadConfigToEnd, ConfigReadToEnd, 500).error
    with pytest.raises(ReadToEndError):
        one.topics.offsets.read("c", [{}], timeout_s=0.5)
    assert isinstance(one.ask(FindCoordinator, object), GroupRequestFailed)
    writing = one.send(WriteConfigRecords, (CONFIG,), True)
    pausing = other.send(WriteConfigRecords, (PAUSED,), False)
    other.topics.execute(WriteStatus(status(0, State.RUNNING, "w2:1", 3)))
    broker.restart()
    assert one.inbox.answer(ConfigReadToEnd, reading).error is None
    written = one.inbox.answer(ConfigRecordsWritten, writing)
    assert other.inbox.answer(ConfigRecordsWritten, pausing).error is None
    one.inbox.until(StatusRecordRead, lambda stimulus: stimulus.record == status(0, State.RUNNING, "w2:1", 3))
    if written.error is not None:  # the coordinator was still loading its log
        assert written.fenced
        assert one.ask(ClaimConfigWrites, ConfigWritesClaimed).error is None
    assert one.ask(WriteConfigRecords, ConfigRecordsWritten, (CONFIG,), True).error is None
    assert one.topics.offsets.read("c", [{}]) == [None]
    while not isinstance(one.ask(FindCoordinator, object), CoordinatorFound):
        pass


def test_a_status_that_has_become_untrue_is_not_sent_again(broker: EmbeddedKafka, workers: tuple[Any, Any]) -> None:
    """While a worker was cut off, others took its tasks over under a higher generation."""
    late, other = workers
    gate = broker.gate
    assert gate is not None
    gate.cut("w1")
    late.topics.execute(WriteStatus(status(0, State.FAILED, "w1:1", 5)))
    late.topics.execute(WriteStatus(status(1, State.UNASSIGNED, "w1:1", 5)))
    late.topics.execute(WriteStatus(status(1, State.RUNNING, "w1:1", 7)))
    other.topics.execute(WriteStatus(status(0, State.RUNNING, "w2:1", 6)))
    late.topics._statuses.saw("status-task-c-0", Status(State.RUNNING, "w2:1", 6))
    # librdkafka gives the first attempts up after 5 s, and only then it is asked whether they are still true
    until(lambda: "status-task-c-0" not in late.topics._statuses._newest, "the deletion of a status")
    gate.heal("w1")
    late.topics.execute(WriteStatus(status(2, State.RUNNING, "w1:1", 7)))
    seen: list[Any] = []
    while {status(task, State.RUNNING, "w1:1", 7) for task in (1, 2)} - set(seen):
        seen.append(other.inbox.until(StatusRecordRead)[0].record)
    assert status(0, State.FAILED, "w1:1", 5) not in seen
    assert status(1, State.UNASSIGNED, "w1:1", 5) not in seen


def test_a_worker_that_is_cut_off_alone_reads_on_when_the_cut_is_healed(
    broker: EmbeddedKafka, workers: tuple[Any, Any]
) -> None:
    cut, other = workers
    gate = broker.gate
    assert gate is not None
    gate.cut("w1")
    reading = cut.send(ReadConfigToEnd, None)
    assert other.ask(WriteConfigRecords, ConfigRecordsWritten, (PAUSED,), False).error is None
    gate.heal("w1")
    answer, before = cut.inbox.until(ConfigReadToEnd, lambda stimulus: stimulus.request_id == reading)
    assert answer.error is None
    assert [stimulus.record for stimulus in before] in ([PAUSED], [])
    if not before:
        assert cut.ask(ReadConfigToEnd, ConfigReadToEnd, 30_000).error is None
