"""Rules about internal topics, transactions and settings that are known to cause problems. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connectx.history.wording import duration, listing, plural
from connectx.model.decoding import whole_number
from connectx.model.worker_keys import WorkerKeys
from connectx.verify.audit.findings import Finding, Severity
from connectx.verify.audit.inventory import ClusterInventory

_LONG_MS = 60_000
_NEEDED = {"config": "connector configurations", "offset": "source offsets", "status": "statuses"}


def internal_topics(cluster: ClusterInventory) -> Iterator[Finding]:
    """Cleanup policy, partitions and replication of the config, offsets and status topics."""
    for topic in cluster.topics.values():
        if not topic.role:
            continue
        setting = f"{topic.role}.storage.topic"
        subject = f"{topic.name} ({setting})"
        if topic.cleanup_policy.replace(" ", "") != "compact":
            yield Finding(
                "internal_topic_cleanup",
                Severity.ERROR,
                subject,
                f"cleanup.policy is {topic.cleanup_policy}",
                f"Kafka deletes {_NEEDED[topic.role]} that are still needed, as soon as they are old enough.",
                "Set cleanup.policy=compact on the topic; workers refuse to start without it.",
            )
        if topic.role == "config" and topic.partitions != 1:
            yield Finding(
                "internal_topic_partitions",
                Severity.ERROR,
                subject,
                f"It has {plural(topic.partitions, 'partition')} and must have exactly one",
                "Its records have no order: task configs are applied before or without what belongs to them.",
                "Move to a new topic with one partition (export, new config.storage.topic, import).",
            )
        wanted = min(3, cluster.brokers)
        if topic.replicas < wanted or topic.replicas == 1:
            alone = cluster.brokers == 1
            yield Finding(
                "internal_topic_replication",
                Severity.NOTE if alone else Severity.WARNING,
                subject,
                f"{plural(topic.replicas, 'replica')} on {plural(cluster.brokers, 'broker')}",
                f"The loss of one broker's disk takes {_NEEDED[topic.role]} with it.",
                f"Use at least three brokers and {topic.role}.storage.replication.factor=3."
                if alone
                else f"Add replicas up to {wanted} (kafka-reassign-partitions).",
            )


def transactions(cluster: ClusterInventory) -> Iterator[Finding]:
    """Transactions that stay open, and partitions blocked without an open transaction."""
    held: set[str] = set()
    for one in cluster.transactions:
        held.update(one.partitions)
        if one.age_ms > min(one.timeout_ms, _LONG_MS):
            over = one.age_ms > one.timeout_ms + _LONG_MS
            yield Finding(
                "hanging_transaction" if over else "open_transaction",
                Severity.ERROR if over else Severity.WARNING,
                one.transactional_id,
                f"Open for {duration(one.age_ms)} (its timeout is {duration(one.timeout_ms)})"
                f" on {listing(list(one.partitions[:5]))}",
                "Readers with read_committed, such as sinks, see no record after it.",
                "Restart the task that owns it; if it stays, abort it with kafka-transactions.sh.",
            )
    for topic in cluster.topics.values():
        stuck = [f"{topic.name}-{partition}" for partition in topic.unstable]
        stuck = [partition for partition in stuck if partition not in held]
        if stuck:
            yield Finding(
                "hanging_transaction",
                Severity.ERROR,
                topic.name,
                f"The last stable offset of {listing(stuck[:5])} stands still, and no transaction that may be seen is "
                "open there",
                "Readers with read_committed and compaction stop there forever, unless it belongs to a "
                "transactional id that this login may not describe.",
                "Find it with kafka-transactions.sh find-hanging, and abort it.",
            )


def settings(cluster: ClusterInventory) -> Iterator[Finding]:
    """Worker settings that are known to bite, as far as they are known."""
    if cluster.protocol == "default" or cluster.settings.get(WorkerKeys.connect_protocol.name) == "eager":
        yield Finding(
            "eager_protocol",
            Severity.WARNING,
            WorkerKeys.connect_protocol.name,
            f"The group {cluster.group_id} uses the eager protocol",
            "Every rebalance stops all connectors and tasks; requests between workers are not signed.",
            "Set connect.protocol=sessioned on every worker: one eager worker holds all others back.",
        )
    elif cluster.protocol == "compatible":
        yield Finding(
            "unsigned_requests",
            Severity.WARNING,
            WorkerKeys.connect_protocol.name,
            f"The group {cluster.group_id} uses the protocol compatible",
            "Any client that reaches a worker's REST can write task configs: requests between workers are not signed.",
            "Set connect.protocol=sessioned on every worker.",
        )
    yield from _delay(cluster.delay_ms)
    yield from _timeouts(cluster.settings)
    if cluster.settings.get(WorkerKeys.connector_client_config_override_policy.name) == "All":
        yield Finding(
            "override_policy_all",
            Severity.NOTE,
            WorkerKeys.connector_client_config_override_policy.name,
            "It is All",
            "Any user who may create a connector may point its clients at other brokers and use the worker's files.",
            "Use Allowlist, Principal or None where not everybody is trusted.",
        )


def _delay(delay_ms: int | None) -> Iterator[Finding]:
    subject = WorkerKeys.scheduled_rebalance_max_delay_ms.name
    if delay_ms == 0:
        yield Finding(
            "delay_zero",
            Severity.NOTE,
            subject,
            "It is 0",
            "Each restart of a worker moves all of its work twice.",
            "Set it to a little more than a restart takes.",
        )
    elif delay_ms is not None and delay_ms >= WorkerKeys.scheduled_rebalance_max_delay_ms.default:
        yield Finding(
            "delay_long",
            Severity.NOTE,
            subject,
            f"It is {duration(delay_ms)}",
            "The work of a dead worker does not run for that long, while its status is RUNNING.",
            "Set it to a little more than a restart takes.",
        )


def _timeouts(known: Mapping[str, str]) -> Iterator[Finding]:
    session = _number(known, WorkerKeys.session_timeout_ms.name)
    heartbeat = _number(known, WorkerKeys.heartbeat_interval_ms.name)
    if session is not None and heartbeat is not None and session < 3 * heartbeat:
        yield Finding(
            "session_timeout",
            Severity.WARNING,
            WorkerKeys.session_timeout_ms.name,
            f"It is {duration(session)}, heartbeat.interval.ms is {duration(heartbeat)}",
            "One or two late heartbeats throw a healthy worker out of the group.",
            "Let three heartbeats fit into a session.",
        )
    if session is not None and session > _LONG_MS:
        yield Finding(
            "session_timeout",
            Severity.WARNING,
            WorkerKeys.session_timeout_ms.name,
            f"It is {duration(session)}",
            "A dead worker is not noticed for that long; the delay of the rebalance comes on top.",
            "10 to 45 s suit most networks.",
        )
    flush = _number(known, WorkerKeys.offset_flush_interval_ms.name)
    support = known.get(WorkerKeys.exactly_once_source_support.name, "").lower()
    if flush is not None and flush >= _LONG_MS and support != "enabled":
        yield Finding(
            "flush_interval",
            Severity.NOTE,
            WorkerKeys.offset_flush_interval_ms.name,
            f"It is {duration(flush)}, and exactly.once.source.support is not enabled",
            f"After a crash, up to {duration(flush)} of rows come again.",
            "Shorten it to what your targets bear as repeated, or enable exactly-once sources.",
        )
    if support == "preparing":
        yield Finding(
            "exactly_once_preparing",
            Severity.NOTE,
            WorkerKeys.exactly_once_source_support.name,
            "It is preparing",
            "Sources are not exactly-once yet: preparing is only the first of two rolling restarts.",
            "Restart all workers with enabled (KIP-618).",
        )


def _number(known: Mapping[str, str], key: str) -> int | None:
    return whole_number(known.get(key, ""))


SURROUNDINGS_RULES = (internal_topics, transactions, settings)
