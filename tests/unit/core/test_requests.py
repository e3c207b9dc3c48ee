"""Requests: who answers, what is refused meanwhile, and exactly one reply for each, whatever happens."""

from __future__ import annotations

from typing import Any, cast

import pytest

from connectx.core import verbs
from connectx.core.context import WorkerPhase
from connectx.core.messages import (
    ConfigReadToEnd,
    ConfigRecordsWritten,
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStopped,
    Done,
    Effect,
    FenceProducers,
    Forwarded,
    PrepareTask,
    ReadConfigToEnd,
    Refused,
    Reply,
    Request,
    SetLoggerLevel,
    ShutdownRequested,
    Stimulus,
    StopConnector,
    StopTask,
    TaskFailed,
    TaskPrepared,
    TaskProducerReady,
    TaskStopped,
    WorkerShown,
    WorkerShutDown,
    WorkerStep,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.core.replies import ConnectorStatus
from connectx.core.verbs import Verb
from connectx.model.config_records import (
    ConnectorConfigRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCountRecord,
)
from connectx.model.ids import TaskId
from connectx.model.states import ExactlyOnceSupport, State, TargetState
from connectx.model.status_records import Status, TaskStatusRecord, TopicStatusRecord
from tests.support.worker_script import (
    ALL,
    C0,
    C1,
    KEY,
    LEADER_URL,
    ME,
    MY_URL,
    NOTHING,
    SOURCE,
    TASK,
    WorkerScript,
    committed,
    configured,
    following,
    leading,
    member,
    merged,
    of_kind,
    replies,
    resting,
    starting,
    task_config,
)

PENDING = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)
NOT_STOPPED = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified "
    "connector by issuing a 'PUT' request to the '/connectors/c/stop' endpoint"
)
INFO = {
    "name": "c",
    "config": SOURCE,
    "tasks": [{"connector": "c", "task": 0}, {"connector": "c", "task": 1}],
    "type": "source",
}
OFFSETS = {"type": "source", "config": SOURCE}
SIGNED = {"body": b"[]", "signature": "s", "algorithm": "a"}
RESTART_ALL = verbs.RestartConnector("c", include_tasks=True)
OF_LEADER: list[Verb] = [
    *(verbs.ConnectorConfig("c", leader=True), verbs.Create("c", SOURCE), verbs.PutConfig("c", SOURCE)),
    *(verbs.Delete("c"), verbs.Stop("c"), verbs.ModifyOffsets("c")),
    *(RESTART_ALL, verbs.RestartConnector("c", only_failed=True)),
]
OF_OWNER: list[Verb] = [verbs.RestartConnector("c"), verbs.RestartTask("c", 0)]
READ_FIRST: list[Verb] = [RESTART_ALL, verbs.ModifyOffsets("c"), *OF_OWNER]
INTERNAL: list[Verb] = [
    verbs.Fence("c", **SIGNED),  # type: ignore[arg-type]
    verbs.PutTaskConfigs("c", [task_config(0, "2")], **SIGNED),  # type: ignore[arg-type]
]
ANYWHERE: list[Verb] = [
    *(verbs.ListConnectors(), verbs.ConnectorInfo("c"), verbs.ConnectorConfig("c"), verbs.Tasks("c")),
    *(verbs.Topics("c"), verbs.Offsets("c")),
]


def reply(status: int, body: Any = None) -> list[Effect]:
    return [Done(77, status, body) if status < 400 else Refused(77, status, body)]


def rebalancing(*, leads: bool) -> WorkerScript:
    """A worker whose group rebalances."""
    script = leading() if leads else following()
    script.rejoin()
    return script


def answered(script: WorkerScript, verb: Verb) -> list[Reply]:
    """The replies when all that the request needs of the config topic was done."""
    return replies(merged(script.ask(verb), script.carry_out()))


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        (verbs.ListConnectors(), ["c"]),
        (verbs.ConnectorInfo("c"), INFO),
        (verbs.ConnectorConfig("c"), SOURCE),
        (verbs.Tasks("c"), [{"id": {"connector": "c", "task": n}, "config": task_config(n)} for n in range(2)]),
        (verbs.Offsets("c"), OFFSETS),
    ],
)
@pytest.mark.parametrize("settled", [True, False])
def test_any_worker_answers_reads_from_its_snapshot_also_while_rebalancing(
    verb: Verb, body: Any, settled: bool
) -> None:
    script = following() if settled else rebalancing(leads=False)
    assert script.ask(verb).effects == reply(200, body)


