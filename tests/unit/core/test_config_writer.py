"""Writes to the config topic: records, order, read-back, conditions and rights, one reply for each."""

from __future__ import annotations

import pytest

from connectx.core import verbs
from connectx.core.ignored import NotPending, TimerReplaced
from connectx.core.messages import (
    AbandonConfigWrites,
    ConfigRecordsWritten,
    Done,
    ReadConfigToEnd,
    Refused,
    Reply,
    SetTimer,
    WorkerStep,
    WriteConfigRecords,
)
from connectx.core.replies import ConnectorInfo, TaskRef
from connectx.core.timer_keys import WorkerTimer
from connectx.core.verbs import Verb
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    LoggerLevelRecord,
    RestartRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
)
from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from connectx.model.states import State, TargetState
from tests.support.worker_script import (
    C0,
    C1,
    NOTHING,
    SOURCE,
    WorkerScript,
    claiming,
    committed,
    configured,
    following,
    kinds,
    leading,
    merged,
    of_kind,
    replies,
    resting,
    task_config,
)

READ_MS = 30_000
STEP_DOWN = "This worker does not lead the group any more; the request can be retried"
NEW: ConnectorInfo = {"name": "n", "config": SOURCE, "tasks": [], "type": "source"}
TASKS_OF_C: list[TaskRef] = [{"connector": "c", "task": number} for number in range(2)]
CHANGED: ConnectorInfo = {"name": "c", "config": {"x": "1"}, "tasks": TASKS_OF_C, "type": "source"}
DELETE, PAUSE, STOP = verbs.Delete("c"), verbs.Pause("c"), verbs.Stop("c")
DELETED = (ConnectorConfigRecord("c", None), TargetStateRecord("c", None), TaskCommitRecord("c", 0))
PAUSED, STOPPED = (resting(TargetState.PAUSED),), (resting(TargetState.STOPPED),)


def orders(step: WorkerStep) -> list[tuple[tuple[ConfigRecord, ...], bool] | str]:
    """What was ordered from the config topic: batches with their privilege, and reads as "read"."""
    ordered: list[tuple[tuple[ConfigRecord, ...], bool] | str] = []
    for effect in step.effects:
        if isinstance(effect, WriteConfigRecords):
            ordered.append((effect.records, effect.privileged))
        elif isinstance(effect, ReadConfigToEnd):
            assert effect.timeout_ms == READ_MS
            ordered.append("read")
    return ordered


def carried_out(script: WorkerScript, verb: Verb, request_id: int = 77) -> WorkerStep:
    """The request and all that it needs of the config topic."""
    return merged(script.ask(verb, request_id), script.carry_out())


def written(step: WorkerStep) -> list[tuple[tuple[ConfigRecord, ...], bool] | str]:
    return [order for order in orders(step) if order != "read"]


@pytest.mark.parametrize(
    ("verb", "expected", "reply"),
    [
        pytest.param(
            verbs.Create("n", SOURCE),
            [((ConnectorConfigRecord("n", SOURCE),), True), "read"],
            Done(77, 201, NEW),
            id="create",
        ),
        pytest.param(
            verbs.Create("n", SOURCE, TargetState.PAUSED),
            [((TargetStateRecord("n", TargetState.PAUSED), ConnectorConfigRecord("n", SOURCE)), True), "read"],
            Done(77, 201, NEW),
            id="create with an initial state, which comes first in the same batch",
        ),
        pytest.param(
            verbs.PutConfig("n", SOURCE),
            [((ConnectorConfigRecord("n", SOURCE),), True), "read"],
            Done(77, 201, NEW),
            id="put a new one",
        ),
        pytest.param(
            verbs.PutConfig("c", {"x": "1"}, SOURCE),
            [((ConnectorConfigRecord("c", {"x": "1"}),), True), "read"],
            Done(77, 200, CHANGED),
            id="put over what is expected",
        ),
        pytest.param(DELETE, [(DELETED, True), "read"], Done(77, 204), id="delete"),
        pytest.param(PAUSE, [(PAUSED, False), "read"], Done(77, 202), id="pause, without the leader's rights"),
        pytest.param(
            STOP,
            [((TaskCommitRecord("c", 0),), True), "read", (STOPPED, False), "read"],
            Done(77, 204),
            id="stop: no tasks first, then the state",
        ),
        pytest.param(
            verbs.PutTaskConfigs("c", [task_config(0, "2"), task_config(1, "2")]),
            [
                "read",
                ((TaskConfigRecord(C0, task_config(0, "2")), TaskConfigRecord(C1, task_config(1, "2"))), True),
                "read",
                ((TaskCommitRecord("c", 2),), True),
                "read",
            ],
            Done(77, 204),
            id="task configs in one batch, their commit in another",
        ),
        pytest.param(
            verbs.PutTaskConfigs("c", []),
            ["read", ((TaskCommitRecord("c", 0),), True), "read"],
            Done(77, 204),
            id="no task configs: only a commit",
        ),
        pytest.param(
            verbs.LoggerLevel("connectx", "DEBUG"),
            [((LoggerLevelRecord("connectx", "DEBUG"),), False), "read"],
            Done(77, 204),
            id="logger level, an ordinary write",
        ),
    ],
)
@pytest.mark.rule("618.1.4")
def test_each_operation_writes_its_records_reads_them_back_and_then_answers(
    verb: Verb, expected: list[object], reply: Reply
) -> None:
    done = carried_out(leading(), verb)
    assert (orders(done), replies(done)) == (expected, [reply])
    last_read = max(number for number, effect in enumerate(done.effects) if isinstance(effect, ReadConfigToEnd))
    assert done.effects.index(reply) > last_read


