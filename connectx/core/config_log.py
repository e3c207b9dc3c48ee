"""State of the config topic: its records folded into connectors, task configs and target states.

It decides what each record changes and reports that as a `ConfigChange`. It never decides what a worker does about a
change, and it does not know whether start-up is over: the caller drops the changes of the first read to the end, so
that commands of the past (restart requests, logger levels) are not carried out again.

Mirrors Kafka Connect's KafkaConfigBackingStore (replay) and ClusterConfigState (queries).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from connectx.model import config_records
from connectx.model.ids import TASK_ORDER, TaskId
from connectx.model.placeholders import has_placeholder
from connectx.model.states import TargetState
from connectx.values import Value

Properties = Mapping[str, str | None]


class ConnectorConfigChanged(Value):
    """A connector's configuration was stored; `is_new` when the log did not hold the connector before."""

    connector: str
    is_new: bool


class ConnectorRemoved(Value):
    """A connector that the log held is gone."""

    connector: str


class TaskConfigsCommitted(Value):
    """A set of task configs was committed.

    `tasks` are the ids whose configs were replaced (none for a commit of zero tasks); `complete` is False when some
    were missing, and then the connector counts as having no tasks.
    """

    connector: str
    tasks: tuple[TaskId, ...]
    complete: bool


class TargetStateChanged(Value):
    """The target state of an existing connector became another one; removals are not reported."""

    connector: str
    target_state: TargetState


class TaskCountRecorded(Value):
    """A task count record ends the need for a fencing round (KIP-618)."""

    connector: str
    task_count: int


class SessionKeyChanged(Value):
    """There is a new session key (KIP-507)."""

    session_key: config_records.SessionKeyRecord


class RestartSeen(Value):
    """A restart command (KIP-745); to be acted on only when read after start-up."""

    connector: str
    include_tasks: bool
    only_failed: bool


class LoggerLevelSeen(Value):
    """A logger level command (KIP-976); to be acted on only when read after start-up."""

    namespace: str
    level: str


ConfigChange = (
    ConnectorConfigChanged
    | ConnectorRemoved
    | TaskConfigsCommitted
    | TargetStateChanged
    | TaskCountRecorded
    | SessionKeyChanged
    | RestartSeen
    | LoggerLevelSeen
)