def test_a_status_shows_connector_and_tasks_in_order_with_traces_only_where_there_are_some() -> None:
    script = leading()
    script.status(TaskStatusRecord(C1, Status(State.FAILED, ME, 3, "oops")))
    script.show(C0, State.RUNNING)
    script.show("c", State.RUNNING)
    running = {"state": "RUNNING", "worker_id": ME, "version": None}
    broken = {"state": "FAILED", "worker_id": ME, "version": None, "trace": "oops"}
    status = {
        "name": "c",
        "connector": running,
        "tasks": [{"id": 0, **running}, {"id": 1, **broken}],
        "type": "source",
    }
    assert script.ask(verbs.ConnectorStatus("c")).effects == reply(200, status)
    assert script.ask(verbs.TaskStatus("c", 1)).effects == reply(200, {"id": 1, **broken})
    expanded = {"c": {"status": status, "info": INFO}}
    assert script.ask(verbs.ListConnectors(["info", "status"])).effects == reply(200, expanded)


def test_what_has_no_status_yet_is_not_found_and_not_listed_with_one() -> None:
    script = leading()
    assert script.ask(verbs.ConnectorStatus("c")).effects == reply(404, "No status found for connector c")
    assert script.ask(verbs.TaskStatus("c", 0)).effects == reply(404, "No status found for task c-0")
    assert script.ask(verbs.ListConnectors(["status"])).effects == reply(200, {})
    assert script.ask(verbs.ListConnectors(["info"])).effects == reply(200, {"c": {"info": INFO}})


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        *((verbs.ConnectorInfo("n"), "Connector n not found"), (verbs.ConnectorConfig("n"), "Connector n not found")),
        *((verbs.Tasks("n"), "Connector n not found"), (verbs.Offsets("n"), "Connector n not found")),
        (verbs.ConnectorConfig("n", leader=True), "Connector n not found"),
        (verbs.Delete("n"), "Connector n not found"),
        *((verbs.Pause("n"), "Unknown connector n"), (verbs.Resume("n"), "Unknown connector n")),
        (verbs.Stop("n"), "Unknown connector n"),
        (verbs.ConnectorStatus("n"), "No status found for connector n"),
        (verbs.TaskStatus("n", 0), "No status found for task n-0"),
    ],
)
def test_an_unknown_connector_is_not_found(verb: Verb, text: str) -> None:
    assert leading().ask(verb).effects == reply(404, text)


def test_topics_are_shown_and_reset_by_any_worker_if_that_is_allowed() -> None:
    script = following()
    for topic in ("b", "a"):
        script.topic_used(topic)
    assert script.ask(verbs.Topics("c")).effects == reply(200, {"c": {"topics": ["a", "b"]}})
    forgotten = [WriteStatus(TopicStatusRecord(topic, "c", None)) for topic in ("a", "b")]
    assert script.ask(verbs.ResetTopics("c")).effects == [*forgotten, *reply(202)]
    locked = following(topic_tracking_allow_reset=False)
    assert locked.ask(verbs.ResetTopics("c")).effects == reply(403, "Topic tracking reset is disabled.")
    off = following(topic_tracking_enable=False)
    for verb in (verbs.Topics("c"), verbs.ResetTopics("c")):
        assert off.ask(verb).effects == reply(403, "Topic tracking is disabled.")


def test_a_worker_describes_its_place_in_the_group() -> None:
    assert following().place() == {
        "url": MY_URL,
        "state": "stable",
        "member_id": "me",
        "generation": 3,
        "protocol": "sessioned",
        "leader": "other",
        "leader_url": LEADER_URL,
        "connectors": ["c"],
        "tasks": [{"connector": "c", "task": 0}, {"connector": "c", "task": 1}],
        "config_offset": 6,
    }
    assert WorkerScript().place() == {
        **{"url": MY_URL, "state": "starting", "member_id": None, "generation": None, "protocol": None},
        **{"leader": None, "leader_url": None, "connectors": [], "tasks": [], "config_offset": -1},
    }


@pytest.mark.parametrize("verb", [*OF_LEADER, *INTERNAL])
def test_a_follower_forwards_to_the_leader(verb: Verb) -> None:
    assert following().ask(verb).effects == [Forwarded(77, LEADER_URL)]


