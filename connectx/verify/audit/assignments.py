"""Rules about tasks and connectors: missing, stalled or misplaced work. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connectx.errors.plugins import PatternError
from connectx.history.wording import duration, listing, plural
from connectx.model.decoding import whole_number
from connectx.model.patterns import compiled
from connectx.model.spelling import misspelled
from connectx.model.states import LOST, State
from connectx.model.worker_keys import WorkerKeys
from connectx.verify.audit.findings import Finding, Severity
from connectx.verify.audit.inventory import AuditedConnector, ClusterInventory

_HELD = (State.RUNNING, State.PAUSED)


def claimed_twice(cluster: ClusterInventory) -> Iterator[Finding]:
    """A connector or a task that two workers run."""
    claims: dict[tuple[str, str], list[str]] = {}  # a connector may be called like another's task
    for worker in cluster.workers:
        for kind, works in (("connector", worker.connectors), ("task", worker.tasks)):
            for work in works:
                claims.setdefault((work, kind), []).append(worker.worker_id)
    for (work, _), owners in sorted(claims.items()):
        if len(owners) > 1:
            yield Finding(
                "claimed_twice",
                Severity.ERROR,
                work,
                f"{listing(sorted(owners))} run it at the same time",
                "Rows are read or written twice; exactly-once tasks shut each other out again and again.",
                "Restart the worker that is not in the newest generation; it was cut off or stood still.",
            )


def old_generation(cluster: ClusterInventory) -> Iterator[Finding]:
    """A worker that runs tasks under a generation that the group has left."""
    newest = max((worker.generation for worker in cluster.workers if worker.generation is not None), default=None)
    for worker in cluster.workers:
        left = newest is not None and worker.generation is not None and worker.generation < newest
        if (left or worker.in_group is False) and (worker.tasks or worker.connectors):
            where = f"in generation {worker.generation}, the group in {newest}" if left else "no member of the group"
            yield Finding(
                "old_generation",
                Severity.ERROR,
                worker.worker_id,
                f"It runs {listing([*worker.connectors, *worker.tasks])} and is {where}",
                "It is a zombie: others have its work or will get it, and rows may be written twice.",
                "Check its connections to Kafka and its pauses (session.timeout.ms), then restart it.",
            )


def failed(cluster: ClusterInventory) -> Iterator[Finding]:
    """Failed tasks, also under a connector that is RUNNING, and failed connectors."""
    for connector in cluster.connectors:
        if connector.state == State.FAILED:
            yield Finding(
                "failed_connector",
                Severity.ERROR,
                connector.name,
                f"FAILED on {connector.worker_id}: {connector.why or 'no trace'}",
                "It makes no new task configs; tasks that run continue with the old ones.",
                f'Repair the cause, then cluster["{connector.name}"].restart().',
            )
        for task in connector.tasks:
            if task.state == State.FAILED:
                under = f"; the connector is {connector.state}" if connector.state != State.FAILED else ""
                yield Finding(
                    "failed_task",
                    Severity.ERROR,
                    f"{connector.name}-{task.number}",
                    f"FAILED on {task.worker_id}: {task.why or 'no trace'}{under}",
                    "Its part of the data stands still. Kafka Connect never restarts a task by itself.",
                    "Repair the cause, then "
                    f'cluster["{connector.name}"].restart(include_tasks=True, only_failed=True).',
                )


def unassigned(cluster: ClusterInventory) -> Iterator[Finding]:
    """Work without a worker for longer than the group waits for a lost worker."""
    delay_ms = WorkerKeys.scheduled_rebalance_max_delay_ms.default if cluster.delay_ms is None else cluster.delay_ms
    setting = WorkerKeys.scheduled_rebalance_max_delay_ms.name
    for connector in cluster.connectors:
        for task in connector.tasks:
            if task.state not in (State.UNASSIGNED, LOST) or task.since_ms is None:
                continue
            waited_ms = cluster.taken_ms - task.since_ms
            if waited_ms > delay_ms:
                yield Finding(
                    "unassigned",
                    Severity.ERROR,
                    f"{connector.name}-{task.number}",
                    f"{task.state} for {duration(waited_ms)}, longer than {setting} ({duration(delay_ms)})",
                    "Its part of the data is neither read nor written.",
                    "Look at the leader's log: a group that does not settle, or no worker that can run the class.",
                )
        missing = connector.configured_tasks - len(connector.tasks)
        if missing > 0 and connector.state == State.RUNNING:
            yield Finding(
                "never_started",
                Severity.WARNING,
                connector.name,
                f"{missing} of {plural(connector.configured_tasks, 'task')} without a status",
                "Their part of the data is not moved; they may be starting just now.",
                "Ask again; if it stays, restart the connector with its tasks.",
            )


def lagging(cluster: ClusterInventory) -> Iterator[Finding]:
    """Workers that have read less of the config topic than others. It is usual at a join: they catch up soon."""
    known = [worker for worker in cluster.workers if worker.config_offset is not None]
    newest = max((worker.config_offset or 0 for worker in known), default=0)
    for worker in known:
        is_late = not worker.as_of_join and (worker.config_offset or 0) < newest
        if not is_late and not worker.mismatch:
            continue
        seen = "The leader had read less of the config topic than its members when it last gave out work"
        if is_late:
            seen = f"It has read the config topic up to {worker.config_offset}, another up to {newest}"
        yield Finding(
            "lagging_worker",
            Severity.WARNING,
            worker.worker_id,
            seen,
            "It runs old configurations, and starts no new work until it has caught up.",
            "If it lasts: check its connection to Kafka and the permissions on config.storage.topic.",
        )


def status_against_group(cluster: ClusterInventory) -> Iterator[Finding]:
    """Statuses that name a worker which is no member, or which has not that work."""
    members = {worker.worker_id: worker for worker in cluster.workers if worker.in_group}
    if not members or not cluster.is_settled:
        return
    for connector in cluster.connectors:
        parts = [(connector.name, connector.state, connector.worker_id, False)]
        parts += [(f"{connector.name}-{t.number}", t.state, t.worker_id, True) for t in connector.tasks]
        for work, state, worker_id, is_task in parts:
            if state not in (*_HELD, LOST):
                continue
            owner = members.get(worker_id)
            if owner is None:
                seen = f"{state} on {worker_id}, which is no member of the group {cluster.group_id}"
            elif work not in (owner.tasks if is_task else owner.connectors):
                seen = f"{state} on {worker_id}, to which the group has not given it"
            else:
                continue
            yield Finding(
                "status_contradicts_group",
                Severity.WARNING,
                work,
                seen,
                "It does not run although its status is RUNNING, or it runs on a worker that should not run it.",
                f"Wait for {duration(cluster.delay_ms or 0)} (the group waits for lost workers); then restart it."
                if cluster.delay_ms
                else "Ask again; if it stays, restart it.",
            )


def tasks_without_use(cluster: ClusterInventory) -> Iterator[Finding]:
    """tasks.max above what a source makes, and sinks with more tasks than partitions."""
    for connector in cluster.connectors:
        wanted = whole_number((connector.config.get("tasks.max") or "1").strip())  # None: may be a placeholder
        if connector.type == "source" and wanted is not None and 0 < connector.configured_tasks < wanted:
            yield Finding(
                "tasks_max_unused",
                Severity.NOTE,
                connector.name,
                f"tasks.max is {wanted}, and {connector.class_name} makes {plural(connector.configured_tasks, 'task')}",
                "More tasks than the source can be divided into are never made: it gets no faster.",
                f"Set tasks.max to {connector.configured_tasks}, or divide the source.",
            )
        if connector.type != "sink" or not cluster.topics_known:
            continue
        partitions = sum(cluster.topics[topic].partitions for topic in read_topics(cluster, connector))
        idle = connector.configured_tasks - partitions
        if partitions and idle > 0:
            yield Finding(
                "sink_tasks_above_partitions",
                Severity.WARNING,
                connector.name,
                f"{plural(connector.configured_tasks, 'task')} for {plural(partitions, 'partition')}",
                f"{plural(idle, 'task')} of it {'has' if idle == 1 else 'have'} nothing to do.",
                f"Set tasks.max to {partitions}, or give the topics more partitions.",
            )


def missing_topics(cluster: ClusterInventory) -> Iterator[Finding]:
    """Topics that a connector names and Kafka does not have."""
    if not cluster.topics_known:
        return
    for connector in cluster.connectors:
        for topic in connector.topics:
            creates = connector.type == "source" and connector.config.get("topic.creation.default.partitions")
            if topic not in cluster.topics and not creates and "${" not in topic:
                yield Finding(
                    "topic_missing",
                    Severity.WARNING,
                    connector.name,
                    f"Topic {topic} does not exist, or this login may not see it",
                    "A sink reads nothing. Unless the brokers create topics by themselves when one is asked for, a "
                    "source's task hangs in Kafka Connect until it is there, RUNNING.",
                    "Create it, or let the connector: topic.creation.default.partitions and .replication.factor.",
                )


def misspelled_keys(cluster: ClusterInventory) -> Iterator[Finding]:
    """Keys that a connector does not have, each much like one that it has and that is not set."""
    for connector in cluster.connectors:
        known = cluster.keys.get(connector.class_name, ())
        for key, meant in misspelled(connector.config.keys(), known):
            yield Finding(
                "key_misspelled",
                Severity.WARNING,
                connector.name,
                f"{key} is set, which {connector.class_name} does not know",
                f"It has no effect: {meant} has its default.",
                f"Rename it to {meant}, or remove it.",
            )


def plugins(cluster: ClusterInventory) -> Iterator[Finding]:
    """Classes that workers have in different versions, or do not have."""
    plugins_of = {worker.worker_id: worker.plugins for worker in cluster.workers if worker.plugins is not None}
    used = {connector.class_name: connector.name for connector in reversed(cluster.connectors)}
    for cls in sorted({cls for known in plugins_of.values() for cls in known}):
        versions = {worker_id: known[cls] for worker_id, known in plugins_of.items() if cls in known}
        if len(set(versions.values())) > 1:
            shown = ", ".join(f"{version} on {worker_id}" for worker_id, version in sorted(versions.items()))
            yield Finding(
                "plugin_versions_differ",
                Severity.WARNING,
                cls,
                shown,
                "A connector behaves differently on different workers.",
                "Bring all workers to one version; until then use connector.plugin.version (KIP-891).",
            )
    yield from _on_some_workers(plugins_of)
    for cls, connector in sorted(used.items()):
        lacking = [worker.worker_id for worker in cluster.workers if cls in worker.lacks]
        if lacking:
            everybody = len(lacking) == len(plugins_of)
            yield Finding(
                "class_unknown",
                Severity.ERROR if everybody else Severity.WARNING,
                connector,
                f"{listing(sorted(lacking))} {'does' if len(lacking) == 1 else 'do'} not know {cls}",
                "The connector or a task fails as soon as the group gives it to such a worker.",
                "Install the class on all workers of the group, or take the worker out of it.",
            )


def _on_some_workers(plugins_of: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Classes that only some workers of one kind have: those of connectx, or those of Kafka Connect."""
    kinds: dict[bool, dict[str, Mapping[str, str]]] = {}
    for worker_id, known in plugins_of.items():
        kinds.setdefault(any(cls.startswith("connectx.") for cls in known), {})[worker_id] = known
    for workers in kinds.values():
        for cls in sorted({cls for known in workers.values() for cls in known}):
            having = sorted(worker_id for worker_id, known in workers.items() if cls in known)
            if len(having) < len(workers):
                yield Finding(
                    "plugin_on_some_workers",
                    Severity.NOTE,
                    cls,
                    f"only {listing(having)} {'has' if len(having) == 1 else 'have'} it",
                    "A connector of this class fails as soon as the group gives it or a task to another worker.",
                    "Install it on all workers of the group, and restart them.",
                )


def read_topics(cluster: ClusterInventory, connector: AuditedConnector) -> list[str]:
    """Topics that exist and that a sink reads, by name or by pattern; patterns leave out internal topics of Kafka."""
    pattern = connector.config.get("topics.regex")
    if not pattern:
        return [topic for topic in connector.topics if topic in cluster.topics]
    try:
        matches = compiled(pattern).matches
    except PatternError:
        return []
    return sorted(topic for topic in cluster.topics if not topic.startswith("__") and matches(topic))


WORK_RULES = (
    claimed_twice,
    old_generation,
    failed,
    unassigned,
    lagging,
    status_against_group,
    tasks_without_use,
    missing_topics,
    misspelled_keys,
    plugins,
)