def test_a_restart_command_is_a_record_of_the_leader() -> None:
    script = leading()
    script.show("c", State.RUNNING)
    script.ask(verbs.RestartConnector("c", include_tasks=True))
    done = merged(script.read_to_end(), script.carry_out())
    assert orders(done) == [((RestartRecord("c", True, False),), True), "read"]
    assert [reply.status for reply in of_kind(done, Done)] == [202]


@pytest.mark.parametrize("tombstone", [(), (ConnectorConfigRecord("n", None),)], ids=["compacted away", "still there"])
@pytest.mark.parametrize("create", [verbs.Create("n", SOURCE), verbs.PutConfig("n", SOURCE)], ids=["create", "put"])
def test_a_new_connector_never_runs_the_tasks_that_a_deleted_one_left(
    create: Verb, tombstone: tuple[ConfigRecord, ...]
) -> None:
    """A Java leader deletes without an empty commit, and compaction then keeps the task configs (KAFKA-16838)."""
    left = (TaskConfigRecord(TaskId("n", 0), {"k": "old"}), TaskCommitRecord("n", 1))
    done = carried_out(leading((*configured(), *left, *tombstone)), create)
    created = (TaskCommitRecord("n", 0), ConnectorConfigRecord("n", SOURCE))
    assert (orders(done), replies(done)) == ([(created, True), "read"], [Done(77, 201, NEW)])
    later = following(NOTHING, (left[0], *created))  # what compaction leaves for a worker that starts later
    assert later.ask(verbs.Tasks("n")).effects == [Done(77, 200, [])]


def test_operations_follow_each_other() -> None:
    script = leading()
    assert script.ask(PAUSE).effects == [WriteConfigRecords(2, PAUSED, privileged=False)]
    assert script.ask(DELETE, 78).effects == []
    assert script.written().effects == [ReadConfigToEnd(3, READ_MS)]
    read = script.read_to_end()
    assert of_kind(read, WriteConfigRecords, Done) == [
        WriteConfigRecords(4, DELETED, privileged=True),
        Done(77, 202),
    ]


def test_the_snapshot_changes_only_by_what_is_read() -> None:
    script = leading()
    script.ask(DELETE)
    script.written()
    assert script.ask(verbs.ConnectorConfig("c"), 78).effects == [Done(78, 200, SOURCE)]
    script.read_to_end()
    assert script.ask(verbs.ConnectorConfig("c"), 78).effects == [Refused(78, 404, "Connector c not found")]


@pytest.mark.parametrize(
    ("before", "verb", "status", "error"),
    [
        (verbs.Create("n", SOURCE), verbs.Create("n", SOURCE), 409, "Connector n already exists"),
        (
            verbs.PutConfig("c", {"x": "1"}, SOURCE),
            verbs.PutConfig("c", {"x": "2"}, SOURCE),
            409,
            "The configuration of connector c has changed meanwhile",
        ),
        (DELETE, DELETE, 404, "Connector c not found"),
        (DELETE, PAUSE, 404, "Unknown connector c"),
        (DELETE, STOP, 404, "Unknown connector c"),
        (STOP, verbs.PutTaskConfigs("c", [task_config(0)]), 400, "Connector c is stopped and takes no task configs"),
    ],
)
def test_what_an_operation_before_it_made_impossible_is_refused_and_writes_nothing(
    before: Verb, verb: Verb, status: int, error: str
) -> None:
    script = leading()
    begun = script.ask(before)
    done = merged(begun, carried_out(script, verb, 78))
    assert replies(done)[1:] == [Refused(78, status, error)]
    assert written(done) == written(carried_out(leading(), before))


def test_a_stopped_connector_may_be_given_no_tasks() -> None:
    script = leading((*configured(), *committed(0), resting(TargetState.STOPPED)))
    assert replies(carried_out(script, verbs.PutTaskConfigs("c", []))) == [Done(77, 204)]


def test_task_configs_that_came_twice_are_written_once() -> None:
    script, verb = leading(), verbs.PutTaskConfigs("c", [task_config(0, "2")])
    script.ask(verb)
    done = carried_out(script, verb, 78)
    assert written(done) == [
        ((TaskConfigRecord(C0, task_config(0, "2")),), True),
        ((TaskCommitRecord("c", 1),), True),
    ]
    assert replies(done) == [Done(77, 204), Done(78, 204)]


