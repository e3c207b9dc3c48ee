"""Audits of groups that are set up badly: two that tangle on one Kafka, and one whose workers are not alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

import connectx as cx
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.source_offsets import SourceOffset
from connectx.plugins.contexts import ConnectorContext, SourceTaskContext
from connectx.verify.audit.findings import Audit
from tests.support.profiles import STRINGS, dotted
from tests.support.topics import create_topic
from tests.support.transactions import leave_hanging
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Start = Callable[..., cx.Cluster]


@pytest.fixture
def start(kafka: EmbeddedKafka, spark: SparkSession) -> Iterator[Start]:
    """`start(group_id, topics, join=False, **settings)`: one worker; `topics` begins its internal topics."""
    with ExitStack() as endings:

        def make(group_id: str, topics: str, *, join: bool = False, **settings: str) -> cx.Cluster:
            config = {"group.id": group_id, "value.converter": STRINGS}
            for store in ("config", "offset", "status"):
                config[f"{store}.storage.topic"] = f"{topics}-{store}"
                config[f"{store}.storage.replication.factor"] = "1"
            config |= dotted(settings)
            made = cx.Cluster(1, config=config, bootstrap_servers=kafka.bootstrap_servers, spark=spark, join=join)
            return endings.enter_context(made)

        yield make


def until_found(audit: Callable[[], Audit], expected: Mapping[str, list[str]]) -> Audit:
    """An audit as soon as it has, of each of these codes, these subjects and no other."""
    seen: dict[str, list[str]] = {}

    def found() -> Audit | None:
        now = audit()
        seen.update({code: sorted(finding.subject for finding in now.of(code)) for code in expected})
        return now if seen == expected else None

    try:
        return until(found, "the findings", WAIT_S)
    except AssertionError:
        assert seen == expected
        raise


@pytest.fixture
def tangle(kafka: EmbeddedKafka) -> Iterator[AdminClient]:
    """Topics tangle-rows and tangle-dead; they are gone after the test."""
    admin, names = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), ["tangle-rows", "tangle-dead"]
    for name in names:
        create_topic(kafka.bootstrap_servers, name, 2)
    yield admin
    for gone in admin.delete_topics(names).values():
        gone.result(30)


def spoil(admin: AdminClient, config_topic: str) -> None:
    """What somebody does to a config topic who does not know its rules."""
    policy = ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
    of_topic = ConfigResource(ResourceType.TOPIC, config_topic, incremental_configs=[policy])
    admin.incremental_alter_configs([of_topic])[of_topic].result(30)
    admin.create_partitions([NewPartitions(config_topic, 2)])[config_topic].result(30)


BOTH = "{0} (connect) and {0} (connect-out)"
INTERNAL = [f"tangle-{store} ({store}.storage.topic)" for store in ("config", "offset", "status") for _ in "12"]
TANGLED: Mapping[str, list[str]] = {
    "same_source": [BOTH.format("c"), BOTH.format("out-c")],
    "same_target": [BOTH.format("lost"), BOTH.format("out"), BOTH.format("wide")],
    "same_topic_written": ["c (connect), out-c (connect), c (connect-out) and out-c (connect-out)"],
    "topics_overlap": [
        "out (connect), wide (connect), out (connect-out) and wide (connect-out)",
        BOTH.format("wide"),
    ],
    "dead_letters_read": ["wide", "wide"],
    "same_consumer_group": [BOTH.format("lost"), BOTH.format("out"), BOTH.format("wide")],
    "sink_in_worker_group": ["out"],
    "same_transactional_id": ["out-c (connect) and c (connect-out)"],
    "internal_topics_shared": ["tangle-config, tangle-offset and tangle-status"],
    "topic_missing": ["lost", "lost"],
    "internal_topic_cleanup": INTERNAL[:2],
    "internal_topic_partitions": INTERNAL[:2],
    "internal_topic_replication": INTERNAL,
    "hanging_transaction": ["tangle-rows", "tangle-rows"],
    "unsigned_requests": ["connect.protocol"],
    "eager_protocol": ["connect.protocol"],
    "delay_zero": ["scheduled.rebalance.max.delay.ms"],
    "delay_long": ["scheduled.rebalance.max.delay.ms"],
    "session_timeout": ["session.timeout.ms", "session.timeout.ms"],
    "flush_interval": ["offset.flush.interval.ms", "offset.flush.interval.ms"],
    "exactly_once_preparing": ["exactly.once.source.support"],
    "override_policy_all": ["connector.client.config.override.policy"] * 2,
}


def test_two_groups_with_the_same_internal_topics_and_settings_that_bite(
    kafka: EmbeddedKafka, tangle: AdminClient, start: Start, tmp_path: Path
) -> None:
    one = start("connect", "tangle", connect_protocol="compatible", scheduled_rebalance_max_delay_ms="0",
                session_timeout_ms="5000", heartbeat_interval_ms="2000",
                exactly_once_source_support="preparing")  # fmt: skip
    two = start("connect-out", "tangle", connect_protocol="eager", session_timeout_ms="70000")
    source, sink = {"connector.class": "FileStreamSource"}, {"connector.class": "FileStreamSink"}
    for name, config in {
        "out": {**sink, "topics": "tangle-rows", "errors.deadletterqueue.topic.name": "tangle-dead"},
        "wide": {**sink, "topics.regex": "tangle-(rows|dead)"},
        "lost": {**sink, "topics": "tangle-none"},
        "c": {**source, "topic": "tangle-rows"},
        "out-c": {**source, "topic": "tangle-rows"},
    }.items():
        one.create(name, {**config, "file": str(tmp_path / name)})
    spoil(tangle, "tangle-config")
    leave_hanging(kafka.bootstrap_servers, "tangle-rows", 1)

    audit = until_found(lambda: cx.audit(one, two), TANGLED)
    assert audit.clusters == ("connect", "connect-out")
    assert "tangle-rows-1 stands still" in audit.of("hanging_transaction")[0].evidence
    assert [audit.of(code)[0].cluster for code in ("unsigned_requests", "eager_protocol", "sink_in_worker_group")] == [
        *("connect", "connect-out", "connect-out")
    ]
    assert not audit.of("open_transaction"), "it is no transaction that a coordinator knows"


def release(version: str) -> type[cx.SourceConnector]:
    """A connector as one worker has it installed; each release has the same name."""

    class Ticks(cx.SourceConnector):
        """Its tasks start when they are let go."""

        config = cx.ConfigDef()

        class Task(cx.SourceTask):
            def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
                super().start(config, context)
                LET_GO.wait(WAIT_S)

            def poll(self, spark: SparkSession, offset: SourceOffset | None) -> cx.Slice | None:
                return None

    Ticks.version = version
    return Ticks


def broken() -> type[cx.SourceConnector]:
    """A connector that only one worker has, and that cannot start there."""

    class Broken(cx.SourceConnector):
        config = cx.ConfigDef()

        def start(self, config: Mapping[str, str], context: ConnectorContext) -> None:
            raise OSError("no such host")

    return Broken


LET_GO = threading.Event()


@pytest.fixture
def let_go(start: Start) -> Iterator[threading.Event]:
    """Nothing waits any more when the workers end."""
    LET_GO.clear()
    yield LET_GO
    LET_GO.set()


def test_workers_with_different_classes_then_one_dies_and_its_work_waits(start: Start, let_go: threading.Event) -> None:
    settings = {"session_timeout_ms": "1500", "heartbeat_interval_ms": "500"}  # and the delay is 5 minutes
    ours = start("unlike", "unlike", **settings)
    theirs = start("unlike", "unlike", join=True, **settings)
    theirs.validate({"name": "ticks", "connector.class": release("2")})  # from now on it is known there
    ours.create("broken", {"connector.class": broken()})
    for name in ("ticks-1", "ticks-2"):
        ours.create(name, {"connector.class": release("1")})
    ticks = f"{__name__}.release.<locals>.Ticks"
    audit = until_found(
        ours.audit,
        {
            "failed_connector": ["broken"],
            "never_started": ["ticks-1", "ticks-2"],
            "plugin_versions_differ": [ticks],
            "class_unknown": ["broken"],
        },
    )
    alive, dead = (cluster.workers[0].url.split("/")[2] for cluster in (ours, theirs))
    assert audit.of("class_unknown")[0].evidence == f"{dead} does not know {__name__}.broken.<locals>.Broken"
    assert sorted(audit.of("plugin_versions_differ")[0].evidence.split(", ")) == sorted(
        [f"1 on {alive}", f"2 on {dead}"]
    )

    let_go.set()
    for name in ("ticks-1", "ticks-2"):
        ours.wait(name, "RUNNING", WAIT_S)
    lost = until(lambda: list(theirs.workers[0].tasks), "a task on the worker that is to die", WAIT_S)
    recorded = {f"{store}.storage.topic": f"unlike-{store}" for store in ("config", "offset", "status")}
    recorded["scheduled.rebalance.max.delay.ms"] = "100"  # the file says so; the workers were never restarted with it
    with cx.attach(
        ours.workers[0].url, bootstrap_servers=ours.bootstrap_servers, group_id="unlike", config=recorded, poll_s=0.2
    ) as seen:
        theirs.kill(theirs.workers[0].name)
        audit = until_found(seen.audit, {"unassigned": lost})
    assert lost[0] in {finding.subject for finding in audit.of("status_contradicts_group")}
    assert ours.audit().of("delay_long"), "as they run"
