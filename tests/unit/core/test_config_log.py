"""Replay rules of the config topic."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest

from connectx.core.config_log import (
    ConfigChange,
    ConfigLog,
    ConnectorConfigChanged,
    ConnectorRemoved,
    LoggerLevelSeen,
    RestartSeen,
    SessionKeyChanged,
    TargetStateChanged,
    TaskConfigsCommitted,
    TaskCountRecorded,
)
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    IgnoredRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.ids import TaskId
from connectx.model.states import TargetState

pytestmark = pytest.mark.rule("always.6")

C0, C1, C2 = (TaskId("c", number) for number in range(3))
CREATE = ConnectorConfigRecord("c", {"name": "c"})
DELETE = ConnectorConfigRecord("c", None)


def task(task_id: TaskId, text: str = "x") -> TaskConfigRecord:
    return TaskConfigRecord(task_id, {"k": text})


def replay(*records: ConfigRecord) -> tuple[ConfigLog, list[list[ConfigChange]]]:
    log = ConfigLog()
    return log, [log.apply(log_offset, record) for log_offset, record in enumerate(records)]


def running(*more: ConfigRecord) -> tuple[ConfigLog, list[list[ConfigChange]]]:
    """A connector with two tasks, then `more`; only the changes of `more` come back."""
    log, changes = replay(CREATE, task(C0), task(C1), TaskCommitRecord("c", 2), *more)
    return log, changes[4:]


def test_an_empty_log_knows_nothing() -> None:
    log = ConfigLog()
    assert (log.offset, log.connectors(), log.session_key) == (-1, (), None)
    assert (log.tasks("c"), log.task_count("c"), log.task_config(C0), log.connector_config("c")) == ((), 0, None, None)
    assert (log.target_state("c"), log.task_count_record("c"), log.task_config_generation("c")) == (None, None, None)
    assert not log.contains("c")
    assert not log.inconsistent("c")
    assert not log.pending_fencing("c")


def test_the_offset_is_that_of_the_next_record_also_after_an_ignored_one() -> None:
    log = ConfigLog()
    assert log.apply(7, IgnoredRecord("k", "why")) == []
    assert log == ConfigLog(offset=8)


def test_a_new_connector_is_started() -> None:
    log, changes = replay(CREATE, ConnectorConfigRecord("c", {"name": "c", "x": None}))
    assert changes == [[ConnectorConfigChanged("c", True)], [ConnectorConfigChanged("c", False)]]
    assert log.target_state("c") is TargetState.STARTED
    assert log.connector_config("c") == {"name": "c", "x": None}


def test_connectors_are_sorted() -> None:
    log, _ = replay(ConnectorConfigRecord("b", {}), ConnectorConfigRecord("a", {}))
    assert log.connectors() == ("a", "b")


def test_an_initial_target_state_makes_no_noise_and_is_kept() -> None:
    log, changes = replay(TargetStateRecord("c", TargetState.PAUSED), CREATE)
    assert changes == [[], [ConnectorConfigChanged("c", True)]]
    assert log.target_state("c") is TargetState.PAUSED


def test_a_target_state_is_reported_only_when_it_changes() -> None:
    pause = TargetStateRecord("c", TargetState.PAUSED)
    _, changes = replay(CREATE, pause, pause, TargetStateRecord("c", TargetState.STARTED))
    assert changes[1:] == [
        [TargetStateChanged("c", TargetState.PAUSED)],
        [],
        [TargetStateChanged("c", TargetState.STARTED)],
    ]


def test_a_target_states_tombstone_means_started_while_the_connector_exists() -> None:
    tombstone = TargetStateRecord("c", None)
    log, changes = replay(CREATE, TargetStateRecord("c", TargetState.STOPPED), tombstone)
    assert changes[2] == []
    assert log.target_state("c") is TargetState.STARTED
    log, _ = replay(CREATE, DELETE, tombstone)
    assert log.target_state("c") is None


def test_task_configs_count_only_after_their_commit() -> None:
    log, changes = replay(CREATE, task(C0), task(C1))
    assert changes[1:] == [[], []]
    assert (log.tasks("c"), log.task_config(C0)) == ((), None)
    assert log.apply(3, TaskCommitRecord("c", 2)) == [TaskConfigsCommitted("c", (C0, C1), True)]
    assert (log.tasks("c"), log.task_config(C1)) == ((C0, C1), {"k": "x"})
    assert log.all_task_configs("c") == {C0: {"k": "x"}, C1: {"k": "x"}}
    assert log.pending_fencing("c")
    assert log.task_config_generation("c") == 0


def test_an_incomplete_commit_leaves_the_connector_without_tasks() -> None:
    log, changes = running(task(C0, "new"), TaskCommitRecord("c", 2))
    assert changes == [[], [TaskConfigsCommitted("c", (), False)]]
    assert log.inconsistent("c")
    assert (log.tasks("c"), log.task_count("c"), log.task_config_generation("c")) == ((), 2, 0)
    assert log.all_task_configs("c") == {}


def test_a_task_is_there_when_its_connector_names_it() -> None:
    two, none = TaskCommitRecord("c", 2), TaskCommitRecord("c", 0)
    for records in ((CREATE,), (CREATE, task(C0), task(C1), two), (CREATE, task(C0), two), (CREATE, none)):
        log, _ = replay(*records)
        assert tuple(t for t in (TaskId("c", -1), C0, C1, C2) if log.has_task(t)) == log.tasks("c")


def test_a_complete_commit_heals_an_inconsistent_connector() -> None:
    log, changes = running(TaskCommitRecord("c", 1), task(C0, "a"), TaskCommitRecord("c", 1))
    assert changes[0] == [TaskConfigsCommitted("c", (), False)]
    assert changes[2] == [TaskConfigsCommitted("c", (C0,), True)]
    assert (log.inconsistent("c"), log.tasks("c"), log.task_config(C0)) == (False, (C0,), {"k": "a"})


def test_what_was_buffered_before_an_incomplete_commit_is_not_used_later() -> None:
    log, _ = replay(CREATE, task(C0), TaskCommitRecord("c", 2), task(C1), TaskCommitRecord("c", 2))
    assert log.inconsistent("c")


def test_more_task_configs_than_committed_are_applied_too() -> None:
    log, changes = replay(CREATE, task(C0), task(C1), task(C2), TaskCommitRecord("c", 2))
    assert changes[4] == [TaskConfigsCommitted("c", (C0, C1, C2), True)]
    assert log.tasks("c") == (C0, C1)
    assert list(log.all_task_configs("c")) == [C0, C1]


def test_a_first_commit_of_no_tasks_makes_no_task_config_generation() -> None:
    log, changes = replay(CREATE, TaskCommitRecord("c", 0))
    assert changes[1] == [TaskConfigsCommitted("c", (), True)]
    assert log.task_config_generation("c") is None
    assert log.pending_fencing("c")


def test_a_later_commit_of_no_tasks_moves_the_task_config_generation() -> None:
    log, changes = running(TargetStateRecord("c", TargetState.STOPPED), TaskCommitRecord("c", 0))
    assert changes[1] == [TaskConfigsCommitted("c", (), True)]
    assert (log.tasks("c"), log.task_config_generation("c")) == ((), 1)


def test_a_commit_without_a_connector_is_acted_on_when_its_configuration_comes() -> None:
    """Compaction moves a configuration that was put again behind the commit; its tasks are still the connector's."""
    log, changes = replay(task(C0), TaskCommitRecord("c", 1), TaskCountRecord("c", 1))
    assert (changes[:2], log.tasks("c"), log.connectors()) == ([[], []], (), ())
    assert log.apply(9, CREATE) == [ConnectorConfigChanged("c", True), TaskConfigsCommitted("c", (C0,), True)]
    assert (log.tasks("c"), log.pending_fencing("c"), log.copy()) == ((C0,), False, log)