@pytest.mark.parametrize("verb", INTERNAL)
def test_an_unknown_leader_is_a_conflict(verb: Verb) -> None:
    script = leading()
    script.heartbeat("UNKNOWN_MEMBER_ID")
    unknown = "The leader of the group is not known at the moment; try again"
    assert script.ask(verb).effects == reply(409, unknown)


@pytest.mark.parametrize("verb", [*OF_LEADER, *OF_OWNER])
@pytest.mark.parametrize("leads", [True, False])
def test_verbs_of_leader_and_owner_are_a_conflict_while_a_rebalance_is_wanted(verb: Verb, leads: bool) -> None:
    assert rebalancing(leads=leads).ask(verb).effects == reply(409, PENDING)


@pytest.mark.parametrize("verb", INTERNAL)
def test_the_leader_takes_task_configs_and_fences_also_during_a_rebalance(verb: Verb) -> None:
    assert answered(rebalancing(leads=True), verb) == reply(204)


@pytest.mark.parametrize("verb", OF_OWNER)
def test_work_of_others_is_forwarded_by_the_leader_to_its_owner_and_by_others_to_the_leader(verb: Verb) -> None:
    assert following(NOTHING).ask(verb).effects == [Forwarded(77, LEADER_URL)]
    leader = leading(others={"a": member("http://a/")})
    assert leader.place()["connectors"] == []
    assert leader.ask(verb).effects == [Forwarded(77, "http://a/")]


@pytest.mark.parametrize("verb", INTERNAL)
def test_a_wrong_signature_is_refused_when_the_group_has_sessions(verb: Verb) -> None:
    seen: list[object] = []

    def check(key: SessionKeyRecord | None, *signed: object) -> tuple[int, str] | None:
        seen.append((key, *signed))
        return 403, "wrong"

    assert leading(check_signature=check).ask(verb).effects == reply(403, "wrong")
    assert seen == [(KEY, b"[]", "s", "a")]
    without_sessions = starting(check_signature=check)
    without_sessions.start()
    without_sessions.joined(protocol="compatible")
    without_sessions.assigned()
    assert without_sessions.ask(verb).effects == [Forwarded(77, LEADER_URL)]


@pytest.mark.parametrize(
    ("verb", "status", "body"),
    [
        (verbs.Create("c", SOURCE), 409, "Connector c already exists"),
        (verbs.PutConfig("c", SOURCE), 200, INFO),
        (verbs.PutConfig("c", SOURCE, {}), 409, "The configuration of connector c has changed meanwhile"),
        (verbs.ConnectorConfig("c", leader=True), 200, SOURCE),
        (verbs.Resume("c"), 202, None),
        (INTERNAL[0], 204, None),
        (verbs.Fence("n"), 404, "Connector n not found"),
        (verbs.PutTaskConfigs("n", [task_config(0)]), 404, "Connector n not found"),
    ],
)
def test_the_leader_answers_when_its_write_can_be_read_back(verb: Verb, status: int, body: Any) -> None:
    assert answered(leading(), verb) == reply(status, body)


@pytest.mark.parametrize(
    ("verb", "state"), [(verbs.Pause("c"), TargetState.PAUSED), (verbs.Resume("c"), TargetState.STARTED)]
)
def test_any_worker_writes_pause_and_resume_also_while_rebalancing(verb: Verb, state: TargetState) -> None:
    written = WriteConfigRecords(1, (TargetStateRecord("c", state),), privileged=False)
    assert rebalancing(leads=False).ask(verb).effects == [written]


@pytest.mark.parametrize("leads", [True, False])
def test_any_worker_writes_a_loggers_level_and_every_worker_sets_it_when_it_reads_the_record(leads: bool) -> None:
    script = leading() if leads else following()
    asked = script.ask(verbs.LoggerLevel("connectx", "DEBUG"))
    assert [write.privileged for write in of_kind(asked, WriteConfigRecords)] == [False]
    done = script.carry_out()
    assert of_kind(done, SetLoggerLevel, Done) == [SetLoggerLevel("connectx", "DEBUG"), *reply(204)]


def test_logger_levels_of_the_past_are_not_set_again() -> None:
    assert starting().see(LoggerLevelRecord("connectx", "DEBUG")).effects == []