@dataclass(slots=True)
class ConfigLog:
    """State of the config topic up to `offset`. Equal by value; `copy()` is the snapshot that a worker acts on.

    `offset` is the offset of the next config record: one past the last record applied, -1 before the first. It counts
    records, so after a transaction marker it stays below the end of the log.
    """

    offset: int = -1
    session_key: config_records.SessionKeyRecord | None = None
    _configs: dict[str, Properties] = field(default_factory=dict)
    _target_states: dict[str, TargetState] = field(default_factory=dict)
    _task_counts: dict[str, int] = field(default_factory=dict)
    _task_configs: dict[str, dict[TaskId, Properties]] = field(default_factory=dict)  # by connector, none empty
    _buffered: dict[str, dict[TaskId, Properties]] = field(default_factory=dict)
    _early_commits: dict[str, int] = field(default_factory=dict)
    """Commits that were read before their connector's configuration."""
    _inconsistent: set[str] = field(default_factory=set)
    _applied_configs: dict[str, Properties] = field(default_factory=dict)
    # Outlive the connector, so that a new one with its name is fenced and numbered correctly.
    _task_count_records: dict[str, int] = field(default_factory=dict)
    _task_config_generations: dict[str, int] = field(default_factory=dict)
    _pending_fencing: set[str] = field(default_factory=set)
    _last_commits: dict[str, int] = field(default_factory=dict)
    """Number of tasks in the last commit record of each connector name."""

    def copy(self) -> ConfigLog:
        """An equal log that no longer changes with this one."""
        return ConfigLog(
            self.offset,
            self.session_key,
            dict(self._configs),
            dict(self._target_states),
            dict(self._task_counts),
            {connector: dict(tasks) for connector, tasks in self._task_configs.items()},
            {connector: dict(tasks) for connector, tasks in self._buffered.items()},
            dict(self._early_commits),
            set(self._inconsistent),
            dict(self._applied_configs),
            dict(self._task_count_records),
            dict(self._task_config_generations),
            set(self._pending_fencing),
            dict(self._last_commits),
        )

    def apply(self, log_offset: int, record: config_records.ConfigRecord) -> list[ConfigChange]:
        """Apply the record at `log_offset` (int64) and return its changes, in order; most often one.

        The offset moves first, for every record, even one that is ignored. A value that is not JSON is no record:
        it must not be handed in, as Kafka Connect does not move its offset for it.
        """
        self.offset = log_offset + 1
        match record:
            case config_records.ConnectorConfigRecord(connector, None):
                return self._remove_connector(connector)
            case config_records.ConnectorConfigRecord(connector, properties):
                assert properties is not None, "a tombstone is handled above"
                is_new = connector not in self._configs
                self._configs[connector] = dict(properties)
                self._target_states.setdefault(connector, TargetState.STARTED)
                return [ConnectorConfigChanged(connector, is_new), *self._catch_up(connector)]
            case config_records.TargetStateRecord(connector, state):
                return self._set_target_state(connector, state)
            case config_records.TaskConfigRecord(task, properties):
                self._buffered.setdefault(task.connector, {})[task] = dict(properties)
            case config_records.TaskCommitRecord(connector, tasks):
                return self._commit_tasks(connector, tasks)
            case config_records.TaskCountRecord(connector, task_count):
                self._task_count_records[connector] = task_count
                self._pending_fencing.discard(connector)
                return [TaskCountRecorded(connector, task_count)]
            case config_records.SessionKeyRecord():
                self.session_key = record
                return [SessionKeyChanged(record)]
            case config_records.RestartRecord(connector, include_tasks, only_failed):
                return [RestartSeen(connector, include_tasks, only_failed)]
            case config_records.LoggerLevelRecord(namespace, level):
                return [LoggerLevelSeen(namespace, level)]
            case config_records.IgnoredRecord():
                pass
        return []

    def _remove_connector(self, connector: str) -> list[ConfigChange]:
        """Drop the connector, but not what a successor of that name needs; the target state has its own tombstone."""
        existed = self._configs.pop(connector, None) is not None
        self._task_counts.pop(connector, None)
        self._task_configs.pop(connector, None)
        self._buffered.pop(connector, None)
        self._early_commits.pop(connector, None)
        self._applied_configs.pop(connector, None)
        self._inconsistent.discard(connector)
        return [ConnectorRemoved(connector)] if existed else []

    def _set_target_state(self, connector: str, state: TargetState | None) -> list[ConfigChange]:
        exists = connector in self._configs
        if state is None:
            self._target_states.pop(connector, None)
            if exists:
                self._target_states[connector] = TargetState.STARTED
            return []
        changed = self._target_states.get(connector) is not state
        self._target_states[connector] = state
        # A state that was written just before its configuration is no change.
        return [TargetStateChanged(connector, state)] if changed and exists else []

    def _commit_tasks(self, connector: str, tasks: int) -> list[ConfigChange]:
        self._last_commits[connector] = tasks
        if connector not in self._configs:
            # Deleted, and compaction took the traces (KAFKA-16838); or configured again since, and compaction took the
            # older configuration. Kafka Connect forgets the tasks in both cases, which leaves a worker that starts
            # then without the tasks that the others see. A deletion leaves an empty commit, which distinguishes the
            # two.
            if tasks:
                self._early_commits[connector] = tasks
            else:
                self._early_commits.pop(connector, None)
                self._buffered.pop(connector, None)
            self._pending_fencing.add(connector)
            return []
        buffered = self._buffered.get(connector)
        ids = {task.task for task in buffered or ()}
        complete = all(number in ids for number in range(tasks))
        updated: tuple[TaskId, ...] = ()
        if complete:
            if buffered is not None:
                updated = tuple(sorted(buffered, key=TASK_ORDER))
                if buffered:
                    self._task_configs.setdefault(connector, {}).update(buffered)
                generation = self._task_config_generations.get(connector, -1)
                self._task_config_generations[connector] = generation + 1
            self._inconsistent.discard(connector)
            self._applied_configs[connector] = self._configs[connector]
        else:
            self._inconsistent.add(connector)
        if buffered is not None:
            buffered.clear()  # the empty buffer stays: it makes the next commit a new task config generation
        self._task_counts[connector] = tasks
        self._pending_fencing.add(connector)
        return [TaskConfigsCommitted(connector, updated, complete)]

    def _catch_up(self, connector: str) -> list[ConfigChange]:
        """Apply a commit that came before the configuration; a task count record may have followed it already."""
        tasks = self._early_commits.pop(connector, None)
        if tasks is None or self._target_states.get(connector) is TargetState.STOPPED:
            return []  # one that was created stopped has no tasks: they are those of a namesake that was deleted
        is_pending = connector in self._pending_fencing
        changes = self._commit_tasks(connector, tasks)
        if not is_pending:
            self._pending_fencing.discard(connector)
        return changes

    def connectors(self) -> tuple[str, ...]:
        """Names of all connectors, sorted."""
        return tuple(sorted(self._configs))

    def contains(self, connector: str) -> bool:
        return connector in self._configs

    def connector_config(self, connector: str) -> dict[str, str | None] | None:
        """The raw configuration (placeholders unresolved), None for an unknown connector."""
        config = self._configs.get(connector)
        return None if config is None else dict(config)

    def target_state(self, connector: str) -> TargetState | None:
        """What the user asked for; it can be known for a connector without a configuration."""
        return self._target_states.get(connector)

    def task_count(self, connector: str) -> int:
        """Number of the last commit record, 0 without one; counts an inconsistent connector's tasks too."""
        return self._task_counts.get(connector, 0)

    def tasks(self, connector: str) -> tuple[TaskId, ...]:
        """Ids of the connector's tasks in order; none while its task configs are inconsistent."""
        if connector in self._inconsistent:
            return ()
        return tuple(TaskId(connector, number) for number in range(self.task_count(connector)))

    def has_leftover_tasks(self, connector: str) -> bool:
        """True when the topic holds a commit record with tasks of a connector that does not exist (KAFKA-16838).

        A Java leader leaves it there when it deletes a connector. A new connector of that name must not run them.
        """
        return connector not in self._configs and self._last_commits.get(connector, 0) > 0

    def has_task(self, task: TaskId) -> bool:
        return 0 <= task.task < self.task_count(task.connector) and task.connector not in self._inconsistent

    def task_config(self, task: TaskId) -> dict[str, str | None] | None:
        """The raw configuration of a task. None is not an empty configuration: such a task must not start."""
        config = self._task_configs.get(task.connector, {}).get(task)
        return None if config is None else dict(config)

    def all_task_configs(self, connector: str) -> dict[TaskId, dict[str, str | None]]:
        """Raw configurations of the tasks that `tasks` names, in order; a missing one is left out."""
        found = ((task, self.task_config(task)) for task in self.tasks(connector))
        return {task: config for task, config in found if config is not None}

    def task_count_record(self, connector: str) -> int | None:
        """The last task count record (KIP-618), None if there never was one."""
        return self._task_count_records.get(connector)

    def pending_fencing(self, connector: str) -> bool:
        """True when task configs were committed after the last task count record."""
        return connector in self._pending_fencing

    def task_config_generation(self, connector: str) -> int | None:
        """How often task configs were applied, counted from 0; None before the first time."""
        return self._task_config_generations.get(connector)

    def inconsistent(self, connector: str) -> bool:
        """True when the last commit lacked task configs, so that nothing may be acted on."""
        return connector in self._inconsistent

    def raw_task_configs(self, connector: str, task_configs: Sequence[Properties]) -> tuple[dict[str, str | None], ...]:
        """Put placeholders back: a task property whose key holds one in the connector's raw config gets that raw text.

        Mirrors AbstractHerder.reverseTransform; the result is what goes to the config topic.
        """
        raw = {
            key: text
            for key, text in (self._configs.get(connector) or {}).items()
            if text is not None and has_placeholder(text)
        }
        return tuple({key: raw.get(key, text) for key, text in config.items()} for config in task_configs)

    def task_configs_changed(
        self,
        connector: str,
        raw_task_configs: Sequence[Properties],
        resolve: Callable[[Properties], Properties] = dict,
    ) -> bool:
        """True when these task configs (see `raw_task_configs`) must be published.

        That is when the last commit was incomplete, when their number or one of them differs, or when the connector's
        configuration, resolved by `resolve` (config providers), is not the one that was applied: converters and client
        overrides reach tasks that way (KAFKA-9228).
        """
        if connector in self._inconsistent:
            return True
        if len(raw_task_configs) != self.task_count(connector):
            return True
        known = self._task_configs.get(connector, {})
        if any(known.get(TaskId(connector, n)) != dict(c) for n, c in enumerate(raw_task_configs)):
            return True
        applied, current = self._applied_configs.get(connector), self._configs.get(connector)
        if applied is None or current is None:
            return applied is not current
        return resolve(applied) != resolve(current)