def test_a_commit_that_came_before_its_configuration_needs_fencing_until_a_task_count_record() -> None:
    log, _ = replay(task(C0), TaskCommitRecord("c", 1), CREATE)
    assert log.pending_fencing("c")


def test_a_connector_that_was_created_stopped_has_no_tasks_of_a_namesake() -> None:
    """Compaction has taken the deletion: a newer record has its key."""
    stopped = TargetStateRecord("c", TargetState.STOPPED)
    log, _ = replay(task(C0), TaskCommitRecord("c", 1), stopped, CREATE)
    assert (log.tasks("c"), log.task_count("c")) == ((), 0)


def test_a_deletion_forgets_a_commit_that_came_before_its_configuration() -> None:
    log, _ = replay(task(C0), TaskCommitRecord("c", 1), DELETE, CREATE)
    assert (log.tasks("c"), log.task_count("c")) == ((), 0)


def test_tasks_of_a_deleted_connector_are_not_its_namesakes_though_compaction_took_the_tombstones() -> None:
    log, changes = replay(task(C0), task(C1), TaskCommitRecord("c", 0), CREATE)
    assert changes[-1] == [ConnectorConfigChanged("c", True)]
    assert log.tasks("c") == ()
    log.apply(9, TaskCommitRecord("c", 1))
    assert log.inconsistent("c"), "the task configs of the deleted one are forgotten, too"


def test_a_deleted_connector_leaves_what_its_successor_must_know() -> None:
    log, changes = running(
        TaskCountRecord("c", 2), task(C0), TaskCommitRecord("c", 1), TargetStateRecord("c", TargetState.PAUSED), DELETE
    )
    assert changes[-1] == [ConnectorRemoved("c")]
    assert (log.contains("c"), log.task_count("c"), log.tasks("c"), log.task_config(C0)) == (False, 0, (), None)
    assert (log.task_count_record("c"), log.task_config_generation("c")) == (2, 1)
    assert log.pending_fencing("c")
    assert log.target_state("c") is TargetState.PAUSED