def restarted(step: WorkerStep) -> list[str | TaskId]:
    """What stops, or starts again at once because it had failed."""
    connectors = [effect.connector for effect in of_kind(step, StopConnector)]
    stopped = [effect.task for effect in of_kind(step, StopTask)]
    return [*connectors, *stopped, *(effect.task for effect in of_kind(step, PrepareTask))]


def test_a_plain_restart_reads_the_config_topic_and_restarts_only_the_connector() -> None:
    script = following()
    assert script.ask(verbs.RestartConnector("c")).effects == [ReadConfigToEnd(1, 3_000)]
    done = script.read_to_end()
    assert (restarted(done), replies(done)) == (["c"], [])


def test_a_task_restarts_alone() -> None:
    script = following()
    script.ask(verbs.RestartTask("c", 1))
    done = script.read_to_end()
    assert (restarted(done), replies(done)) == ([C1], [])


def test_a_restart_of_a_task_that_is_assigned_but_was_refused_starts_it() -> None:
    script = following(TASK, (ConnectorConfigRecord("c", SOURCE), *committed(2, "1"), KEY))
    script.do(TaskPrepared(C0, 1))
    script.answer_fencing()
    script.do(TaskProducerReady(C0, 1))
    script.read_to_end()
    script.do(TaskStopped(C0, 1))
    script.ask(verbs.RestartTask("c", 0))
    done = script.read_to_end()
    assert ([task.instance for task in of_kind(done, PrepareTask)], replies(done)) == ([2], [])
    assert replies(script.do(TaskPrepared(C0, 2))) == reply(204)


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
    script = leading()
    if failed:
        script.do(ConnectorFailed("c", 1, "oops"), TaskFailed(C1, 3, "oops"))
    for subject in ("c", C0, C1):
        script.show(subject, State.FAILED if failed and subject != C0 else State.RUNNING)
    script.ask(verbs.RestartConnector("c", include_tasks, only_failed))
    done = script.carry_out()
    assert restarted(done) == expected
    (answer,) = of_kind(done, Done)
    plan = cast("ConnectorStatus", answer.body)
    shown: dict[str | TaskId, str] = {
        "c": plan["connector"]["state"],
        **{TaskId("c", task["id"]): task["state"] for task in plan["tasks"]},
    }
    assert answer.status == 202
    assert [subject for subject, state in shown.items() if state == "RESTARTING"] == expected


def test_a_connector_without_a_status_cannot_be_restarted_with_flags() -> None:
    assert answered(leading(), RESTART_ALL) == reply(404, "Status for connector c not found")


@pytest.mark.rule("618.4.3")
def test_restart_commands_touch_only_what_is_assigned_here() -> None:
    assert restarted(following(TASK).see(RestartRecord("c", True, False))) == [C0]


def test_two_restart_commands_that_follow_each_other_restart_once_what_both_want() -> None:
    step = following().see(RestartRecord("c", False, False), RestartRecord("c", True, False))
    assert restarted(step) == ["c", C0, C1]


def test_a_restart_command_does_not_start_what_a_rebalance_has_not_started_yet() -> None:
    script = following(NOTHING)
    script.rebalance(ALL, ahead=1)
    assert script.see(RestartRecord("c", True, False)).effects == []


@pytest.mark.rule("618.4.1")
@pytest.mark.parametrize("verb", READ_FIRST)
def test_a_read_that_fails_is_a_500(verb: Verb) -> None:
    script = leading()
    assert script.ask(verb).effects == [ReadConfigToEnd(2, 3_000)]
    failed = "Failed to read to the end of the config topic: timed out"
    assert script.read_to_end(error="timed out").effects == reply(500, failed)


@pytest.mark.rule("618.4.2")
@pytest.mark.parametrize("verb", READ_FIRST)
def test_a_deletion_found_by_the_read_counts(verb: Verb) -> None:
    script = leading()
    script.ask(verb)
    gone = "Connector c not found" if isinstance(verb, verbs.ModifyOffsets) else "Unknown connector: c"
    assert replies(script.read_to_end(ConnectorConfigRecord("c", None))) == reply(404, gone)


@pytest.mark.rule("618.4.2")
@pytest.mark.parametrize("verb", READ_FIRST)
def test_a_rebalance_that_began_during_the_read_counts(verb: Verb) -> None:
    script = leading()
    script.ask(verb)
    script.rejoin()
    assert script.read_to_end().effects == reply(409, PENDING)