@pytest.mark.rule("618.1.5")
def test_a_write_that_fails_can_be_retried_and_an_ordinary_write_goes_on() -> None:
    script = leading()
    script.ask(DELETE)
    script.ask(PAUSE, 78)
    failed = script.written("timed out", fenced=True)
    message = (
        "Failed to write to the config topic: timed out; "
        "this may be due to a transient error and the request can be safely retried"
    )
    assert (orders(failed), replies(failed)) == ([(PAUSED, False)], [Refused(77, 500, message)])


def test_nothing_is_written_without_a_claim_after_a_write_that_was_fenced() -> None:
    script = leading()
    script.ask(DELETE)
    script.ask(STOP, 78)
    assert orders(script.written("fenced", fenced=True)) == []
    script.heartbeat()
    assert orders(script.fire(WorkerTimer.RECLAIM)) == []
    assert orders(script.claimed()) == [((TaskCommitRecord("c", 0),), True)]


def test_a_write_that_cannot_be_read_back_fails() -> None:
    script = leading()
    script.ask(DELETE)
    script.written()
    error = "Failed to read back the config topic: timed out"
    assert script.read_to_end(error="timed out").effects == [Refused(77, 500, error)]


def test_a_write_of_the_leader_that_kafka_does_not_answer_fails_after_30_s_and_its_late_answer_is_ignored() -> None:
    script = leading()
    (write,) = of_kind(script.ask(DELETE), WriteConfigRecords)
    assert script.timers[WorkerTimer.WRITE_LIMIT].at_ms == script.now_ms + READ_MS
    over = script.fire(WorkerTimer.WRITE_LIMIT)
    assert over.effects[0] == AbandonConfigWrites(write.request_id)
    assert kinds(over) == [EventKind.LEADERSHIP_FENCED]
    message = (
        "Failed to write to the config topic: Kafka did not answer within 30 s; "
        "this may be due to a transient error and the request can be safely retried"
    )
    assert replies(over) == [Refused(77, 500, message)]
    late = script.do(ConfigRecordsWritten(write.request_id))
    assert late == WorkerStep(ignored=NotPending(write.request_id))


def test_a_write_whose_claim_is_gone_has_the_same_limit() -> None:
    script = leading()
    (write,) = of_kind(script.ask(DELETE), WriteConfigRecords)
    script.heartbeat("UNKNOWN_MEMBER_ID")
    over = script.fire(WorkerTimer.WRITE_LIMIT)
    assert over.effects[0] == AbandonConfigWrites(write.request_id)
    assert (over.transitions, [refused.status for refused in of_kind(over, Refused)]) == ([], [500])


def test_an_answer_in_time_ends_the_limit() -> None:
    script = leading()
    script.ask(DELETE)
    limit = script.timers[WorkerTimer.WRITE_LIMIT]
    script.written()
    assert script.fire_late(limit) == WorkerStep(ignored=TimerReplaced(WorkerTimer.WRITE_LIMIT))


@pytest.mark.parametrize("verb", [PAUSE, verbs.LoggerLevel("x", "INFO")])
def test_an_ordinary_write_has_the_limit_of_its_client(verb: Verb) -> None:
    assert of_kind(leading().ask(verb), SetTimer) == []


def test_privileged_writes_wait_for_the_claim() -> None:
    script = claiming()
    assert script.ask(DELETE).effects == []
    assert orders(script.claimed()) == [(DELETED, True)]


def test_a_lost_leadership_refuses_what_waits() -> None:
    script = claiming()
    script.ask(DELETE)
    script.ask(DELETE, 78)
    lost = script.heartbeat("UNKNOWN_MEMBER_ID")
    assert replies(lost) == [Refused(77, 409, STEP_DOWN), Refused(78, 409, STEP_DOWN)]
    assert orders(lost) == []


def test_a_write_under_way_ends_as_its_answer_says_although_leadership_moved() -> None:
    script = leading()
    script.ask(DELETE)
    assert replies(script.heartbeat("UNKNOWN_MEMBER_ID")) == []
    assert replies(script.carry_out()) == [Done(77, 204)]


def test_task_configs_are_not_committed_after_leadership_moved() -> None:
    script = leading()
    script.ask(verbs.PutTaskConfigs("c", [task_config(0, "2")]))
    script.read_to_end()
    script.heartbeat("UNKNOWN_MEMBER_ID")
    done = script.carry_out()
    assert (orders(done), replies(done)) == (["read"], [Refused(77, 409, STEP_DOWN)])


def test_a_stop_goes_on_without_the_rights_once_its_tasks_are_gone() -> None:
    script = leading()
    script.ask(STOP)
    script.written()
    script.heartbeat("UNKNOWN_MEMBER_ID")
    done = script.carry_out()
    assert (orders(done), replies(done)) == ([(STOPPED, False), "read"], [Done(77, 204)])