def test_a_deletion_forgets_buffered_task_configs_and_inconsistency() -> None:
    log, _ = replay(CREATE, TaskCommitRecord("c", 1), task(C0), DELETE, CREATE)
    assert not log.inconsistent("c")
    assert log.apply(5, TaskCommitRecord("c", 1)) == [TaskConfigsCommitted("c", (), False)]


def test_a_second_tombstone_changes_nothing() -> None:
    _, changes = replay(CREATE, DELETE, DELETE)
    assert changes[1:] == [[ConnectorRemoved("c")], []]


def test_deleting_one_connector_leaves_the_tasks_of_others() -> None:
    log, _ = running(ConnectorConfigRecord("c-0", {}), ConnectorConfigRecord("c-0", None))
    assert log.all_task_configs("c") == {C0: {"k": "x"}, C1: {"k": "x"}}


def test_a_task_count_record_ends_the_need_for_fencing_until_the_next_commit() -> None:
    log, changes = running(TaskCountRecord("c", 2))
    assert changes == [[TaskCountRecorded("c", 2)]]
    assert (log.task_count_record("c"), log.pending_fencing("c")) == (2, False)
    log.apply(9, TaskCommitRecord("c", 0))
    assert log.pending_fencing("c")


def test_session_key_and_commands_are_handed_on() -> None:
    key = SessionKeyRecord(b"k", "HmacSHA256", 5)
    log, changes = replay(key, RestartRecord("c", True, False), LoggerLevelRecord("org", "DEBUG"))
    assert changes == [[SessionKeyChanged(key)], [RestartSeen("c", True, False)], [LoggerLevelSeen("org", "DEBUG")]]
    assert log == ConfigLog(offset=3, session_key=key)


def test_a_copy_is_equal_and_independent() -> None:
    log, _ = running(task(C2))
    snapshot = log.copy()
    assert snapshot == log == copy.deepcopy(log)
    later: list[ConfigRecord] = [task(C0, "z"), TaskCommitRecord("c", 1), TaskCountRecord("c", 1), DELETE]
    for log_offset, record in enumerate(later, 5):
        log.apply(log_offset, record)
    assert snapshot == running(task(C2))[0]
    assert snapshot != log


def test_what_a_query_returns_is_not_the_state() -> None:
    log, _ = running()
    for config in (log.connector_config("c"), log.task_config(C0)):
        assert config is not None
        config.clear()
    assert log == running()[0]


def test_equal_task_configs_are_not_published_again() -> None:
    log, _ = running()
    assert not log.task_configs_changed("c", [{"k": "x"}, {"k": "x"}])


def test_another_number_or_content_of_task_configs_is_published() -> None:
    log, _ = running()
    assert log.task_configs_changed("c", [{"k": "x"}])
    assert log.task_configs_changed("c", [{"k": "x"}, {"k": "y"}])
    assert log.task_configs_changed("c", [{"k": "x"}, {"k": "x", "l": None}])


def test_first_task_configs_are_published_even_when_there_are_none() -> None:
    log, _ = replay(CREATE)
    assert log.task_configs_changed("c", [])
    log.apply(1, TaskCommitRecord("c", 0))
    assert not log.task_configs_changed("c", [])


def test_a_changed_connector_config_publishes_equal_task_configs() -> None:
    log, _ = running(ConnectorConfigRecord("c", {"name": "c", "value.converter": "X"}))
    assert log.task_configs_changed("c", [{"k": "x"}, {"k": "x"}])


def test_connector_configs_are_compared_with_placeholders_resolved() -> None:
    def resolve(config: Mapping[str, str | None]) -> dict[str, str | None]:
        return {key: "same" if key == "password" else text for key, text in config.items()}

    log, _ = replay(
        ConnectorConfigRecord("c", {"password": "${file:/a:x}"}),
        TaskCommitRecord("c", 0),
        ConnectorConfigRecord("c", {"password": "${file:/b:x}"}),
    )
    assert not log.task_configs_changed("c", [], resolve)
    assert log.task_configs_changed("c", [])


def test_placeholders_are_put_back_by_key() -> None:
    log, _ = replay(
        ConnectorConfigRecord("c", {"p": "${env:P}", "q": "a ${file:/f:q} b", "n": None, "plain": "${x}", "u": "1"})
    )
    raw = log.raw_task_configs("c", [{"p": "secret", "q": "a s b", "n": "1", "plain": "7", "u": "2", "own": "secret"}])
    assert raw == ({"p": "${env:P}", "q": "a ${file:/f:q} b", "n": "1", "plain": "7", "u": "2", "own": "secret"},)


def test_an_unknown_connector_has_no_placeholders() -> None:
    assert ConfigLog().raw_task_configs("c", [{"a": "1"}]) == ({"a": "1"},)