@pytest.mark.rule("618.4.2")
@pytest.mark.parametrize("verb", READ_FIRST)
def test_a_leader_and_work_that_moved_during_the_read_count(verb: Verb) -> None:
    script = leading()
    script.ask(verb)
    script.stops(script.rebalance(revoked=ALL))
    script.rebalance(generation=5)
    (answer,) = script.read_to_end().effects
    if verb in OF_OWNER:
        work = "Task c-0" if isinstance(verb, verbs.RestartTask) else "Connector c"
        assert answer == Refused(77, 409, f"{work} is no longer assigned to this worker")
    else:
        assert answer == Forwarded(77, LEADER_URL)


@pytest.mark.rule("618.4.2")
@pytest.mark.parametrize(
    ("verb", "missing"),
    [
        (verbs.RestartConnector("n"), "Unknown connector: n"),
        (verbs.RestartTask("n", 0), "Unknown connector: n"),
    ],
)
def test_what_is_unknown_here_may_be_in_what_was_not_read_yet(verb: Verb, missing: str) -> None:
    script = following()
    assert script.ask(verb).effects == [ReadConfigToEnd(1, 3_000)]
    assert script.read_to_end().effects == reply(404, missing)
    script.ask(verb)
    assert replies(script.read_to_end(*configured("n"))) == reply(409, PENDING), "reading it begins a rebalance"


@pytest.mark.rule("618.4.2")
def test_a_task_that_a_smaller_task_count_took_away_is_not_found_although_a_rebalance_is_due() -> None:
    script = leading()
    script.ask(verbs.RestartTask("c", 1))
    assert replies(script.read_to_end(*committed(1))) == reply(404, "Unknown task: c-1")


def stopped(**changes: Any) -> WorkerScript:
    """A leader whose connector c is stopped, and has no tasks since its last task count record of 2."""
    return leading((*configured(), *committed(0), resting(TargetState.STOPPED)), **changes)


def test_offsets_of_a_running_connector_cannot_be_modified() -> None:
    assert answered(leading(), verbs.ModifyOffsets("c")) == reply(400, NOT_STOPPED)


def test_offsets_of_a_stopped_connector_may_be_modified_without_exactly_once_right_away() -> None:
    script = stopped(exactly_once_source_support=ExactlyOnceSupport.DISABLED)
    script.ask(verbs.ModifyOffsets("c"))
    assert script.read_to_end().effects == reply(200, OFFSETS)


@pytest.mark.rule("618.6.9")
def test_with_exactly_once_older_producers_are_fenced_before_offsets_are_modified() -> None:
    script = stopped()
    script.ask(verbs.ModifyOffsets("c"))
    assert script.read_to_end().effects == [ReadConfigToEnd(3, 3_000)]
    assert script.read_to_end().effects == [FenceProducers(4, "c", SOURCE, ("g-c-0", "g-c-1"))]
    assert script.fenced().effects == [ReadConfigToEnd(5, 30_000)]
    assert replies(script.carry_out()) == reply(200, OFFSETS)


def stages(script: WorkerScript, verb: Verb, *then: Stimulus) -> dict[int, str]:
    """What the request waits for, after these stimuli."""
    script.ask(verb)
    return stages_after(script, *then)


def stages_after(script: WorkerScript, *then: Stimulus) -> dict[int, str]:
    script.do(*then)
    shown = script.core.handle(Request(1, verbs.Worker()), script.now_ms).shown
    assert isinstance(shown, WorkerShown)
    return dict(shown.stages)


@pytest.mark.parametrize("verb", READ_FIRST)
def test_the_stage_of_a_request_that_reads_first_is_that(verb: Verb) -> None:
    assert stages(leading(), verb) == {77: "reading to the end of the config topic"}


@pytest.mark.parametrize(
    ("verb", "stage"),
    [
        (verbs.Create("n", SOURCE), "writing a config for connector n to the config topic"),
        (verbs.PutConfig("c", SOURCE), "writing a config for connector c to the config topic"),
        (verbs.Delete("c"), "removing the config for connector c from the config topic"),
        (verbs.Stop("c"), "writing 0 task configs for connector c to the config topic"),
        (verbs.Pause("c"), "writing the target state for connector c to the config topic"),
        (verbs.LoggerLevel("connectx", "DEBUG"), "writing a logger level to the config topic"),
        (verbs.Fence("c"), "initiating a round of zombie fencing for connector c"),
    ],
)
def test_the_stage_of_a_request_is_what_it_waits_for(verb: Verb, stage: str) -> None:
    assert stages(leading((*configured(), *committed(1))), verb) == {77: stage}


