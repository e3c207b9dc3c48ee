"""Each finding of an audit, made to happen by an inventory; without its cause the inventory has no finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from connectx.plugins.registry import Plugins
from connectx.verify.audit.findings import Severity
from connectx.verify.audit.gather import is_disputed
from connectx.verify.audit.inventory import (
    AuditedConnector,
    AuditedTask,
    AuditedTopic,
    AuditedTransaction,
    AuditedWorker,
    ClusterInventory,
)
from connectx.verify.audit.rules import judge
from tests.support.profiles import dotted

PLUGINS = Plugins()
A, B = "a:8083", "b:8083"
SOURCE, SINK = "org.apache.kafka.connect.file.FileStreamSourceConnector", "FileStreamSink"


def source(name: str = "in", tasks: int = 1, state: str = "RUNNING", /, **config: str) -> AuditedConnector:
    given = {"connector.class": SOURCE, "file": f"/data/{name}.txt", "topic": f"t-{name}", **dotted(config)}
    return connector(name, "source", given, tasks, state)


def sink(name: str = "out", tasks: int = 1, state: str = "RUNNING", **config: str) -> AuditedConnector:
    topics = {} if "topics_regex" in config else {"topics": f"t-{name}"}
    given = {"connector.class": SINK, "file": f"/data/{name}.out", **topics, **dotted(config)}
    return connector(name, "sink", given, tasks, state)


def mirror(name: str) -> AuditedConnector:
    """MirrorMaker 2: its topics are patterns, and those of another Kafka."""
    given = {"connector.class": "MirrorSourceConnector", "topics": "orders.*"}
    return connector(name, "source", given, 1, "RUNNING")


def routed(name: str, **config: str) -> AuditedConnector:
    """Its records go to the topics that a transformation names."""
    router = "org.apache.kafka.connect.transforms.RegexRouter"
    return source(name, transforms="r", transforms_r_type=router, **config)


def connector(name: str, kind: str, config: dict[str, str], tasks: int, state: str) -> AuditedConnector:
    reported = tuple(AuditedTask(number, "RUNNING", A) for number in range(tasks))
    cls = PLUGINS.find_connector(config["connector.class"])
    return AuditedConnector(name, kind, config, state, A, tasks, reported, cls=cls)


def topics(*names: str, partitions: int = 4) -> dict[str, AuditedTopic]:
    return {name: AuditedTopic(name, partitions) for name in names}


def healthy(*connectors: AuditedConnector, **changes: Any) -> ClusterInventory:
    """A cluster of two workers in which nothing is wrong."""
    mine = connectors or (source(), sink())
    tasks = tuple(f"{c.name}-{t.number}" for c in mine for t in c.tasks)
    workers = (
        AuditedWorker(A, True, 7, 20, tuple(c.name for c in mine), tasks, {SOURCE: "4.3.0"}),
        AuditedWorker(B, True, 7, 20, (), (), {SOURCE: "4.3.0"}),
    )
    named = topics(*{topic for c in mine for topic in c.topics})
    inventory = ClusterInventory(
        "one", 1_000_000, "kafka-1", "g", "sessioned", delay_ms=10_000, connectors=mine, workers=workers,
        topics=named, topics_known=True, brokers=3,
    )  # fmt: skip
    return replace(inventory, **changes)


def with_task(task: AuditedTask, **changes: Any) -> ClusterInventory:
    return healthy(replace(source(), tasks=(task,), **changes))


def with_workers(*workers: AuditedWorker, **changes: Any) -> ClusterInventory:
    return healthy(workers=workers, **changes)


def internal(role: str = "config", **changes: Any) -> ClusterInventory:
    one = AuditedTopic("g-topic", 1, 3, "compact", role)
    return healthy(topics={**healthy().topics, "g-topic": replace(one, **changes)})


def known(**settings: str) -> ClusterInventory:
    return healthy(settings=dotted(settings))


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    audit = judge([healthy(), healthy(source("in2"), sink("out2"), name="two", group_id="h")])
    assert [str(finding) for finding in audit] == []
    assert repr(audit) == "Audit of one, two: nothing found"


CASES: dict[str, tuple[Severity, ClusterInventory]] = {
    "claimed_twice": (
        Severity.ERROR,
        with_workers(AuditedWorker(A, True, 7, 20, (), ("in-0",)), AuditedWorker(B, True, 7, 20, (), ("in-0",))),
    ),
    "old_generation": (
        Severity.ERROR,
        with_workers(AuditedWorker(A, True, 6, 20, (), ("in-0",)), AuditedWorker(B, True, 7, 20)),
    ),
    "failed_task": (Severity.ERROR, with_task(AuditedTask(0, "FAILED", A, "OSError: disk"))),
    "failed_connector": (Severity.ERROR, healthy(replace(source(), state="FAILED", why="no such file"))),
    "unassigned": (Severity.ERROR, with_task(AuditedTask(0, "UNASSIGNED", A, since_ms=980_000))),
    "never_started": (Severity.WARNING, healthy(replace(source(), configured_tasks=2))),
    "lagging_worker": (Severity.WARNING, with_workers(AuditedWorker(A, True, 7, 20), AuditedWorker(B, True, 7, 15))),
    "status_contradicts_group": (Severity.WARNING, with_task(AuditedTask(0, "RUNNING", "gone:8083"))),
    "tasks_max_unused": (Severity.NOTE, healthy(source(tasks_max="4"))),
    "sink_tasks_above_partitions": (Severity.WARNING, healthy(sink(tasks=5))),
    "topic_missing": (Severity.WARNING, healthy(source(), topics={})),
    "key_misspelled": (
        Severity.WARNING,
        healthy(source(bacth_size="5"), keys={SOURCE: ("connector.class", "file", "topic", "batch.size")}),
    ),
    "plugin_versions_differ": (
        Severity.WARNING,
        with_workers(
            AuditedWorker(A, True, 7, 20, ("in", "out"), ("in-0", "out-0"), {SOURCE: "4.3.0"}),
            AuditedWorker(B, True, 7, 20, plugins={SOURCE: "4.2.1"}),
        ),
    ),
    "plugin_on_some_workers": (
        Severity.NOTE,
        with_workers(
            AuditedWorker(A, True, 7, 20, ("in", "out"), ("in-0", "out-0"), {SOURCE: "4.3.0", "org.acme.Ticks": "1.0"}),
            AuditedWorker(B, True, 7, 20, plugins={SOURCE: "4.3.0"}),
        ),
    ),
    "class_unknown": (
        Severity.WARNING,
        with_workers(
            AuditedWorker(A, True, 7, 20, ("in", "out"), ("in-0", "out-0"), {SOURCE: "4.3.0"}),
            AuditedWorker(B, True, 7, 20, plugins={SOURCE: "4.3.0"}, lacks=(SINK,)),
        ),
    ),
    "internal_topic_cleanup": (Severity.ERROR, internal(cleanup_policy="delete")),
    "internal_topic_partitions": (Severity.ERROR, internal(partitions=3)),
    "internal_topic_replication": (Severity.WARNING, internal(replicas=1)),
    "open_transaction": (
        Severity.WARNING,
        healthy(transactions=(AuditedTransaction("g-in-0", 70_000, 900_000, ("t-in-0",)),)),
    ),
    "hanging_transaction": (
        Severity.ERROR,
        healthy(topics={**healthy().topics, "t-in": AuditedTopic("t-in", 4, unstable=(2,))}),
    ),
    "eager_protocol": (Severity.WARNING, healthy(protocol="default")),
    "unsigned_requests": (Severity.WARNING, healthy(protocol="compatible")),
    "delay_zero": (Severity.NOTE, healthy(delay_ms=0)),
    "delay_long": (Severity.NOTE, healthy(delay_ms=300_000)),
    "session_timeout": (Severity.WARNING, known(session_timeout_ms="5000", heartbeat_interval_ms="3000")),
    "flush_interval": (Severity.NOTE, known(offset_flush_interval_ms="60000")),
    "exactly_once_preparing": (Severity.NOTE, known(exactly_once_source_support="preparing")),
    "override_policy_all": (Severity.NOTE, known(connector_client_config_override_policy="All")),
    "same_source": (Severity.ERROR, healthy(source("in"), source("again", file="/data/../data/in.txt", topic=""))),
    "same_target": (Severity.ERROR, healthy(sink("x", file="/o", topics="t"), sink("y", file="/o", topics="t"))),
    "same_topic_written": (Severity.NOTE, healthy(source("x", topic="t"), source("y", topic="t"))),
    "topics_overlap": (
        Severity.WARNING,
        healthy(sink("x", topics="orders"), sink("y", topics_regex="ord.*"), topics=topics("orders")),
    ),
    "dead_letters_read": (
        Severity.WARNING,
        healthy(sink("x", topics_regex="t.*", errors_deadletterqueue_topic_name="t-dead"), topics=topics("t-x")),
    ),
    "same_consumer_group": (
        Severity.ERROR,
        healthy(sink("x", consumer_override_group_id="both"), sink("y", consumer_override_group_id="both")),
    ),
    "sink_in_worker_group": (Severity.ERROR, healthy(sink("x", consumer_override_group_id="g"))),
}  # fmt: skip


@pytest.mark.parametrize("code", CASES)
def test_the_finding_is_made_and_nothing_else(code: str) -> None:
    severity, inventory = CASES[code]
    audit = judge([inventory])
    assert [(finding.code, finding.severity) for finding in audit if finding.code == code] == [(code, severity)]
    beside = {"status_contradicts_group"} if code in ("claimed_twice", "old_generation", "lagging_worker") else set()
    assert {finding.code for finding in audit} - beside == {code}
    (finding, *_) = audit.of(code)
    assert all((finding.subject, finding.evidence, finding.consequence, finding.remedy, finding.cluster == "one"))


def test_every_code_is_made_to_happen() -> None:
    import inspect
    import re

    from connectx.verify.audit import assignments as work
    from connectx.verify.audit import foundations as environment
    from connectx.verify.audit import overlaps

    text = "".join(inspect.getsource(module) for module in (overlaps, environment, work))
    over_clusters = {"internal_topics_shared", "same_transactional_id"}
    codes = set(re.findall(r'(?:Finding|_finding)\(\s*"(\w+)"', text)) | {"hanging_transaction", "open_transaction"}
    assert codes == set(CASES) | over_clusters


def codes(*clusters: ClusterInventory) -> set[str]:
    return {finding.code for finding in judge(clusters)}


def other(*connectors: AuditedConnector, **changes: Any) -> ClusterInventory:
    return healthy(*connectors, **{"name": "two", "group_id": "h", "kafka_id": "kafka-2", **changes})


def test_a_source_that_two_clusters_read_is_found_on_any_kafka() -> None:
    (finding,) = judge([healthy(source()), other(source())])
    assert (finding.code, finding.subject, finding.cluster) == ("same_source", "in (one) and in (two)", "one, two")


SLOT = {"connector_class": "PostgresCdcSource", "database_hostname": "db", "database_dbname": "shop", "slot_name": "s"}


@pytest.mark.parametrize(
    ("one", "again", "severity"),
    [
        (source("a", file="/x"), source("b", file="/x"), Severity.WARNING),
        (source("a", file="/x", topic="t"), source("b", file="/x", topic="t"), Severity.ERROR),
        (source("a", file="/x"), source("b", file="/x", topic=""), Severity.ERROR),
        (source("a", **SLOT), source("b", **SLOT), Severity.ERROR),
    ],
)
def test_one_source_into_topics_that_differ_is_a_warning_and_any_other_an_error(
    one: AuditedConnector, again: AuditedConnector, severity: Severity
) -> None:
    assert {finding.severity for finding in judge([healthy(one, again)]).of("same_source")} == {severity}


def test_tasks_of_which_none_has_a_status_are_found() -> None:
    assert codes(healthy(replace(source(), configured_tasks=1, tasks=()))) == {"never_started"}


def test_sinks_of_one_name_share_a_group_only_within_one_kafka() -> None:
    mine, theirs = sink("out", file="/a"), sink("out", file="/b")
    assert codes(healthy(mine), other(theirs, kafka_id="kafka-1")) == {"same_consumer_group"}
    assert codes(healthy(mine), other(theirs)) == set()


def test_groups_and_names_that_run_together_have_the_same_transactional_id() -> None:
    mine, theirs = source("b-c"), source("c", file="/x", topic="t2")
    assert codes(healthy(mine, group_id="a"), other(theirs, group_id="a-b", kafka_id="kafka-1")) == {
        "same_transactional_id"
    }
    assert codes(healthy(mine, group_id="a"), other(theirs, group_id="a-b")) == set()


def test_groups_that_share_an_internal_topic_are_found_within_one_kafka() -> None:
    shared = {"cfg": AuditedTopic("cfg", 1, 3, "compact", "config")}
    one, two = (
        healthy(source("x"), topics={**topics("t-x"), **shared}),
        other(source("y"), topics={**topics("t-y"), **shared}),
    )
    (both,) = judge([one, replace(two, kafka_id="kafka-1")])
    assert (both.code, both.consequence.startswith("Both run every connector")) == ("internal_topics_shared", True)
    assert codes(one, two) == set()


def test_a_cluster_that_is_given_twice_counts_once() -> None:
    assert judge([healthy(), healthy(name="the same")]).clusters == ("one",)


def test_what_is_stopped_gets_in_nobodys_way() -> None:
    assert "same_source" not in codes(healthy(source("in"), source("b", 1, "STOPPED", file="/data/in.txt")))


@pytest.mark.parametrize(
    ("inventory", "absent"),
    [
        (with_task(AuditedTask(0, "UNASSIGNED", A, since_ms=995_000)), "unassigned"),
        (
            healthy(is_settled=False, connectors=CASES["status_contradicts_group"][1].connectors),
            "status_contradicts_group",
        ),
        (healthy(transactions=(AuditedTransaction("x", 5_000, 60_000, ("t-in-0",)),)), "open_transaction"),
        (known(offset_flush_interval_ms="60000", exactly_once_source_support="enabled"), "flush_interval"),
        (healthy(source(topic_creation_default_partitions="1"), topics={}), "topic_missing"),
        (healthy(sink("x", topics="a"), sink("y", topics="a", connector_class="Other")), "topics_overlap"),
        (internal(role="offset", partitions=25), "internal_topic_partitions"),
        (healthy(source(tasks_max="${env:TASKS}")), "tasks_max_unused"),
        (healthy(source(bacth_size="5")), "key_misspelled"),
        (healthy(source(batch_size="5", bacth_size="5"), keys={SOURCE: ("batch.size",)}), "key_misspelled"),
        (healthy(source(transforms_a_type="X"), keys={SOURCE: ("transforms", "batch.size")}), "key_misspelled"),
        (healthy(mirror("all"), topics={}), "topic_missing"),
        (healthy(mirror("one"), mirror("two")), "same_topic_written"),
        (healthy(routed("x"), topics={}), "topic_missing"),
        (healthy(routed("x", topic="t"), routed("y", topic="t")), "same_topic_written"),
    ],
)
def test_what_looks_like_it_and_is_not(inventory: ClusterInventory, absent: str) -> None:
    assert absent not in codes(inventory)


def test_a_partition_that_an_open_transaction_holds_does_not_hang() -> None:
    held = healthy(
        topics={**healthy().topics, "t-in": AuditedTopic("t-in", 4, unstable=(2,))},
        transactions=(AuditedTransaction("g-in-0", 1_000, 60_000, ("t-in-2",)),),
    )
    assert codes(held) == set()
    (beyond,) = judge([replace(held, transactions=(AuditedTransaction("g-in-0", 300_000, 60_000, ("t-in-2",)),))])
    assert (beyond.code, beyond.severity) == ("hanging_transaction", Severity.ERROR)


def test_a_worker_that_the_group_has_left_out_and_that_runs_on_is_a_zombie() -> None:
    inventory = with_workers(AuditedWorker(A, False, None, None, (), ("in-0",)), AuditedWorker(B, True))
    (finding,) = judge([inventory]).of("old_generation")
    assert finding.evidence == "It runs in-0 and is no member of the group"


def test_a_connector_that_is_called_like_anothers_task_is_not_claimed_twice() -> None:
    workers = AuditedWorker(A, True, 7, 20, ("in-0",)), AuditedWorker(B, True, 7, 20, (), ("in-0",))
    assert not judge([with_workers(*workers)]).of("claimed_twice")


def test_a_class_that_nobody_knows_is_an_error() -> None:
    workers = [AuditedWorker(w, True, 7, 20, plugins={}, lacks=(SINK,)) for w in (A, B)]
    assert judge([with_workers(*workers)]).of("class_unknown")[0].severity is Severity.ERROR


def test_workers_of_connectx_and_of_java_need_not_have_the_same_classes() -> None:
    workers = [
        AuditedWorker(A, True, 7, 20, ("in", "out"), ("in-0", "out-0"), {SOURCE: "4.3.0", "connectx.x.Y": ""}),
        AuditedWorker(B, True, 7, 20, plugins={SOURCE: "4.3.0", "org.acme.Ticks": "1.0"}),
    ]
    assert codes(with_workers(*workers)) == set()


def test_workers_that_have_read_up_to_different_offsets_just_now_are_asked_again() -> None:
    assert is_disputed([AuditedWorker(A, True, 7, 20), AuditedWorker(B, True, 7, 19)])
    assert not is_disputed([AuditedWorker(A, True, 7, 20), AuditedWorker(B, True, 7, 20)])


def test_members_that_had_read_less_when_they_joined_have_caught_up_since() -> None:
    workers = (AuditedWorker(A, True, None, 20, as_of_join=True), AuditedWorker(B, True, None, 15, as_of_join=True))
    assert not judge([with_workers(*workers)]).of("lagging_worker")
    lost = (AuditedWorker(A, True, None, 20, as_of_join=True, mismatch=True),)
    assert judge([with_workers(*lost)]).of("lagging_worker")[0].severity is Severity.WARNING


@pytest.mark.parametrize("form", [repr, lambda audit: audit._repr_html_(), lambda audit: audit.to_pandas().to_string()])
def test_every_form_has_what_was_found(form: Callable[[Any], str]) -> None:
    text = form(judge([healthy(source(), source("again", file="/data/in.txt"), unseen=("the moon",))]))
    assert "same_source" in text
    assert "in and again" in text or "again and in" in text


def test_what_was_not_looked_at_is_said() -> None:
    assert "not inspected: the moon" in repr(judge([healthy(unseen=("the moon",))]))
