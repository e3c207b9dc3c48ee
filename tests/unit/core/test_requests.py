"""Requests: who answers, what is refused meanwhile, and exactly one reply for each, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectx.core import verbs
from connectx.core.context import WorkerPhase
from connectx.core.messages import (
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigRecordsWritten,
    ConnectorFailed,
    Done,
    Effect,
    FenceProducers,
    Forwarded,
    ProducersFenced,
    ReadConfigToEnd,
    Refused,
    Reply,
    Request,
    SetLoggerLevel,
    ShutdownRequested,
    StartConnector,
    StopConnector,
    StopTask,
    TaskFailed,
    WorkerShutDown,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.core.verbs import Verb
from connectx.core.worker import WorkerCore
from connectx.model.config_records import (
    ConnectorConfigRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.group import ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import ExactlyOnceSupport, State, TargetState
from connectx.model.status_records import Status, TaskStatusRecord, TopicStatusRecord
from tests.support.core_parts import (
    C0,
    C1,
    LEADER_URL,
    ME,
    SOURCE,
    a_core,
    commit,
    configure,
    follow,
    read,
    shown,
    starting_core,
    target,
    task_config,
)
from tests.support.histories import Because

PENDING = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)
INFO = {
    "name": "c",
    "config": SOURCE,
    "tasks": [{"connector": "c", "task": 0}, {"connector": "c", "task": 1}],
    "type": "source",
}
Kind = Callable[..., Verb]
SIGNED = {"body": b"[]", "signature": "s", "algorithm": "a"}
OF_LEADER: list[tuple[Kind, dict[str, Any]]] = [
    (verbs.ConnectorConfig, {"leader": True}),
    (verbs.Create, {"config": SOURCE}),
    (verbs.PutConfig, {"config": SOURCE}),
    (verbs.Delete, {}),
    (verbs.Stop, {}),
    (verbs.ModifyOffsets, {}),
    (verbs.RestartConnector, {"include_tasks": True}),
    (verbs.RestartConnector, {"only_failed": True}),
]
OF_OWNER: list[tuple[Kind, dict[str, Any]]] = [(verbs.RestartConnector, {}), (verbs.RestartTask, {"task": 0})]
INTERNAL: list[tuple[Kind, dict[str, Any]]] = [
    (verbs.Fence, SIGNED),
    (verbs.PutTaskConfigs, SIGNED | {"task_configs": [task_config(0, "2")]}),
]
ANYWHERE: list[tuple[Kind, dict[str, Any]]] = [
    (verbs.ListConnectors, {}),
    (verbs.ConnectorInfo, {}),
    (verbs.ConnectorConfig, {}),
    (verbs.Tasks, {}),
    (verbs.Topics, {}),
    (verbs.Offsets, {}),
]


def ask(core: WorkerCore, verb: Kind, connector: str | None = "c", **args: Any) -> list[Effect]:
    named = () if verb in (verbs.Worker, verbs.ListConnectors, verbs.LoggerLevel) else (connector,)
    return core.handle(Request(77, verb(*named, **args)), 1_000).effects


def replied(status: int, body: Any = None) -> list[Effect]:
    return [Done(77, status, body) if status < 400 else Refused(77, status, body)]


def run(core: WorkerCore, effects: list[Effect]) -> list[Effect]:
    """Carry out what concerns the config topic until nothing is ordered; the other effects, in order."""
    others: list[Effect] = []
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, WriteConfigRecords):
            for record in effect.records:
                offset = core.context.config.offset
                effects += core.handle(ConfigRecordRead(offset, record), 1_000).effects
            effects += core.handle(ConfigRecordsWritten(effect.request_id), 1_000).effects
        elif isinstance(effect, ReadConfigToEnd):
            effects += core.handle(ConfigReadToEnd(effect.request_id), 1_000).effects
        elif isinstance(effect, FenceProducers):
            effects += core.handle(ProducersFenced(effect.request_id), 1_000).effects
        else:
            others.append(effect)
    return others


def replies(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, Reply)]


# ------------------------------------------------------------------------------------------------ from the snapshot


@pytest.mark.parametrize(
    ("verb", "args", "body"),
    [
        (verbs.ListConnectors, {}, ["c"]),
        (verbs.ConnectorInfo, {}, INFO),
        (verbs.ConnectorConfig, {}, SOURCE),
        (
            verbs.Tasks,
            {},
            [{"id": {"connector": "c", "task": n}, "config": task_config(n)} for n in range(2)],
        ),
        (verbs.Offsets, {}, {"type": "source", "config": SOURCE}),
    ],
)
@pytest.mark.parametrize("settled", [True, False])
def test_any_worker_answers_reads_from_its_snapshot_also_while_rebalancing(
    verb: Kind, args: dict[str, Any], body: Any, settled: bool
) -> None:
    core = a_core(leads=False)
    core.context.group.settled = settled
    assert ask(core, verb, **args) == replied(200, body)


def test_a_status_shows_connector_and_tasks_in_order_with_traces_only_where_there_are_some() -> None:
    core = a_core()
    for task in (C1, C0):
        shown(core.context, task, State.RUNNING)
    failed = Status(State.FAILED, ME, 3, "oops")
    core.context.status.apply(TaskStatusRecord(C1, failed))
    shown(core.context, "c", State.RUNNING)
    running = {"state": "RUNNING", "worker_id": ME, "version": None}
    broken = {"state": "FAILED", "worker_id": ME, "version": None, "trace": "oops"}
    status = {
        "name": "c",
        "connector": running,
        "tasks": [{"id": 0, **running}, {"id": 1, **broken}],
        "type": "source",
    }
    assert ask(core, verbs.ConnectorStatus) == replied(200, status)
    assert ask(core, verbs.TaskStatus, task=1) == replied(200, {"id": 1, **broken})
    expanded = {"c": {"status": status, "info": INFO}}
    assert ask(core, verbs.ListConnectors, None, expand=["info", "status"]) == replied(200, expanded)


def test_what_has_no_status_yet_is_not_found_and_not_listed_with_one() -> None:
    core = a_core()
    assert ask(core, verbs.ConnectorStatus) == replied(404, "No status found for connector c")
    assert ask(core, verbs.TaskStatus, task=0) == replied(404, "No status found for task c-0")
    assert ask(core, verbs.ListConnectors, None, expand=["status"]) == replied(200, {})
    assert ask(core, verbs.ListConnectors, None, expand=["info"]) == replied(200, {"c": {"info": INFO}})


@pytest.mark.parametrize(
    "verb",
    [
        *(verbs.ConnectorInfo, verbs.ConnectorConfig, verbs.ConnectorStatus, verbs.Tasks, verbs.TaskStatus),
        *(verbs.Pause, verbs.Resume, verbs.Stop, verbs.Delete, verbs.Offsets),
    ],
)
def test_an_unknown_connector_is_not_found(verb: Kind) -> None:
    task = {"task": 0} if verb is verbs.TaskStatus else {}
    assert ask(a_core(), verb, "nope", **task) == replied(404, "Connector nope not found")


def test_topics_are_shown_and_reset_by_any_worker_if_that_is_allowed() -> None:
    core = a_core(leads=False)
    for topic in ("b", "a"):
        core.context.status.apply(TopicStatusRecord(topic, "c", 0, 1))
    assert ask(core, verbs.Topics) == replied(200, {"c": {"topics": ["a", "b"]}})
    forgotten = [WriteStatus(TopicStatusRecord(topic, "c", None)) for topic in ("a", "b")]
    assert ask(core, verbs.ResetTopics) == [*forgotten, *replied(202)]
    locked = a_core(topic_tracking_allow_reset=False)
    assert ask(locked, verbs.ResetTopics) == replied(403, "Topic tracking reset is disabled.")
    off = a_core(topic_tracking_enable=False)
    assert ask(off, verbs.Topics) == replied(403, "Topic tracking is disabled.")
    assert ask(off, verbs.ResetTopics) == replied(403, "Topic tracking is disabled.")


def test_a_worker_tells_its_place_in_the_group() -> None:
    assert ask(a_core(leads=False), verbs.Worker, None) == replied(
        200,
        {
            "url": f"http://{ME}/",
            "state": "stable",
            "member_id": "me",
            "generation": 3,
            "protocol": "sessioned",
            "leader": "other",
            "leader_url": LEADER_URL,
            "connectors": ["c"],
            "tasks": [{"connector": "c", "task": 0}, {"connector": "c", "task": 1}],
            "config_offset": 6,
        },
    )
    assert ask(WorkerCore(a_core().context.settings), verbs.Worker, None) == replied(
        200,
        {
            **{"url": f"http://{ME}/", "state": "starting", "member_id": None, "generation": None, "protocol": None},
            **{"leader": None, "leader_url": None, "connectors": [], "tasks": [], "config_offset": -1},
        },
    )


# ---------------------------------------------------------------------------------------------- who has to answer


@pytest.mark.parametrize(("verb", "args"), [*OF_LEADER, *INTERNAL])
def test_a_follower_forwards_to_the_leader(verb: Kind, args: dict[str, Any]) -> None:
    assert ask(a_core(leads=False), verb, **args) == [Forwarded(77, LEADER_URL)]


@pytest.mark.parametrize(("verb", "args"), [*OF_LEADER, *INTERNAL])
def test_an_unknown_leader_is_a_conflict(verb: Kind, args: dict[str, Any]) -> None:
    core = a_core(leads=False)
    core.context.group.leader_url = ""
    assert ask(core, verb, **args) == replied(409, "The leader of the group is not known at the moment; try again")


@pytest.mark.parametrize(("verb", "args"), [*OF_LEADER, *OF_OWNER])
@pytest.mark.parametrize("leads", [True, False])
def test_verbs_of_leader_and_owner_are_a_conflict_while_a_rebalance_is_wanted(
    verb: Kind, args: dict[str, Any], leads: bool
) -> None:
    core = a_core(leads=leads)
    core.context.group.settled = False
    assert ask(core, verb, **args) == replied(409, PENDING)


@pytest.mark.parametrize(("verb", "args"), INTERNAL)
def test_the_leader_takes_task_configs_and_fences_also_during_a_rebalance(verb: Kind, args: dict[str, Any]) -> None:
    core = a_core()
    core.context.group.settled = False
    assert replies(run(core, ask(core, verb, **args))) in (replied(204), replied(200))


@pytest.mark.parametrize(("verb", "args"), OF_OWNER)
def test_work_of_others_is_forwarded_by_the_leader_to_its_owner_and_by_others_to_the_leader(
    verb: Kind, args: dict[str, Any]
) -> None:
    core = a_core(leads=False)
    core.context.group.assignment = WorkSet()
    assert ask(core, verb, **args) == [Forwarded(77, LEADER_URL)]
    core = a_core()
    core.context.group.assignment = WorkSet()
    core.leadership.owners = {"other": WorkSet(("c",), (C0,))}
    core.leadership.urls = {"other": "http://other/"}
    assert ask(core, verb, **args) == [Forwarded(77, "http://other/")]
    core.leadership.forget_owners()
    assert [reply.status for reply in ask(core, verb, **args) if isinstance(reply, Refused)] == [409]


@pytest.mark.parametrize(("verb", "args"), INTERNAL)
def test_a_wrong_signature_is_refused_when_the_group_has_sessions(verb: Kind, args: dict[str, Any]) -> None:
    seen: list[object] = []

    def check(key: SessionKeyRecord | None, *signed: object) -> tuple[int, str] | None:
        seen.append((key, *signed))
        return 403, "wrong"

    core = a_core(check_signature=check)
    assert ask(core, verb, **args) == replied(403, "wrong")
    assert seen == [(core.context.session_key, b"[]", "s", "a")]
    core.context.group.protocol = ProtocolVersion.COMPATIBLE
    assert replied(403, "wrong") != replies(ask(core, verb, **args))


# ------------------------------------------------------------------------------------------------------- writes


def test_a_connector_is_created_with_its_initial_state() -> None:
    core = a_core()
    effects = ask(core, verbs.Create, "n", config=SOURCE, initial_state=TargetState.STOPPED)
    written = (TargetStateRecord("n", TargetState.STOPPED), ConnectorConfigRecord("n", SOURCE))
    assert effects == [WriteConfigRecords(1, written, privileged=True)]
    body = {"name": "n", "config": SOURCE, "tasks": [], "type": "source"}
    assert replies(run(core, effects)) == replied(201, body)


@pytest.mark.parametrize(
    ("verb", "connector", "args", "status", "body"),
    [
        (verbs.Create, "c", {"config": SOURCE}, 409, "Connector c already exists"),
        (verbs.PutConfig, "c", {"config": SOURCE}, 200, INFO),
        (verbs.PutConfig, "c", {"config": SOURCE, "expected": SOURCE}, 200, INFO),
        (
            verbs.PutConfig,
            "c",
            {"config": SOURCE, "expected": {}},
            409,
            "The configuration of connector c has changed meanwhile",
        ),
        (verbs.ConnectorConfig, "c", {"leader": True}, 200, SOURCE),
        (verbs.Delete, "c", {}, 204, None),
        (verbs.Stop, "c", {}, 204, None),
        (verbs.Pause, "c", {}, 202, None),
        (verbs.Resume, "c", {}, 202, None),
        (verbs.PutTaskConfigs, "c", INTERNAL[1][1], 204, None),
        (verbs.PutTaskConfigs, "nope", INTERNAL[1][1], 404, "Connector nope not found"),
        (verbs.Fence, "c", SIGNED, 200, None),
        (verbs.Fence, "nope", SIGNED, 404, "Connector nope not found"),
    ],
)
def test_the_leader_answers_when_its_write_can_be_read_back(
    verb: Kind, connector: str, args: dict[str, Any], status: int, body: Any
) -> None:
    core = a_core()
    answers = replies(run(core, ask(core, verb, connector, **args)))
    assert answers == replied(204 if verb is verbs.Fence and status == 200 else status, body)


@pytest.mark.parametrize(("verb", "state"), [(verbs.Pause, TargetState.PAUSED), (verbs.Resume, TargetState.STARTED)])
def test_any_worker_writes_pause_and_resume_also_while_rebalancing(verb: Kind, state: TargetState) -> None:
    core = a_core(leads=False)
    core.context.group.settled = False
    assert ask(core, verb) == [WriteConfigRecords(1, (TargetStateRecord("c", state),), privileged=False)]


def test_two_patches_of_the_same_configuration_do_not_overwrite_each_other() -> None:
    core = a_core()
    first = ask(core, verbs.PutConfig, config=SOURCE | {"x": "1"}, expected=SOURCE)
    second = core.handle(Request(78, verbs.PutConfig("c", SOURCE | {"y": "1"}, SOURCE)), 1_000)
    answers = replies(run(core, [*first, *second.effects]))
    assert [(reply.request_id, reply.status) for reply in answers if isinstance(reply, Done | Refused)] == [
        (77, 200),
        (78, 409),
    ]
    assert core.context.config.connector_config("c") == SOURCE | {"x": "1"}


# ------------------------------------------------------------------------------------------------------ restarts


def with_work(core: WorkerCore, *, failed: bool = False) -> WorkerCore:
    """The connector and both of its tasks run on this worker, or have failed."""
    core.connectors.start("c", Because(""))
    for task in (C0, C1):
        core.tasks.start(task, Because(""))
    if failed:
        core.handle(ConnectorFailed("c", 1, "oops"), 1_000)
        core.handle(TaskFailed(C1, 3, "oops"), 1_000)
    return core


def stopped(effects: list[Effect]) -> list[str | TaskId]:
    return [
        effect.connector if isinstance(effect, StopConnector) else effect.task
        for effect in effects
        if isinstance(effect, StopConnector | StopTask)
    ]


def test_a_plain_restart_reads_the_config_topic_and_restarts_only_the_connector() -> None:
    core = with_work(a_core(leads=False))
    effects = ask(core, verbs.RestartConnector)
    assert effects == [ReadConfigToEnd(1, 3_000)]
    done = run(core, effects)
    assert (stopped(done), replies(done)) == (["c"], replied(204))


def test_a_task_restarts_alone() -> None:
    core = with_work(a_core(leads=False))
    done = run(core, ask(core, verbs.RestartTask, task=1))
    assert (stopped(done), replies(done)) == ([C1], replied(204))


def test_a_restart_of_what_is_not_there_but_assigned_starts_it() -> None:
    core = a_core(leads=False)
    done = run(core, ask(core, verbs.RestartConnector))
    assert done == [StartConnector("c", 1, SOURCE, TargetState.STARTED), *replied(204)]


@pytest.mark.parametrize(
    ("include_tasks", "only_failed", "failed", "expected"),
    [
        (True, False, False, ["c", C0, C1]),
        (True, True, False, []),
        (False, True, False, []),
        (True, True, True, ["c", C1]),
        (False, True, True, ["c"]),
    ],
)
def test_a_restart_with_flags_is_a_command_in_the_config_topic_and_answers_with_the_plan(
    include_tasks: bool, only_failed: bool, failed: bool, expected: list[str | TaskId]
) -> None:
    core = with_work(a_core(), failed=failed)
    for subject in ("c", C0, C1):
        shown(core.context, subject, State.FAILED if failed and subject != C0 else State.RUNNING)
    effects = run(core, ask(core, verbs.RestartConnector, include_tasks=include_tasks, only_failed=only_failed))
    (reply,) = replies(effects)
    assert isinstance(reply, Done)
    assert reply.status == 202
    shown_as: dict[str | TaskId, str] = {
        "c": reply.body["connector"]["state"],
        **{TaskId("c", t["id"]): t["state"] for t in reply.body["tasks"]},
    }
    assert [subject for subject, state in shown_as.items() if state == "RESTARTING"] == expected
    again: dict[str | TaskId, object] = {
        "c": core.connectors.lives["c"].again,
        **{t: life.again for t, life in core.tasks.lives.items()},
    }
    restarting = [subject for subject, plan in again.items() if plan is not None]
    new_instances = [task for task, life in core.tasks.lives.items() if life.instance > 3]
    assert restarting + new_instances == expected


def test_a_restart_command_is_written_by_the_leader() -> None:
    core = a_core()
    shown(core.context, "c", State.RUNNING)
    effects = ask(core, verbs.RestartConnector, include_tasks=True)
    effects = core.handle(ConfigReadToEnd(1), 1_000).effects
    assert effects == [WriteConfigRecords(2, (RestartRecord("c", True, False),), privileged=True)]


@pytest.mark.parametrize("leads", [True, False])
def test_any_worker_writes_a_loggers_level_and_every_worker_sets_it_when_it_reads_the_record(leads: bool) -> None:
    core = a_core(leads=leads)
    effects = ask(core, verbs.LoggerLevel, None, namespace="connectx", level="DEBUG")
    assert effects == [WriteConfigRecords(1, (LoggerLevelRecord("connectx", "DEBUG"),), privileged=False)]
    assert run(core, effects) == [SetLoggerLevel("connectx", "DEBUG"), *replied(204)]


def test_logger_levels_of_the_past_are_not_set_again() -> None:
    core = starting_core()
    assert core.handle(ConfigRecordRead(6, LoggerLevelRecord("connectx", "DEBUG")), 1_000).effects == []


def test_a_connector_without_a_status_cannot_be_restarted_with_flags() -> None:
    core = a_core()
    assert replies(run(core, ask(core, verbs.RestartConnector, include_tasks=True))) == replied(
        404, "Status for connector c not found"
    )


@pytest.mark.rule("618.4.3")
def test_restart_commands_touch_only_what_is_assigned_here() -> None:
    core = a_core(leads=False)
    core.context.group.assignment = WorkSet((), (C0,))
    core.tasks.start(C0, Because(""))
    effects = core.handle(ConfigRecordRead(6, RestartRecord("c", True, False)), 1_000).effects
    assert stopped(effects) == [C0]


def test_two_restart_commands_that_follow_each_other_restart_once_what_both_want() -> None:
    core = with_work(a_core(leads=False))
    effects = core.handle(ConfigRecordRead(6, RestartRecord("c", False, False)), 1_000).effects
    effects += core.handle(ConfigRecordRead(7, RestartRecord("c", True, False)), 1_000).effects
    assert stopped(effects) == ["c", C0, C1]


def test_a_restart_command_does_not_start_what_a_rebalance_has_not_started_yet() -> None:
    core = a_core(leads=False)
    core.context.group.settled = False
    assert core.handle(ConfigRecordRead(6, RestartRecord("c", True, False)), 1_000).effects == []


# ------------------------------------------------------------------------------------------- while a request waits


@pytest.mark.rule("618.4.1")
@pytest.mark.parametrize(
    ("verb", "args"), [(verbs.RestartConnector, {"include_tasks": True}), (verbs.ModifyOffsets, {}), *OF_OWNER]
)
def test_a_read_that_fails_is_a_500(verb: Kind, args: dict[str, Any]) -> None:
    core = a_core()
    assert ask(core, verb, **args) == [ReadConfigToEnd(1, 3_000)]
    assert core.handle(ConfigReadToEnd(1, "timed out"), 1_000).effects == replied(
        500, "Failed to read to the end of the config topic: timed out"
    )


@pytest.mark.rule("618.4.2")
@pytest.mark.parametrize(
    ("verb", "args"), [(verbs.RestartConnector, {"include_tasks": True}), (verbs.ModifyOffsets, {}), *OF_OWNER]
)
def test_what_changed_while_the_config_topic_was_read_counts(verb: Kind, args: dict[str, Any]) -> None:
    core = a_core()
    ask(core, verb, **args)
    read(core.context, ConnectorConfigRecord("c", None))
    gone = "Task c-0 not found" if verb is verbs.RestartTask else "Connector c not found"
    assert core.handle(ConfigReadToEnd(1), 1_000).effects == replied(404, gone)
    core = a_core()
    ask(core, verb, **args)
    core.context.group.settled = False
    assert core.handle(ConfigReadToEnd(1), 1_000).effects == replied(409, PENDING)
    core = a_core()
    ask(core, verb, **args)
    follow(core)
    core.context.group.assignment = WorkSet()
    (reply,) = replies(core.handle(ConfigReadToEnd(1), 1_000).effects)
    if (verb, args) in OF_OWNER:
        assert isinstance(reply, Refused)
        assert reply.status == 409
    else:
        assert reply == Forwarded(77, LEADER_URL)


@pytest.mark.rule("618.4.2")
@pytest.mark.parametrize("verb", [verbs.RestartConnector, verbs.RestartTask])
def test_what_is_unknown_here_may_be_in_what_was_not_read_yet(verb: Kind) -> None:
    core, task = a_core(leads=False), {"task": 0} if verb is verbs.RestartTask else {}
    assert ask(core, verb, "new", **task) == [ReadConfigToEnd(1, 3_000)]
    missing = "Task new-0 not found" if verb is verbs.RestartTask else "Connector new not found"
    assert core.handle(ConfigReadToEnd(1), 1_000).effects == replied(404, missing)
    core = a_core(leads=False)
    ask(core, verb, "new", **task)
    configure(core.context, "new")
    core.context.group.settled = False  # as reading a new connector does
    assert core.handle(ConfigReadToEnd(1), 1_000).effects == replied(409, PENDING)


@pytest.mark.rule("618.4.2")
def test_a_task_that_a_smaller_task_count_took_away_is_not_found_although_a_rebalance_is_due() -> None:
    core = a_core()
    ask(core, verbs.RestartTask, task=1)
    commit(core.context, tasks=1)
    core.context.group.settled = False
    assert core.handle(ConfigReadToEnd(1), 1_000).effects == replied(404, "Task c-1 not found")


# ------------------------------------------------------------------------------------------------------- offsets


def stopped_core(**changes: Any) -> WorkerCore:
    core = a_core(**changes)
    read(core.context, TaskCommitRecord("c", 0))
    target(core.context, TargetState.STOPPED)
    return core


def test_offsets_of_a_running_connector_cannot_be_modified() -> None:
    core = a_core()
    ask(core, verbs.ModifyOffsets)
    assert core.handle(ConfigReadToEnd(1), 1_000).effects == replied(
        400, "Connector c must be in the STOPPED state before its offsets can be modified: use 'PUT /connectors/c/stop'"
    )


def test_offsets_of_a_stopped_connector_may_be_modified_without_exactly_once_right_away() -> None:
    core = stopped_core(exactly_once_source_support=ExactlyOnceSupport.DISABLED)
    effects = run(core, ask(core, verbs.ModifyOffsets))
    assert effects == replied(200, {"type": "source", "config": SOURCE})


@pytest.mark.rule("618.6.9")
def test_with_exactly_once_older_producers_are_fenced_before_offsets_are_modified() -> None:
    core = stopped_core()
    read(core.context, TaskCountRecord("c", 1), TaskCommitRecord("c", 0))
    ask(core, verbs.ModifyOffsets)
    effects = core.handle(ConfigReadToEnd(1), 1_000).effects
    assert effects == [ReadConfigToEnd(2, 3_000)]
    assert core.handle(ConfigReadToEnd(2), 1_000).effects == [FenceProducers(3, "c", SOURCE, ("g-c-0",))]
    assert ReadConfigToEnd(4, 30_000) in core.handle(ProducersFenced(3), 1_000).effects


@pytest.mark.rule("618.6.9")
def test_the_conditions_are_looked_at_again_behind_the_fencing_round() -> None:
    core = stopped_core()
    ask(core, verbs.ModifyOffsets)
    core.handle(ConfigReadToEnd(1), 1_000)
    read(core.context, TaskCountRecord("c", 0))
    target(core.context, TargetState.STARTED)
    assert core.handle(ConfigReadToEnd(2), 1_000).effects == replied(
        400, "Connector c must be in the STOPPED state before its offsets can be modified: use 'PUT /connectors/c/stop'"
    )


def test_after_the_round_a_connector_that_is_still_stopped_may_be_changed() -> None:
    core = stopped_core()
    assert replies(run(core, ask(core, verbs.ModifyOffsets))) == replied(200, {"type": "source", "config": SOURCE})


# ---------------------------------------------------------------------------------------- before, at and after the end


@pytest.mark.parametrize(("verb", "args"), [*OF_LEADER, *OF_OWNER, *INTERNAL, *ANYWHERE, (verbs.Pause, {})])
@pytest.mark.parametrize("phase", [WorkerPhase.STARTING, WorkerPhase.STOPPED])
def test_a_worker_that_is_not_up_sends_away(verb: Kind, args: dict[str, Any], phase: WorkerPhase) -> None:
    core = starting_core()
    if phase is WorkerPhase.STOPPED:
        core.handle(ShutdownRequested(), 1_000)
    assert ask(core, verb, **args) == replied(503, f"This worker is {phase}; ask another one, or try again")


@pytest.mark.parametrize(("verb", "args"), ANYWHERE)
def test_a_worker_that_stops_still_shows_what_it_knows(verb: Kind, args: dict[str, Any]) -> None:
    core = with_work(a_core())
    core.handle(ShutdownRequested(), 1_000)
    (reply,) = replies(ask(core, verb, **args))
    assert isinstance(reply, Done)
    assert reply.status == 200


@pytest.mark.parametrize(
    ("verb", "args"), [*OF_OWNER, *INTERNAL, (verbs.Pause, {}), (verbs.ResetTopics, {}), OF_LEADER[1]]
)
def test_a_worker_that_stops_begins_nothing_new(verb: Kind, args: dict[str, Any]) -> None:
    core = with_work(a_core())
    core.handle(ShutdownRequested(), 1_000)
    assert ask(core, verb, **args) == replied(503, "This worker is stopping; ask another one, or try again")


def test_every_request_that_waits_is_answered_when_the_worker_ends() -> None:
    core = stopped_core()
    read(core.context, TaskCountRecord("c", 1), TaskCommitRecord("c", 0))
    requests: list[tuple[Kind, dict[str, Any]]] = [
        (verbs.Delete, {}),  # is being written
        (verbs.Stop, {}),  # waits for its turn
        (verbs.RestartConnector, {}),  # waits for a read
        (verbs.Fence, SIGNED),  # waits for a round
        (verbs.ModifyOffsets, {}),  # waits for a read
    ]
    for number, (verb, args) in enumerate(requests, start=101):
        assert replies(core.handle(Request(number, verb("c", **args)), 1_000).effects) == []
    effects = core.handle(ShutdownRequested(), 1_000).effects
    answers = {reply.request_id: reply.status for reply in replies(effects) if isinstance(reply, Refused)}
    assert answers == {101: 500, 102: 503, 103: 503, 104: 503, 105: 503}
    assert len(replies(effects)) == len(requests)
    assert WorkerShutDown() in effects


@pytest.mark.parametrize(("verb", "args"), [(verbs.Fence, SIGNED), (verbs.Stop, {})])
def test_requests_that_wait_are_a_conflict_when_leadership_moves(verb: Kind, args: dict[str, Any]) -> None:
    core = a_core()
    read(core.context, TaskConfigRecord(C0, {}), TaskCommitRecord("c", 1))
    core.handle(Request(7, verbs.Delete("c")), 1_000)
    core.handle(ConfigRecordsWritten(1, "fenced", fenced=True), 1_000)
    assert replies(ask(core, verb, **args)) == []
    follow(core)
    core.fencing.cancel_all("moved")
    (reply,) = replies(core.handle(ConfigReadToEnd(99), 1_000).effects)
    assert isinstance(reply, Refused)
    assert reply.status == 409