def test_the_stages_of_a_stop_and_of_a_restart_command_follow_their_writes() -> None:
    script = leading()
    assert stages(script, verbs.Stop("c"), ConfigRecordsWritten(2)) == {77: "reading to the end of the config topic"}
    stopping = {77: "writing the STOPPED target stage for connector c to the config topic"}
    assert stages_after(script, ConfigReadToEnd(3)) == stopping
    script = leading()
    script.show("c", State.RUNNING)
    written = {77: "writing restart request for connector c to the config topic"}
    assert stages(script, RESTART_ALL, ConfigReadToEnd(2)) == written


def test_the_stage_of_published_task_configs_counts_them() -> None:
    published = {77: "writing 1 task configs for connector c to the config topic"}
    assert stages(leading(), verbs.PutTaskConfigs("c", [{}]), ConfigReadToEnd(2)) == published


def test_the_stages_of_a_restart_are_those_of_the_connector() -> None:
    script = following()
    reads: dict[int, str] = {77: "stopping restarted connector c"}
    assert stages(script, verbs.RestartConnector("c"), ConfigReadToEnd(1)) == reads
    assert stages_after(script, ConnectorStopped("c", 1)) == {77: "starting the connector"}
    generating = {77: "generating task configs for connector c"}
    assert stages_after(script, ConnectorStarted("c", 4, TargetState.STARTED)) == generating
    assert stages(following(), verbs.RestartTask("c", 1), ConfigReadToEnd(1)) == {77: "restarting task c-1"}


@pytest.mark.rule("618.6.9")
def test_the_conditions_are_checked_again_after_the_fencing_round() -> None:
    script = stopped()
    script.ask(verbs.ModifyOffsets("c"))
    script.read_to_end()
    found = script.read_to_end(TaskCountRecord("c", 0), resting(TargetState.STARTED))
    assert replies(found) == reply(400, NOT_STOPPED)


@pytest.mark.parametrize("verb", [*OF_LEADER, *OF_OWNER, *INTERNAL, *ANYWHERE, verbs.Pause("c")])
@pytest.mark.parametrize("phase", [WorkerPhase.STARTING, WorkerPhase.STOPPED])
def test_a_worker_that_is_not_up_refuses(verb: Verb, phase: WorkerPhase) -> None:
    script = starting()
    if phase is WorkerPhase.STOPPED:
        script.do(ShutdownRequested())
    assert script.ask(verb).effects == reply(503, f"This worker is {phase}; ask another one, or try again")


@pytest.mark.parametrize("verb", ANYWHERE)
def test_a_worker_that_stops_still_shows_what_it_knows(verb: Verb) -> None:
    script = leading()
    script.do(ShutdownRequested())
    assert [answer.status for answer in of_kind(script.ask(verb), Done)] == [200]


@pytest.mark.parametrize("verb", [*OF_OWNER, *INTERNAL, verbs.Pause("c"), verbs.ResetTopics("c"), OF_LEADER[1]])
def test_a_worker_that_stops_begins_nothing_new(verb: Verb) -> None:
    script = leading()
    script.do(ShutdownRequested())
    stopping = "This worker is stopping; ask another one, or try again"
    assert script.ask(verb).effects == reply(503, stopping)


def test_every_request_that_waits_is_answered_when_the_worker_ends() -> None:
    script = leading((*configured(), *committed(1)))
    requests: list[Verb] = [
        verbs.Delete("c"),  # is being written
        verbs.Stop("c"),  # waits for its turn
        verbs.RestartConnector("c"),  # waits for a read
        verbs.Fence("c"),  # waits for a round
        verbs.ModifyOffsets("c"),  # waits for a read
    ]
    for number, verb in enumerate(requests, start=101):
        assert replies(script.ask(verb, number)) == []
    ended = script.stops(script.do(ShutdownRequested()))
    statuses = [(answer.request_id, answer.status) for answer in of_kind(ended, Refused)]
    assert sorted(statuses) == [(101, 500), (102, 503), (103, 503), (104, 503), (105, 503)]
    assert of_kind(ended, WorkerShutDown) == [WorkerShutDown()]
