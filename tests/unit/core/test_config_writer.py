"""Writes to the config topic: records, order, read-back, conditions, rights and ends, one outcome for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connectx.core.config_log import ConfigLog
from connectx.core.config_writer import Claim, ConfigWriter
from connectx.core.context import Context
from connectx.core.messages import ConfigReadToEnd, ConfigRecordsWritten, ReadConfigToEnd, WriteConfigRecords
from connectx.core.signals import ConnectorOrigin, FencingOrigin, LeaderOrigin, RequestOrigin, WriteKind, WriteOutcome
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    LoggerLevelRecord,
    RestartRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from tests.support.core_parts import (
    C0,
    C1,
    KEY,
    SOURCE,
    a_context,
    commit,
    effects,
    read,
    signals_of,
    target,
    task_config,
)

ORIGIN = RequestOrigin(7)
READ_MS = 30_000
STEP_DOWN = "This worker does not lead the group any more; the request can be retried"

Operation = Callable[[ConfigWriter], None]


def delete(writer: ConfigWriter) -> None:
    writer.delete_connector("c", ORIGIN)


def pause(writer: ConfigWriter) -> None:
    writer.put_target_state("c", TargetState.PAUSED, ORIGIN)


def stop(writer: ConfigWriter) -> None:
    writer.stop_connector("c", ORIGIN)


def a_writer(claim: Claim = Claim.HELD) -> tuple[Context, ConfigWriter]:
    context = a_context()
    return context, ConfigWriter(context, claim)


def carry_out(context: Context, writer: ConfigWriter) -> list[tuple[tuple[ConfigRecord, ...], bool] | str]:
    """Do what is ordered until nothing is: batches with their privilege, and reads as "read"."""
    done: list[tuple[tuple[ConfigRecord, ...], bool] | str] = []
    while ordered := effects(context):
        for effect in ordered:
            if isinstance(effect, WriteConfigRecords):
                done.append((effect.records, effect.privileged))
                read(context, *effect.records)
                writer.on_written(ConfigRecordsWritten(effect.request_id))
            else:
                assert isinstance(effect, ReadConfigToEnd)
                assert effect.timeout_ms == READ_MS
                done.append("read")
                writer.on_read(ConfigReadToEnd(effect.request_id))
    return done


# --------------------------------------------------------------------------------------------- what is written


@pytest.mark.parametrize(
    ("operation", "expected", "outcome"),
    [
        pytest.param(
            lambda w: w.create_connector("n", SOURCE, None, ORIGIN),
            [((ConnectorConfigRecord("n", SOURCE),), True), "read"],
            WriteOutcome(WriteKind.CREATE, ORIGIN, "n", 201),
            id="create",
        ),
        pytest.param(
            lambda w: w.create_connector("n", SOURCE, TargetState.PAUSED, ORIGIN),
            [((TargetStateRecord("n", TargetState.PAUSED), ConnectorConfigRecord("n", SOURCE)), True), "read"],
            WriteOutcome(WriteKind.CREATE, ORIGIN, "n", 201),
            id="create with an initial state, which comes first in the same batch",
        ),
        pytest.param(
            lambda w: w.put_connector("n", SOURCE, None, ORIGIN),
            [((ConnectorConfigRecord("n", SOURCE),), True), "read"],
            WriteOutcome(WriteKind.PUT, ORIGIN, "n", 201),
            id="put a new one",
        ),
        pytest.param(
            lambda w: w.put_connector("c", {"x": "1"}, SOURCE, ORIGIN),
            [((ConnectorConfigRecord("c", {"x": "1"}),), True), "read"],
            WriteOutcome(WriteKind.PUT, ORIGIN, "c", 200),
            id="put over what is expected",
        ),
        pytest.param(
            delete,
            [
                ((ConnectorConfigRecord("c", None), TargetStateRecord("c", None), TaskCommitRecord("c", 0)), True),
                "read",
            ],
            WriteOutcome(WriteKind.DELETE, ORIGIN, "c", 204),
            id="delete",
        ),
        pytest.param(
            pause,
            [((TargetStateRecord("c", TargetState.PAUSED),), False), "read"],
            WriteOutcome(WriteKind.TARGET_STATE, ORIGIN, "c", 202),
            id="pause, without the leader's rights",
        ),
        pytest.param(
            stop,
            [
                ((TaskCommitRecord("c", 0),), True),
                "read",
                ((TargetStateRecord("c", TargetState.STOPPED),), False),
                "read",
            ],
            WriteOutcome(WriteKind.STOP, ORIGIN, "c", 204),
            id="stop: no tasks first, then the state",
        ),
        pytest.param(
            lambda w: w.put_task_configs("c", [task_config(0, "2"), task_config(1, "2")], ORIGIN),
            [
                "read",
                ((TaskConfigRecord(C0, task_config(0, "2")), TaskConfigRecord(C1, task_config(1, "2"))), True),
                "read",
                ((TaskCommitRecord("c", 2),), True),
                "read",
            ],
            WriteOutcome(WriteKind.TASK_CONFIGS, ORIGIN, "c", 204),
            id="task configs in one batch, their commit in another",
        ),
        pytest.param(
            lambda w: w.put_task_configs("c", [], ConnectorOrigin("c", 1)),
            ["read", ((TaskCommitRecord("c", 0),), True), "read"],
            WriteOutcome(WriteKind.TASK_CONFIGS, ConnectorOrigin("c", 1), "c", 204),
            id="no task configs: only a commit",
        ),
        pytest.param(
            lambda w: w.put_task_count("c", 2, 0, FencingOrigin(9)),
            ["read", ((TaskCountRecord("c", 2),), True), "read"],
            WriteOutcome(WriteKind.TASK_COUNT, FencingOrigin(9), "c", 204),
            id="task count record",
        ),
        pytest.param(
            lambda w: w.put_session_key(KEY),
            [((KEY,), True), "read"],
            WriteOutcome(WriteKind.SESSION_KEY, LeaderOrigin(), "", 204),
            id="session key",
        ),
        pytest.param(
            lambda w: w.put_restart(RestartRecord("c", True, False), ORIGIN),
            [((RestartRecord("c", True, False),), True), "read"],
            WriteOutcome(WriteKind.RESTART, ORIGIN, "c", 202),
            id="restart command",
        ),
        pytest.param(
            lambda w: w.put_logger_level(LoggerLevelRecord("connectx", "DEBUG"), ORIGIN),
            [((LoggerLevelRecord("connectx", "DEBUG"),), False), "read"],
            WriteOutcome(WriteKind.LOGGER_LEVEL, ORIGIN, "", 204),
            id="logger level, an ordinary write",
        ),
    ],
)
@pytest.mark.rule("618.1.4")
def test_each_operation_writes_its_records_reads_them_back_and_then_answers(
    operation: Operation, expected: list[object], outcome: WriteOutcome
) -> None:
    context, writer = a_writer()
    operation(writer)
    assert signals_of(context, WriteOutcome) == []
    assert carry_out(context, writer) == expected
    assert signals_of(context, WriteOutcome) == [outcome]
    assert writer.queue == []


@pytest.mark.parametrize("tombstone", [(), (ConnectorConfigRecord("n", None),)], ids=["compacted away", "still there"])
@pytest.mark.parametrize(
    "create",
    [lambda w: w.create_connector("n", SOURCE, None, ORIGIN), lambda w: w.put_connector("n", SOURCE, None, ORIGIN)],
    ids=["create", "put"],
)
def test_a_new_connector_never_runs_the_tasks_that_a_deleted_one_left(
    create: Operation, tombstone: tuple[ConfigRecord, ...]
) -> None:
    """A Java leader deletes without an empty commit, and compaction then keeps the task configs (KAFKA-16838)."""
    context, writer = a_writer()
    left = (TaskConfigRecord(TaskId("n", 0), {"k": "old"}), TaskCommitRecord("n", 1))
    read(context, *left, *tombstone)
    create(writer)
    written = (TaskCommitRecord("n", 0), ConnectorConfigRecord("n", SOURCE))
    assert carry_out(context, writer) == [(written, True), "read"]
    assert context.config.tasks("n") == ()
    later = ConfigLog()
    compacted: tuple[ConfigRecord, ...] = (left[0], *written)
    for log_offset, record in enumerate(compacted):  # what compaction leaves for a worker that starts later
        later.apply(log_offset, record)
    assert later.tasks("n") == ()


def test_operations_follow_each_other() -> None:
    context, writer = a_writer()
    pause(writer)
    delete(writer)
    first = WriteConfigRecords(1, (TargetStateRecord("c", TargetState.PAUSED),), privileged=False)
    assert effects(context) == [first]
    writer.on_written(ConfigRecordsWritten(1))
    assert effects(context) == [ReadConfigToEnd(2, READ_MS)]
    writer.on_read(ConfigReadToEnd(2))
    second = (ConnectorConfigRecord("c", None), TargetStateRecord("c", None), TaskCommitRecord("c", 0))
    assert effects(context) == [WriteConfigRecords(3, second, privileged=True)]


# ------------------------------------------------------------------------------------- conditions, at its own turn


@pytest.mark.parametrize(
    ("before", "operation", "status", "error"),
    [
        (
            lambda w: w.create_connector("n", SOURCE, None, ORIGIN),
            lambda w: w.create_connector("n", SOURCE, None, ORIGIN),
            409,
            "Connector n already exists",
        ),
        (
            lambda w: w.put_connector("c", {"x": "1"}, SOURCE, ORIGIN),
            lambda w: w.put_connector("c", {"x": "2"}, SOURCE, ORIGIN),
            409,
            "The configuration of connector c has changed meanwhile",
        ),
        (delete, delete, 404, "Connector c not found"),
        (delete, pause, 404, "Connector c not found"),
        (delete, stop, 404, "Connector c not found"),
        (
            stop,
            lambda w: w.put_task_configs("c", [task_config(0)], ORIGIN),
            400,
            "Connector c is stopped and takes no task configs",
        ),
        (
            lambda w: w.put_task_configs("c", [task_config(0, "2")], ORIGIN),
            lambda w: w.put_task_count("c", 2, 0, FencingOrigin(9)),
            409,
            "New task configs of connector c came during the fencing round",
        ),
    ],
)
def test_what_an_operation_before_it_made_impossible_is_refused_and_writes_nothing(
    before: Operation, operation: Operation, status: int, error: str
) -> None:
    context, writer = a_writer()
    before(writer)
    operation(writer)
    written = carry_out(context, writer)
    assert [(outcome.status, outcome.error) for outcome in signals_of(context, WriteOutcome)][1:] == [(status, error)]
    alone = a_writer()
    before(alone[1])
    assert [done for done in written if done != "read"] == [d for d in carry_out(*alone) if d != "read"]


def test_a_stopped_connector_may_be_given_no_tasks() -> None:
    context, writer = a_writer()
    target(context, TargetState.STOPPED)
    writer.put_task_configs("c", [], ORIGIN)
    carry_out(context, writer)
    assert [outcome.status for outcome in signals_of(context, WriteOutcome)] == [204]


def test_task_configs_that_came_twice_are_written_once() -> None:
    context, writer = a_writer()
    for _ in range(2):
        writer.put_task_configs("c", [task_config(0, "2")], ORIGIN)
    written = carry_out(context, writer)
    assert [done for done in written if done != "read"] == [
        ((TaskConfigRecord(C0, task_config(0, "2")),), True),
        ((TaskCommitRecord("c", 1),), True),
    ]
    assert [outcome.status for outcome in signals_of(context, WriteOutcome)] == [204, 204]


# ------------------------------------------------------------------------------------------------------- failures


def test_nothing_is_written_without_a_claim_after_a_write_that_was_fenced() -> None:
    context, writer = a_writer()
    delete(writer)
    delete(writer)
    effects(context)
    writer.on_written(ConfigRecordsWritten(1, "fenced", fenced=True))
    assert effects(context) == []
    context.signals.clear()
    writer.set_claim(Claim.PENDING)
    assert effects(context) == []
    writer.set_claim(Claim.HELD)
    assert [type(effect) for effect in effects(context)] == [WriteConfigRecords]


@pytest.mark.rule("618.1.5")
def test_a_write_that_fails_can_be_retried_and_the_next_goes_on() -> None:
    context, writer = a_writer()
    delete(writer)
    pause(writer)
    effects(context)
    writer.on_written(ConfigRecordsWritten(1, "timed out", fenced=True))
    message = (
        "Failed to write to the config topic: timed out; "
        "this may be due to a transient error and the request can be safely retried"
    )
    assert signals_of(context, WriteOutcome) == [WriteOutcome(WriteKind.DELETE, ORIGIN, "c", 500, message, fenced=True)]
    assert effects(context) == [WriteConfigRecords(2, (TargetStateRecord("c", TargetState.PAUSED),), privileged=False)]


def test_a_write_that_cannot_be_read_back_fails() -> None:
    _, writer = a_writer()
    delete(writer)
    writer.on_written(ConfigRecordsWritten(1))
    writer.on_read(ConfigReadToEnd(2, "timed out"))
    error = "Failed to read back the config topic: timed out"
    assert signals_of(writer.context, WriteOutcome) == [WriteOutcome(WriteKind.DELETE, ORIGIN, "c", 500, error)]


# --------------------------------------------------------------------------------------------- the leader's rights


def test_privileged_writes_wait_for_the_claim() -> None:
    context, writer = a_writer(Claim.PENDING)
    delete(writer)
    assert effects(context) == []
    writer.set_claim(Claim.HELD)
    assert [type(effect) for effect in effects(context)] == [WriteConfigRecords]


def test_a_worker_that_does_not_lead_writes_target_states_only() -> None:
    context, writer = a_writer(Claim.NONE)
    delete(writer)
    assert signals_of(context, WriteOutcome) == [WriteOutcome(WriteKind.DELETE, ORIGIN, "c", 409, STEP_DOWN)]
    pause(writer)
    assert [type(effect) for effect in effects(context)] == [WriteConfigRecords]


def test_a_lost_leadership_refuses_what_waits() -> None:
    context, writer = a_writer(Claim.PENDING)
    delete(writer)
    delete(writer)
    writer.set_claim(Claim.NONE)
    assert [(outcome.status, outcome.error) for outcome in signals_of(context, WriteOutcome)] == [(409, STEP_DOWN)] * 2
    assert effects(context) == []


def test_a_write_under_way_ends_as_its_answer_says_although_leadership_moved() -> None:
    context, writer = a_writer()
    delete(writer)
    writer.set_claim(Claim.NONE)
    assert signals_of(context, WriteOutcome) == []
    carry_out(context, writer)
    assert [outcome.status for outcome in signals_of(context, WriteOutcome)] == [204]


def test_task_configs_are_not_committed_after_leadership_moved() -> None:
    context, writer = a_writer()
    writer.put_task_configs("c", [task_config(0, "2")], ORIGIN)
    writer.on_read(ConfigReadToEnd(1))
    effects(context)
    writer.set_claim(Claim.NONE)
    assert carry_out(context, writer) == []
    writer.on_written(ConfigRecordsWritten(2))
    assert carry_out(context, writer) == ["read"]
    assert [(outcome.status, outcome.error) for outcome in signals_of(context, WriteOutcome)] == [(409, STEP_DOWN)]


def test_a_stop_goes_on_without_the_rights_once_its_tasks_are_gone() -> None:
    context, writer = a_writer()
    stop(writer)
    effects(context)
    writer.on_written(ConfigRecordsWritten(1))
    writer.set_claim(Claim.NONE)
    assert carry_out(context, writer) == ["read", ((TargetStateRecord("c", TargetState.STOPPED),), False), "read"]
    assert [outcome.status for outcome in signals_of(context, WriteOutcome)] == [204]


# ---------------------------------------------------------------------------------------------- withdrawn, the end


def test_a_withdrawn_operation_writes_nothing_and_has_no_outcome() -> None:
    context, writer = a_writer()
    writer.put_task_count("c", 2, 0, FencingOrigin(9))
    effects(context)
    writer.withdraw(FencingOrigin(9))
    assert context.pending.waiting == {}
    assert (effects(context), signals_of(context, WriteOutcome), writer.queue) == ([], [], [])


def test_an_operation_that_is_being_written_cannot_be_withdrawn() -> None:
    context, writer = a_writer()
    writer.put_task_count("c", 2, 0, FencingOrigin(9))
    writer.on_read(ConfigReadToEnd(1))
    effects(context)
    writer.withdraw(FencingOrigin(9))
    writer.on_written(ConfigRecordsWritten(2))
    carry_out(context, writer)
    assert [outcome.status for outcome in signals_of(context, WriteOutcome)] == [204]


def test_at_the_end_what_has_begun_is_in_doubt_and_the_rest_can_be_retried() -> None:
    context, writer = a_writer()
    for operation in (delete, pause, stop):
        operation(writer)
    effects(context)
    writer.close("The worker has shut down")
    ended = [(outcome.kind, outcome.status, outcome.error) for outcome in signals_of(context, WriteOutcome)]
    assert ended == [
        (WriteKind.DELETE, 500, "The worker has shut down"),
        (WriteKind.TARGET_STATE, 503, "The worker has shut down"),
        (WriteKind.STOP, 503, "The worker has shut down"),
    ]
    assert (writer.queue, effects(context)) == ([], [])


def test_the_snapshot_changes_only_by_what_is_read() -> None:
    context, writer = a_writer()
    offset = context.config.offset
    delete(writer)
    writer.on_written(ConfigRecordsWritten(1))
    assert (context.config.offset, context.config.contains("c")) == (offset, True)
    commit(context)
    assert context.config.offset > offset
